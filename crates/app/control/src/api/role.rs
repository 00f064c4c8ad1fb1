//! The rights of those who ask: to look, or to change.

use crate::protocol::{Code, Refusal};
use rustix::process::{Uid, geteuid};

/// The rights of who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May do everything.
    Owner,
    /// May look: a user whom the rights of the socket's file let in.
    Looker(Uid),
    /// May look: somebody with the token for that.
    Guest,
}

impl Role {
    /// The role of a user at the control socket: root and the server's own user are its owners.
    pub fn of(user: Uid) -> Role {
        if user.is_root() || user == geteuid() { Role::Owner } else { Role::Looker(user) }
    }

    /// Lets a request pass, which changes something unless its method is GET.
    ///
    /// # Errors
    /// It may not, with what to do.
    pub fn may(self, method: &str) -> Result<(), Refusal> {
        match self {
            Role::Looker(user) if method != "GET" => Err(Refusal::new(
                Code::Forbidden,
                format!(
                    "user {} may look at this server and change nothing; use sudo, or the server's user ({})",
                    user.as_raw(),
                    geteuid().as_raw()
                ),
            )),
            Role::Guest if method != "GET" => Err(Refusal::new(
                Code::Forbidden,
                "who has this token may look at this server and change nothing; the other one is needed (--http-token)",
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_may_change_and_others_look() {
        assert_eq!(Role::of(Uid::ROOT), Role::Owner);
        assert_eq!(Role::of(geteuid()), Role::Owner);
        let other = Role::of(Uid::from_raw(geteuid().as_raw() + 1));
        assert!(other.may("GET").is_ok() && Role::Guest.may("GET").is_ok());
        for method in ["POST", "PUT", "HEAD", "get"] {
            for looker in [other, Role::Guest] {
                assert_eq!(looker.may(method).unwrap_err().code, Code::Forbidden, "{method}");
            }
            assert!(Role::Owner.may(method).is_ok());
        }
    }
}

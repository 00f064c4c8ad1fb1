//! NVMe Qualified Names (Base 2.0, section 4.5).

/// The well-known name of discovery subsystems.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Bytes of the longest name, without the zero byte at its end.
pub const NQN_BYTES_MAX: usize = 223;

/// A text that is no qualified name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no NVMe qualified name: write nqn.YYYY-MM.DOMAIN:NAME or nqn.2014-08.org.nvmexpress:uuid:UUID, at most 223 bytes"
)]
pub struct NqnError(pub String);

/// Checks the form of a name.
///
/// # Errors
/// A name that does not begin with `nqn.`, a year and a month, or is too long.
pub fn check_nqn(name: &str) -> Result<(), NqnError> {
    let refused = || NqnError(name.to_owned());
    let rest = name.strip_prefix("nqn.").filter(|_| name.len() <= NQN_BYTES_MAX);
    let (date, domain) = rest.and_then(|rest| rest.split_once('.')).ok_or_else(refused)?;
    let (year, month) = date.split_once('-').ok_or_else(refused)?;
    let number =
        |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = !domain.is_empty() && domain.chars().all(|c| !c.is_control());
    if number(year, 4) && number(month, 2) && plain { Ok(()) } else { Err(refused()) }
}

/// The name of a subsystem that has a UUID.
#[must_use]
pub fn nqn_of_uuid(uuid: &[u8; 16]) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid::Uuid::from_bytes(*uuid).hyphenated())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_date_and_a_domain() {
        for good in [DISCOVERY_NQN, &nqn_of_uuid(&[7; 16]), "nqn.2026-01.org.example:host1"] {
            assert_eq!(check_nqn(good), Ok(()));
        }
        let long = format!("nqn.2026-01.org.example:{}", "x".repeat(200));
        for wrong in ["", "nqn.", "nqn.2026-01", "nqn.26-01.a", "iqn.2026-01.a:b", &long] {
            assert!(check_nqn(wrong).is_err(), "{wrong}");
        }
    }
}

//! Sockets for virtual machines, and what their front ends may use together.

use braid_export::socket_file::Rights;
use braid_vhost::Limits;
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// Where one array is a disk of virtual machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostPlace {
    /// The array; the only one that there is, without a name.
    pub array: Option<String>,
    /// The socket.
    pub path: PathBuf,
}

impl FromStr for VhostPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<VhostPlace, String> {
        let (array, path) = match text.split_once('=') {
            // A path may have such a sign in it, a name has no slash.
            Some((array, path)) if !array.contains('/') => (Some(array.to_string()), path),
            _ => (None, text),
        };
        if path.is_empty() || array.as_ref().is_some_and(String::is_empty) {
            return Err("write PATH, or NAME=PATH for one of several arrays".into());
        }
        let path = PathBuf::from(path);
        // Anything that `detail` shows is of use anywhere.
        Ok(VhostPlace { array, path: std::path::absolute(&path).unwrap_or(path) })
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Args)]
pub struct Vhost {
    /// Offer an array to virtual machines as a vhost-user-blk disk, at the unix socket PATH: one array for each socket,
    /// NAME=PATH where there are several. May be given several times. QEMU, cloud-hypervisor and User Mode Linux connect
    /// to it.
    #[arg(long, value_name = "[NAME=]PATH")]
    pub vhost_user: Vec<VhostPlace>,
    /// Front ends of virtual machines at a time, for each socket; further ones are turned away.
    #[arg(long, value_name = "N", default_value_t = 16, requires = "vhost_user",
        value_parser = clap::value_parser!(u32).range(1..=65536))]
    vhost_user_connections: u32,
    /// Memory for the payloads of each socket's front ends together, at least 32M for each shard.
    #[arg(long, value_name = "SIZE", default_value = "256M", requires = "vhost_user",
        value_parser = memory)]
    vhost_user_memory: u64,
    /// Permissions of these sockets, in octal, whatever the umask: 660 lets the group in, such as that of a hypervisor's
    /// user.
    #[arg(long, value_name = "MODE", default_value = "600", requires = "vhost_user",
        value_parser = super::nbd::mode)]
    vhost_user_mode: u32,
    /// The group, by name or number, that these sockets belong to: with --vhost-user-mode 660 its users may connect.
    #[arg(long, value_name = "GROUP", requires = "vhost_user", value_parser = super::nbd::group)]
    vhost_user_group: Option<u32>,
}

impl Vhost {
    /// The server's form of the limits.
    pub fn limits(&self) -> Limits {
        Limits {
            connections: self.vhost_user_connections as usize,
            memory: self.vhost_user_memory,
            socket: Rights { mode: self.vhost_user_mode, group: self.vhost_user_group },
        }
    }
}

fn memory(text: &str) -> Result<u64, String> {
    braid_device::spec::parse_size(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_before_paths() {
        let place = |text: &str| text.parse::<VhostPlace>();
        let of = |array: Option<&str>, path: &str| {
            Ok(VhostPlace { array: array.map(str::to_string), path: path.into() })
        };
        assert_eq!(place("/run/a.sock"), of(None, "/run/a.sock"));
        assert_eq!(place("data=/run/a.sock"), of(Some("data"), "/run/a.sock"));
        assert_eq!(place("/run/x=y"), of(None, "/run/x=y"));
        for wrong in ["", "data=", "=/run/a"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}

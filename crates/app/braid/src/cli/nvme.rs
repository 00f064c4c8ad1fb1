//! Addresses for NVMe hosts, who may connect, what they must prove, and what they may use together.

use anyhow::{Context, Result, bail};
use braid_nvme::protocol::{Secret, check_nqn};
use braid_nvme::{Address, AddressError, HostSecrets, Limits, MEMORY_MIN};
use clap::Args;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// See the module's documentation.
#[derive(Clone, Debug, Args)]
pub struct Nvme {
    /// Where NVMe hosts connect: tcp:ADDR:PORT, such as tcp:0.0.0.0:4420. May be given several times. Each array is a
    /// subsystem with one namespace; its name is nqn.2014-08.org.nvmexpress:uuid:UUID with the UUID of the array, so that it
    /// stays the same after a restart and on another server. `nvme discover` lists the names, `detail` shows them.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub nvme: Vec<Address>,
    /// A host that may connect, by its NQN (/etc/nvme/hostnqn there). May be given several times; without it, and without
    /// --nvme-secret, every host may.
    #[arg(long, value_name = "HOSTNQN", requires = "nvme", value_parser = host)]
    nvme_allow: Vec<String>,
    /// A host that may connect when it proves its name (DH-HMAC-CHAP), and the file with its secret, as `nvme
    /// gen-dhchap-key` writes one. Nobody else may read the file. May be given several times.
    #[arg(long, value_name = "HOSTNQN=FILE", requires = "nvme", value_parser = host_file)]
    nvme_secret: Vec<(String, PathBuf)>,
    /// The file with the secret by which this server proves itself to a host that wants it (there: nvme connect
    /// --dhchap-ctrl-secret). The host has a secret of its own. May be given several times.
    #[arg(long, value_name = "HOSTNQN=FILE", requires = "nvme_secret", value_parser = host_file)]
    nvme_controller_secret: Vec<(String, PathBuf)>,
    /// NVMe controllers at a time: a host has one for each array that it connects to, with up to 17 connections, each of
    /// which takes two open files. Further hosts are refused.
    #[arg(long, value_name = "N", default_value_t = 256, requires = "nvme",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    nvme_connections: u32,
    /// Memory for the payloads of all NVMe hosts together, at least 64M.
    #[arg(long, value_name = "SIZE", default_value = "256M", requires = "nvme", value_parser = memory)]
    nvme_memory: u64,
}

impl Nvme {
    /// The server's form of the limits.
    ///
    /// # Errors
    /// A file of a secret that cannot be read, may be read by others, or has none; a host with two secrets, or with the
    /// server's alone.
    pub fn limits(&self) -> Result<Limits> {
        let mut limits = Limits {
            controllers: self.nvme_connections as usize,
            memory: self.nvme_memory,
            hosts: self.nvme_allow.clone(),
            ..Limits::default()
        };
        for (host, path) in &self.nvme_secret {
            let secrets = HostSecrets { host: secret("--nvme-secret", path)?, controller: None };
            if limits.secrets.insert(host.clone(), secrets).is_some() {
                bail!("--nvme-secret {host}: it is given twice; give it once");
            }
        }
        for (host, path) in &self.nvme_controller_secret {
            let ours = secret("--nvme-controller-secret", path)?;
            let Some(secrets) = limits.secrets.get_mut(host) else {
                bail!(
                    "--nvme-controller-secret {host}: that host has no secret of its own; give it one: --nvme-secret"
                );
            };
            if secrets.host == ours {
                bail!(
                    "--nvme-controller-secret {host}: it is the host's own secret; make another: nvme gen-dhchap-key"
                );
            }
            if secrets.controller.replace(ours).is_some() {
                bail!("--nvme-controller-secret {host}: it is given twice; give it once");
            }
        }
        Ok(limits)
    }
}

/// The secret in a file, which nobody else may read.
fn secret(option: &str, path: &Path) -> Result<Secret> {
    let doing = || format!("{option}: reading the secret in {}", path.display());
    let mode = std::fs::metadata(path).with_context(doing)?.permissions().mode();
    if mode & 0o077 != 0 {
        bail!(
            "{}: others may read it too (mode {:o}); make a new secret, with chmod 600 before it is written",
            doing(),
            mode & 0o777
        );
    }
    let text = std::fs::read_to_string(path).with_context(doing)?;
    text.trim().parse().with_context(doing)
}

fn host_file(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').filter(|(_, path)| !path.is_empty()).ok_or(
        "write HOSTNQN=FILE: the secret stands in a file, so that nobody sees it in a list of processes",
    )?;
    Ok((host(name)?, path.into()))
}

fn address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|error| match error {
        AddressError::Form(text) => {
            format!(
                "{text:?} is no address for NVMe: write tcp:HOST:PORT, such as tcp:0.0.0.0:4420"
            )
        }
        error => error.to_string(),
    })
}

fn host(text: &str) -> Result<String, String> {
    check_nqn(text).map(|()| text.to_owned()).map_err(|error| error.to_string())
}

fn memory(text: &str) -> Result<u64, String> {
    let bytes = braid_device::spec::parse_size(text).map_err(|error| error.to_string())?;
    if bytes < MEMORY_MIN {
        return Err("at least 64M: one request may have 1M, and many are under way".into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2026-01.org.example:a";
    const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n";
    const OTHER: &str = "DHHC-1:01:DrOPCIt0+rZVVVEiGr49uy85owt/39ht6w2oEHJAqR048a8l:\n";

    fn options(secrets: Vec<PathBuf>, ours: Vec<(String, PathBuf)>) -> Nvme {
        Nvme {
            nvme: Vec::new(),
            nvme_allow: Vec::new(),
            nvme_secret: secrets.into_iter().map(|path| (HOST.to_owned(), path)).collect(),
            nvme_controller_secret: ours,
            nvme_connections: 1,
            nvme_memory: MEMORY_MIN,
        }
    }

    #[test]
    fn secrets_are_read_from_files_that_nobody_else_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let (host, ours) = (file("host", SECRET, 0o600), file("ours", OTHER, 0o400));
        let of = |path: &PathBuf| vec![(HOST.to_owned(), path.clone())];
        let limits = options(vec![host.clone()], of(&ours)).limits().unwrap();
        assert_eq!(limits.secrets[HOST].host, SECRET.trim().parse().unwrap());
        assert_eq!(limits.secrets[HOST].controller, Some(OTHER.trim().parse().unwrap()));
        let open = file("open", SECRET, 0o640);
        let wrong = file("wrong", "hunter2", 0o600);
        for (secrets, ours, says) in [
            (vec![open], Vec::new(), "others may read it"),
            (vec![wrong], Vec::new(), "not a secret of the form"),
            (vec![folder.path().join("none")], Vec::new(), "No such file"),
            (vec![host.clone(), host.clone()], Vec::new(), "given twice"),
            (Vec::new(), of(&ours), "no secret of its own"),
            (vec![host.clone()], of(&host), "the host's own secret"),
        ] {
            let error = format!("{:#}", options(secrets, ours).limits().unwrap_err());
            assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
        }
    }
}

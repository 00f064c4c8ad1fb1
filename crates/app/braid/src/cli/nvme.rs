//! Addresses for NVMe hosts, who may connect, and what they may use together.

use braid_nvme::protocol::check_nqn;
use braid_nvme::{Address, Limits, MEMORY_MIN};
use clap::Args;

/// See the module's documentation.
#[derive(Clone, Debug, Args)]
pub struct Nvme {
    /// Where NVMe hosts connect: tcp:ADDR:PORT, such as tcp:0.0.0.0:4420. May be given several times. Each array is a
    /// subsystem with one namespace; its name is nqn.2014-08.org.nvmexpress:uuid:UUID with the UUID of the array, so that it
    /// stays the same after a restart and on another server. `nvme discover` lists the names, `detail` shows them.
    #[arg(long, value_name = "ADDRESS")]
    pub nvme: Vec<Address>,
    /// A host that may connect, by its NQN (/etc/nvme/hostnqn there). May be given several times; without it every host may.
    #[arg(long, value_name = "HOSTNQN", requires = "nvme", value_parser = host)]
    nvme_allow: Vec<String>,
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
    pub fn limits(&self) -> Limits {
        Limits {
            controllers: self.nvme_connections as usize,
            memory: self.nvme_memory,
            hosts: self.nvme_allow.clone(),
            ..Limits::default()
        }
    }
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

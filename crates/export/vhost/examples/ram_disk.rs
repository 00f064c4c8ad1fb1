//! Serves a RAM disk: `cargo run --release -p braid-vhost --example ram_disk -- /tmp/ram.sock 256 1`
//! (socket, MiB, shards). It ends when its standard input does.

use std::io::Read;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use braid_device::ram::Ram;
use braid_device::{Device, OpenError, Opener, Target, TargetInfo};
use braid_export::Export;
use braid_shard::Shard;
use braid_vhost::{Limits, Server};

struct RamDisk(Ram);

impl Target for RamDisk {
    fn info(&self) -> TargetInfo {
        let device = self.0.device().info().clone();
        let description = "a RAM disk".to_owned();
        TargetInfo { name: "ram".to_owned(), description, device, read_only: false }
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        self.0.open(shard)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let path = PathBuf::from(next("/tmp/braid-ram.sock"));
    let mebibytes: u64 = next("256").parse()?;
    let shards = braid_shard::threads::start(next("1").parse()?)?;
    let disk: Arc<dyn Target> = Arc::new(RamDisk(Ram::new("ram", mebibytes << 20)));
    let server = Server::start(&Limits::default(), shards.remotes(), &path, None, &[disk])?;
    for location in server.locations("ram") {
        println!("{location}");
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(())
}

//! Serves a RAM disk: `cargo run --release --example serve_ram -- unix:/tmp/ram.sock 256 1`
//! (address, MiB, shards). It ends when its standard input does.

use std::io::Read;
use std::rc::Rc;
use std::sync::Arc;

use braid_device::ram::Ram;
use braid_device::{Device, OpenError, Opener, Target, TargetInfo};
use braid_export::Export;
use braid_nbd::serve::Server;
use braid_nbd::{Address, NbdUri};
use braid_shard::Shard;

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
    let address: Address = next("unix:/tmp/braid-ram.sock").parse()?;
    let mebibytes: u64 = next("256").parse()?;
    let shards = braid_shard::threads::start(next("1").parse()?)?;
    let disk = Arc::new(RamDisk(Ram::new("ram", mebibytes << 20)));
    let server = Server::start(shards.remotes(), &[address], vec![disk], None)?;
    for address in server.addresses() {
        println!("{}", address.uri("ram"));
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.stop();
    Ok(())
}

//! Mounts a file system in memory: `cargo run --release -p braid-fuse --example ram -- DIR`. It ends with its standard
//! input.

#[path = "../tests/mounted/support/memory.rs"]
#[allow(dead_code)]
mod memory;

use braid_fuse::{Mount, MountOptions};
use std::io::Read;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("a directory to mount at")?;
    let shards = braid_shard::threads::start(1)?;
    let options = MountOptions::new(dir, "ram");
    let remote = shards.remotes()[0].clone();
    let open = |shard: &braid_shard::Shard| memory::Memory::new(shard, 4 << 30);
    let mount = Mount::start(options, remote, open, |ended| eprintln!("{ended:?}"))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mount.unmount().map_err(|(error, _)| error.into())
}

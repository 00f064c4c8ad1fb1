//! Instructions of a request at a door, counted by valgrind.
//!
//! This program is run again under callgrind with two numbers of requests, as for the table of instructions. Only what the
//! server's shard carries out counts: callgrind keeps threads apart, and the first is the client's.

use super::at_door::{AtDoor, DOORS, Load};
use crate::instructions::sum;
use anyhow::{Context, bail};
use braid_load::measure::Until;
use braid_load::under_test::UnderTest;
use std::path::Path;
use std::process::Command;

/// The two numbers of requests.
const REQUESTS: [u64; 2] = [2_000, 6_000];
/// Bytes of a member: the count does not depend on it.
const MEMBER: u64 = 32 << 20;

/// Instructions for each request of `load` at the door that has this protocol.
///
/// # Errors
/// When valgrind cannot be run.
pub fn instructions(protocol: &str, load: Load) -> anyhow::Result<u64> {
    let [few, many] = REQUESTS;
    let count = |requests| {
        count(protocol, load, requests)
            .with_context(|| format!("counting instructions of {} at {protocol}", load.name))
    };
    Ok(count(many)?.saturating_sub(count(few)?) / (many - few))
}

fn count(protocol: &str, load: Load, requests: u64) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir().context("making a folder for profiles")?;
    let program = std::env::current_exe().context("finding this program")?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--separate-threads=yes", "--compress-strings=no"])
        .arg("--compress-pos=no")
        .arg(format!("--callgrind-out-file={}", folder.path().join("profile").display()))
        .arg(program)
        .args(["door", protocol, &load.block.to_string(), &requests.to_string()])
        .args(load.writes.then_some("--write"))
        // valgrind 3.19 refuses newer instructions.
        .env("BRAID_SIMD", "avx2")
        .output()
        .context("running valgrind; install it, or leave the table of doors out")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("valgrind ended with {}: {said}", output.status);
    }
    match of_servers(folder.path())? {
        0 => bail!("valgrind did not tell a count of the shard"),
        count => Ok(count),
    }
}

/// The sum of all profiles but that of the first thread.
fn of_servers(folder: &Path) -> anyhow::Result<u64> {
    let mut all = 0;
    for entry in std::fs::read_dir(folder).context("looking for profiles")? {
        let path = entry.context("looking for profiles")?.path();
        let name = path.to_string_lossy().into_owned();
        if name.rsplit_once('-').is_some_and(|(_, thread)| thread != "01") {
            let text = std::fs::read(&path).with_context(|| format!("reading {name}"))?;
            all += sum(&String::from_utf8_lossy(&text), &[]);
        }
    }
    Ok(all)
}

/// Carries out `count` requests at a door: what is counted.
///
/// # Errors
/// When a request fails.
pub fn requests(protocol: &str, block: u64, writes: bool, count: u64) -> anyhow::Result<()> {
    let Some(adapter) = DOORS.iter().find(|adapter| adapter.protocol() == protocol) else {
        bail!("{protocol:?}: give nbd, vhost-user or nvme");
    };
    let load = Load { name: "counted requests", writes, block };
    let under_test = UnderTest::start(&load.on_an_array(MEMBER, 1.0))?;
    let folder = tempfile::tempdir().context("making a folder for a socket")?;
    let (shards, array) = (under_test.remotes(), under_test.array());
    let mut door = AtDoor::open(*adapter, folder.path(), shards, array)?;
    door.slice(load, Until::Requests(count))?;
    Ok(())
}

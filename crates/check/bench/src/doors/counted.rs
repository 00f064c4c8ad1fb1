//! Instructions of a request at a door, counted by valgrind.
//!
//! This program is run again under callgrind as a server, twice, and gets two numbers of requests from a client in this
//! process. Everything that counts is on one thread there: valgrind lets one thread run at a time, and the one that
//! waits in io_uring keeps all others from it.

use super::at_door::{Caller, DOORS, Load, Named};
use crate::callgrind::Profile;
use anyhow::{Context, bail};
use braid_device::spec::MemberSpec;
use braid_doors::Adapter;
use braid_layout::Level;
use braid_load::measure::Until;
use braid_load::under_test::{context, create_and_assemble, prepare, wanted};
use braid_load::{Options, Pattern};
use braid_shard::Shard;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The two numbers of requests.
const REQUESTS: [u64; 2] = [2_000, 6_000];
/// Bytes of a member: the count does not depend on it.
const MEMBER: u64 = 32 << 20;
/// The time that a server may take to start under valgrind.
const START: Duration = Duration::from_secs(120);
/// Between two looks at whether the door is open: often, since each lets the thread that opens it go on.
const OPENING: u64 = 1_000_000;
/// Between two looks at whether the standard input has ended, in nanoseconds: seldom, since each costs instructions.
const SERVING: u64 = 200_000_000;

/// Instructions for each request of `load` at the door that has this protocol.
///
/// # Errors
/// When valgrind cannot be run.
pub fn instructions(adapter: &dyn Adapter, load: Load) -> anyhow::Result<u64> {
    let [few, many] = REQUESTS;
    let count = |requests| {
        let (name, protocol) = (load.name, adapter.protocol());
        count(adapter, load, requests)
            .with_context(|| format!("counting instructions of {name} at {protocol}"))
    };
    Ok(count(many)?.saturating_sub(count(few)?) / (many - few))
}

fn count(adapter: &dyn Adapter, load: Load, requests: u64) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir().context("making a folder for a socket")?;
    let profile = Profile::new()?;
    let mut server = profile
        .command()?
        .args(["door", adapter.protocol()])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("running valgrind; install it, or leave the table of doors out")?;
    let outcome = connect(adapter, folder.path())
        .and_then(|mut client| client.slice(load, Until::Requests(requests)));
    // The end of its standard input ends it.
    drop(server.stdin.take());
    let mut said = String::new();
    if let Some(mut text) = server.stderr.take() {
        text.read_to_string(&mut said).context("reading what valgrind said")?;
    }
    let ended = server.wait().context("waiting for valgrind")?;
    outcome.with_context(|| format!("the server said: {said}"))?;
    profile.count(ended, &said, &[])
}

fn connect(adapter: &dyn Adapter, folder: &Path) -> anyhow::Result<Caller> {
    let begun = Instant::now();
    loop {
        match Caller::connect(adapter, folder) {
            Ok(client) => return Ok(client),
            Err(error) if begun.elapsed() > START => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Serves an array of two members in memory at the door that has this protocol, on this thread, until the standard input
/// ends: what is counted.
///
/// # Errors
/// When the array or the door cannot be started.
pub fn serve(protocol: &str, folder: &Path) -> anyhow::Result<()> {
    let Some(adapter) = DOORS.iter().find(|adapter| adapter.protocol() == protocol) else {
        bail!("{protocol:?}: give nbd, vhost-user or nvme");
    };
    let shard = Shard::with_ring(0).context("starting a shard")?;
    let (own, socket) = (shard.clone(), folder.join(protocol));
    shard.block_on(async move {
        let options =
            Options::new(Level::Raid0, vec![MemberSpec::Ram(MEMBER); 2], Pattern::Read, 4096);
        let members = options.members.iter().enumerate();
        let members = members.map(|(nr, spec)| prepare(spec, nr)).collect::<Result<_, _>>()?;
        let here = context(&own, vec![own.remote()]);
        let (array, _) = create_and_assemble(here, members, wanted(&options)).await?;
        let shards = vec![own.remote()];
        let target = Arc::new(Named(array));
        // A door is opened by a thread that waits for the shards.
        let opening = std::thread::spawn(move || adapter.start(&socket, &shards, target));
        while !opening.is_finished() {
            own.sleep(OPENING).await;
        }
        let Ok(_door) = opening.join() else { bail!("the door was not opened") };
        while !input_has_ended() {
            own.sleep(SERVING).await;
        }
        // Nobody is left to stop the door and the array for, and what they would do is not a request's.
        std::process::exit(0)
    })
}

fn input_has_ended() -> bool {
    let input = std::io::stdin();
    let mut input = [PollFd::new(&input, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut input, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

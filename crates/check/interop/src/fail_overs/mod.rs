//! One host takes over from another (`serve --lease --standby`), again and again, while clients write, read and compare.
//!
//! Namespaces of one machine are the hosts. Three disks, each an nbdkit over a file, and etcd are on the host *here*, the clients
//! too; on *one* and *two* braid runs a level 5 over those disks, or waits. The active one is killed, loses its link, or is stopped
//! in its tracks (SIGSTOP) and goes on when the other has taken over: then it must end without a write. The disks log each write
//! with its time and its host. A *double writer* is a write of the host before that comes after the first write of the next.
//!
//! A client repeats what was not answered, at whichever host lets it in, and then every read must give what was last answered.

mod hosts;
mod load;
mod storage;

use anyhow::{Context, Result, bail, ensure};
use hosts::{Host, Hosts};
use load::Load;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use storage::{Storage, Window};

/// Answers before a fail-over and after it.
const ANSWERS_BETWEEN: u64 = 500;
/// The time after a link is there again in which writes that are late would come.
const LATE: Duration = Duration::from_millis(1500);
/// The names of the hosts that run the array.
const NAMES: [&str; 2] = ["one", "two"];

/// The run.
pub struct Options {
    /// The program.
    pub braid: PathBuf,
    /// An empty folder.
    pub work: PathBuf,
    /// Fail-overs.
    pub times: u32,
    /// Seconds that a lease lasts.
    pub ttl: u32,
    /// Decides what is written where.
    pub seed: u64,
}

/// How a host goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Killed,
    Cut,
    Stopped,
}

const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Cut, Fault::Stopped];

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::Killed => "its server is killed (`kill -9`)",
            Fault::Cut => "its link is cut, and there again after the fail-over",
            Fault::Stopped => "its server is stopped (SIGSTOP), and goes on after the fail-over",
        }
    }
}

/// All was as it must be.
pub struct Outcome {
    pauses: Vec<(Fault, Duration)>,
    ttl: u32,
    requests: u64,
    compared: u64,
    /// Writes that the disks got.
    writes: u64,
}

impl Outcome {
    /// The longest time without an answer.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.pauses.iter().map(|(_, pause)| *pause).max().unwrap_or_default()
    }

    fn of(&self, fault: Fault) -> Vec<Duration> {
        let mut all: Vec<Duration> = self
            .pauses
            .iter()
            .filter(|(known, _)| *known == fault)
            .map(|(_, pause)| *pause)
            .collect();
        all.sort_unstable();
        all
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} fail-overs with a lease of {} s: longest pause {:.1} s; {} requests, {} MiB compared, 0 lost; {} writes at \
             the disks, 0 of two hosts at a time",
            self.pauses.len(),
            self.ttl,
            self.longest().as_secs_f64(),
            self.requests,
            self.compared >> 20,
            self.writes
        )
    }
}

/// Runs it; in namespaces of its own for networks, host names, mounts and processes.
///
/// # Errors
/// The first thing that is not as it must be; logs are left as they are then.
pub fn run(options: &Options) -> Result<Outcome> {
    std::fs::create_dir_all(&options.work)?;
    let work = options.work.canonicalize().context("finding the folder")?;
    let hosts = Hosts::make(&work, &NAMES)?;
    let mut storage = Storage::start(&work, NAMES.len())?;
    let serve = |nr: usize, standby: bool| {
        let uris = storage::uris(nr).join(" ");
        let standby = if standby { " --standby" } else { "" };
        let words = format!(
            "serve {uris} --nbd tcp:0.0.0.0:10809 --shards 1 --heartbeat 1 --lease etcd://{}:2379 --lease-ttl {}{standby}",
            hosts::HERE,
            options.ttl
        );
        hosts.start(nr, &options.braid, &words)
    };
    hosts.run(
        0,
        &options.braid,
        &format!(
            "create disk -l 5 -n 3 -c 64K --bitmap-chunk 1M --assume-clean {}",
            storage::uris(0).join(" ")
        ),
    )?;
    let mut active = serve(0, false)?;
    active.wait_for("control socket")?;
    let mut standby = serve(1, true)?;
    standby.wait_for("is held by host one")?;
    let load = Load::start(&hosts.addresses(), options.seed)?;
    let (mut pauses, mut token) = (Vec::new(), active.token(&hosts, &options.braid)?);
    let mut writes = 0;
    for round in 0..options.times {
        let fault = FAULTS[round as usize % FAULTS.len()];
        let context =
            || format!("fail-over {} ({}) in {}", round + 1, fault.name(), work.display());
        load.wait_for_answers(ANSWERS_BETWEEN).with_context(context)?;
        load.forget_longest();
        let window = Window::begin(&mut storage).with_context(context)?;
        let begun = Instant::now();
        begin(fault, &hosts, &active).with_context(context)?;
        standby.wait_for("control socket").with_context(context)?;
        load.wait_for_answers(ANSWERS_BETWEEN).with_context(context)?;
        pauses.push((fault, load.longest()));
        heal(fault, &hosts, &active).with_context(context)?;
        active.has_been_killed().with_context(context)?;
        std::thread::sleep(LATE);
        let next = standby.token(&hosts, &options.braid).with_context(context)?;
        ensure!(next > token, "the token is {next} after {token}");
        token = next;
        writes += window.check(&mut storage, (active.nr(), standby.nr())).with_context(context)?;
        println!(
            "{}: {}: pause {:.1} s, token {token}, {:.0} s",
            round + 1,
            fault.name(),
            pauses.last().map_or(0.0, |(_, pause)| pause.as_secs_f64()),
            begun.elapsed().as_secs_f64()
        );
        let nr = active.nr();
        active = standby;
        standby = serve(nr, true)?;
        standby
            .wait_for(&format!("is held by host {}", NAMES[active.nr()]))
            .with_context(context)?;
    }
    let (requests, compared) = load.end().with_context(|| work.display().to_string())?;
    // The resync of the last take-over may run still, and a check waits for nothing.
    hosts.run(active.nr(), &options.braid, "wait disk")?;
    hosts.run(active.nr(), &options.braid, "check disk --wait")?;
    hosts.run(active.nr(), &options.braid, "stop disk")?;
    active.has_ended_well()?;
    // It was stopped in order, so the other has it at once, and nothing is to be repaired.
    standby.wait_for("control socket")?;
    let said = hosts.run(standby.nr(), &options.braid, "detail disk")?;
    ensure!(said.contains("State : clean"), "after an orderly stop: {said}");
    hosts.run(standby.nr(), &options.braid, "stop disk")?;
    Ok(Outcome { pauses, ttl: options.ttl, requests, compared, writes })
}

fn begin(fault: Fault, hosts: &Hosts, active: &Host) -> Result<()> {
    match fault {
        Fault::Killed => active.signal(rustix::process::Signal::KILL),
        Fault::Stopped => active.signal(rustix::process::Signal::STOP),
        Fault::Cut => hosts.link(active.nr(), false),
    }
}

fn heal(fault: Fault, hosts: &Hosts, active: &Host) -> Result<()> {
    match fault {
        Fault::Killed => Ok(()),
        Fault::Stopped => active.signal(rustix::process::Signal::CONT),
        Fault::Cut => hosts.link(active.nr(), true),
    }
}

/// The page of docs/.
#[must_use]
pub fn markdown(outcome: &Outcome) -> String {
    let mut page = format!(
        "# Hosts that take over from each other\n\n\
         Written by `make fail-overs`; not to be edited.\n\n\
         `braid serve --lease` on two hosts (namespaces of one machine) over a RAID5 of three NBD exports, with etcd 3.4 and `--lease-ttl {}`\n\
         `--heartbeat 1`, the program as users have it. Eight clients write with FUA, read and compare 4 KiB at random, and repeat what was\n\
         not answered at the host that lets them in. The *pause* is the longest time without any answer around a fail-over. *Lost* is a read\n\
         that does not give what was last answered, *double writers* are writes at a disk of the host before that come after the first\n\
         write of the next one, by the log of each disk.\n\n\
         | the active host | fail-overs | pause, median, s | longest, s | lost | double writers |\n\
         |---|---|---|---|---|---|\n",
        outcome.ttl
    );
    for fault in FAULTS {
        let pauses = outcome.of(fault);
        let Some(longest) = pauses.last() else { continue };
        page += &format!(
            "| {} | {} | {:.1} | {:.1} | 0 | 0 |\n",
            fault.name(),
            pauses.len(),
            pauses.get(pauses.len() / 2).unwrap_or(longest).as_secs_f64(),
            longest.as_secs_f64()
        );
    }
    page += &format!(
        "\n{} requests, {} MiB compared, {} writes at the disks.\n",
        outcome.requests,
        outcome.compared >> 20,
        outcome.writes
    );
    page
}

/// Runs `program` with `words` in namespaces of its own; its exit code is this one's.
///
/// # Errors
/// This is not root, who alone can make them.
pub fn in_namespaces(program: &std::path::Path, words: &[String]) -> Result<u8> {
    if !rustix::process::geteuid().is_root() {
        bail!("only root can make the namespaces that are the hosts");
    }
    let mut command = std::process::Command::new("unshare");
    command.args("--net --uts --mount --pid --fork --kill-child --mount-proc".split(' '));
    let status = command.arg(program).args(words).env(INSIDE, "yes").status().context("unshare")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Says that this process is in the namespaces.
pub const INSIDE: &str = "BRAID_FAIL_OVERS_INSIDE";

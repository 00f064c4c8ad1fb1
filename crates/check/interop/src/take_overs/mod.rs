//! A server takes over from another (`serve --take-over`), again and again, while a client of a door writes and reads with 32
//! requests under way, and compares every byte that it reads.
//!
//! The program is the one that users have, and the array one of files. A client whose connection ends does what its protocol has
//! for that, at once: a front end of vhost-user connects again and waits for what it had asked for, an NVMe host
//! connects again and repeats it. An NBD client stays connected. The *pause* of a take-over is the longest time from one answer to
//! the next around it.

mod door;
mod load;
mod servers;

pub use door::Door;

use anyhow::{Context, Result, ensure};
use load::Load;
use servers::Place;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The pause that clients should not notice.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Answers after a take-over until the next one.
const ANSWERS_BETWEEN: u64 = 2000;

/// The run.
pub struct Options {
    /// The program.
    pub braid: PathBuf,
    /// An empty folder.
    pub work: PathBuf,
    /// Take-overs at each door.
    pub times: u32,
    /// Decides what is written where.
    pub seed: u64,
}

/// One door was as it must be: each request was answered, none with an error, and each read gave what was written.
pub struct Outcome {
    door: Door,
    pauses: Vec<Duration>,
    /// Times that devices were too slow, so that the server went on and was asked again.
    refusals: u32,
    requests: u64,
    compared: u64,
}

impl Outcome {
    /// The longest pause.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.pauses.iter().copied().max().unwrap_or_default()
    }

    fn median(&self) -> Duration {
        let mut all = self.pauses.clone();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }

    fn long_ones(&self) -> usize {
        self.pauses.iter().filter(|pause| **pause > PAUSE_MAX).count()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}: {} take-overs ({} asked for again), {} requests, {} MiB compared, 0 errors; pauses: median {} ms, longest {} ms, {} over {} ms",
            self.door.names().0,
            self.pauses.len(),
            self.refusals,
            self.requests,
            self.compared >> 20,
            self.median().as_millis(),
            self.longest().as_millis(),
            self.long_ones(),
            PAUSE_MAX.as_millis()
        )
    }
}

/// Runs it at one door.
///
/// # Errors
/// The first thing that is not as it must be; members and logs are left as they are then.
pub fn run(options: &Options, door: Door) -> Result<Outcome> {
    let folder = options.work.join(door.names().0.replace('/', "-"));
    let place = Arc::new(Place::make(&options.braid, &folder)?);
    let mut server = place.serve()?;
    let load = Load::start(&place, door, options.seed)?;
    let (mut pauses, mut refusals) = (Vec::new(), 0);
    for nr in 1..=options.times {
        let context = || format!("take-over {nr} at {} in {}", door.names().0, folder.display());
        load.wait_for_answers(ANSWERS_BETWEEN).with_context(context)?;
        load.forget_longest();
        let (next, refused) = place.take_over(server).with_context(context)?;
        (server, refusals) = (next, refusals + refused);
        load.wait_for_answers(ANSWERS_BETWEEN).with_context(context)?;
        pauses.push(load.longest());
    }
    let (requests, compared) = load.end().with_context(|| folder.display().to_string())?;
    place.run("check disk --wait")?;
    place.run("stop disk")?;
    let status = server.end()?;
    ensure!(status.success(), "the last server ended with {status}");
    Ok(Outcome { door, pauses, refusals, requests, compared })
}

/// The page of docs/.
#[must_use]
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "# Servers that take over under load\n\n\
         Written by `make take-overs`; not to be edited.\n\n\
         `serve --take-over` of a RAID5 of three files on tmpfs, the program as users have it, while a client of a door writes and reads\n\
         4 KiB at random with 32 requests under way and compares each byte that it reads. The *pause* is the longest time from one\n\
         answer to the next around a take-over; it should be at most {} ms.\n\n\
         | door | its client | take-overs | requests | compared, MiB | errors | pause, median, ms | longest, ms |\n\
         |---|---|---|---|---|---|---|---|\n",
        PAUSE_MAX.as_millis()
    );
    for outcome in outcomes {
        let (name, does) = outcome.door.names();
        page += &format!(
            "| {name} | {does} | {} | {} | {} | 0 | {} | {} |\n",
            outcome.pauses.len(),
            outcome.requests,
            outcome.compared >> 20,
            outcome.median().as_millis(),
            outcome.longest().as_millis()
        );
    }
    page
}

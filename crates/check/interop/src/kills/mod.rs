//! The server of a mounted volume is killed in the middle of each operation, again and again.
//!
//! After every kill the volume is mounted again, `braid volume check` must find nothing, every file whose fsync was
//! answered must hold what was written, and the operation must come to its end.
//!
//! | file | subject |
//! |---|---|
//! | `operation` | the operations, and how each is set up and undone |
//! | `snapshots` | those about snapshots, and what these show |
//! | `copies` | those about files with two copies |
//! | `replacing` | those in which a brick takes the place of another, and balances with copies |
//! | `begun` | what an operation has begun when the kill comes |
//! | `server` | the process that is killed, and the commands |
//! | `files` | files whose content follows from their name |

mod begun;
mod copies;
mod files;
mod operation;
mod replacing;
mod server;
mod snapshots;

use anyhow::{Context, Result, ensure};
use files::Files;
pub use operation::Operation;
use server::Server;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub braid: PathBuf,
    /// An empty folder for bricks, mount point and notes.
    pub work: PathBuf,
    /// Kills for each operation.
    pub kills: u32,
    /// Decides when the kills come and what files hold.
    pub seed: u64,
}

/// What came of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which.
    pub operation: Operation,
    /// Kills that came.
    pub kills: u32,
    /// Of them: how many came while the operation's job, or its command, was under way.
    pub in_a_job: u32,
    /// Of them: how many servers ended only when their mount was taken away by force, since their guards had not ended it.
    pub hung: u32,
    /// Files that were held against what was written, added up.
    pub files_compared: u64,
}

/// The outcome of one kill.
struct Kill {
    in_a_job: bool,
    hung: bool,
    compared: u64,
}

/// Kills the server `options.kills` times in the middle of `operation`.
///
/// # Errors
/// At the first thing that is not as it must be; the bricks are left as they are then.
pub fn run(options: &Options, operation: Operation) -> Result<Outcome> {
    let mut random = files::Random::new(options.seed ^ operation as u64);
    let mut server = Server::create(&options.braid, &options.work.join(operation.name()))?;
    let mut files = Files::new(server.dir(), options.seed, operation.bytes_max());
    files.fill()?;
    operation.set_up(&server)?;
    let mut outcome = Outcome { operation, kills: 0, in_a_job: 0, hung: 0, files_compared: 0 };
    while outcome.kills < options.kills {
        let context =
            || format!("{}, kill {} (seed {})", operation.name(), outcome.kills, options.seed);
        let kill = one_kill(&mut server, &mut files, operation, outcome.kills, &mut random)
            .with_context(context)?;
        outcome.kills += 1;
        outcome.in_a_job += u32::from(kill.in_a_job);
        outcome.hung += u32::from(kill.hung);
        outcome.files_compared += kill.compared;
    }
    server.end()?;
    Ok(outcome)
}

/// One life of the server, from the operation's start to its end in the next life.
fn one_kill(
    server: &mut Server,
    files: &mut Files,
    operation: Operation,
    number: u32,
    random: &mut files::Random,
) -> Result<Kill> {
    server.slow_down(operation.job_speed())?;
    let begun = operation.start(server, files, number)?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = files.write_on(Arc::clone(&stop), operation.removes_files(), random.next())?;
    let life = Duration::from_millis(1 + random.next() % operation.life_ms_max());
    let since = Instant::now();
    std::thread::sleep(life);
    // The note is taken just before: a job that ends in between counts as under way.
    let commands = begun.commands.as_ref();
    let in_a_job = commands.is_some_and(|thread| !thread.is_finished()) || server.has_job()?;
    let hung = server.kill()?;
    stop.store(true, Ordering::Release);
    files.take_back(writer)?;
    tell(operation, number, since.elapsed(), in_a_job);
    server.mount().context("mounting after the kill")?;
    server.check().context("checking after the kill")?;
    let mut compared = files.compare().context("after the kill")?;
    server.wait_job().context("the operation's end")?;
    operation.finish(server, files, (begun, number), random)?;
    server.check().context("checking after the operation's end")?;
    compared += files.compare().context("after the operation's end")?;
    files.thin_out()?;
    ensure!(server.is_alive(), "the server ended by itself");
    Ok(Kill { in_a_job, hung, compared })
}

fn tell(operation: Operation, number: u32, life: Duration, in_a_job: bool) {
    let job = if in_a_job { ", in a job" } else { "" };
    eprintln!("{}: kill {number} after {} ms{job}", operation.name(), life.as_millis());
}

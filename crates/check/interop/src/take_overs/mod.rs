//! A server takes over from another (`serve --take-over`), again and again, while a client of a door writes and reads with 32
//! requests under way, and compares every byte that it reads.
//!
//! The program is the one that users have, and the array one of files. A client whose connection ends does what its protocol has
//! for that, at once: a front end of vhost-user connects again and waits for what it had asked for, an NVMe host
//! connects again and repeats it. An NBD client stays connected. A ublk disk has no take-over while both servers live: its server
//! is killed, and the next one takes the disk back. The *pause* of a take-over is the longest time from one answer to
//! the next around it.

mod door;
mod in_guest;
mod load;
mod outcome;
mod servers;

pub use door::Door;
pub use outcome::{Options, Outcome};

use anyhow::{Context, Result, ensure};
use load::Load;
use outcome::PAUSE_MAX;
use servers::Place;
use std::sync::Arc;

/// Answers after a take-over until the next one; of a ublk disk, which may be in an emulated machine, fewer.
const ANSWERS_BETWEEN: u64 = 2000;
const OF_A_DISK: u64 = 500;

/// Runs it at one door; that of ublk in a guest, beside another one there, if the machine has no driver for it.
///
/// # Errors
/// The first thing that is not as it must be; members and logs are left as they are then.
pub fn run(options: &Options, door: Door) -> Result<Vec<Outcome>> {
    if door == Door::Ublk && in_guest::is_needed() {
        return in_guest::run(options, &options.own);
    }
    run_here(options, door).map(|outcome| vec![outcome])
}

fn run_here(options: &Options, door: Door) -> Result<Outcome> {
    let folder = options.work.join(door.names().0.replace('/', "-"));
    let place = Arc::new(Place::make(&options.braid, &folder)?);
    let mut server = place.serve(door)?;
    let load = Load::start(&place, door, options.seed)?;
    let (mut pauses, mut refusals) = (Vec::new(), 0);
    let between = if door == Door::Ublk { OF_A_DISK } else { ANSWERS_BETWEEN };
    for nr in 1..=options.times {
        let context = || format!("take-over {nr} at {} in {}", door.names().0, folder.display());
        load.wait_for_answers(between).with_context(context)?;
        load.forget_longest();
        server = if door == Door::Ublk {
            place.recover(server).with_context(context)?
        } else {
            let (next, refused) = place.take_over(server).with_context(context)?;
            refusals += refused;
            next
        };
        load.wait_for_answers(between).with_context(context)?;
        pauses.push(load.longest());
    }
    let (requests, compared) = load.end().with_context(|| folder.display().to_string())?;
    place.run("wait disk")?;
    place.run("check disk --wait")?;
    place.run("stop disk")?;
    let status = server.end()?;
    ensure!(status.success(), "the last server ended with {status}");
    Ok(Outcome { door, pauses, refusals, requests, compared, in_guest: false })
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
         A ublk disk has no take-over while both servers live (Linux before 6.16): its server is killed (SIGKILL) with requests under\n\
         way, and the next one, which is started after that, takes the disk back, with what it had. Where the kernel here has no driver\n\
         for it that happens in an emulated machine (QEMU without virtualisation, Linux 6.12), which is many times slower; the same with NBD in that machine\n\
         tells how much.\n\n\
         | door | its client | take-overs | requests | compared, MiB | errors | pause, median, ms | longest, ms |\n\
         |---|---|---|---|---|---|---|---|\n",
        PAUSE_MAX.as_millis()
    );
    for outcome in outcomes {
        let (name, does) = (outcome.name(), outcome.door.names().1);
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

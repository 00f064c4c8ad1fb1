//! A mounted volume beside what else answers the same requests: a file in memory and a directory passed through, both
//! by fuser alone, and ext4.
//!
//! Everything is mounted at once and measured in turn. Root only, with /dev/fuse, loop devices, fio, dbench and the
//! program `braid` beside this one; where something is missing the table is left out, and says why.

mod loads;
mod memory;
mod mounts;
mod on_loop;
mod servers;
mod tree;
mod way;

pub use memory::table as memory;
pub use on_loop::table as on_loop;
pub use servers::Server;
pub use tree::table as tree;

use crate::tables::Missing;
use braid_load::{Slice, Spread};
use mounts::Mounted;
use std::path::Path;
use std::process::{Command, Stdio};

/// What one load has done on one mount.
#[derive(Clone, Debug)]
struct Figures {
    slice: Slice,
    /// Processor time of the process that answers, in seconds, its share of the kernel's included; `None`: it is the
    /// kernel alone.
    server: Option<f64>,
}

/// What is measured on each mount, and one round of it.
trait Load {
    fn run(&self, dir: &Path) -> anyhow::Result<Slice>;
}

/// Figures of each mount, a round each: the first round warms up, every other one goes backwards.
fn in_turn(
    load: &impl Load,
    mounts: &[&Mounted],
    rounds: usize,
) -> anyhow::Result<Vec<Vec<Figures>>> {
    let mut all = vec![Vec::new(); mounts.len()];
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..mounts.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (Some(mount), Some(figures)) = (mounts.get(at), all.get_mut(at)) else { continue };
            let before = mount.processor_seconds()?;
            let slice = load.run(&mount.dir)?;
            let after = mount.processor_seconds()?;
            let server = after.zip(before).map(|(after, before)| after - before);
            if round > 0 {
                figures.push(Figures { slice, server });
            }
        }
    }
    Ok(all)
}

/// How much faster the first is, round by round.
fn faster(first: &[Figures], second: &[Figures]) -> Spread {
    let rate = |one: &Figures| one.slice.requests as f64 / one.slice.seconds.max(1e-9);
    Spread::of(first.iter().zip(second).map(|(first, second)| rate(first) / rate(second)))
}

/// The server's microseconds for `each` of what was done.
fn server_us(figures: &[Figures], each: impl Fn(&Slice) -> f64) -> Option<Spread> {
    let of = |one: &Figures| Some(one.server? * 1e6 / each(&one.slice).max(1e-9));
    let all: Option<Vec<f64>> = figures.iter().map(of).collect();
    all.map(Spread::of)
}

/// Why nothing can be mounted here, or that a program is not there.
fn missing(programs: &[&str]) -> Result<(), Missing> {
    if !rustix::process::geteuid().is_root() {
        return Err(Missing("mounting and loop devices are root's".to_owned()));
    }
    let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = fuse {
        return Err(Missing(format!("opening /dev/fuse: {error}")));
    }
    for program in programs {
        let mut asked = Command::new(program);
        let asked = asked.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(error) = asked.arg("--version").status() {
            return Err(Missing(format!("{program}: {error}; scripts/setup-packages bench")));
        }
    }
    mounts::braid().map(|_| ())
}

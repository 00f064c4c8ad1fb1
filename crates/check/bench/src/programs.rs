//! Programs that are run beside this one: found, started, and asked for their processor time; and this one's.

use crate::tables::Missing;
use anyhow::{Context, bail};
use rustix::time::{ClockId, clock_gettime};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Runs a program to its end and gives what it said.
///
/// # Errors
/// When it cannot be started, or fails: with what it said.
pub fn tool(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let doing = || format!("running {program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().with_context(doing)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {} {}", doing(), said.trim(), String::from_utf8_lossy(&output.stdout).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The program that is measured: the one that was built beside this one.
///
/// # Errors
/// When it was not.
pub fn braid() -> Result<PathBuf, Missing> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("braid"));
    match beside {
        Some(braid) if braid.exists() => Ok(braid),
        _ => {
            Err(Missing("no program braid beside this one: cargo build --release -p braid".into()))
        }
    }
}

/// All of `programs` can be run.
///
/// # Errors
/// When one is not there.
pub fn installed(programs: &[&str]) -> Result<(), Missing> {
    for program in programs {
        let mut asked = Command::new(program);
        let asked = asked.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(error) = asked.arg("--version").status() {
            return Err(Missing(format!("{program}: {error}; scripts/setup-packages bench")));
        }
    }
    Ok(())
}

/// Processor time of the server called `name` since it started.
///
/// # Errors
/// When it is gone.
pub fn processor_seconds(name: &str, child: &Child) -> anyhow::Result<f64> {
    let path = format!("/proc/{}/stat", child.id());
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("the server of {name} has ended: {path}"))?;
    let ticks = ticks(&text).with_context(|| format!("reading {path}: {text}"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A clock of this process or thread, in seconds.
pub fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Ticks in user and kernel mode of /proc/PID/stat (proc_pid_stat(5)), threads that have ended included.
fn ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_behind_a_name_with_anything_in_it() {
        let stat = "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("12 (a"), None);
    }
}

//! This program run again under valgrind's callgrind, and the instructions that its profile tells.

use anyhow::{Context, bail};
use std::process::{Command, ExitStatus};
use tempfile::NamedTempFile;

/// Parity is computed with this in a run that is counted: valgrind 3.19 refuses newer instructions.
pub const SIMD: &str = "avx2";

/// The file that one run's profile goes to.
pub struct Profile(NamedTempFile);

impl Profile {
    /// An empty one.
    ///
    /// # Errors
    /// When there is no place for temporary files.
    pub fn new() -> anyhow::Result<Profile> {
        NamedTempFile::new().context("making a file for a profile").map(Profile)
    }

    /// This program under callgrind, without arguments yet.
    ///
    /// # Errors
    /// When this program's path is not known.
    pub fn command(&self) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new("valgrind");
        command
            .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
            .arg(format!("--callgrind-out-file={}", self.0.path().display()))
            .arg(program)
            .env("BRAID_SIMD", SIMD);
        Ok(command)
    }

    /// The instructions of the run that ended so and said that on its standard error, without those of functions whose
    /// names have one of the parts `without`.
    ///
    /// # Errors
    /// When the run failed, or there is no count in the profile.
    pub fn count(self, ended: ExitStatus, said: &str, without: &[&str]) -> anyhow::Result<u64> {
        if !ended.success() {
            bail!("valgrind ended with {ended}: {said}");
        }
        let profile = std::fs::read(self.0.path()).context("reading a profile")?;
        match sum(&String::from_utf8_lossy(&profile), without) {
            0 => bail!("valgrind did not tell a count: {said}"),
            count => Ok(count),
        }
    }
}

/// Instructions of a profile of callgrind, without those of functions whose names have one of these parts.
fn sum(profile: &str, without: &[&str]) -> u64 {
    let (mut sum, mut counts, mut is_call) = (0, true, false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            counts = !without.iter().any(|part| name.contains(part));
        } else if line.starts_with("calls=") {
            // The line that follows has what was called in it, which its own function has, too.
            is_call = true;
        } else if let Some((position, cost)) = line.split_once(' ')
            && position.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(cost) = cost.parse::<u64>()
            && !std::mem::take(&mut is_call)
            && counts
        {
            sum += cost;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_summed_by_function_and_not_twice() {
        let profile = "events: Ir\nsummary: 119\n\nfl=a.rs\nfn=braid_array::write\n12 7\ncfn=memcpy\n\
                       calls=2 0\n13 100\n14 5\n\nfn=memcpy\n0 100\nfi=b.rs\n9 7\n\ntotals: 119\n";
        assert_eq!(sum(profile, &[]), 119);
        assert_eq!(sum(profile, &["memcpy", "memmove"]), 12);
    }
}

//! A case, the runner of cases, and what a known file system may do otherwise.
//!
//! Cases run one after another, each on a thread of its own, so that one which never returns is named instead of
//! hanging the run without a word.

use crate::scene::{Outcome, Scene, Skip, Surroundings};
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

type Play = Box<dyn Fn(&Scene) -> Outcome + Send>;

/// One question about a file system.
pub struct Case {
    /// The group and what is expected, such as `rename/replaces_a_file`.
    pub name: String,
    play: Play,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Case {
    /// A case of that name.
    pub fn new(name: impl Into<String>, play: impl Fn(&Scene) -> Outcome + Send + 'static) -> Self {
        Self { name: name.into(), play: Box::new(play) }
    }

    /// Plays it.
    ///
    /// # Errors
    ///
    /// What the file system did otherwise.
    pub fn play(&self, scene: &Scene) -> Outcome {
        (self.play)(scene)
    }
}

/// A list of functions as cases named `GROUP/FUNCTION`.
#[macro_export]
macro_rules! cases {
    ($($group:literal: $($name:ident),+ $(,)?;)+) => {
        /// The cases of this file.
        #[must_use]
        pub fn cases() -> Vec<$crate::case::Case> {
            vec![$($(
                $crate::case::Case::new(concat!($group, "/", stringify!($name)), $name)
            ),+),+]
        }
    };
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "why", rename_all = "kebab-case")]
pub enum Verdict {
    /// As it should.
    Passed,
    /// Otherwise than it should.
    Failed(String),
    /// Otherwise than it should, as is known of this kind of file system, for this reason.
    Known(String),
    /// The question does not arise here.
    Skipped(String),
    /// It did not come back in time.
    Hung,
}

/// A case and how it ended.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The case's name.
    pub case: String,
    /// How it ended.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

const XFS: i64 = 0x5846_5342;
const TMPFS: i64 = 0x0102_1994;
const BTRFS: i64 = 0x9123_683e;
const FUSE: i64 = 0x6573_5546;

const NO_LINKS_OF_DIRECTORIES: &str =
    "btrfs keeps no count of a directory's directories: nlink is 1";

/// The failures that were seen on Linux 6.18, by the kind of file system (`f_type` of statfs) and case. ext4 fails none.
const KNOWN: &[(i64, &str, &str)] = &[
    (BTRFS, "mkdir/links_itself_and_its_parent", NO_LINKS_OF_DIRECTORIES),
    (BTRFS, "rename/replaces_an_empty_directory", NO_LINKS_OF_DIRECTORIES),
    (BTRFS, "rename/counts_links_of_both_parents", NO_LINKS_OF_DIRECTORIES),
    (BTRFS, "rename/back_and_forth_by_threads", NO_LINKS_OF_DIRECTORIES),
    (BTRFS, "rename2/exchange_swaps_a_file_and_a_directory", NO_LINKS_OF_DIRECTORIES),
    (BTRFS, "rename2/exchange_counts_links_of_both_parents", NO_LINKS_OF_DIRECTORIES),
    (BTRFS, "rmdir/counts_links_of_the_parent", NO_LINKS_OF_DIRECTORIES),
    (
        FUSE,
        "flags/change_ctime_only",
        "Linux keeps the ctime of a cached file itself, and does not note a change of flags (fs/fuse/ioctl.c)",
    ),
    (
        TMPFS,
        "mmap/beyond_the_end_is_not_kept",
        "tmpfs keeps what a map wrote behind the end in the last page: the page is the file",
    ),
    (XFS, "mknod/keeps_device_numbers", "XFS has 14 bits for major and 18 for minor numbers"),
    (XFS, "symlink/text_of_4095_bytes", "XFS has symbolic links of 1023 bytes at most"),
];

/// Why a file system of this kind, an `f_type` of statfs, is known to fail a case.
#[must_use]
pub fn known(kind: i64, case: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(of, name, _)| *of == kind && *name == case).map(|(_, _, why)| *why)
}

/// Plays the cases, each in an empty folder below `dir`, and tells `seen` about each as it ends.
///
/// Stops at a case that takes longer than `patience`: its thread cannot be stopped, and what follows could not be
/// trusted. Sets the process's umask to 0.
///
/// # Errors
///
/// When a case's folder cannot be made in `dir`.
pub fn run(
    dir: &Path,
    cases: Vec<Case>,
    surroundings: &Surroundings,
    patience: Duration,
    mut seen: impl FnMut(&Report),
) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::empty());
    let kind = rustix::fs::statfs(dir).with_context(|| format!("statfs of {}", dir.display()))?;
    // The kernel's type differs by architecture; the numbers fit all of them.
    let kind = kind.f_type as i64;
    let home = dir.join(format!("braid-posix-{}", std::process::id()));
    // Open to all: cases act as other users below it.
    rustix::fs::mkdir(&home, rustix::fs::Mode::from(0o755)).with_context(|| {
        format!("making {}: is it a directory that may be written to?", home.display())
    })?;
    for (number, case) in cases.into_iter().enumerate() {
        let root = home.join(format!("{number:04}"));
        rustix::fs::mkdir(&root, rustix::fs::Mode::from(0o755))
            .with_context(|| format!("making the folder of {}: {}", case.name, root.display()))?;
        let report = play_one(case, root, surroundings, kind, patience);
        let hung = report.verdict == Verdict::Hung;
        seen(&report);
        if hung {
            return Ok(());
        }
    }
    std::fs::remove_dir_all(&home).with_context(|| format!("removing {}", home.display()))
}

fn play_one(
    case: Case,
    root: std::path::PathBuf,
    surroundings: &Surroundings,
    kind: i64,
    patience: Duration,
) -> Report {
    let name = case.name.clone();
    let surroundings = surroundings.clone();
    let (told, verdict) = mpsc::channel();
    let started = Instant::now();
    std::thread::spawn(move || {
        let scene = Scene::new(root.clone(), surroundings);
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case.play(&scene)));
        let outcome = match played {
            Ok(outcome) => outcome,
            Err(_) => Err(anyhow::anyhow!("the case panicked; what it said stands above")),
        };
        let cleaned = std::fs::remove_dir_all(&root)
            .with_context(|| format!("removing {} afterwards", root.display()));
        let outcome = outcome.and(cleaned);
        // Nobody listens any more when it took too long.
        let _ = told.send(match outcome {
            Ok(()) => Verdict::Passed,
            Err(error) => match (error.downcast_ref::<Skip>(), known(kind, &case.name)) {
                (Some(Skip(reason)), _) => Verdict::Skipped(reason.clone()),
                (None, Some(reason)) => Verdict::Known(reason.to_owned()),
                (None, None) => Verdict::Failed(format!("{error:#}")),
            },
        });
    });
    let verdict = verdict.recv_timeout(patience).unwrap_or(Verdict::Hung);
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    Report { case: name, verdict, took_ms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::skip;

    fn verdict_of(play: impl Fn(&Scene) -> Outcome + Send + 'static) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        let mut reports = Vec::new();
        let cases = vec![Case::new("a/case", play)];
        let patience = Duration::from_secs(60);
        run(dir.path(), cases, &Surroundings::default(), patience, |report| {
            reports.push(report.clone());
        })
        .unwrap();
        reports.pop().unwrap().verdict
    }

    #[test]
    fn a_case_passes_fails_is_skipped_or_panics() {
        assert_eq!(verdict_of(|_| Ok(())), Verdict::Passed);
        assert_eq!(verdict_of(|_| anyhow::bail!("no")), Verdict::Failed("no".to_owned()));
        assert_eq!(verdict_of(|_| skip("not here")), Verdict::Skipped("not here".to_owned()));
        assert!(matches!(verdict_of(|_| panic!("on purpose")), Verdict::Failed(_)));
    }

    #[test]
    fn what_is_known_is_about_cases_that_exist() {
        let names: Vec<String> = crate::cases::all().into_iter().map(|case| case.name).collect();
        for (_, case, _) in KNOWN {
            assert!(names.iter().any(|name| name == case), "{case}");
        }
    }

    #[test]
    fn names_of_cases_are_unique() {
        let mut names: Vec<String> =
            crate::cases::all().into_iter().map(|case| case.name).collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}

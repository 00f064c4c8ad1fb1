//! The result of a guest's script, and why a guest gave none.

use std::time::Duration;

/// The result of a script.
#[derive(Clone, Debug)]
pub struct Output {
    /// The script's exit status.
    pub status: i32,
    /// What the script printed.
    pub text: String,
}

/// Why a guest gave no result.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The program that is the guest, or one that prepares it, is not installed.
    #[error("running {program}: not found; install the packages {packages} (make setup does)")]
    NotInstalled {
        /// The program.
        program: &'static str,
        /// Packages, as Debian names them.
        packages: &'static str,
    },
    /// The kernel of the guest is not there.
    #[error("starting a guest: no kernel in {0}; run scripts/fetch-vm-kernel (make setup does)")]
    NoKernel(&'static str),
    /// A file of the run could not be made or read.
    #[error("preparing the guest: {0}")]
    Prepare(#[from] std::io::Error),
    /// A program that prepares the guest failed.
    #[error("preparing the guest: {program}: {said}")]
    Program {
        /// The program.
        program: &'static str,
        /// What it said.
        said: String,
    },
    /// The system calls of the kernel could not be filtered.
    #[error(
        "preparing the guest: filtering its system calls: {0}; the host kernel must have seccomp"
    )]
    Filter(String),
    /// The guest ended or was stopped before its script did.
    #[error("the guest did not finish its script within {0:?}; its console said:\n{1}")]
    Unfinished(Duration, String),
}

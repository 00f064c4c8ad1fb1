//! Common to guests of either kind: the files that their kernels start with, and their ends: the result of a script, or
//! why there is none.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time between two looks at a guest that runs.
const LOOK: Duration = Duration::from_millis(20);

/// The result of a script.
#[derive(Clone, Debug)]
pub struct Output {
    /// The script's exit status.
    pub status: i32,
    /// The text that it printed.
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
        /// Its own message.
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

/// The error of starting a program that one of these packages has.
pub(crate) fn found(
    program: &'static str,
    packages: &'static str,
    error: std::io::Error,
) -> GuestError {
    match error.kind() {
        std::io::ErrorKind::NotFound => GuestError::NotInstalled { program, packages },
        _ => error.into(),
    }
}

/// Makes the archive that a kernel starts with, of these files in `folder`: a name on each line.
///
/// # Errors
/// When cpio cannot be run, or fails.
pub(crate) fn archive(folder: &Path, names: &str, to: &Path) -> Result<(), GuestError> {
    let mut command = Command::new("cpio");
    command
        .args(["--create", "--quiet", "--format=newc"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(to)?);
    let mut cpio = command.spawn().map_err(|error| found("cpio", "cpio", error))?;
    if let Some(mut stdin) = cpio.stdin.take() {
        stdin.write_all(names.as_bytes())?;
    }
    match cpio.wait()? {
        status if status.success() => Ok(()),
        status => Err(GuestError::Program { program: "cpio", said: status.to_string() }),
    }
}

/// Waits for the end of a guest, and stops it after `limit` or when it is no longer `wanted`. In `folder` it leaves the
/// script's `status` and `output`, and has its `console`.
///
/// # Errors
/// [`GuestError::Unfinished`] when there is no status.
pub(crate) fn of(
    mut guest: Child,
    folder: &Path,
    (limit, wanted): (Duration, impl Fn() -> bool),
) -> Result<Output, GuestError> {
    let started = Instant::now();
    while guest.try_wait()?.is_none() {
        if started.elapsed() > limit || !wanted() {
            guest.kill()?;
            guest.wait()?;
            break;
        }
        std::thread::sleep(LOOK);
    }
    let read = |name: &str| {
        let bytes = std::fs::read(folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match read("status").trim().parse() {
        Ok(status) => Ok(Output { status, text: read("output") }),
        Err(_) => {
            let said = format!("{}\n{}", read("output"), read("console"));
            Err(GuestError::Unfinished(limit, said))
        }
    }
}

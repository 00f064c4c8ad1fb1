//! A process beside a server that ends a mount when the server has been killed.
//!
//! The kernel ends a mount when nobody has its /dev/fuse open any more. A thread of the server that is in the kernel for
//! something of its own mount (syncfs, a notice that has the kernel write pages out) waits there for answers that only the server
//! can give, and SIGKILL does not end that wait. Then the dead process keeps /dev/fuse open, and all that use the mount wait for
//! ever. The guard is told by the kernel of the death of the thread that started it, and ends the connection.
//!
//! It has nothing of the mount open, so that it holds up no unmount.

use crate::connection::abort_file;
use rustix::process::Signal;
use rustix::thread::gettid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Looks at a thread of whose death there was a signal, until it is gone.
const LOOKS: u32 = 200;
/// Between two of those.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The guard of one mount, while the thread lives that has started it. Dropping this ends it, and not the mount.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the program of `words`, which is to call [`guard`] with the words that come after them. `number` is the minor number
    /// of the mount's device.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(words: &[OsString], number: u32) -> std::io::Result<Guard> {
        let [program, words @ ..] = words else {
            return Err(std::io::Error::other("no program was named"));
        };
        let mut command = Command::new(program);
        command.args(words).arg(rustix::process::getpid().as_raw_nonzero().to_string());
        command.arg(gettid().as_raw_nonzero().to_string()).arg(number.to_string());
        // Keys typed at the server's terminal are not meant for it, and it keeps no folder in use.
        command.process_group(0).current_dir("/").env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard(command.spawn()?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // One that is gone already is all right.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the death of the thread `thread` of process `server`, which has started this process, and ends the connection `number`
/// then. Does not come back before.
///
/// # Errors
/// When it cannot do that. That the mount has ended by itself meanwhile is none.
pub fn guard(server: u32, thread: u32, number: u32) -> std::io::Result<()> {
    // A service manager tells all processes of a server of its end; the server ends this one when it has unmounted.
    // Else it has that of the link by which it was started. For people only.
    let _ = rustix::thread::set_name(c"braid-guard");
    let mut signals = Signals::new([SIGUSR1, SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    let mut abort = abort_file(number)?;
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if u32::try_from(parent) != Ok(server) || !is_there(server, thread) {
        return end(&mut abort);
    }
    for signal in signals.forever() {
        if signal == SIGUSR1 && is_gone_soon(server, thread) {
            return end(&mut abort);
        }
    }
    Ok(())
}

fn end(abort: &mut std::fs::File) -> std::io::Result<()> {
    abort.write_all(b"1")
}

/// True when the thread has gone: the signal comes a moment before, or from anybody.
fn is_gone_soon(server: u32, thread: u32) -> bool {
    (0..LOOKS).any(|_| {
        let is_gone = !is_there(server, thread);
        if !is_gone {
            std::thread::sleep(LOOK_EVERY);
        }
        is_gone
    })
}

fn is_there(server: u32, thread: u32) -> bool {
    PathBuf::from(format!("/proc/{server}/task/{thread}")).exists()
}

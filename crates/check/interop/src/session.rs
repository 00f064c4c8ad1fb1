//! A guest that carries out one script after the other while this program goes on.
//!
//! Owns the guest's life from its boot to its end, which dropping brings about. Scripts and what they
//! say go through the shared folder: the guest looks for the next script every few milliseconds, and a
//! guest that only looks costs the machine next to nothing.

use crate::outcome::{GuestError, Output};
use crate::uml::{self, SHARED};
use crate::vm::Vm;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a guest lives at most.
const LIFE: Duration = Duration::from_secs(3600);
/// How long a guest that was told to end may take for it.
const END: Duration = Duration::from_secs(20);
/// How often either side looks for the other's file.
const LOOK: Duration = Duration::from_millis(5);

/// Runs in the guest; files are renamed to their names once they are whole.
const LOOP: &str = r#"
cd SHARED
exec 9<> <(:)
nr=0
while :; do
  until [ -e script.$nr ]; do
    [ -e end ] && exit 0
    read -r -t 0.01 -u 9
  done
  (. ./script.$nr) > said.$nr 2>&1
  echo $? > part
  mv part status.$nr
  nr=$((nr + 1))
done
"#;

/// A running guest.
pub struct Session {
    shared: tempfile::TempDir,
    scripts: usize,
    wanted: Arc<AtomicBool>,
    /// `None` once it has been waited for.
    guest: Option<JoinHandle<Result<Output, GuestError>>>,
}

impl Session {
    /// Boots a guest of User Mode Linux with `memory_mib` of memory.
    ///
    /// # Errors
    /// When the shared folder cannot be made; a guest that does not come up shows in [`Session::run`].
    pub fn boot(memory_mib: u32) -> Result<Session, GuestError> {
        Session::of(move |script, shared, wanted| {
            uml::run_while(script, shared, memory_mib, LIFE, wanted)
        })
    }

    /// Boots a guest under QEMU, for as long as its `limit` allows.
    ///
    /// # Errors
    /// When the shared folder cannot be made; a guest that does not come up shows in [`Session::run`].
    pub fn boot_vm(vm: Vm) -> Result<Session, GuestError> {
        Session::of(move |script, shared, wanted| vm.run_while(script, shared, wanted))
    }

    fn of(
        run: impl FnOnce(&str, &Path, &dyn Fn() -> bool) -> Result<Output, GuestError> + Send + 'static,
    ) -> Result<Session, GuestError> {
        let shared = tempfile::Builder::new().prefix("braid-session.").tempdir_in("/var/tmp")?;
        let path = shared.path().to_path_buf();
        let script = LOOP.replace("SHARED", SHARED);
        let wanted = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&wanted);
        let guest =
            std::thread::spawn(move || run(&script, &path, &|| asked.load(Ordering::Relaxed)));
        Ok(Session { shared, scripts: 0, wanted, guest: Some(guest) })
    }

    /// The folder that the guest sees as [`SHARED`].
    pub fn shared(&self) -> &Path {
        self.shared.path()
    }

    /// Runs `script` (bash, as root, in the shared folder, in a process of its own) for at most `limit`.
    ///
    /// # Errors
    /// A guest that has ended, and a script that does not end in time; either ends the session. A script
    /// that fails is not an error but a status.
    pub fn run(&mut self, script: &str, limit: Duration) -> Result<Output, GuestError> {
        let nr = self.scripts;
        self.scripts += 1;
        let named = |name: &str| self.shared.path().join(format!("{name}.{nr}"));
        std::fs::write(named("part"), script)?;
        std::fs::rename(named("part"), named("script"))?;
        let started = Instant::now();
        while !named("status").exists() {
            if self.guest.as_ref().is_none_or(JoinHandle::is_finished) {
                let said = match self.guest.take().map(JoinHandle::join) {
                    Some(Ok(Err(error))) => return Err(error),
                    _ => "the guest has ended".to_owned(),
                };
                return Err(GuestError::Unfinished(started.elapsed(), said));
            }
            if started.elapsed() > limit {
                self.wanted.store(false, Ordering::Relaxed);
                let said = std::fs::read_to_string(named("said")).unwrap_or_default();
                return Err(GuestError::Unfinished(limit, said));
            }
            std::thread::sleep(LOOK);
        }
        let text = std::fs::read_to_string(named("said"))?;
        let status = std::fs::read_to_string(named("status"))?;
        let status = status.trim().parse().map_err(|_| {
            GuestError::Unfinished(started.elapsed(), format!("{text}\nstatus {status:?}"))
        })?;
        Ok(Output { status, text })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(guest) = self.guest.take() else { return };
        // Without the file the guest is stopped below.
        let _ = std::fs::write(self.shared.path().join("end"), "");
        let told = Instant::now();
        while !guest.is_finished() && told.elapsed() < END {
            std::thread::sleep(LOOK);
        }
        self.wanted.store(false, Ordering::Relaxed);
        // How it ended does not matter any more.
        let _ = guest.join();
    }
}

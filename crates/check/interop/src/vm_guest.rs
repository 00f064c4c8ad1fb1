//! Guests under QEMU in which the program `braid` runs as a user starts it, and the functions that their scripts have.

use crate::session::Session;
use crate::vm::Vm;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that a guest may live; it needs a minute of it on an idle machine.
const LIMIT: Duration = Duration::from_secs(600);

/// The beginning of each script. `serve OPTION...` starts a server of the members, with the options in DOOR too, by the
/// words in INSIDE if there are any, and waits until it listens.
const LIBRARY: &str = r#"
set -e
cd /tmp
braid() { PROGRAM "$@"; }
export BRAID_CONTROL=/tmp/control.sock BRAID_STATE_DIR=/tmp/state
fail() { echo "FAILED: $*"; [ ! -e serve.out ] || tail -n 20 serve.out; dmesg | tail -n 20; exit 1; }
await() { # WHAT COMMAND...
  local what=$1; shift
  for try in $(seq 1200); do "$@" > /dev/null 2>&1 && return; sleep 0.05; done
  fail "never: $what"
}
listens() { grep -q '^control socket' serve.out || ! kill -0 $(cat serve.pid); }
DOOR=
INSIDE=
serve() {
  $INSIDE PROGRAM serve m? $DOOR "$@" > serve.out 2>&1 &
  echo $! > serve.pid
  await "the server listens" listens
  kill -0 $(cat serve.pid) || fail "the server has ended"
}
gone() { ! kill -0 $1; }
ended() { # SIGNAL
  local pid=$(cat serve.pid)
  kill -$1 $pid
  await "the server has ended" gone $pid
}
no_errors() { ! dmesg | grep -iE "I/O error|buffer i/o|EXT4-fs (error|warning)|Oops:|BUG:" && echo "kernel: no errors"; }
"#;

/// The program, which cargo builds beside the tests. Guests see it under the same path.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    let folder = test.parent().and_then(Path::parent).expect("it is in target/PROFILE/deps");
    let program = folder.join("braid");
    assert!(program.exists(), "{} is missing: cargo build -p braid first", program.display());
    program
}

/// See the module's documentation.
pub struct Guest {
    session: Session,
    library: String,
}

impl Guest {
    /// One with the four members m0 to m3, files of 24 MiB, after `first`. Its scripts have the functions in `more`, too.
    ///
    /// # Panics
    /// When there is no guest, or `first` fails.
    #[must_use]
    pub fn boot(more: &str, first: &str) -> Guest {
        let vm = Vm { limit: LIMIT, ..Vm::default() };
        let session = Session::boot_vm(vm).expect("a guest");
        let library = LIBRARY.replace("PROGRAM", &program().display().to_string()) + more;
        let mut guest = Guest { session, library };
        let members = "for nr in 0 1 2 3; do truncate -s 24M m$nr; done\n";
        guest.run(&format!("{members}{first}"), &[]);
        guest
    }

    /// Runs a script, which must succeed and say all of these.
    ///
    /// # Panics
    /// When it does not.
    pub fn run(&mut self, steps: &str, says: &[&str]) {
        let script = format!("{}{steps}", self.library);
        let output = self.session.run(&script, LIMIT).expect("the guest runs");
        for said in says {
            assert!(
                output.text.contains(said),
                "no {said:?} in what the guest said:\n{}",
                output.text
            );
        }
        assert_eq!(output.status, 0, "{}", output.text);
    }
}

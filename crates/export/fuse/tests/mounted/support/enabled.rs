//! FUSE over io_uring, switched on in the kernel as long as a test needs it.

use std::sync::{Mutex, PoisonError};

const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// The number of tests that need it, and true if it was off before.
static NEEDED: Mutex<(usize, bool)> = Mutex::new((0, false));

/// Switched on until the drop of the last of them.
pub struct Enabled(());

impl Enabled {
    /// `None`, and says why, when the kernel does not have it.
    pub fn new() -> Option<Enabled> {
        let mut needed = NEEDED.lock().unwrap_or_else(PoisonError::into_inner);
        if needed.0 == 0 {
            let set = std::fs::read_to_string(PARAMETER).and_then(|before| {
                needed.1 = before.trim() == "N";
                if needed.1 { std::fs::write(PARAMETER, "Y") } else { Ok(()) }
            });
            if let Err(error) = set {
                skip(&format!(
                    "{PARAMETER}: {error}; FUSE over io_uring needs Linux 6.14 (`cargo test -p braid-fuse --test mounted` runs the others)"
                ));
                return None;
            }
        }
        needed.0 += 1;
        Some(Enabled(()))
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        let mut needed = NEEDED.lock().unwrap_or_else(PoisonError::into_inner);
        needed.0 -= 1;
        if needed.0 == 0 && needed.1 {
            let _ = std::fs::write(PARAMETER, "N");
        }
    }
}

/// Says that a test is left out.
///
/// # Panics
/// For root and in CI, where it has to be run: passing there would say that it works.
pub fn skip(why: &str) {
    let must = rustix::process::geteuid().is_root() || std::env::var_os("CI").is_some();
    assert!(!must, "this test cannot be run: {why}; mend that, or leave the test out by name");
    eprintln!("skipped: {why}");
}

//! The background of a test: caches of the kernel, and space that comes back late.

use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Looks until space has come back, and the time between two of them.
const LOOKS: usize = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Has the kernel forget all files that are not in use, if that was asked for; only root may.
///
/// # Errors
///
/// When the kernel refuses.
pub fn drop_caches_if(asked: bool) -> Result<()> {
    if asked {
        std::fs::write("/proc/sys/vm/drop_caches", "3")
            .context("dropping caches, which root may")?;
    }
    Ok(())
}

/// Waits some seconds until `free` counts `wanted` of `unit` or more, and gives the count: what is removed may be freed
/// behind the scenes.
///
/// # Errors
///
/// That of `free`, or that there is less in the end.
pub fn wait_until_free(unit: &str, wanted: u64, free: impl Fn() -> Result<u64>) -> Result<u64> {
    let mut now = 0;
    for _ in 0..LOOKS {
        now = free()?;
        if now >= wanted {
            return Ok(now);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    bail!("{now} {unit} are free, should be {wanted} or more")
}

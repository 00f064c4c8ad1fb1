//! How requests of a mount come from the kernel: over io_uring where it has that, or through /dev/fuse.

use anyhow::Context;

/// The kernel's switch; what is mounted while it is on uses io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over io_uring.
    IoUring,
    /// Through /dev/fuse.
    Device,
}

impl Way {
    /// Over io_uring where the kernel has it.
    pub fn best() -> Way {
        if std::path::Path::new(PARAMETER).exists() { Way::IoUring } else { Way::Device }
    }

    /// In words, for what is said above a table.
    pub fn words(self) -> &'static str {
        match self {
            Way::IoUring => "over io_uring",
            Way::Device => "through /dev/fuse",
        }
    }
}

/// The switch as it is to be, and was before when this is dropped.
pub struct Switched(Option<String>);

impl Switched {
    /// For what is mounted next.
    ///
    /// # Errors
    /// When the switch cannot be set.
    pub fn to(way: Way) -> anyhow::Result<Switched> {
        let Ok(before) = std::fs::read_to_string(PARAMETER) else { return Ok(Switched(None)) };
        let value = if way == Way::IoUring { "Y" } else { "N" };
        std::fs::write(PARAMETER, value)
            .with_context(|| format!("writing {value} to {PARAMETER}"))?;
        Ok(Switched(Some(before)))
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = std::fs::write(PARAMETER, before.trim());
        }
    }
}

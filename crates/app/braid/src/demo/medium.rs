//! Where the files are copied: a mounted file system on the array, or the bare device.

mod mounted;
mod plain;

use super::sources::Sources;
use super::stage::{Interrupt, Stage};
use crate::output;
use anyhow::Result;
use braid_nbd::{Address, NbdUri};
use mounted::Mounted;
use plain::Plain;
use std::sync::atomic::AtomicU64;

/// See the module's documentation.
pub enum Medium {
    /// ext4 on a loop device on a FUSE file that nbdfuse serves.
    Mounted(Mounted),
    /// The device itself, by braid's own NBD client.
    Plain(Plain),
}

impl Medium {
    /// Opens the array `name`: mounted, where that is wanted and works.
    ///
    /// # Errors
    /// When not even the plain client connects.
    pub fn open(stage: &mut Stage, name: &str, mount: bool) -> Result<Medium> {
        let address = Address::Unix(stage.nbd_socket());
        if mount {
            match mounted::obstacle() {
                None => {
                    super::heading::heading("An ext4 on it: nbdfuse, a loop device, mkfs, mount")?;
                    let before = stage.cleanup.len();
                    match Mounted::open(stage, &address.uri(name)) {
                        Ok(mounted) => return Ok(Medium::Mounted(mounted)),
                        Err(error) => {
                            stage.cleanup.undo_to(before)?;
                            stage.go_on()?;
                            output::line(format!("mounting did not work here: {error:#}"))?;
                        }
                    }
                }
                Some(obstacle) => output::line(format!("no mounting here: {obstacle}"))?,
            }
        }
        super::heading::heading(
            "A plain NBD client writes the files to the device one after the other",
        )?;
        Ok(Medium::Plain(Plain::open(&address, name)?))
    }

    /// Copies everything in; `arrived` counts bytes.
    ///
    /// # Errors
    /// What could not be read or written.
    pub fn copy_in(
        &mut self,
        sources: &Sources,
        interrupt: &Interrupt,
        arrived: &AtomicU64,
    ) -> Result<()> {
        match self {
            Medium::Mounted(mounted) => sources.copy_to(mounted.folder(), interrupt, arrived),
            Medium::Plain(plain) => plain.copy_in(sources, interrupt, arrived),
        }
    }

    /// Has everything written out and made durable.
    ///
    /// # Errors
    /// What could not be written.
    pub fn sync(&mut self) -> Result<()> {
        match self {
            Medium::Mounted(mounted) => super::sources::sync(mounted.folder()),
            Medium::Plain(plain) => plain.flush(),
        }
    }

    /// Empties caches above the array.
    ///
    /// # Errors
    /// When the file system cannot be unmounted and mounted again.
    pub fn forget(&mut self, stage: &Stage) -> Result<()> {
        match self {
            Medium::Mounted(mounted) => mounted.remount(stage),
            Medium::Plain(_) => Ok(()),
        }
    }

    /// Reads everything and compares checksums.
    ///
    /// # Errors
    /// The first file that is not what was copied.
    pub fn compare(&mut self, sources: &Sources, interrupt: &Interrupt) -> Result<()> {
        match self {
            Medium::Mounted(mounted) => sources.compare(mounted.folder(), interrupt),
            Medium::Plain(plain) => plain.compare(sources, interrupt),
        }
    }

    /// Gives the array up.
    ///
    /// # Errors
    /// When it cannot be unmounted.
    pub fn close(self, stage: &mut Stage) -> Result<()> {
        match self {
            Medium::Mounted(mounted) => mounted.close(stage),
            Medium::Plain(plain) => {
                drop(plain);
                Ok(())
            }
        }
    }
}

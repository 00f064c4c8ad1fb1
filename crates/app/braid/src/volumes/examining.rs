//! What the superblock of a brick says, read from a device that may be in use.

use crate::members::parse_brick;
use crate::on_shard;
use anyhow::{Context, Result};
use braid_device::Opener;
use braid_device::file::{FileMember, Mode};
use braid_format::brick::BrickSuperblock;
use braid_nbd::ExportUri;
use braid_shard::mailbox::Remote;
use braid_volume::assemble::examine;
use std::path::Path;
use std::sync::Arc;

/// A superblock that was read.
#[derive(Clone, Debug)]
pub struct Read {
    /// What it says.
    pub superblock: BrickSuperblock,
    /// What is amiss with it.
    pub notes: Vec<String>,
}

/// Reads the superblock of the device at `path`, or of the export with that URI, in use or not.
///
/// # Errors
/// When it cannot be read or is no brick's.
pub fn read(path: &Path) -> Result<Read> {
    let shards = on_shard::start_shards(1)?;
    let home = shards.remotes().first().context("one shard was started")?;
    let opener: Arc<dyn Opener> = match path.to_str().filter(|text| ExportUri::is_meant(text)) {
        Some(uri) => parse_brick(uri)?.prepare(Mode::Examine)?,
        None => Arc::new(FileMember::open(path, Mode::Examine)?),
    };
    read_on(home, opener)
}

/// Reads the superblock of what `opener` opens.
///
/// # Errors
/// When it cannot be read or is no brick's.
pub fn read_on(home: &Remote, opener: Arc<dyn Opener>) -> Result<Read> {
    on_shard::run(home, move |shard| async move {
        let found = examine(&shard, opener.open(&shard)?).await?;
        Ok(Read { superblock: found.superblock, notes: found.notes })
    })?
}

//! `braid examine --badblocks`: the bad-block log of a member, as `mdadm --examine-badblocks` shows it.

use super::read::Read;
use crate::source::Source;
use anyhow::{Context, Result};
use braid_format::{SECTOR, badblocks};

/// The log's entries in member sectors, or that there is none.
///
/// # Errors
/// A log that cannot be read, or makes no sense.
pub fn text(source: &Source, read: &Read) -> Result<String> {
    let (superblock, path) = (&read.superblock, read.path.display());
    let Some(sector) = superblock.bblog_sector() else {
        return Ok(format!("No bad-blocks list configured on {path}"));
    };
    if !superblock.bad_blocks {
        return Ok(format!("Bad-blocks list is empty in {path}"));
    }
    let mut log = vec![0; usize::from(superblock.bblog_size) * SECTOR];
    source
        .read_exact_at(&mut log, sector.saturating_mul(SECTOR as u64))
        .with_context(|| format!("reading the bad-block log of {path}"))?;
    let ranges =
        badblocks::parse(&log, superblock.bblog_shift).with_context(|| path.to_string())?;
    let mut lines = vec![format!("Bad-blocks on {path}:")];
    let entry = |range: &std::ops::Range<u64>| {
        format!("{:>20} for {} sectors", range.start, range.end - range.start)
    };
    lines.extend(ranges.iter().map(entry));
    Ok(lines.join("\n"))
}

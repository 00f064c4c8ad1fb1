//! Reading the bad-block logs of members that take part in an assembly.

use crate::assemble::choose::Found;
use crate::metadata::superblock::read;
use crate::state::bad_blocks::BadBlocks;
use braid_format::{SECTOR, badblocks};
use braid_shard::Shard;
use braid_shard::plant::planted;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// The blocks that the member's log lists, in sectors of the member; none when its superblock says that
/// there are none.
///
/// # Errors
/// Why the log cannot be read or makes no sense, as text.
pub(crate) async fn bad_blocks(shard: &Shard, found: &Found) -> Result<BadBlocks, String> {
    let superblock = &found.superblock;
    if !superblock.bad_blocks {
        return Ok(BadBlocks::default());
    }
    let Some(sector) = superblock.bblog_sector() else {
        return Err(
            "its superblock says that there are bad blocks and has no log of them".to_string()
        );
    };
    let block = u64::from(found.device.info().logical_block.max(SECTOR as u32));
    let len = usize::from(superblock.bblog_size) * SECTOR;
    let at = sector.saturating_mul(SECTOR_BYTES);
    let before = at % block;
    let whole = (before + len as u64).next_multiple_of(block) as usize;
    let bytes = match read(shard, &found.device, at - before, whole).await {
        Err(_) if planted("bad-list-as-empty") => return Ok(BadBlocks::default()),
        read => read.map_err(|e| e.to_string())?,
    };
    let log = bytes.get(before as usize..before as usize + len).unwrap_or_default();
    let ranges = badblocks::parse(log, superblock.bblog_shift).map_err(|e| e.to_string())?;
    Ok(BadBlocks::new(ranges))
}

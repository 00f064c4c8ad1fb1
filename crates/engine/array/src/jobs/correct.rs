//! Blocks that a repair writes, each read back afterwards: what counts as mended has been seen.

use crate::engine::Engine;
use crate::state::view::View;
use crate::write::write_errors::handle_job_write_errors;
use braid_device::{IoError, Op, Request};
use braid_layout::Slot;
use braid_shard::Buf;
use std::rc::Rc;

/// A block that is wrong.
pub(crate) struct Fix {
    /// Which of the caller's places it belongs to.
    pub(crate) group: usize,
    pub(crate) slot: Slot,
    /// Component byte.
    pub(crate) at: u64,
    /// The correct content.
    pub(crate) right: Buf,
}

/// Writes `fixes`, whose ranges the caller holds, and reads them back. Says of each of `groups` places whether all
/// of it is as it should be now.
///
/// # Errors
/// When more members have failed than the level survives.
pub(crate) async fn correct(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    fixes: &[Fix],
    groups: usize,
) -> Result<Vec<bool>, IoError> {
    let mut mended = vec![true; groups];
    if fixes.is_empty() {
        return Ok(mended);
    }
    let mut set = engine.sets.start();
    for fix in fixes {
        for slot in view.written_with(fix.slot) {
            if let Some((device, data_offset)) = view.member(slot) {
                let request = Request::write(data_offset + fix.at, fix.right.clone(), false);
                set.submit(slot as u32, &**device, request);
            }
        }
    }
    handle_job_write_errors(engine, view, set.finish().await).await?;
    // A member that failed meanwhile, or recorded the block as bad, does not hold it.
    let now = engine.view();
    let mut set = engine.sets.start();
    for (nr, fix) in fixes.iter().enumerate() {
        let bytes = fix.at..fix.at + fix.right.len() as u64;
        match now.member(fix.slot).filter(|_| now.readable(fix.slot, &bytes)) {
            Some((device, data_offset)) => {
                let buf = engine.shard.pool().get(fix.right.len());
                set.submit(nr as u32, &**device, Request::read(data_offset + fix.at, buf));
            }
            None => fail(&mut mended, fix),
        }
    }
    for (nr, outcome) in set.finish().await {
        let Some(fix) = fixes.get(nr as usize) else { continue };
        let same = match (outcome.result, outcome.op) {
            (Ok(()), Op::Read(bufs)) => bufs.first().is_some_and(|buf| **buf == *fix.right),
            _ => false,
        };
        if !same {
            fail(&mut mended, fix);
        }
    }
    Ok(mended)
}

fn fail(mended: &mut [bool], fix: &Fix) {
    if let Some(mended) = mended.get_mut(fix.group) {
        *mended = false;
    }
}

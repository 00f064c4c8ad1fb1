//! **reads_return_acknowledged**: every block that a read gives holds a version that the block may hold
//! (invariant 1; [`crate::oracle`] says which those are).

use crate::oracle::{Oracle, Tick};
use crate::world::World;
use braid_device::BufMuts;
use std::ops::Range;

const NAME: &str = "reads_return_acknowledged";

/// A read that began at `started` gave `bufs`.
pub fn look(
    world: &World,
    oracle: &mut Oracle,
    started: Tick,
    blocks: &Range<u64>,
    bufs: &BufMuts,
) {
    let size = oracle.block_size() as usize;
    let mut block = blocks.start;
    for buf in bufs {
        for bytes in buf.chunks(size) {
            if block < blocks.end
                && let Err(text) = oracle.check(started, block, bytes)
            {
                world.compare_with_lies(block);
                world.fail(NAME, text);
                return;
            }
            block += 1;
        }
    }
    if block != blocks.end {
        let text = format!("a read of blocks {blocks:?} gave blocks up to {block}");
        world.fail(NAME, text);
    }
}

//! **job_resumes**: a recovery that was interrupted goes on from the checkpoint that the superblocks hold,
//! not from before it (invariant 7). That it does not go on from beyond what is durable is seen by
//! `stale_never_source` and `md_can_assemble`, block by block.

use crate::images::MdChoice;
use crate::member::Member;
use crate::world::World;
use braid_array::status::{ArrayStatus, MemberState};
use braid_layout::{Level, Slot};
use std::rc::Rc;

const NAME: &str = "job_resumes";

/// The array was assembled from members that md would choose so.
pub fn look(world: &World, choice: &MdChoice, status: &ArrayStatus) {
    let named =
        |(slot, member, at): &(Slot, Rc<Member>, u64)| (*slot, member.name().to_string(), *at);
    let rebuilding: Vec<_> = choice.rebuilding.iter().map(named).collect();
    compare(world, &rebuilding, status);
}

/// The array runs; by its superblocks these were being rebuilt, up to a component byte each.
pub fn compare(world: &World, rebuilding: &[(Slot, String, u64)], status: &ArrayStatus) {
    if status.level == Level::Raid10 {
        // Its recovery goes along the array, which no field of the superblock can tell.
        return;
    }
    for (slot, name, checkpoint) in rebuilding {
        let now = status.members.iter().find(|status| status.name == *name);
        if let Some(MemberState::Rebuilding { recovered }) = now.map(|status| status.state)
            && recovered < *checkpoint
        {
            let text = format!(
                "{name} in slot {slot} had been rebuilt up to component byte {checkpoint} and starts again at {recovered}"
            );
            world.fail(NAME, text);
        }
    }
}

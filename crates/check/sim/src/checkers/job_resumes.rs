//! **job_resumes**: a recovery that was interrupted goes on from the checkpoint that the superblocks hold,
//! not from before it (invariant 7). That it does not go on from beyond what is durable is seen by
//! `stale_never_source` and `md_can_assemble`, block by block.

use crate::images::MdChoice;
use crate::world::World;
use braid_array::status::{ArrayStatus, MemberState};
use braid_layout::Level;

const NAME: &str = "job_resumes";

/// The array was assembled from members that md would choose so.
pub fn look(world: &World, choice: &MdChoice, status: &ArrayStatus) {
    if status.level == Level::Raid10 {
        // Its recovery goes along the array, which no field of the superblock can tell.
        return;
    }
    for (slot, member, checkpoint) in &choice.rebuilding {
        let now = status.members.iter().find(|status| status.name == member.name());
        if let Some(MemberState::Rebuilding { recovered }) = now.map(|status| status.state)
            && recovered < *checkpoint
        {
            let text = format!(
                "{} in slot {slot} had been rebuilt up to component byte {checkpoint} and starts again at {recovered}",
                member.name()
            );
            world.fail(NAME, text);
        }
    }
}

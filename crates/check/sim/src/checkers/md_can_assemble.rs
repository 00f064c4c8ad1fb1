//! **md_can_assemble**: whatever the instant of a crash, the superblocks describe an array that md
//! would start, with members that hold what they should (invariant 4). In particular: a member that
//! missed an acknowledged write is nowhere recorded as in sync with the freshest event count, because
//! its failure is recorded in the survivors before the reply.
//!
//! Reads the images with `braid_format` and applies md's rules; asks nothing of the engine.

use crate::images::{MdChoice, md_choice, recorded_bad};
use crate::member::Member;
use crate::world::World;
use braid_layout::Layout;
use std::rc::Rc;

const NAME: &str = "md_can_assemble";

/// Looks at the images of `members`. `must_start`: enough of them are there for the level.
pub fn look(
    world: &World,
    layout: &Layout,
    members: &[Rc<Member>],
    must_start: bool,
) -> Option<MdChoice> {
    let Some(choice) = md_choice(world, members) else {
        if must_start {
            world.fail(NAME, "no member has a superblock that can be used".to_string());
        }
        return None;
    };
    for (slot, member) in &choice.in_sync {
        let bad = recorded_bad(world, member);
        let in_use = |at| {
            !bad.iter().any(|range| range.contains(&at))
                && match layout {
                    Layout::Raid10(raid10) => raid10.logical(*slot, at).is_some(),
                    Layout::Parity(parity) => at < parity.used_component_size(),
                    _ => true,
                }
        };
        if let Some(at) = member.first_not_rebuilt(in_use) {
            let text = format!(
                "{} counts as in sync in slot {slot} (freshest events {}), but it missed an acknowledged \
                 write or was a spare, and component byte {at} has not been written since",
                member.name(),
                choice.freshest.events
            );
            world.fail(NAME, text);
        }
        if choice.in_sync.iter().any(|(other, o)| other == slot && !Rc::ptr_eq(o, member)) {
            world.fail(NAME, format!("two members count as in sync in slot {slot}"));
        }
    }
    let holds = |slot| choice.in_sync.iter().any(|(held, _)| *held == slot);
    // A reshape to fewer members may have ended, or slots have other numbers, without anybody being told.
    let reshaped = || {
        let slots = choice.freshest.raid_disks as usize;
        let missing = (0..slots).filter(|slot| !holds(*slot)).count();
        match layout {
            Layout::Parity(parity) => missing <= parity.parity_count(),
            Layout::Striped(_) if choice.freshest.level == 10 => {
                (0..slots / 2).all(|pair| holds(pair * 2) || holds(pair * 2 + 1))
            }
            Layout::Raid10(_) if choice.freshest.level == 10 => {
                let now = crate::images::layout(std::slice::from_ref(&choice.freshest));
                now.is_some_and(|now| now.survives(holds))
            }
            Layout::Raid10(_) => choice.freshest.level == 0 && missing == 0,
            _ => false,
        }
    };
    if must_start && !layout.survives(holds) && !(world.reshaping.get() && reshaped()) {
        let slots: Vec<usize> = choice.in_sync.iter().map(|(slot, _)| *slot).collect();
        let text = format!(
            "of {} slots only {slots:?} have a member that counts as in sync",
            layout.slots()
        );
        world.fail(NAME, text);
    }
    Some(choice)
}

//! Arrays whose superblocks are of version 0.90: no names, no recovery offset, numbers that move.

use super::world::{World, members, pattern};
use crate::error::CreateError;
use crate::options::{CreateOptions, MemberSelector};
use crate::status::MemberState;
use braid_device::Opener;
use braid_format::superblock::{Role, Version};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn options(level: Level, raid_disks: usize, spares: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: Some(64 << 10),
        spares,
        version: Version::V0_90,
        ..CreateOptions::new("old", level, raid_disks)
    }
}

#[test]
fn a_lost_member_is_rebuilt_onto_the_spare_which_takes_its_number() {
    let world = World::new(1);
    let members = members("m", 5, 6 * MIB);
    world.create(&members, options(Level::Raid5, 4, 1));
    let (array, control) = world.assemble(&members);
    let bytes = pattern(0, 3 << 20);
    world.write(&array, 0, 8192, &bytes).unwrap();
    world.wait_idle(&control);
    let (failing, name) = (Rc::clone(&control), MemberSelector::Name("m1".to_string()));
    world.run(async move { failing.fail(&name).await }).unwrap();
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!(status.degraded, 0);
    let more = pattern(99, 200 << 10);
    world.write(&array, 0, 4 << 20, &more).unwrap();
    world.stop(&control);

    let spare = world.superblock(&members[4]);
    assert_eq!(
        (spare.version, spare.own_role(), spare.dev_number),
        (Version::V0_90, Role::Slot(1), 1)
    );
    // The failed member has the same number, and an older superblock.
    let (array, control) = world.assemble(&members);
    let status = world.status(&control);
    assert_eq!(status.degraded, 0);
    assert!(
        status
            .members
            .iter()
            .all(|member| member.name != "m1" || member.state == MemberState::Spare)
    );
    assert!(world.read(&array, 0, 8192, bytes.len()).unwrap() == bytes);
    assert!(world.read(&array, 0, 4 << 20, more.len()).unwrap() == more);
    world.stop(&control);
}

#[test]
fn a_rebuild_that_was_stopped_starts_anew_and_reads_nothing_from_its_target() {
    let world = World::new(1);
    let members = members("m", 3, 6 * MIB);
    let options = CreateOptions { assume_clean: true, ..options(Level::Raid5, 3, 0) };
    world.create(&members, options);
    let (array, control) = world.assemble(&members);
    let bytes = pattern(5, 4 << 20);
    world.write(&array, 0, 0, &bytes).unwrap();
    let (failing, name) = (Rc::clone(&control), MemberSelector::Name("m2".to_string()));
    world.run(async move { failing.fail(&name).await }).unwrap();
    let (removing, name) = (Rc::clone(&control), MemberSelector::Name("m2".to_string()));
    world.run(async move { removing.remove(&name).await }).unwrap();
    let fresh = super::world::members("fresh", 1, 6 * MIB);
    let (adding, opener) = (Rc::clone(&control), Arc::clone(&fresh[0]) as Arc<dyn Opener>);
    world.run(async move { adding.add(opener, false).await }).unwrap();
    world.stop(&control);
    assert_eq!(
        world.superblock(&fresh[0]).own_role(),
        Role::Spare,
        "it holds too little to be more"
    );

    let given = [Arc::clone(&members[0]), Arc::clone(&members[1]), Arc::clone(&fresh[0])];
    let (array, control) = world.assemble(&given);
    assert!(world.read(&array, 0, 0, bytes.len()).unwrap() == bytes);
    world.wait_idle(&control);
    assert_eq!(world.status(&control).degraded, 0);
    control.start_check().unwrap();
    world.wait_idle(&control);
    assert_eq!(world.status(&control).mismatch_cnt, 0);
    world.stop(&control);
}

#[test]
fn more_members_than_the_table_of_disks_holds_are_refused() {
    let world = World::new(1);
    let members = members("m", 28, MIB);
    let openers = members.iter().map(|member| Some(Arc::clone(member) as Arc<dyn Opener>));
    let (ctx, openers) = (world.ctx.clone(), openers.collect());
    let options = options(Level::Raid6, 28, 0);
    let refused = world.run(async move { crate::create::create(&ctx, openers, options).await });
    let most = |error: &CreateError| matches!(error, CreateError::TooManyMembers { max: 27, .. });
    assert!(refused.as_ref().is_err_and(most), "{:?}", refused.err());
}

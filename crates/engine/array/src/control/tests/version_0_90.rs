//! Arrays whose superblocks are of version 0.90: no names, no recovery offset, numbers that move.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::CreateError;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::status::MemberState;
use braid_device::Opener;
use braid_format::superblock::{Role, Version};
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 << 10;
const SECOND: u64 = 1_000_000_000;

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
    world.run(async move { failing.membership().fail(&name).await }).unwrap();
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
    world.run(async move { failing.membership().fail(&name).await }).unwrap();
    let (removing, name) = (Rc::clone(&control), MemberSelector::Name("m2".to_string()));
    world.run(async move { removing.membership().remove(&name).await }).unwrap();
    let fresh = crate::control::tests::world::members("fresh", 1, 6 * MIB);
    let (adding, opener) = (Rc::clone(&control), Arc::clone(&fresh[0]) as Arc<dyn Opener>);
    world.run(async move { adding.membership().add(opener, false).await }).unwrap();
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
    control.jobs().start_check().unwrap();
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

fn fail_and_remove(world: &World, control: &Rc<Control>, name: &str) {
    let (control, selector) = (Rc::clone(control), MemberSelector::Name(name.to_string()));
    world
        .run(async move {
            control.membership().fail(&selector).await?;
            control.membership().remove(&selector).await
        })
        .unwrap();
}

/// A clean array with a bitmap without a set bit.
fn with_bitmap(world: &World, level: Level, disks: usize) -> Vec<Arc<TestMember>> {
    let members = members("m", disks, 16 * MIB);
    let options = CreateOptions {
        assume_clean: true,
        bitmap: CreateBitmap::Internal { chunk: Some(CHUNK) },
        ..options(level, disks, 0)
    };
    world.create(&members, options);
    let (_, control) = world.assemble(&members);
    world.stop(&control);
    members
}

fn written(members: &[Arc<TestMember>], which: usize) -> u64 {
    members[which].written.load(Ordering::Relaxed)
}

#[test]
fn with_a_bitmap_a_crash_costs_the_resync_of_what_was_being_written() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        let world = World::new(1);
        let members = with_bitmap(&world, level, disks);
        let (array, _) = world.assemble(&members);
        world.write(&array, 0, 9 * CHUNK, &pattern(1, 8192)).unwrap();
        let world = world.crash();
        let reads =
            || members.iter().map(|member| member.read.load(Ordering::Relaxed)).sum::<u64>();
        let (array, control) = world.assemble(&members);
        let before = reads();
        world.wait_idle(&control);
        assert!(reads() - before < disks as u64 * 2 * CHUNK, "{level}: {}", reads() - before);
        assert_eq!(world.status(&control).resynced, None);
        assert!(world.read(&array, 0, 9 * CHUNK, 8192).unwrap() == pattern(1, 8192));
        assert_eq!(world.check(&control), 0);
    }
}

#[test]
fn with_a_bitmap_a_member_that_was_away_gets_what_was_written_meanwhile() {
    for (level, disks) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid10, 4)] {
        let world = World::new(1);
        let members = with_bitmap(&world, level, disks);
        let (array, control) = world.assemble(&members);
        fail_and_remove(&world, &control, "m1");
        world.write(&array, 0, 4 * CHUNK, &pattern(7, 4 * CHUNK as usize)).unwrap();
        let before = written(&members, 1);
        let (control, opener) = (control, Arc::clone(&members[1]) as Arc<dyn Opener>);
        let adding = Rc::clone(&control);
        world.run(async move { adding.membership().re_add(opener).await }).unwrap();
        world.wait_idle(&control);
        let copied = written(&members, 1) - before;
        assert!(copied < MIB, "{level}: {copied} bytes were written");
        assert_eq!(world.status(&control).degraded, 0);
        assert_eq!(world.check(&control), 0, "{level}");
        world.stop(&control);
        assert_eq!(world.superblock(&members[1]).own_role(), Role::Slot(1));
    }
}

#[test]
fn a_member_that_was_coming_back_when_all_stopped_is_filled_as_a_whole() {
    let world = World::new(1);
    let members = with_bitmap(&world, Level::Raid1, 2);
    let (array, control) = world.assemble(&members);
    fail_and_remove(&world, &control, "m1");
    let bytes = pattern(7, 4096);
    world.write(&array, 0, 4 * CHUNK, &bytes).unwrap();
    control.jobs().pause_jobs(true);
    let (adding, opener) = (Rc::clone(&control), Arc::clone(&members[1]) as Arc<dyn Opener>);
    world.run(async move { adding.membership().re_add(opener).await }).unwrap();
    let world = world.crash();
    assert_eq!(world.superblock(&members[1]).own_role(), Role::Spare);
    let before = written(&members, 1);
    let array = world
        .try_assemble(&members, AssembleOptions { start_degraded: true, ..Default::default() })
        .unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.wait_idle(&control);
    assert!(written(&members, 1) - before > 15 * MIB);
    assert_eq!(world.status(&control).degraded, 0);
    assert!(world.read(&array, 0, 4 * CHUNK, 4096).unwrap() == bytes);
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_member_whose_number_was_taken_meanwhile_can_be_added_again() {
    let world = World::new(1);
    let members = with_bitmap(&world, Level::Raid5, 3);
    let (_, control) = world.assemble(&members);
    fail_and_remove(&world, &control, "m1");
    let fresh = crate::control::tests::world::members("fresh", 1, 16 * MIB);
    let add = |control: &Rc<Control>, member: &Arc<TestMember>| {
        let (adding, opener) = (Rc::clone(control), Arc::clone(member) as Arc<dyn Opener>);
        world.run(async move { adding.membership().add(opener, false).await })
    };
    assert!(!add(&control, &fresh[0]).unwrap().re_added);
    world.wait_idle(&control);
    world.stop(&control);
    let given = [Arc::clone(&members[0]), Arc::clone(&fresh[0]), Arc::clone(&members[2])];
    let (_, control) = world.assemble(&given);
    assert_eq!(world.superblock(&fresh[0]).dev_number, 1);
    assert!(!add(&control, &members[1]).unwrap().re_added);
    fail_and_remove(&world, &control, "m0");
    world.wait_idle(&control);
    assert_eq!(world.status(&control).degraded, 0);
    world.sleep(20 * SECOND);
    assert_eq!(world.check(&control), 0);
}

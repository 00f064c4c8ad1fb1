//! The write-intent bitmap: set before data, cleared after, and what it saves after a crash or for a
//! member that was away.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::{AssembleError, ControlError};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::status::{ArrayStatus, MemberState};
use braid_device::Opener;
use braid_format::bitmap::{BitmapSuperblock, Bits, HEADER};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
const CHUNK: u64 = 64 * KIB;
const LEVELS: [(Level, usize); 4] =
    [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid10, 4)];

fn options(level: Level, raid_disks: usize) -> CreateOptions {
    CreateOptions {
        chunk_size: (level != Level::Raid1).then_some(CHUNK),
        assume_clean: true,
        bitmap: CreateBitmap::Internal { chunk: Some(CHUNK) },
        ..CreateOptions::new("data", level, raid_disks)
    }
}

/// The bitmap on a member.
fn bitmap(world: &World, member: &Arc<TestMember>) -> (BitmapSuperblock, Vec<u64>) {
    let at = world.superblock(member).bitmap_sector().unwrap() as usize * 512;
    let contents = world.contents(member);
    let superblock = BitmapSuperblock::parse(&contents[at..]).unwrap();
    let end = contents.len().min(at + 64 * KIB as usize);
    let bits = Bits::from_area(&contents[at..end], superblock.bits());
    let set = bits.iter_set().collect();
    (superblock, set)
}

fn some(
    members: &[Arc<TestMember>],
    which: impl IntoIterator<Item = usize>,
) -> Vec<Arc<TestMember>> {
    which.into_iter().map(|nr| Arc::clone(&members[nr])).collect()
}

fn read_by_jobs(members: &[Arc<TestMember>], job: impl FnOnce()) -> u64 {
    let sum = || members.iter().map(|member| member.read.load(Ordering::Relaxed)).sum::<u64>();
    let before = sum();
    job();
    sum() - before
}

fn with<T: 'static, W>(
    world: &World,
    control: &Rc<Control>,
    job: impl FnOnce(Rc<Control>) -> W,
) -> T
where
    W: Future<Output = T> + 'static,
{
    world.run(job(Rc::clone(control)))
}

fn re_add(
    world: &World,
    control: &Rc<Control>,
    member: &Arc<TestMember>,
) -> Result<u32, ControlError> {
    let opener = Arc::clone(member) as Arc<dyn Opener>;
    with(world, control, |control| async move { control.membership().re_add(opener).await })
}

fn fail_and_remove(world: &World, control: &Rc<Control>, name: &str) {
    let selector = MemberSelector::Name(name.to_string());
    with(world, control, |control| async move {
        control.membership().fail(&selector).await?;
        control.membership().remove(&selector).await
    })
    .unwrap();
}

fn state(status: &ArrayStatus, name: &str) -> MemberState {
    status.members.iter().find(|member| member.name == name).unwrap().state
}

#[test]
fn a_bit_is_on_every_member_when_the_write_is_acknowledged_and_cleared_when_it_is_over() {
    for (level, disks) in LEVELS {
        for version in [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2] {
            let world = World::new(2);
            let members = members("m", disks, 8 * MIB);
            world.create(&members, CreateOptions { version, ..options(level, disks) });
            let (array, control) = world.assemble(&members);
            // mdadm's bitmap has all bits set: they are cleared without a resync.
            world.sleep(20 * SECOND);
            assert_eq!(bitmap(&world, &members[0]).1, []);
            world.write(&array, 1, 5 * CHUNK, &pattern(5, 4096)).unwrap();
            for member in &members {
                let (superblock, set) = bitmap(&world, member);
                assert_eq!(set.len(), 1, "{level}");
                assert_eq!(superblock.events, world.superblock(member).events);
            }
            assert_eq!(world.status(&control).bitmap.unwrap().dirty, 1);
            world.sleep(4 * SECOND);
            assert_eq!(bitmap(&world, &members[0]).1.len(), 1);
            world.sleep(12 * SECOND);
            let (superblock, set) = bitmap(&world, &members[disks - 1]);
            assert_eq!(set, []);
            assert!(superblock.events_cleared > 0);
            world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
            world.stop(&control);
            let world = world.crash();
            for member in &members {
                let (superblock, set) = bitmap(&world, member);
                assert_eq!((set, superblock.events), (vec![], world.superblock(member).events));
            }
        }
    }
}

#[test]
fn after_a_crash_only_what_was_being_written_is_resynced() {
    for (level, disks) in LEVELS {
        let world = World::new(1);
        let members = members("m", disks, 16 * MIB);
        world.create(&members, options(level, disks));
        let (array, control) = world.assemble(&members);
        world.sleep(20 * SECOND);
        world.write(&array, 0, 40 * CHUNK, &pattern(1, 8192)).unwrap();
        drop((array, control));
        let world = world.crash();
        // Redundancy is wrong there, as if the write had been cut short.
        let data = world.superblock(&members[1]).data_offset * 512;
        let contents = world.contents(&members[1]);
        let written = (0..64)
            .map(|nr| data + nr * CHUNK)
            .find(|at| contents[*at as usize..*at as usize + 8192].iter().any(|byte| *byte != 0));
        if let Some(at) = written {
            world.scribble(&members[1], at, &[0x5a; 4096]);
        }
        let (_array, control) = world.assemble(&members);
        let read = read_by_jobs(&members, || {
            world.wait_idle(&control);
            assert_eq!(world.status(&control).resynced, None);
        });
        assert!(read < disks as u64 * 2 * CHUNK, "{level}: {read} bytes were read");
        assert_eq!(world.check(&control), 0);
        world.sleep(20 * SECOND);
        assert_eq!(bitmap(&world, &members[0]).1, []);
    }
}

/// Changes each member's bitmap superblock.
fn change(world: &World, members: &[Arc<TestMember>], what: impl Fn(&mut [u8])) {
    for member in members {
        let at = world.superblock(member).bitmap_sector().unwrap() * 512;
        let mut head = world.contents(member)[at as usize..at as usize + 512].to_vec();
        what(&mut head);
        world.scribble(member, at, &head);
    }
}

#[test]
fn a_bitmap_that_cannot_be_trusted_means_a_whole_resync_and_is_written_anew() {
    let kinds: [fn(&mut [u8]); 4] = [
        |head| head[0] ^= 1,
        |head| head[24..32].fill(0),
        |head| head[48] |= 2,
        |head| head[8..24].fill(9),
    ];
    for (nr, damage) in kinds.into_iter().enumerate() {
        let world = World::new(1);
        let members = members("m", 3, 8 * MIB);
        world.create(&members, options(Level::Raid5, 3));
        let (array, _control) = world.assemble(&members);
        world.sleep(20 * SECOND);
        world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
        drop(array);
        let world = world.crash();
        // One good copy is enough.
        change(&world, &members[1..], damage);
        let (array, control) = world.assemble(&members);
        let read = read_by_jobs(&members, || world.wait_idle(&control));
        assert!(read < MIB, "{nr}: {read}");
        world.write(&array, 0, MIB, &pattern(1, 4096)).unwrap();
        drop((array, control));
        let world = world.crash();
        change(&world, &members, damage);
        let data = world.superblock(&members[2]).data_offset * 512;
        world.scribble(&members[2], data + 3 * MIB, &[0x5a; 4096]);
        let (_array, control) = world.assemble(&members);
        world.wait_idle(&control);
        assert_eq!(world.check(&control), 0, "{nr}");
        world.stop(&control);
        let world = world.crash();
        let (superblock, set) = bitmap(&world, &members[0]);
        assert_eq!(
            (set, superblock.chunk_bytes as u64),
            (vec![], if nr == 0 || nr == 3 { 64 * MIB } else { CHUNK })
        );
    }
}

#[test]
fn bitmaps_of_other_kinds_are_refused() {
    for version in [5, 6] {
        let world = World::new(1);
        let members = members("m", 3, 8 * MIB);
        world.create(&members, options(Level::Raid5, 3));
        change(&world, &members, |head| head[4] = version);
        let error = world.try_assemble(&members, AssembleOptions::default()).err().unwrap();
        assert!(matches!(error, AssembleError::Unsupported { .. }), "{error}");
    }
}

#[test]
fn a_member_that_was_away_gets_only_what_was_written_meanwhile() {
    for (level, disks) in LEVELS {
        let world = World::new(2);
        let members = members("m", disks, 16 * MIB);
        world.create(&members, options(level, disks));
        let (array, control) = world.assemble(&members);
        world.write(&array, 0, 0, &pattern(0, 4 * MIB as usize)).unwrap();
        world.sleep(20 * SECOND);
        fail_and_remove(&world, &control, "m1");
        let changed = 8 * CHUNK;
        world.write(&array, 0, 16 * CHUNK, &pattern(7, changed as usize)).unwrap();
        // While a slot is empty nothing is cleared.
        world.sleep(20 * SECOND);
        let before = members[1].written.load(Ordering::Relaxed);
        control.jobs().pause_jobs(true);
        re_add(&world, &control, &members[1]).unwrap();
        let superblock = world.superblock(&members[1]);
        assert!(superblock.recovery_by_bitmap && superblock.recovery_offset.is_some());
        control.jobs().pause_jobs(false);
        world.wait_idle(&control);
        let copied = members[1].written.load(Ordering::Relaxed) - before;
        assert!(copied <= changed + 256 * KIB, "{level}: {copied} bytes were written");
        let status = world.status(&control);
        assert_eq!((status.degraded, state(&status, "m1")), (0, MemberState::InSync));
        assert_eq!(world.check(&control), 0);
        assert_eq!(world.read(&array, 1, 16 * CHUNK, 8192).unwrap(), pattern(7, 8192));
        world.sleep(20 * SECOND);
        assert_eq!(bitmap(&world, &members[1]).1, []);
    }
}

#[test]
fn what_came_back_and_crashed_goes_on_by_the_bitmap() {
    for (level, disks) in LEVELS {
        let world = World::new(1);
        let members = members("m", disks, 16 * MIB);
        world.create(&members, options(level, disks));
        let (array, control) = world.assemble(&members);
        world.sleep(20 * SECOND);
        fail_and_remove(&world, &control, "m0");
        world.write(&array, 0, 4 * CHUNK, &pattern(7, 4096)).unwrap();
        control.jobs().pause_jobs(true);
        re_add(&world, &control, &members[0]).unwrap();
        drop((array, control));
        let world = world.crash();
        let options = AssembleOptions { force: true, ..AssembleOptions::default() };
        let before = members[0].written.load(Ordering::Relaxed);
        let array = world.try_assemble(&members, options).unwrap();
        let control = Control::find(&world.shards[0], array.id()).unwrap();
        world.wait_idle(&control);
        let copied = members[0].written.load(Ordering::Relaxed) - before;
        assert!(copied < MIB, "{level}: {copied} bytes were written");
        assert_eq!(world.status(&control).degraded, 0);
        assert_eq!(world.check(&control), 0, "{level}");
    }
}

#[test]
fn a_member_whose_lacks_are_not_known_is_no_former_member() {
    let world = World::new(1);
    let members = members("m", 4, 8 * MIB);
    world.create(&some(&members, 0..3), options(Level::Raid5, 3));
    let (array, control) = world.assemble(&some(&members, 0..3));
    fail_and_remove(&world, &control, "m1");
    // A spare takes the slot; when the array is whole again, bits are cleared.
    let opener = Arc::clone(&members[3]) as Arc<dyn Opener>;
    with(&world, &control, |control| async move { control.membership().add(opener, false).await })
        .unwrap();
    world.wait_idle(&control);
    let error = re_add(&world, &control, &members[1]).unwrap_err();
    assert!(error.to_string().contains("belongs to m3"), "{error}");
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    world.sleep(20 * SECOND);
    fail_and_remove(&world, &control, "m3");
    let error = re_add(&world, &control, &members[1]).unwrap_err();
    assert!(error.to_string().contains("bits were cleared"), "{error}");
    // As mdadm: what can be taken back is, also by `add`; what cannot is a spare.
    for (name, nr, expected) in [("m3", 3, true), ("m2", 1, false)] {
        if name == "m2" {
            fail_and_remove(&world, &control, name);
        }
        let opener = Arc::clone(&members[nr]) as Arc<dyn Opener>;
        let added = with(&world, &control, |control| async move {
            control.membership().add(opener, false).await
        });
        assert_eq!(added.unwrap().re_added, expected);
        world.wait_idle(&control);
    }
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_member_that_ran_apart_is_not_taken_back() {
    let world = World::new(1);
    let members = members("m", 2, 8 * MIB);
    world.create(&members, options(Level::Raid1, 2));
    let (_, control) = world.assemble(&members);
    world.stop(&control);
    let world = world.crash();
    for nr in 0..2 {
        let (array, control) = world.assemble(&some(&members, [nr]));
        world.write(&array, 0, nr as u64 * MIB, &pattern(nr as u64, 4096)).unwrap();
        world.stop(&control);
    }
    assert!(world.try_assemble(&members, AssembleOptions::default()).is_err());
    let (array, control) = world.assemble(&some(&members, [0]));
    let error = re_add(&world, &control, &members[1]).unwrap_err();
    assert!(error.to_string().contains("run apart"), "{error}");
    for force in [false, true] {
        let opener = Arc::clone(&members[1]) as Arc<dyn Opener>;
        let added = with(&world, &control, move |control| async move {
            control.membership().add(opener, force).await
        });
        assert_eq!(added.is_ok(), force);
    }
    world.wait_idle(&control);
    assert_eq!(world.check(&control), 0);
    assert_eq!(world.read(&array, 0, MIB, 4096).unwrap(), vec![0; 4096]);
}

#[test]
fn arrays_of_large_members_get_a_bitmap_by_themselves() {
    let world = World::new(1);
    let small = members("s", 2, 8 * MIB);
    let created = world.create(&small, CreateOptions::new("small", Level::Raid1, 2));
    assert_eq!(created.bitmap_chunk, None);
    assert_eq!(world.superblock(&small[0]).bitmap_offset, 0);
    let error = CreateOptions {
        bitmap: CreateBitmap::Internal { chunk: None },
        ..CreateOptions::new("none", Level::Raid0, 2)
    };
    let openers = small.iter().map(|member| Some(Arc::clone(member) as Arc<dyn Opener>)).collect();
    let ctx = world.ctx.clone();
    let refused = world.run(async move { crate::create::create(&ctx, openers, error).await });
    assert!(refused.unwrap_err().to_string().contains("leave it out"));
    let created = world.create(&small, options(Level::Raid1, 2));
    assert_eq!(created.bitmap_chunk, Some(CHUNK));
    let (superblock, set) = bitmap(&world, &small[0]);
    assert_eq!((superblock.events, set.len() as u64), (0, superblock.bits()));
    assert_eq!(HEADER, 256);
}

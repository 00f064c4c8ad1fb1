//! Running arrays that get other chunks, another layout or fewer members: towards both ends of their members.

use crate::array::Array;
use crate::control::Control;
use crate::control::reshaping::{Reshaped, WantedShape};
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::{AssembleError, ControlError};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector, SyncSpeed};
use crate::settings::StripeSize;
use crate::status::{JobKind, MemberState};
use braid_device::Target;
use braid_format::superblock::Superblock;
use braid_layout::{Layout, Level, Spec};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 8 * KIB;
const COMPONENT: u64 = 48 * CHUNK;

/// A reshape: of what, to what.
#[derive(Clone, Copy, Debug)]
struct Kind {
    level: Level,
    disks: usize,
    layout: u32,
    wanted: WantedShape,
    /// Room only behind the data.
    behind: bool,
}

const NEAR_2: u32 = 0x102;
const NEAR_3: u32 = 0x103;
const OFFSET_2: u32 = 0x1_0201;
const FAR_2: u32 = 0x201;

const SAME: WantedShape = WantedShape { raid_disks: None, chunk_size: None, layout: None };

fn kinds() -> Vec<Kind> {
    let chunk = |bytes| WantedShape { chunk_size: Some(bytes), ..SAME };
    let layout = |layout| WantedShape { layout: Some(layout), ..SAME };
    let disks = |disks| WantedShape { raid_disks: Some(disks), ..SAME };
    let of = |level, disks, layout, wanted, behind| Kind { level, disks, layout, wanted, behind };
    let (five, six, ten) = (Level::Raid5, Level::Raid6, Level::Raid10);
    vec![
        of(five, 4, 2, chunk(4 * KIB), false),
        of(five, 4, 2, chunk(32 * KIB), false),
        of(five, 3, 2, chunk(4 * KIB), true),
        of(six, 5, 2, chunk(32 * KIB), true),
        of(Level::Raid4, 3, 0, chunk(16 * KIB), false),
        of(five, 4, 2, layout(0), false),
        of(five, 3, 0, layout(5), true),
        of(six, 5, 18, layout(2), false),
        of(five, 5, 2, disks(4), true),
        of(six, 6, 2, disks(4), true),
        of(Level::Raid4, 4, 0, disks(3), true),
        of(five, 5, 2, WantedShape { chunk_size: Some(16 * KIB), ..disks(3) }, true),
        of(six, 5, 2, WantedShape { chunk_size: Some(4 * KIB), layout: Some(8), ..SAME }, true),
        of(five, 3, 2, WantedShape { chunk_size: Some(4 * KIB), ..disks(5) }, false),
        of(ten, 4, NEAR_2, disks(5), false),
        of(ten, 3, NEAR_2, chunk(16 * KIB), false),
        of(ten, 4, NEAR_2, layout(OFFSET_2), true),
        of(ten, 5, NEAR_3, disks(4), true),
        of(ten, 3, OFFSET_2, WantedShape { chunk_size: Some(4 * KIB), ..disks(6) }, false),
    ]
}

fn options(kind: &Kind, bitmap: CreateBitmap) -> CreateOptions {
    let data_offset = if kind.behind { 16 * KIB } else { 128 * KIB };
    CreateOptions {
        chunk_size: Some(CHUNK),
        layout: (kind.level != Level::Raid4).then_some(kind.layout),
        size: Some(COMPONENT),
        data_offset: Some(data_offset),
        spares: kind.wanted.raid_disks.unwrap_or(0).saturating_sub(kind.disks),
        bitmap,
        ..CreateOptions::new("data", kind.level, kind.disks)
    }
}

/// A running array that is full of a pattern, and shows as much of it as the reshape leaves.
fn array_of(
    world: &World,
    kind: &Kind,
    bitmap: CreateBitmap,
    room: u64,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let options = options(kind, bitmap);
    let bytes = if kind.behind { 16 * KIB + COMPONENT + room } else { 2 * MIB };
    let members = members("m", options.raid_disks + options.spares, bytes);
    let (array, control) = world.filled(&members, options);
    (members, array, control)
}

fn size(array: &Array) -> u64 {
    array.info().device.size
}

/// Bytes that are left when `kind` is done: those of the smaller of its two shapes.
fn left(kind: &Kind) -> u64 {
    let size = |layout: u32, chunk_size: u64, raid_disks: usize| {
        let member_sizes = Vec::new();
        let (level, component_size) = (kind.level, COMPONENT);
        let spec = Spec { level, layout, chunk_size, raid_disks, component_size, member_sizes };
        Layout::new(&spec).unwrap().array_size()
    };
    let wanted = kind.wanted;
    let (layout, chunk) = (wanted.layout.unwrap_or(kind.layout), wanted.chunk_size);
    let after = size(layout, chunk.unwrap_or(CHUNK), wanted.raid_disks.unwrap_or(kind.disks));
    after.min(size(kind.layout, CHUNK, kind.disks))
}

fn reshape(
    world: &World,
    control: &Rc<Control>,
    wanted: WantedShape,
    dry_run: bool,
) -> Result<Reshaped, ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.reshape(wanted, dry_run).await })
}

fn crawl(control: &Rc<Control>, slow: bool) {
    let kib = if slow { 24 } else { u64::MAX };
    control.jobs().set_sync_speed(0, kib).unwrap();
}

fn right_in_the_end(world: &World, control: &Rc<Control>, kind: &Kind, what: &str) {
    let status = world.status(control);
    assert_eq!((status.reshape, status.degraded), (None, 0), "{what}");
    assert_eq!(status.raid_disks, kind.wanted.raid_disks.unwrap_or(kind.disks), "{what}");
    assert_eq!(status.chunk_size, kind.wanted.chunk_size.unwrap_or(CHUNK), "{what}");
    assert_eq!(status.layout, kind.wanted.layout.unwrap_or(kind.layout), "{what}");
    assert_eq!(world.check(control), 0, "{what}");
}

#[test]
fn the_data_is_there_all_the_time_and_after_it() {
    for kind in kinds() {
        for (shards, bitmap) in
            [(1, CreateBitmap::None), (3, CreateBitmap::Internal { chunk: Some(16 * KIB) })]
        {
            // Of copies it counts bytes of the array.
            let bitmap = if kind.level == Level::Raid10 { CreateBitmap::None } else { bitmap };
            let world = World::new(shards);
            let (members, array, control) = array_of(&world, &kind, bitmap, 256 * KIB);
            let what = format!("{kind:?} {bitmap:?} {shards}");
            let left = left(&kind);
            if left < size(&array) {
                let refused = reshape(&world, &control, kind.wanted, true).unwrap_err().to_string();
                assert!(refused.contains(&format!("--array-size {}K", left / 1024)), "{refused}");
                world.show(&control, left);
            }
            let before = world.superblock(&members[0]);
            let would = reshape(&world, &control, kind.wanted, true).unwrap();
            assert_eq!(world.superblock(&members[0]).events, before.events, "{what}");
            assert_eq!(would.backwards, kind.behind, "{what}");
            crawl(&control, true);
            assert_eq!(reshape(&world, &control, kind.wanted, false).unwrap(), would, "{what}");
            let mut bytes = pattern(0, left as usize);
            for (nr, at) in [(1, 0), (2, left / 2 - 700 * 4), (3, left - 20 * KIB), (4, left / 3)] {
                let at = at / 512 * 512;
                let new = pattern(nr << 32, 18 * KIB as usize);
                world.write(&array, (nr % u64::from(shards)) as usize, at, &new).unwrap();
                bytes[at as usize..at as usize + new.len()].copy_from_slice(&new);
                world.sleep(900_000_000);
                assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
            }
            let status = world.status(&control);
            assert_eq!(status.job.map(|job| job.kind), Some(JobKind::Reshape), "{what}");
            assert_eq!(status.chunk_size, CHUNK, "{what}");
            crawl(&control, false);
            world.wait_idle(&control);
            right_in_the_end(&world, &control, &kind, &what);
            let spares = |state: MemberState| state == MemberState::Spare;
            let members_now = world.status(&control).members;
            let free = members_now.iter().filter(|member| spares(member.state)).count();
            assert_eq!(free, would.freed.len(), "{what}");
            assert_eq!(array.open(&world.shards[0]).unwrap().info().size, would.array_size.1);
            assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
            world.stop(&control);
            drop((array, control));
            let moved = would.data_moves_by / 512;
            for member in &members {
                let now = world.superblock(member);
                let start = if kind.behind {
                    before.data_offset + moved
                } else {
                    before.data_offset - moved
                };
                assert_eq!((now.reshape, now.data_offset), (None, start), "{what}");
            }
            let (array, control) = world.assemble(&members);
            assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
            right_in_the_end(&world, &control, &kind, &what);
        }
    }
}

/// Reshapes an array of which the power goes after `writes` writes to members. True when it was done by then.
fn cut_short(kind: &Kind, writes: u64) -> bool {
    let world = World::new(1);
    let bitmap = CreateBitmap::None;
    let (members, array, control) = array_of(&world, kind, bitmap, 64 * KIB);
    let left = left(kind);
    if left < size(&array) {
        world.show(&control, left);
    }
    world.sleep(20_000_000_000);
    let bytes = pattern(0, left as usize);
    let power = &members[0].power;
    power.store(writes, Ordering::Relaxed);
    let _ = reshape(&world, &control, kind.wanted, false);
    world.wait_idle(&control);
    let ended = power.load(Ordering::Relaxed) > 0;
    drop((array, control));
    let world = world.crash();
    power.store(u64::MAX, Ordering::Relaxed);
    let (array, control) = world.assemble(&members);
    let what = format!("{kind:?} after {writes} writes");
    assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
    world.wait_idle(&control);
    assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
    assert_eq!(world.check(&control), 0, "{what}");
    ended
}

#[test]
fn a_power_cut_at_any_write_loses_nothing() {
    // Each of the first writes and of the last ones, which change superblocks, and some between.
    let skips = |writes: u64| if (24..120).contains(&writes) { 7 } else { 1 };
    for kind in kinds().into_iter().step_by(2) {
        let mut writes = 0;
        while !cut_short(&kind, writes) {
            writes += skips(writes);
        }
        assert!(writes > 20, "{kind:?}: {writes}");
    }
}

#[test]
fn a_stop_or_a_crash_in_the_middle_is_gone_on_from() {
    for kind in kinds() {
        for crashes in [false, true] {
            let world = World::new(2);
            let (members, array, control) = array_of(&world, &kind, CreateBitmap::None, 256 * KIB);
            let left = left(&kind);
            if left < size(&array) {
                world.show(&control, left);
            }
            crawl(&control, true);
            reshape(&world, &control, kind.wanted, false).unwrap();
            world.sleep(2_500_000_000);
            let mut bytes = pattern(0, left as usize);
            for (nr, at) in [(1, 512), (2, left - 4 * KIB)] {
                let new = pattern(nr << 32, 2048);
                world.write(&array, 0, at, &new).unwrap();
                bytes[at as usize..at as usize + 2048].copy_from_slice(&new);
            }
            if !crashes {
                world.stop(&control);
            }
            drop((array, control));
            let world = world.crash();
            let what = format!("{kind:?} {crashes}");
            let found = world.superblock(&members[0]);
            let position = found.reshape.unwrap().position;
            assert!(position > 0, "{what}: {position}");
            assert!(!found.reshape_position_is_doubtful(), "{what}");
            let options = AssembleOptions {
                sync_speed: SyncSpeed { min_kib: 0, max_kib: 64 },
                ..AssembleOptions::default()
            };
            let array = world.try_assemble(&members, options).unwrap();
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            assert_eq!(size(&array), left, "{what}");
            assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
            crawl(&control, false);
            world.wait_idle(&control);
            assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
            right_in_the_end(&world, &control, &kind, &what);
        }
    }
}

#[test]
fn a_member_that_fails_meanwhile_is_done_without() {
    for kind in kinds() {
        for lost in [0, kind.disks - 1] {
            let world = World::new(2);
            let (members, array, control) = array_of(&world, &kind, CreateBitmap::None, 256 * KIB);
            let left = left(&kind);
            if left < size(&array) {
                world.show(&control, left);
            }
            crawl(&control, true);
            reshape(&world, &control, kind.wanted, false).unwrap();
            world.sleep(1_500_000_000);
            let selector = MemberSelector::Name(format!("m{lost}"));
            let membership = Rc::clone(control.membership());
            world.run(async move { membership.fail(&selector).await }).unwrap();
            let mut bytes = pattern(0, left as usize);
            let new = pattern(9 << 32, 30 << 10);
            for at in [0, left / 2 / 4096 * 4096, left - (30 << 10)] {
                world.write(&array, 1, at, &new).unwrap();
                bytes[at as usize..at as usize + new.len()].copy_from_slice(&new);
            }
            let what = format!("{kind:?} without m{lost} of {}", members.len());
            assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
            crawl(&control, false);
            world.wait_idle(&control);
            let status = world.status(&control);
            assert_eq!(status.reshape, None, "{what}");
            assert!(world.read(&array, 0, 0, left as usize).unwrap() == bytes, "{what}");
            assert_eq!(world.check(&control), 0, "{what}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let world = World::new(1);
    let chunk = |bytes| WantedShape { chunk_size: Some(bytes), ..SAME };
    let kind = Kind { level: Level::Raid5, disks: 3, layout: 2, wanted: SAME, behind: true };
    let (_members, array, control) = array_of(&world, &kind, CreateBitmap::None, 8 * KIB);
    let refusal = |control: &Rc<Control>, wanted| {
        reshape(&world, control, wanted, false).unwrap_err().to_string()
    };
    assert!(refusal(&control, SAME).contains("that shape already"));
    assert!(refusal(&control, chunk(CHUNK)).contains("that shape already"));
    let why = refusal(&control, chunk(12 * KIB));
    assert!(why.contains("12288"), "{why}");
    let why = refusal(&control, chunk(256 * KIB));
    assert!(why.contains("no whole chunks") && why.contains("--size 256K"), "{why}");
    let why = refusal(&control, chunk(16 * KIB));
    assert!(why.contains("backup file") && why.contains("before its data"), "{why}");
    let why = refusal(&control, WantedShape { layout: Some(9), ..SAME });
    assert!(why.contains("layout"), "{why}");
    let two = WantedShape { raid_disks: Some(2), ..SAME };
    assert!(refusal(&control, two).contains("--array-size 384K"));
    world.show(&control, size(&array) / 2);
    reshape(&world, &control, two, true).unwrap();
    let one = WantedShape { raid_disks: Some(1), ..SAME };
    assert!(refusal(&control, one).contains("needs 2 members"));
    let settings = control.settings();
    let settings =
        crate::settings::Settings { stripe_size: StripeSize::Bytes(8 * KIB), ..settings };
    let setting = Rc::clone(&control);
    world.run(async move { setting.set(settings).await }).unwrap();
    let why = refusal(&control, chunk(4 * KIB));
    assert!(why.contains("settings do not suit"), "{why}");
    let full = Kind { wanted: two, ..kind };
    let (_members, array, control) = array_of(&world, &full, CreateBitmap::None, 0);
    world.show(&control, size(&array) / 2);
    let why = refusal(&control, two);
    assert!(why.contains("behind its data") && why.contains("--size 376K"), "{why}");
}

#[test]
fn copies_that_cannot_be_moved_are_refused_with_the_reason() {
    let world = World::new(1);
    let refusal = |kind: Kind, bitmap: CreateBitmap| {
        let (_members, _array, control) = array_of(&world, &kind, bitmap, 256 * KIB);
        reshape(&world, &control, kind.wanted, false).unwrap_err().to_string()
    };
    let layout = |layout| WantedShape { layout: Some(layout), ..SAME };
    let near =
        |wanted| Kind { level: Level::Raid10, disks: 4, layout: NEAR_2, wanted, behind: false };
    let why = refusal(near(layout(NEAR_3)), CreateBitmap::None);
    assert!(why.contains("2 copies"), "{why}");
    let why = refusal(near(layout(FAR_2)), CreateBitmap::None);
    assert!(why.contains("far"), "{why}");
    let why = refusal(Kind { layout: FAR_2, ..near(layout(NEAR_2)) }, CreateBitmap::None);
    assert!(why.contains("far"), "{why}");
    let bitmap = CreateBitmap::Internal { chunk: Some(16 * KIB) };
    let why = refusal(near(layout(OFFSET_2)), bitmap);
    assert!(why.contains("--bitmap none"), "{why}");
    let chunk = WantedShape { chunk_size: Some(128 * KIB), raid_disks: Some(5), ..SAME };
    let why = refusal(near(chunk), CreateBitmap::None);
    assert!(why.contains("before its data") && why.contains("backup file"), "{why}");
    // A chunk fits there, but not the two rows in which one may have its copies.
    let wanted = WantedShape { chunk_size: Some(64 * KIB), ..SAME };
    let narrow = Kind { disks: 3, behind: true, ..near(wanted) };
    let (_members, _array, control) = array_of(&world, &narrow, CreateBitmap::None, 64 * KIB);
    let why = reshape(&world, &control, narrow.wanted, true).unwrap_err().to_string();
    assert!(why.contains("several rows") && why.contains("backup file"), "{why}");
    let (_members, _array, control) = array_of(&world, &narrow, CreateBitmap::None, 256 * KIB);
    let would = reshape(&world, &control, narrow.wanted, true).unwrap();
    assert!(would.data_moves_by > 64 * KIB, "{would:?}");
}

/// The pairs of members that hold the same are others before the border than behind it.
#[test]
fn a_member_is_needed_that_either_of_two_shapes_of_copies_needs() {
    let world = World::new(1);
    let wanted = WantedShape { raid_disks: Some(4), ..SAME };
    let kind = Kind { level: Level::Raid10, disks: 3, layout: NEAR_2, wanted, behind: false };
    let (_members, array, control) = array_of(&world, &kind, CreateBitmap::None, 0);
    crawl(&control, true);
    reshape(&world, &control, kind.wanted, false).unwrap();
    world.sleep(1_500_000_000);
    let fail = |name: &str| {
        let (membership, name) = (Rc::clone(control.membership()), name.to_string());
        world.run(async move { membership.fail(&MemberSelector::Name(name)).await })
    };
    fail("m0").unwrap();
    // Of four members it would be the pair 2 and 3 that keeps its data, but of three some of it is on 0 and 2.
    let error = fail("m2").unwrap_err().to_string();
    assert!(error.contains("m2"), "{error}");
    let left = left(&kind);
    assert!(world.read(&array, 0, 0, left as usize).unwrap() == pattern(0, left as usize));
    crawl(&control, false);
    world.wait_idle(&control);
    assert!(world.read(&array, 0, 0, left as usize).unwrap() == pattern(0, left as usize));
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_place_that_linux_may_not_have_recorded_is_gone_on_from_by_force_only() {
    let world = World::new(1);
    let kind = kinds()[0];
    let (members, array, control) = array_of(&world, &kind, CreateBitmap::None, 0);
    crawl(&control, true);
    reshape(&world, &control, kind.wanted, false).unwrap();
    world.sleep(1_500_000_000);
    world.stop(&control);
    drop((array, control));
    for member in &members {
        let found = world.superblock(member);
        // Whole seconds, as Linux has them.
        let utime = found.utime & ((1 << 40) - 1);
        assert_ne!(utime, found.utime);
        let super_offset = found.super_offset * 512;
        world.scribble(member, super_offset, &Superblock { utime, ..found }.to_bytes());
    }
    let error = world.try_assemble(&members, AssembleOptions::default()).err().unwrap();
    assert!(matches!(&error, AssembleError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("--force"), "{error}");
    let force = AssembleOptions { force: true, ..AssembleOptions::default() };
    let array = world.try_assemble(&members, force).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    let bytes = pattern(0, size(&array) as usize);
    assert!(world.read(&array, 0, 0, bytes.len()).unwrap() == bytes);
    world.wait_idle(&control);
    right_in_the_end(&world, &control, &kind, "by force");
}

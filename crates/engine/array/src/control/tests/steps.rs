//! Running arrays that get another level by one command, in several steps.

use crate::array::Array;
use crate::control::Control;
use crate::control::reshaping::WantedShape;
use crate::control::steps::wanted::{WantedArray, WantedLayout};
use crate::control::steps::{Step, Steps};
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::error::ControlError;
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions, MemberSelector};
use crate::status::{ArrayStatus, MemberState};
use braid_device::Target;
use braid_layout::Level;
use std::rc::Rc;
use std::sync::Arc;

use Level::{Raid0, Raid1, Raid4, Raid5, Raid6};

const KIB: u64 = 1 << 10;
const CHUNK: u64 = 8 * KIB;
const COMPONENT: u64 = 48 * CHUNK;

fn wanted(level: Level) -> WantedArray {
    WantedArray { level, layout: WantedLayout::Any, chunk_size: None, raid_disks: None }
}

fn layout(level: Level, number: u32) -> WantedArray {
    WantedArray { layout: WantedLayout::Number(number), ..wanted(level) }
}

fn become_(
    world: &World,
    control: &Rc<Control>,
    wanted: WantedArray,
    dry_run: bool,
) -> Result<Steps, ControlError> {
    let control = Rc::clone(control);
    world.run(async move { control.change_to(wanted, dry_run).await })
}

/// A running array that is full of a pattern, with spares.
fn array_of(
    world: &World,
    (level, layout, disks): (Level, u32, usize),
    spares: usize,
) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
    let all = members("m", disks + spares, 2 << 20);
    let options = CreateOptions {
        chunk_size: (level != Raid1).then_some(CHUNK),
        layout: matches!(level, Raid5 | Raid6).then_some(layout),
        size: (level != Raid0).then_some(COMPONENT),
        data_offset: Some(256 * KIB),
        bitmap: CreateBitmap::None,
        ..CreateOptions::new("data", level, disks)
    };
    let (array, control) = world.filled(&all[..disks], options);
    if level != Raid0 {
        all[disks..].iter().for_each(|member| world.add(&control, member));
    }
    (all, array, control)
}

fn size(array: &Array) -> usize {
    array.info().device.size as usize
}

fn crawl(control: &Rc<Control>, slow: bool) {
    let kib = if slow { 24 } else { u64::MAX };
    control.jobs().set_sync_speed(0, kib).unwrap();
}

fn shape(status: &ArrayStatus) -> (Level, u32, u64, usize) {
    (status.level, status.layout, status.chunk_size, status.raid_disks)
}

/// A change: of what, with so many spares; to what; the array then, and the steps.
type Change = ((Level, u32, usize), usize, WantedArray, (Level, u32, u64, usize), &'static str);

fn changes() -> Vec<Change> {
    let chunk = |level, bytes| WantedArray { chunk_size: Some(bytes), ..wanted(level) };
    let disks = |wanted, disks| WantedArray { raid_disks: Some(disks), ..wanted };
    let normal = WantedArray { layout: WantedLayout::Normalise, ..wanted(Raid6) };
    vec![
        ((Raid5, 2, 3), 1, layout(Raid6, 2), (Raid6, 2, CHUNK, 4), "LM"),
        ((Raid5, 3, 4), 1, normal, (Raid6, 3, CHUNK, 5), "LM"),
        ((Raid5, 2, 3), 2, disks(layout(Raid6, 2), 5), (Raid6, 2, CHUNK, 5), "LM"),
        ((Raid4, 0, 3), 1, layout(Raid6, 2), (Raid6, 2, CHUNK, 4), "LM"),
        ((Raid4, 0, 3), 0, layout(Raid5, 2), (Raid5, 2, CHUNK, 3), "LM"),
        ((Raid1, 0, 2), 2, disks(chunk(Raid5, 16 * KIB), 4), (Raid5, 2, 16 * KIB, 4), "LM"),
        ((Raid6, 2, 5), 0, wanted(Raid5), (Raid5, 2, CHUNK, 4), "ML"),
        ((Raid6, 8, 4), 0, chunk(Raid5, 16 * KIB), (Raid5, 2, 16 * KIB, 3), "ML"),
        ((Raid6, 2, 4), 0, disks(layout(Raid5, 0), 4), (Raid5, 0, CHUNK, 4), "MLM"),
        ((Raid6, 2, 4), 1, disks(wanted(Raid5), 4), (Raid5, 2, CHUNK, 4), "ML"),
        ((Raid6, 2, 4), 0, wanted(Raid4), (Raid4, 0, CHUNK, 3), "ML"),
        ((Raid5, 2, 4), 0, chunk(Raid4, 16 * KIB), (Raid4, 0, 16 * KIB, 4), "ML"),
        ((Raid5, 2, 4), 1, wanted(Raid0), (Raid0, 0, CHUNK, 3), "ML"),
        ((Raid6, 2, 5), 0, wanted(Raid0), (Raid0, 0, CHUNK, 3), "ML"),
        ((Raid5, 2, 3), 1, disks(wanted(Raid0), 3), (Raid0, 0, CHUNK, 3), "ML"),
        ((Raid4, 0, 3), 0, chunk(Raid0, 16 * KIB), (Raid0, 0, 16 * KIB, 2), "ML"),
    ]
}

fn letters(steps: &Steps) -> String {
    steps.steps.iter().map(|step| if matches!(step, Step::Level(_)) { 'L' } else { 'M' }).collect()
}

#[test]
fn one_command_makes_all_steps() {
    for shards in [1, 3] {
        for (from, spares, to, becomes, steps) in changes() {
            let what = format!("{from:?} and {spares} to {to:?}, {shards} shards");
            let world = World::new(shards);
            let (all, array, control) = array_of(&world, from, spares);
            let content = pattern(0, size(&array));
            let events = world.superblock(&all[0]).events;
            let would = become_(&world, &control, to, true).expect(&what);
            assert_eq!(letters(&would), steps, "{what}");
            assert_eq!(world.superblock(&all[0]).events, events, "{what}");
            let is = become_(&world, &control, to, false).expect(&what);
            assert_eq!(is, would, "{what}");
            let left = world.status(&control).following.expect(&what);
            assert!(left.steps.len() < steps.len(), "{what}: {left:?}");
            world.wait_idle(&control);
            let status = world.status(&control);
            assert_eq!((shape(&status), status.degraded), (becomes, 0), "{what}");
            assert_eq!(status.following, None, "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            if becomes.0 != Raid0 {
                assert_eq!(world.check(&control), 0, "{what}");
            }
            let again = become_(&world, &control, to, false).unwrap_err().to_string();
            assert!(again.contains("already"), "{what}: {again}");
            world.stop(&control);
            let world = World::new(shards);
            let (array, control) = world.assemble(&all);
            assert_eq!(shape(&world.status(&control)), becomes, "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            world.stop(&control);
        }
    }
}

#[test]
fn level_0_gets_members_first_where_data_is_to_be_moved() {
    let world = World::new(2);
    let (all, array, control) = array_of(&world, (Raid0, 0, 3), 1);
    let content = pattern(0, size(&array));
    let to = layout(Raid5, 2);
    // Level 0 has no spares to begin with.
    let error = become_(&world, &control, to, false).unwrap_err().to_string();
    assert!(error.contains("--layout left-symmetric") && error.contains("braid add"), "{error}");
    become_(&world, &control, wanted(Raid5), false).unwrap();
    let error = become_(&world, &control, to, false).unwrap_err().to_string();
    assert!(error.contains("one more member is"), "{error}");
    crawl(&control, true);
    world.add(&control, &all[3]);
    let steps = become_(&world, &control, to, false).unwrap();
    assert_eq!((steps.under_way.as_deref(), steps.steps.len()), (Some("a rebuild"), 1));
    let left = world.status(&control).following.unwrap();
    assert_eq!((left.waits_for.as_deref(), left.steps.len()), (Some("a rebuild"), 1));
    crawl(&control, false);
    world.wait_idle(&control);
    assert_eq!(shape(&world.status(&control)), (Raid5, 2, CHUNK, 4));
    assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content);
    assert_eq!(world.check(&control), 0);
    world.stop(&control);
}

/// Power fails after so many simulated nanoseconds; the same command goes on, until it says that there is nothing to do.
#[test]
fn the_same_command_goes_on_after_a_crash() {
    for (from, spares, to, becomes, _) in changes() {
        for pause in [1_000_000, 300_000_000, 2_000_000_000, 6_000_000_000, 20_000_000_000] {
            let what = format!("{from:?} and {spares} to {to:?}, crash after {pause}");
            let world = World::new(2);
            let (all, array, control) = array_of(&world, from, spares);
            let content = pattern(0, size(&array));
            crawl(&control, true);
            become_(&world, &control, to, false).expect(&what);
            world.sleep(pause);
            let world = world.crash();
            let options = AssembleOptions { start_degraded: true, ..AssembleOptions::default() };
            let array = world.try_assemble(&all, options).expect(&what);
            let control = Control::find(&world.shards[0], array.id()).unwrap();
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            match become_(&world, &control, to, false) {
                Ok(_) => {}
                // The resync that the crash has left comes first, where nothing shows that this goes on.
                Err(error) if error.to_string().contains("braid wait") => {
                    world.wait_idle(&control);
                    become_(&world, &control, to, false).expect(&what);
                }
                Err(error) => assert!(error.to_string().contains("already"), "{what}: {error}"),
            }
            world.wait_idle(&control);
            let status = world.status(&control);
            assert_eq!((shape(&status), status.degraded), (becomes, 0), "{what}");
            assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content, "{what}");
            if becomes.0 != Raid0 {
                assert_eq!(world.check(&control), 0, "{what}");
            }
            world.stop(&control);
        }
    }
}

#[test]
fn a_step_waits_until_the_array_is_whole() {
    let world = World::new(1);
    let (all, array, control) = array_of(&world, (Raid6, 2, 5), 0);
    let content = pattern(0, size(&array));
    crawl(&control, true);
    become_(&world, &control, wanted(Raid5), false).unwrap();
    let (fails, selector) = (Rc::clone(&control), MemberSelector::Name("m1".to_string()));
    world.run(async move {
        fails.membership().fail(&selector).await.unwrap();
    });
    crawl(&control, false);
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!((shape(&status), status.degraded), ((Raid6, 18, CHUNK, 5), 1));
    let left = status.following.unwrap();
    assert!(left.waits_for.as_deref().is_some_and(|what| what.contains("braid add data")));
    let (removes, selector) = (Rc::clone(&control), MemberSelector::Name("m1".to_string()));
    world.run(async move { removes.membership().remove(&selector).await.map(|_| ()) }).unwrap();
    world.add(&control, &members("n", 1, 2 << 20)[0]);
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!((shape(&status), status.degraded), ((Raid5, 2, CHUNK, 4), 0));
    let spares = status.members.iter().filter(|member| member.state == MemberState::Spare);
    assert_eq!(spares.count(), 1);
    assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content);
    world.stop(&control);
    drop(all);
}

#[test]
fn what_is_left_can_be_given_up_and_others_are_refused_until_then() {
    let world = World::new(1);
    let (_all, array, control) = array_of(&world, (Raid5, 2, 3), 1);
    let content = pattern(0, size(&array));
    crawl(&control, true);
    become_(&world, &control, layout(Raid6, 2), false).unwrap();
    let (reshapes, shape_of) = (Rc::clone(&control), WantedShape::default());
    let other = world.run(async move { reshapes.reshape(shape_of, false).await });
    let other = other.unwrap_err().to_string();
    assert!(other.contains("on its way to raid6") && other.contains("--level 6"), "{other}");
    let stays = WantedArray { layout: WantedLayout::Preserve, ..wanted(Raid6) };
    let given_up = become_(&world, &control, stays, false).unwrap();
    assert_eq!((given_up.steps.len(), given_up.under_way), (0, None));
    crawl(&control, false);
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!((shape(&status), status.following), ((Raid6, 18, CHUNK, 4), None));
    // Fewer members than it has need less to be shown first.
    let fewer = WantedArray { raid_disks: Some(2), ..wanted(Raid5) };
    let error = become_(&world, &control, fewer, false).unwrap_err().to_string();
    assert!(error.contains("--array-size"), "{error}");
    world.show(&control, COMPONENT);
    let steps = become_(&world, &control, fewer, false).unwrap();
    assert_eq!(letters(&steps), "LM");
    world.wait_idle(&control);
    assert_eq!(shape(&world.status(&control)), (Raid5, 2, CHUNK, 2));
    let left = COMPONENT as usize;
    assert_eq!(world.read(&array, 0, 0, left).unwrap(), content[..left]);
    world.stop(&control);
}

#[test]
fn what_any_step_would_be_refused_for_is_said_before_the_first() {
    let world = World::new(1);
    let (all, _array, control) = array_of(&world, (Raid5, 2, 4), 1);
    let events = world.superblock(&all[0]).events;
    let refused = |wanted, words: &[&str]| {
        let error = become_(&world, &control, wanted, false).unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
        assert_eq!(world.superblock(&all[0]).events, events);
    };
    let six = layout(Raid6, 2);
    refused(WantedArray { raid_disks: Some(7), ..six }, &["2 spares are needed for 7 slots"]);
    refused(WantedArray { chunk_size: Some(5 * KIB), ..six }, &["5120"]);
    refused(WantedArray { chunk_size: Some(256 * KIB), ..six }, &["no whole chunks", "--size"]);
    refused(WantedArray { raid_disks: Some(3), ..wanted(Raid4) }, &["--array-size"]);
    refused(WantedArray { raid_disks: Some(2), ..wanted(Raid0) }, &["--array-size"]);
    let more = WantedArray { raid_disks: Some(5), ..wanted(Raid0) };
    refused(more, &["2 spares are needed for 6 slots"]);
    let stays = WantedArray { layout: WantedLayout::Preserve, ..wanted(Raid0) };
    refused(stays, &["--layout parity-last"]);
    world.stop(&control);
    // A log of its own level.
    let world = World::new(1);
    let all = members("m", 4, 4 << 20);
    let options = CreateOptions {
        chunk_size: Some(CHUNK),
        data_offset: Some(2 << 20),
        bitmap: CreateBitmap::None,
        ppl: true,
        ..CreateOptions::new("data", Raid5, 4)
    };
    world.create(&all, options);
    let (_array, control) = world.assemble(&all);
    world.wait_idle(&control);
    let events = world.superblock(&all[0]).events;
    for to in [six, wanted(Raid4)] {
        let error = become_(&world, &control, to, false).unwrap_err().to_string();
        assert!(error.contains("--consistency-policy resync"), "{error}");
    }
    assert_eq!(world.superblock(&all[0]).events, events);
    world.stop(&control);
}

#[test]
fn nothing_is_left_to_do_when_a_member_fails_in_the_last_step() {
    let world = World::new(1);
    let (_all, array, control) = array_of(&world, (Raid5, 2, 3), 1);
    let content = pattern(0, size(&array));
    become_(&world, &control, layout(Raid6, 2), false).unwrap();
    crawl(&control, true);
    let last = |status: &ArrayStatus| status.reshape.is_some();
    while !last(&world.status(&control)) {
        world.sleep(1_000_000);
    }
    let (fails, selector) = (Rc::clone(&control), MemberSelector::Name("m1".to_string()));
    world.run(async move { fails.membership().fail(&selector).await }).unwrap();
    crawl(&control, false);
    world.wait_idle(&control);
    let status = world.status(&control);
    assert_eq!((shape(&status), status.degraded), ((Raid6, 2, CHUNK, 4), 1));
    assert_eq!(status.following, None);
    assert_eq!(world.read(&array, 0, 0, content.len()).unwrap(), content);
    world.stop(&control);
}

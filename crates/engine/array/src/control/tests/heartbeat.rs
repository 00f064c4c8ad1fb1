//! Two hosts that reach the same members: shards that share a clock and nothing else.

use super::world::{TestMember, World, members, pattern};
use crate::array::Array;
use crate::assemble::assemble;
use crate::control::Control;
use crate::error::AssembleError;
use crate::metadata::heartbeat::place;
use crate::options::{AssembleOptions, Context, CreateOptions, Host};
use braid_device::{IoErrorKind, Opener};
use braid_format::heartbeat::{Found, Heartbeat};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

const BEAT_MS: u32 = 1000;
const SECOND: u64 = 1_000_000_000;

type Started = Result<Arc<Array>, AssembleError>;

/// Host `nr` has shard `nr` alone.
fn context(world: &World, nr: usize) -> Context {
    let shard = world.shards[nr].clone();
    Context { remotes: vec![shard.remote()], shard, ..world.ctx.clone() }
}

fn options(nr: usize, beats: bool) -> AssembleOptions {
    let host = Host { name: format!("host-{nr}"), boot: [nr as u8 + 1; 16] };
    AssembleOptions { heartbeat_ms: beats.then_some(BEAT_MS), host, ..AssembleOptions::default() }
}

/// Begins `work` on the shard of host `nr`.
fn begin<T: 'static>(
    world: &World,
    nr: usize,
    work: impl Future<Output = T> + 'static,
) -> Rc<RefCell<Option<T>>> {
    let result = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&result);
    world.shards[nr].spawn(async move {
        let value = work.await;
        *slot.borrow_mut() = Some(value);
    });
    result
}

fn end<T>(world: &World, result: &RefCell<Option<T>>) -> T {
    loop {
        if let Some(value) = result.borrow_mut().take() {
            return value;
        }
        world.step();
    }
}

fn begin_start(
    world: &World,
    nr: usize,
    members: &[Arc<TestMember>],
    options: AssembleOptions,
) -> Rc<RefCell<Option<Started>>> {
    let ctx = context(world, nr);
    let openers = members.iter().map(|member| Arc::clone(member) as Arc<dyn Opener>).collect();
    begin(world, nr, async move { assemble(&ctx, openers, options).await })
}

fn start(world: &World, nr: usize, members: &[Arc<TestMember>], beats: bool) -> Started {
    end(world, &begin_start(world, nr, members, options(nr, beats)))
}

fn stop(world: &World, nr: usize, array: &Array) -> crate::status::Left {
    let control = Control::find(&world.shards[nr], array.id()).unwrap();
    end(world, &begin(world, nr, async move { control.stop().await }))
}

fn beats(world: &World, nr: usize, array: &Array) -> Option<crate::status::HeartbeatStatus> {
    let control = Control::find(&world.shards[nr], array.id()).unwrap();
    end(world, &begin(world, nr, async move { control.status().await })).heartbeat
}

fn mirror(world: &World, version: Version) -> Vec<Arc<TestMember>> {
    let all = members("m", 2, 4 << 20);
    let options = CreateOptions {
        assume_clean: true,
        version,
        ..CreateOptions::new("data", Level::Raid1, 2)
    };
    world.create(&all, options);
    all
}

fn beat_on(world: &World, member: &Arc<TestMember>) -> Option<Heartbeat> {
    let at = place(&world.superblock(member))? as usize;
    match Found::parse(&world.contents(member)[at..at + 4096]) {
        Found::Beat(beat) => Some(beat),
        Found::Nothing | Found::Foreign => None,
    }
}

fn put(world: &World, member: &Arc<TestMember>, beat: &Heartbeat) {
    let at = place(&world.superblock(member)).unwrap();
    world.scribble(member, at, &beat.to_bytes());
}

#[test]
fn a_host_that_beats_keeps_all_others_off() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let array = start(&world, 0, &members, true).unwrap();
    let events = world.superblock(&members[0]).events;
    for own in [true, false] {
        let since = world.shards[1].now();
        let error = start(&world, 1, &members, own).err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, AssembleError::UsedElsewhere { .. }), "{text}");
        assert!(text.contains("host-0") && text.contains("heartbeat on m"), "{text}");
        assert!(world.shards[1].now() - since <= 3 * SECOND);
    }
    assert_eq!(world.superblock(&members[0]).events, events);
    assert_eq!(beats(&world, 0, &array).map(|beats| (beats.members, beats.lost)), Some((2, None)));
    let bytes = pattern(1, 8192);
    world.write(&array, 0, 0, &bytes).unwrap();
    // Where it has ended nobody waits.
    stop(&world, 0, &array);
    let since = world.shards[1].now();
    let array = start(&world, 1, &members, false).unwrap();
    assert!(world.shards[1].now() - since < SECOND);
    assert_eq!(world.read(&array, 1, 0, bytes.len()), Ok(bytes));
}

#[test]
fn a_host_that_has_crashed_is_waited_for_once() {
    let world = World::new(3);
    let members = mirror(&world, Version::V1_2);
    start(&world, 0, &members, true).unwrap();
    world.sleep(5 * SECOND);
    world.shards[0].abandon();
    let since = world.shards[1].now();
    let array = start(&world, 1, &members, false).unwrap();
    assert_eq!((world.shards[1].now() - since) / SECOND, 3);
    stop(&world, 1, &array);
    let since = world.shards[2].now();
    start(&world, 2, &members, false).unwrap();
    assert!(world.shards[2].now() - since < SECOND);
}

#[test]
fn another_start_under_the_same_kernel_is_not_waited_for() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    start(&world, 0, &members, true).unwrap();
    world.shards[0].abandon();
    let since = world.shards[1].now();
    let again = AssembleOptions { heartbeat_ms: None, ..options(0, false) };
    end(&world, &begin_start(&world, 1, &members, again)).unwrap();
    assert!(world.shards[1].now() - since < SECOND);
}

#[test]
fn of_two_that_start_at_the_same_moment_one_at_most_does() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let both = [0, 1].map(|nr| begin_start(&world, nr, &members, options(nr, true)));
    let started = both.map(|one| end(&world, &one));
    let running = started.iter().filter(|one| one.is_ok()).count();
    assert!(running <= 1, "{running} have started");
    for refused in started.iter().filter_map(|one| one.as_ref().err()) {
        assert!(matches!(refused, AssembleError::UsedElsewhere { .. }), "{refused}");
    }
}

#[test]
fn whoever_finds_anothers_beat_writes_no_more() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let array = start(&world, 0, &members, true).unwrap();
    world.write(&array, 0, 0, &pattern(1, 4096)).unwrap();
    world.sleep(3 * SECOND);
    let own = beat_on(&world, &members[1]).unwrap();
    assert!(own.beating && own.sequence >= 3, "{own:?}");
    let other = Heartbeat { owner: [9; 16], host: "other".to_string(), ..own };
    put(&world, &members[1], &other);
    world.sleep(2 * SECOND);
    let refused = world.write(&array, 0, 0, &pattern(2, 4096)).unwrap_err();
    assert_eq!(refused.kind, IoErrorKind::Lost);
    let lost = beats(&world, 0, &array).and_then(|beats| beats.lost).unwrap();
    assert!(lost.contains("host other has taken it, by its heartbeat on m1"), "{lost}");
    let before: Vec<_> = members.iter().map(|member| world.contents(member)).collect();
    let left = stop(&world, 0, &array);
    assert!(left.problems.contains(&lost), "{:?}", left.problems);
    for (member, before) in members.iter().zip(before) {
        assert!(world.contents(member) == before, "{} was written to", member.name());
    }
}

#[test]
fn requests_wait_while_no_member_takes_beats() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let array = start(&world, 0, &members, true).unwrap();
    world.sleep(3 * SECOND);
    // Beats find no way to the members, other requests do.
    let at = place(&world.superblock(&members[0])).unwrap();
    let blind = |on: bool| {
        for member in &members {
            let mut unreadable = member.unreadable.lock().unwrap();
            match on {
                true => unreadable.push(at..at + 4096),
                false => unreadable.clear(),
            }
        }
    };
    blind(true);
    world.sleep(2 * SECOND);
    let waits = world.begin_write(&array, 0, &pattern(1, 4096));
    world.sleep(5 * SECOND);
    assert!(waits.borrow().is_none(), "a write was carried out that others would not know of");
    blind(false);
    world.end(waits).unwrap();
    assert_eq!(world.read(&array, 0, 0, 4096), Ok(pattern(1, 4096)));
    // A stop ends what waits.
    blind(true);
    world.sleep(3 * SECOND);
    let waits = world.begin_write(&array, 0, &pattern(2, 4096));
    world.sleep(SECOND);
    stop(&world, 0, &array);
    assert_eq!(world.end(waits).unwrap_err().kind, IoErrorKind::Refused);
}

#[test]
fn a_member_without_a_place_has_no_heartbeat_and_an_array_without_any_is_refused() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let mut boot_loader = [0x90; 512];
    boot_loader[510..].copy_from_slice(&[0x55, 0xaa]);
    world.scribble(&members[0], 0, &boot_loader);
    let array = start(&world, 0, &members, true).unwrap();
    world.sleep(3 * SECOND);
    assert_eq!(beats(&world, 0, &array).map(|beats| beats.members), Some(1));
    stop(&world, 0, &array);
    assert_eq!(world.contents(&members[0])[..512], boot_loader);

    let members = mirror(&world, Version::V1_1);
    let refused = start(&world, 0, &members, true).err().unwrap();
    assert!(matches!(refused, AssembleError::NoHeartbeat { .. }), "{refused}");
    assert!(refused.to_string().contains("--heartbeat off"), "{refused}");
    start(&world, 0, &members, false).unwrap();
}

#[test]
fn a_start_that_fails_is_not_waited_for() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    members.iter().for_each(|member| {
        // All but the heartbeat's block.
        member.defects.lock().unwrap().push(4096..u64::MAX);
    });
    assert!(start(&world, 0, &members, true).is_err());
    members.iter().for_each(|member| member.defects.lock().unwrap().clear());
    assert!(members.iter().all(|member| !beat_on(&world, member).unwrap().beating));
    let since = world.shards[1].now();
    start(&world, 1, &members, false).unwrap();
    assert!(world.shards[1].now() - since < SECOND);
}

#[test]
fn a_beat_left_on_a_member_that_was_away_is_no_other_host() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let array = start(&world, 0, &members, true).unwrap();
    let old = beat_on(&world, &members[1]).unwrap();
    stop(&world, 0, &array);
    let array = start(&world, 0, &members[..1], true).unwrap();
    put(&world, &members[1], &Heartbeat { boot: [0; 16], ..old });
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    let opener = Arc::clone(&members[1]) as Arc<dyn Opener>;
    let added = begin(&world, 0, async move { control.membership().add(opener, true).await });
    end(&world, &added).unwrap();
    world.sleep(2 * SECOND);
    assert_eq!(beats(&world, 0, &array).map(|beats| (beats.members, beats.lost)), Some((1, None)));
    world.sleep(3 * SECOND);
    assert_eq!(beats(&world, 0, &array).map(|beats| (beats.members, beats.lost)), Some((2, None)));
}

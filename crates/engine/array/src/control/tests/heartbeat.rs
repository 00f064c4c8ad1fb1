//! Two hosts that reach the same members: shards that share a clock and nothing else.

use super::fenced::{Fenced, Registrations};
use super::world::{TestMember, World, members, pattern};
use crate::array::Array;
use crate::assemble::assemble;
use crate::control::Control;
use crate::error::AssembleError;
use crate::metadata::heartbeat::place;
use crate::options::{AssembleOptions, Context, CreateOptions, Host};
use crate::status::MemberState;
use braid_device::reservation::Order;
use braid_device::{IoErrorKind, Opener};
use braid_format::heartbeat::{Found, Heartbeat, Process};
use braid_format::superblock::Version;
use braid_layout::Level;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BEAT_MS: u32 = 1000;
const SECOND: u64 = 1_000_000_000;

type Started = Result<Arc<Array>, AssembleError>;

/// Host `nr` has shard `nr` alone.
fn context(world: &World, nr: usize) -> Context {
    let shard = world.shards[nr].clone();
    Context { remotes: vec![shard.remote()], shard, ..world.ctx.clone() }
}

fn options(nr: usize, beats: bool) -> AssembleOptions {
    let boot = [nr as u8 + 1; 16];
    let host = Host { name: format!("host-{nr}"), boot, process: None, locks: true };
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
    let openers = members.iter().map(|member| Arc::clone(member) as Arc<dyn Opener>).collect();
    begin_start_of(world, nr, openers, options)
}

fn begin_start_of(
    world: &World,
    nr: usize,
    openers: Vec<Arc<dyn Opener>>,
    options: AssembleOptions,
) -> Rc<RefCell<Option<Started>>> {
    let ctx = context(world, nr);
    begin(world, nr, async move { assemble(&ctx, openers, options).await })
}

fn start(world: &World, nr: usize, members: &[Arc<TestMember>], beats: bool) -> Started {
    end(world, &begin_start(world, nr, members, options(nr, beats)))
}

fn stop(world: &World, nr: usize, array: &Array) -> crate::status::Left {
    let control = Control::find(&world.shards[nr], array.id()).unwrap();
    end(world, &begin(world, nr, async move { control.stop().await }))
}

/// As host `nr` has it.
fn status(world: &World, nr: usize, array: &Array) -> crate::status::ArrayStatus {
    let control = Control::find(&world.shards[nr], array.id()).unwrap();
    end(world, &begin(world, nr, async move { control.status().await }))
}

fn beats(world: &World, nr: usize, array: &Array) -> Option<crate::status::HeartbeatStatus> {
    status(world, nr, array).heartbeat
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

/// A start of host 0 by the process `id` in a namespace of its own, beside members that no lock keeps to one process.
fn unlocked(id: u32) -> AssembleOptions {
    let process = Some(Process { namespace: u64::from(id), id });
    let host = Host { process, locks: false, ..options(0, true).host };
    AssembleOptions { host, ..options(0, true) }
}

#[test]
fn two_servers_of_one_host_are_strangers_where_members_are_not_locked() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let first = end(&world, &begin_start(&world, 0, &members, unlocked(1))).unwrap();
    for wanted in [unlocked(2), AssembleOptions { heartbeat_ms: None, ..unlocked(2) }] {
        let refused = end(&world, &begin_start(&world, 1, &members, wanted)).err().unwrap();
        assert!(matches!(refused, AssembleError::UsedElsewhere { .. }), "{refused}");
    }
    world.sleep(5 * SECOND);
    assert_eq!(beats(&world, 0, &first).unwrap().lost, None);
    world.shards[0].abandon();
    let since = world.shards[1].now();
    end(&world, &begin_start(&world, 1, &members, unlocked(2))).unwrap();
    // Two beats and a second, and a beat of its own.
    assert_eq!((world.shards[1].now() - since) / SECOND, 4);
}

#[test]
fn a_server_whose_process_has_ended_is_not_waited_for() {
    let mut world = World::new(2);
    world.ctx.has_ended = Arc::new(|process| process.id == 1);
    let members = mirror(&world, Version::V1_2);
    end(&world, &begin_start(&world, 0, &members, unlocked(1))).unwrap();
    world.shards[0].abandon();
    let since = world.shards[1].now();
    end(&world, &begin_start(&world, 1, &members, unlocked(2))).unwrap();
    // A beat of its own.
    assert_eq!((world.shards[1].now() - since) / SECOND, 1);
}

#[test]
fn an_owner_that_has_ended_by_the_callers_word_is_not_waited_for() {
    let world = World::new(3);
    let members = mirror(&world, Version::V1_2);
    let first = AssembleOptions { owner: Some([5; 16]), ..options(0, true) };
    end(&world, &begin_start(&world, 0, &members, first)).unwrap();
    assert_eq!(beat_on(&world, &members[0]).unwrap().owner, [5; 16]);
    // Another's end says nothing of this one, which lives.
    let wrong = AssembleOptions { ended: Some([6; 16]), ..options(1, true) };
    let refused = end(&world, &begin_start(&world, 1, &members, wrong)).err().unwrap();
    assert!(matches!(refused, AssembleError::UsedElsewhere { .. }), "{refused}");
    world.shards[0].abandon();
    let since = world.shards[2].now();
    let next = AssembleOptions { ended: Some([5; 16]), ..options(2, true) };
    end(&world, &begin_start(&world, 2, &members, next)).unwrap();
    // A beat of its own.
    assert_eq!((world.shards[2].now() - since) / SECOND, 1);
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
fn a_member_that_is_gone_is_failed_though_nobody_asks_it_for_anything() {
    let world = World::new(1);
    let members = mirror(&world, Version::V1_2);
    let array = start(&world, 0, &members, true).unwrap();
    world.sleep(3 * SECOND);
    members[1].dead.store(true, Ordering::Relaxed);
    world.sleep(4 * SECOND);
    let is = status(&world, 0, &array);
    let gone = is.members.iter().find(|member| member.name == "m1").unwrap();
    assert!(matches!(gone.state, MemberState::Faulty), "{:?}", gone.state);
    // What is left is never given up: it may come back.
    members[0].dead.store(true, Ordering::Relaxed);
    world.sleep(4 * SECOND);
    members[0].dead.store(false, Ordering::Relaxed);
    world.sleep(4 * SECOND);
    world.write(&array, 0, 0, &pattern(1, 8192)).unwrap();
}

#[test]
fn members_that_are_gone_all_at_once_stay_members() {
    let world = World::new(1);
    let members = mirror(&world, Version::V1_2);
    let array = start(&world, 0, &members, true).unwrap();
    world.sleep(3 * SECOND);
    members.iter().for_each(|member| member.dead.store(true, Ordering::Relaxed));
    world.sleep(10 * SECOND);
    members.iter().for_each(|member| member.dead.store(false, Ordering::Relaxed));
    world.sleep(4 * SECOND);
    let is = status(&world, 0, &array);
    assert!(is.members.iter().all(|member| member.state == MemberState::InSync), "{is:?}");
    world.write(&array, 0, 0, &pattern(1, 8192)).unwrap();
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

/// Disks that know reservations.
struct Disks(Vec<(Arc<TestMember>, Arc<Registrations>)>);

impl Disks {
    fn of(members: &[Arc<TestMember>]) -> Disks {
        let with = |member: &Arc<TestMember>| (Arc::clone(member), Arc::default());
        Disks(members.iter().map(with).collect())
    }

    /// One of them, as host `nr` reaches it.
    fn path(&self, disk: usize, nr: usize) -> Arc<dyn Opener> {
        let (member, disk) = &self.0[disk];
        Arc::new(Fenced::new(Arc::clone(member) as _, disk, nr as u64))
    }

    fn start(&self, world: &World, nr: usize, beats: bool) -> Started {
        let paths = (0..self.0.len()).map(|disk| self.path(disk, nr)).collect();
        end(world, &begin_start_of(world, nr, paths, options(nr, beats)))
    }

    /// The disks that refuse the writes of host `nr`.
    fn refusing(&self, nr: usize) -> usize {
        self.0.iter().filter(|(_, disk)| disk.refuses(nr as u64)).count()
    }
}

#[test]
fn disks_take_the_writes_of_the_host_that_has_the_array_alone() {
    let world = World::new(2);
    let disks = Disks::of(&mirror(&world, Version::V1_2));
    let array = disks.start(&world, 0, true).unwrap();
    assert_eq!((disks.refusing(0), disks.refusing(1)), (0, 2));
    world.write(&array, 0, 0, &pattern(1, 8192)).unwrap();
    stop(&world, 0, &array);
    assert_eq!(disks.refusing(1), 0);
    // Nobody asked for it.
    let array = disks.start(&world, 1, false).unwrap();
    assert_eq!(disks.refusing(0), 0);
    stop(&world, 1, &array);
}

#[test]
fn a_host_that_was_taken_over_from_has_its_writes_refused_by_the_disks() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let disks = Disks::of(&members);
    let old = disks.start(&world, 0, true).unwrap();
    world.write(&old, 0, 0, &pattern(1, 8192)).unwrap();
    // It hangs: nothing that it sends arrives, and another takes over.
    members.iter().for_each(|member| {
        let own = beat_on(&world, member).unwrap();
        put(&world, member, &Heartbeat { boot: [7; 16], interval: 100, ..own });
    });
    let key =
        u64::from_be_bytes(*beat_on(&world, &members[0]).unwrap().owner.first_chunk().unwrap());
    for (_, disk) in &disks.0 {
        disk.carry_out(5, Order::Register { key: 55 }).unwrap();
        disk.carry_out(5, Order::Preempt { key: 55, of: key }).unwrap();
    }
    let before: Vec<_> = members.iter().map(|member| world.contents(member)).collect();
    assert!(world.write(&old, 0, 0, &pattern(2, 4096)).is_err());
    let lost = beats(&world, 0, &old).and_then(|beats| beats.lost).unwrap();
    assert!(lost.contains("refuses the writes of this host"), "{lost}");
    assert_eq!(world.write(&old, 0, 0, &pattern(2, 4096)).unwrap_err().kind, IoErrorKind::Lost);
    let left = stop(&world, 0, &old);
    assert!(left.problems.contains(&lost), "{:?}", left.problems);
    for (member, before) in members.iter().zip(before) {
        assert!(world.contents(member) == before, "{} was written to", member.name());
    }
    assert_eq!(disks.refusing(5), 0);
}

#[test]
fn what_a_crashed_host_has_reserved_is_taken_from_it() {
    for beats in [true, false] {
        let world = World::new(2);
        let disks = Disks::of(&mirror(&world, Version::V1_2));
        disks.start(&world, 1, true).unwrap();
        world.shards[1].abandon();
        let array = disks.start(&world, 0, beats).unwrap();
        assert_eq!(disks.refusing(0), 0);
        assert_eq!(disks.refusing(1), if beats { 2 } else { 0 });
        world.write(&array, 0, 0, &pattern(1, 8192)).unwrap();
        stop(&world, 0, &array);
        assert_eq!(disks.refusing(1), 0);
    }
}

#[test]
fn a_disk_that_somebody_unknown_has_reserved_is_refused_by_name() {
    let world = World::new(2);
    let members = mirror(&world, Version::V1_2);
    let disks = Disks::of(&members);
    disks.0[1].1.carry_out(5, Order::Register { key: 55 }).unwrap();
    disks.0[1].1.carry_out(5, Order::Reserve { key: 55 }).unwrap();
    let before: Vec<_> = members.iter().map(|member| world.contents(member)).collect();
    let refused = disks.start(&world, 0, true).err().unwrap().to_string();
    assert!(refused.contains("m1 is reserved for another host"), "{refused}");
    assert_eq!((disks.refusing(0), disks.refusing(5)), (1, 0));
    for (member, before) in members.iter().zip(before) {
        assert!(world.contents(member) == before, "{} was written to", member.name());
    }
}

#[test]
fn of_two_that_reserve_at_the_same_moment_one_at_most_does() {
    let world = World::new(2);
    let disks = Disks::of(&mirror(&world, Version::V1_2));
    let both = [0, 1].map(|nr| {
        let paths = (0..2).map(|disk| disks.path(disk, nr)).collect();
        begin_start_of(&world, nr, paths, options(nr, true))
    });
    let started = both.map(|one| end(&world, &one));
    assert_eq!(started.iter().filter(|one| one.is_ok()).count(), 1);
}

#[test]
fn members_that_come_are_reserved_and_those_that_go_are_not() {
    let world = World::new(2);
    let members = [mirror(&world, Version::V1_2), super::world::members("n", 1, 4 << 20)].concat();
    let disks = Disks::of(&members);
    let two = (0..2).map(|disk| disks.path(disk, 0)).collect();
    let array = end(&world, &begin_start_of(&world, 0, two, options(0, true))).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    let refuses = |disk: usize| disks.0[disk].1.refuses(1);
    let (own, new) = (Rc::clone(&control), disks.path(2, 0));
    let added = begin(&world, 0, async move { own.membership().add(new, false).await });
    end(&world, &added).unwrap();
    assert!(refuses(2));
    let gone = crate::options::MemberSelector::Name("m1".to_string());
    let removed = begin(&world, 0, async move {
        control.membership().fail(&gone).await?;
        control.jobs().wait_idle().await;
        control.membership().remove(&gone).await
    });
    end(&world, &removed).unwrap();
    assert_eq!([0, 1, 2].map(refuses), [true, false, true]);
}

/// Host 0 has the array, and stops it for another process of its own.
fn hand_over(world: &World, disks: &Disks) -> Heartbeat {
    let old = disks.start(world, 0, true).unwrap();
    world.write(&old, 0, 0, &pattern(1, 8192)).unwrap();
    world.sleep(2 * SECOND);
    Control::find(&world.shards[0], old.id()).unwrap().hand_over();
    stop(world, 0, &old);
    assert_eq!((disks.refusing(0), disks.refusing(1)), (0, 2));
    disks.0.iter().for_each(|(_, disk)| drop(disk.orders()));
    let beat = beat_on(world, &disks.0[0].0).unwrap();
    assert!(beat.beating, "others would take the array for unused");
    beat
}

/// Begins the start of that process.
fn begin_succession(
    world: &World,
    disks: &Disks,
    wanted: AssembleOptions,
) -> Rc<RefCell<Option<Started>>> {
    let paths = (0..disks.0.len()).map(|disk| disks.path(disk, 0)).collect();
    begin_start_of(world, 0, paths, AssembleOptions { handed_over: true, ..wanted })
}

#[test]
fn a_successor_goes_on_with_the_beat_and_the_key_of_its_predecessor() {
    let world = World::new(2);
    let disks = Disks::of(&mirror(&world, Version::V1_2));
    let before = hand_over(&world, &disks);
    // Another host comes at this very moment.
    let paths = (0..2).map(|disk| disks.path(disk, 1)).collect();
    let stranger = begin_start_of(&world, 1, paths, options(1, true));
    let next = end(&world, &begin_succession(&world, &disks, options(0, true))).unwrap();
    let error = end(&world, &stranger).err().unwrap();
    assert!(matches!(error, AssembleError::UsedElsewhere { .. }), "{error}");
    let beat = beat_on(&world, &disks.0[0].0).unwrap();
    assert_eq!((beat.owner, beat.beating), (before.owner, true));
    assert!(beat.sequence > before.sequence);
    let key = u64::from_be_bytes(*before.owner.first_chunk().unwrap());
    for (_, disk) in &disks.0 {
        assert_eq!(disk.orders(), [(0, Order::Register { key }), (0, Order::Reserve { key })]);
    }
    world.write(&next, 0, 0, &pattern(2, 8192)).unwrap();
    assert_eq!(disks.refusing(1), 2);
    stop(&world, 0, &next);
    assert_eq!(disks.refusing(1), 0);
    assert!(!beat_on(&world, &disks.0[0].0).unwrap().beating);
}

#[test]
fn a_successor_that_wants_no_reservations_ends_those_of_its_predecessor() {
    for heartbeat_ms in [Some(BEAT_MS), None] {
        let world = World::new(2);
        let disks = Disks::of(&mirror(&world, Version::V1_2));
        hand_over(&world, &disks);
        let wanted = AssembleOptions {
            reservations: heartbeat_ms.is_none(),
            heartbeat_ms,
            ..options(0, true)
        };
        let next = end(&world, &begin_succession(&world, &disks, wanted)).unwrap();
        assert_eq!(disks.refusing(1), 0);
        world.write(&next, 0, 0, &pattern(2, 8192)).unwrap();
    }
}

#[test]
fn an_array_that_was_handed_over_to_nobody_is_anothers_after_a_while() {
    let world = World::new(2);
    let disks = Disks::of(&mirror(&world, Version::V1_2));
    hand_over(&world, &disks);
    let since = world.shards[1].now();
    disks.start(&world, 1, true).unwrap();
    // Two beats and a second, and a beat of its own.
    assert_eq!((world.shards[1].now() - since) / SECOND, 4);
    assert_eq!((disks.refusing(0), disks.refusing(1)), (2, 0));
}

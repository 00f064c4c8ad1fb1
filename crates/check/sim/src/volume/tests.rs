//! The model and the client against a file system in memory: they agree with it, through crashes too, and find each
//! of its flaws.

use super::choose::Taste;
use super::client::{Client, Clock};
use super::memory::{Flaw, MemoryFs};
use super::model::Model;
use crate::checkers::LOOKS;
use crate::machine::{Machine, Step};
use crate::rng::Rng;
use crate::waiting::Over;
use crate::world::{Failure, Manners, World};
use braid_filesystem::{FileSystem, ROOT, Time};
use braid_format::superblock::Version;
use std::rc::Rc;

const MANNERS: Manners = Manners { inline: 0, latency: 1000, slow: 0, hang: 0, unsupported: 0 };

fn clock(world: &Rc<World>) -> Clock {
    let world = Rc::clone(world);
    Rc::new(move || {
        let now = world.now();
        Time { seconds: (now / 1_000_000_000) as i64, nanos: (now % 1_000_000_000) as u32 }
    })
}

struct Life {
    client: Client<MemoryFs>,
    fs: Rc<MemoryFs>,
    machine: Machine,
}

fn live(world: &Rc<World>, rng: Rng, make: impl FnOnce(&Machine) -> MemoryFs) -> Life {
    let machine = Machine::start(world, 1);
    let fs = Rc::new(make(&machine));
    let client = Client::new(rng, Rc::clone(&fs), &machine, clock(world));
    Life { client, fs, machine }
}

fn drive(life: &mut Life, model: &mut Model, taste: &Taste, requests: u64) -> Result<(), Over> {
    let mut sent = 0;
    while sent < requests {
        if life.client.waiting() < 6 {
            life.client.send_random(model, taste);
            sent += 1;
        } else {
            step(life, model)?;
        }
    }
    Ok(())
}

fn step(life: &mut Life, model: &mut Model) -> Result<Step, Over> {
    let step = life.machine.step();
    life.client.collect(model);
    if step == Step::Stuck && life.client.waiting() > 0 && life.machine.step() == Step::Stuck {
        let text = format!("requests wait: {}", life.client.describe_waiting());
        life.client.fail("nothing_waits_for_ever", &text, &[]);
    }
    match life.machine.world.failure() {
        Some(_) => Err(Over),
        None => Ok(step),
    }
}

fn rounds(world: &Rc<World>, seed: u64, flaw: Flaw, crashes: bool) -> Result<(), Over> {
    let rng = Rng::new(seed, 2);
    let room = if rng.percent(30) { 300 } else { 2000 };
    let stream = |nr| Rng::new(seed, nr);
    let mut life = live(world, stream(3), |machine| {
        MemoryFs::new(machine.home(), clock(world), stream(4), flaw, room)
    });
    let fs = Rc::clone(&life.fs);
    let later = life.machine.begin(async move { fs.attr(ROOT).await });
    let root = crate::waiting::wait(&life.machine, "the root", &later)?.unwrap();
    let mut model = Model::new(seed, 0, &root);
    for round in 0..5 {
        let mut taste = Taste::of(&rng, room * 512, 16 << 10);
        taste.longest = taste.longest.min(64 << 10);
        drive(&mut life, &mut model, &taste, 200)?;
        if !crashes || rng.percent(30) {
            while life.client.waiting() > 0 {
                step(&mut life, &mut model)?;
            }
            life.client.compare_all(&life.machine, &mut model)?;
            continue;
        }
        let old = Rc::clone(&life.fs);
        let history = std::mem::take(&mut life.client.history);
        life = live(world, stream(10 + round), |machine| {
            old.after_crash(machine.home(), clock(world), stream(100 + round))
        });
        life.client.history = history;
        life.client.history.note(&[], "CRASH".to_string());
        life.client.recover(&life.machine, &mut model)?;
    }
    Ok(())
}

fn run(seed: u64, flaw: Flaw, crashes: bool) -> Option<Failure> {
    let world = World::new(LOOKS, seed, MANNERS, Version::V1_2, false);
    let _ = rounds(&world, seed, flaw, crashes);
    world.failure()
}

#[test]
fn a_right_file_system_is_found_right() {
    for seed in 0..40 {
        if let Some(failure) = run(seed, Flaw::None, false) {
            panic!("seed {seed}: {}: {}", failure.checker, failure.text);
        }
    }
}

#[test]
fn a_right_file_system_is_found_right_through_crashes() {
    for seed in 1000..1060 {
        if let Some(failure) = run(seed, Flaw::None, true) {
            panic!("seed {seed}: {}: {}", failure.checker, failure.text);
        }
    }
}

#[test]
fn each_flaw_is_found_by_a_checker_for_it() {
    // Stale bytes are seen by whoever looks first: a read, one after a write that failed, or the comparison after a crash.
    let (names, reads) = ("names_are_of_one_moment", "reads_return_what_was_written");
    let sectors = "sectors_are_durable_or_newer";
    let failed = "failed_writes_leave_old_or_new";
    let flaws: [(Flaw, &[&str]); 7] = [
        (Flaw::ForgetsFsync, &[names, sectors]),
        (Flaw::HalfRename, &[names]),
        (Flaw::EarlyReuse, &[sectors]),
        (Flaw::StaleTail, &[reads, sectors]),
        (Flaw::SkipsEntry, &["answers_are_right"]),
        (Flaw::LostUpdate, &[reads, sectors, failed]),
        (Flaw::OldTimes, &["attributes_are_right", names]),
    ];
    for (flaw, checkers) in flaws {
        let found = (0..60).find_map(|seed| run(seed, flaw, true)).map(|failure| failure.checker);
        assert!(found.is_some_and(|found| checkers.contains(&found)), "{flaw:?}: {found:?}");
    }
}

#[test]
fn bricks_that_vanish_and_return_in_any_order_make_up_the_volume() {
    for seed in 0..300 {
        let failure = super::holders::run(seed, false);
        assert!(failure.is_none(), "seed {seed}: {failure:?}");
    }
}

/// Minutes: after a change of superblocks or of who holds the metadata. As many seeds as the variable `SEEDS` says.
#[test]
#[ignore = "takes minutes"]
fn many_bricks_that_vanish_and_return() {
    let count = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 300..300 + count.unwrap_or(5_000) {
        let failure = super::holders::run(seed, false);
        assert!(failure.is_none(), "seed {seed}: {failure:?}");
    }
}

//! fio writes arrays of every level over NBD and verifies what it wrote: healthy, while the first
//! resync runs, degraded to the limit, and while members are rebuilt; then the arrays are checked,
//! stopped, assembled again, and read once more.

use crate::common::fio::{self, EXTENT, WRITTEN};
use crate::common::{CRAWLING, MIB, Served, Steered, World, open_member};
use braid_array::array::Array;
use braid_array::options::CreateOptions;
use braid_array::status::{Counters, JobKind};
use braid_device::Opener;
use braid_device::ram::Ram;
use braid_layout::{Level, layout_number};
use std::sync::Arc;

/// Room for what md keeps in front of the data.
const METADATA: u64 = 4 * MIB;
const CHUNK: u64 = 64 << 10;
/// An array to be put through it.
struct Case {
    level: Level,
    layout: Option<&'static str>,
    members: usize,
    /// Members whose worth of data the array holds.
    data_members: u64,
    /// Slots that may be lost together: one more and data would be lost.
    lost: &'static [usize],
}

impl Case {
    fn member_size(&self) -> u64 {
        (EXTENT / self.data_members).next_multiple_of(MIB) + METADATA
    }

    fn options(&self) -> CreateOptions {
        let number = |name| layout_number(self.level, name).expect("a layout of the level");
        CreateOptions {
            layout: self.layout.map(number),
            chunk_size: (!matches!(self.level, Level::Linear | Level::Raid1)).then_some(CHUNK),
            ..CreateOptions::new("data", self.level, self.members)
        }
    }
}

/// An array that fio works on, with a new seed for each round so that no round can pass on what an
/// earlier one wrote.
struct Bench<'a> {
    world: &'a World,
    array: Arc<Array>,
    served: Served,
    seed: u64,
}

impl<'a> Bench<'a> {
    fn new(world: &'a World, array: Arc<Array>) -> Bench<'a> {
        let size = array.status().array_size;
        assert!(size >= EXTENT, "an array of {size} bytes is too small for {EXTENT}");
        let served = world.serve(&[&array]);
        Bench { world, array, served, seed: 1000 }
    }

    fn start(&mut self) -> fio::Running {
        self.seed += 1;
        let jobs = fio::verifying(&self.served.uri(&self.array), self.seed);
        fio::start(self.world.folder(), &jobs)
    }

    fn round(&mut self) -> fio::Said {
        self.start().verified()
    }

    fn verify_again(&self) {
        let jobs = fio::verifying_again(&self.served.uri(&self.array), self.seed);
        let (written, read) = (self.written(), self.counters().read_bytes);
        fio::run(self.world.folder(), &jobs);
        assert_eq!(self.written(), written, "only reads were asked for");
        assert!(self.counters().read_bytes >= read + WRITTEN, "all was to be read");
    }

    /// A round whose first part meets a job that has done next to nothing; then the job passes under
    /// the rest. The limit on jobs must be [`CRAWLING`] at the start, and is lifted.
    fn round_beside(&mut self, job: JobKind) {
        let before = self.written();
        let mut fio = self.start();
        while self.written() < before + EXTENT / 3 && fio.is_running() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(self.array.status().job.map(|job| job.kind), Some(job));
        self.array.sync_speed(u64::MAX);
        fio.verified();
        self.array.assert_redundant("after a job under load");
        self.verify_again();
    }

    fn counters(&self) -> Counters {
        self.array.status().counters
    }

    /// Bytes written by clients so far.
    fn written(&self) -> u64 {
        self.counters().written_bytes
    }

    /// Stops server and array, and starts both again.
    fn again(self, members: impl FnOnce() -> Vec<Arc<dyn Opener>>) -> Bench<'a> {
        let before = self.world.content(&self.array);
        let Bench { world, array, served, seed } = self;
        drop(served);
        array.stop();
        drop(array);
        let array = world.assemble(members());
        assert!(world.content(&array) == before, "the array holds other bytes after its restart");
        let served = world.serve(&[&array]);
        Bench { world, array, served, seed }
    }
}

fn put_through(case: &Case) {
    let world = World::new();
    let size = case.member_size();
    let names: Vec<String> = (0..case.members).map(|nr| format!("member-{nr}")).collect();
    let members: Vec<_> = names.iter().map(|name| world.new_member(name, size)).collect();
    let array = world.create(&members, case.options());
    drop(members);
    let mut bench = Bench::new(&world, array);
    if case.level.has_redundancy() {
        bench.round_beside(JobKind::Resync);
    }
    let said = bench.round();
    for (job, reads, writes, trims) in [
        ("trimwrite", true, true, true),
        ("write", true, true, false),
        ("mix", true, true, false),
        ("trim", false, false, true),
    ] {
        let issued = said.issued(job).map(|count| count > 0);
        assert_eq!(issued, [reads, writes, trims], "{job}: {}", said.0);
    }
    let mut names = names;
    if case.level.has_redundancy() {
        degrade_and_rebuild(&mut bench, case, size, &mut names);
    }
    let members = || names.iter().map(|name| open_member(&world.folder().join(name))).collect();
    let bench = bench.again(members);
    bench.verify_again();
    if case.level.has_redundancy() {
        bench.array.assert_redundant("after the restart");
    }
    bench.array.stop();
}

/// Loses all that may be lost, and fills as many new members, both under load.
fn degrade_and_rebuild(bench: &mut Bench<'_>, case: &Case, size: u64, names: &mut [String]) {
    let array = Arc::clone(&bench.array);
    array.assert_redundant("before a member is lost");
    for slot in case.lost {
        array.fail(*slot);
    }
    assert_eq!(array.status().degraded, case.lost.len());
    bench.round();
    array.remove_faulty();
    array.sync_speed(CRAWLING);
    for slot in case.lost {
        names[*slot] = format!("spare-for-{slot}");
        array.add(bench.world.new_member(&names[*slot], size));
    }
    bench.round_beside(JobKind::Recover);
}

fn case(level: Level, members: usize, data_members: u64, lost: &'static [usize]) -> Case {
    Case { level, layout: None, members, data_members, lost }
}

#[test]
fn linear() {
    put_through(&case(Level::Linear, 3, 3, &[]));
}

#[test]
fn raid0() {
    put_through(&case(Level::Raid0, 3, 3, &[]));
}

#[test]
fn raid1_of_three() {
    put_through(&case(Level::Raid1, 3, 1, &[0, 2]));
}

#[test]
fn raid4() {
    put_through(&case(Level::Raid4, 4, 3, &[1]));
}

#[test]
fn raid5() {
    put_through(&case(Level::Raid5, 4, 3, &[2]));
}

#[test]
fn raid6() {
    put_through(&case(Level::Raid6, 6, 4, &[0, 3]));
}

#[test]
fn raid10_near() {
    put_through(&Case { layout: Some("n2"), ..case(Level::Raid10, 4, 2, &[0, 3]) });
}

#[test]
fn raid10_far() {
    put_through(&Case { layout: Some("f2"), ..case(Level::Raid10, 4, 2, &[0, 2]) });
}

#[test]
fn raid10_offset() {
    put_through(&Case { layout: Some("o2"), ..case(Level::Raid10, 4, 2, &[1, 3]) });
}

#[test]
fn raid5_in_memory() {
    let world = World::new();
    let case = case(Level::Raid5, 3, 2, &[1]);
    let ram = |nr| Arc::new(Ram::new(format!("ram-{nr}"), case.member_size())) as Arc<dyn Opener>;
    let members: Vec<_> = (0..case.members).map(ram).collect();
    let array = world.create(&members, case.options());
    let mut bench = Bench::new(&world, array);
    bench.round_beside(JobKind::Resync);
    bench.array.fail(case.lost[0]);
    bench.round();
    bench.verify_again();
    bench.array.stop();
}

//! The write hole across the border: arrays with a partial parity log or a write journal whose members lose power while one
//! side writes, and that the other starts with all members, and with any missing that the level can do without. Without the log the same losses of power lose
//! what nobody was writing, so that these tests would show a log that does not help.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::file::create_sparse;
use braid_interop::across::{self, openers, path};
use braid_interop::by_braid::own_context;
use braid_interop::guest::CRASHED;
use braid_interop::uml;
use braid_interop::write_hole::{
    self, CHUNK, HalfWritten, JOURNAL, MEMBER, MEMBERS, ROWS, copy_without, write_until_cut,
};
use braid_layout::Level;
use braid_shard::Shard;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// Blocks under way at a cut, at most: braid's victim has 16, and each of md's three writers 13. Of those that were on a missing
/// member a partial parity log promises nothing; a journal says what they were.
const TORN_MAX: usize = 39;
const LEVELS: [Level; 3] = [Level::Raid4, Level::Raid5, Level::Raid6];
/// Losses of power without a log of which one at least must show the hole.
const CONTROLS: u64 = 20;

/// The consistency policy, which closes the hole or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Resync,
    Ppl,
    Journal,
}

/// All members there, then each of them missing, and at level 6 each two.
fn missing(level: Level) -> impl Iterator<Item = Vec<usize>> {
    let two = (0..MEMBERS).flat_map(|one| (one + 1..MEMBERS).map(move |other| vec![one, other]));
    std::iter::once(Vec::new())
        .chain((0..MEMBERS).map(|slot| vec![slot]))
        .chain(two.filter(move |_| level == Level::Raid6))
}

fn without(name: &str, missing: &[usize]) -> String {
    missing.iter().fold(format!("{name}-without"), |name, slot| format!("{name}-{slot}"))
}

struct World {
    folder: tempfile::TempDir,
    shard: Shard,
    level: Level,
    half: HalfWritten,
}

impl World {
    fn new(level: Level) -> World {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a folder in /var/tmp");
        let half = HalfWritten::new(level).expect("it has parity");
        for nr in 0..2 {
            let version = folder.path().join(format!("version-{nr}"));
            std::fs::write(version, half.version(nr)).expect("there is room");
        }
        World { folder, shard: Shard::with_ring(0).expect("an io_uring"), level, half }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes the devices of an array; their number.
    fn make_devices(&self, name: &str, policy: Policy) -> usize {
        for slot in 0..MEMBERS {
            create_sparse(path(self.folder(), name, slot), MEMBER).expect("there is room");
        }
        if policy == Policy::Journal {
            create_sparse(path(self.folder(), name, MEMBERS), JOURNAL).expect("there is room");
        }
        write_hole::devices(self.folder(), name, &[]).len()
    }

    /// An array made by braid, filled with version 0.
    fn make(&self, name: &str, policy: Policy) {
        let devices = self.make_devices(name, policy);
        let options = CreateOptions {
            chunk_size: Some(CHUNK),
            size: Some(ROWS * CHUNK),
            bitmap: CreateBitmap::None,
            ppl: policy == Policy::Ppl,
            write_journal: policy == Policy::Journal,
            ..CreateOptions::new(name, self.level, MEMBERS)
        };
        let ctx = own_context(&self.shard);
        let given = openers(self.folder(), name, devices);
        let (on, content) = (self.shard.clone(), self.half.version(0));
        self.shard.block_on(async move {
            let slots = given.iter().cloned().map(Some).collect();
            create(&ctx, slots, options).await.expect("it is created");
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            across::write(&on, &array, &content).await;
            let control = Control::find(&on, array.id()).expect("it runs");
            control.jobs().wait_idle().await;
            control.stop().await;
        });
    }

    /// braid writes until the power is cut.
    fn write_by_braid(&self, name: &str, life: u64) {
        let program = Path::new(env!("CARGO_BIN_EXE_braid-interop"));
        let numbers = (life, 100 + 97 * life);
        let cut = write_until_cut(program, self.folder(), name, self.level, numbers);
        cut.unwrap_or_else(|why| panic!("{name}, life {life}: {why}"));
    }

    /// mdadm makes an array, and md writes it until the power is cut.
    fn write_by_md(&self, name: &str, policy: Policy, life: u64) {
        let devices = self.make_devices(name, policy);
        let program = self.folder().join("program");
        if !program.exists() {
            std::fs::copy(env!("CARGO_BIN_EXE_braid-interop"), program).expect("there is room");
        }
        let members: Vec<String> = (0..devices).map(|nr| format!("{name}.{nr}")).collect();
        let policy = match policy {
            Policy::Resync => "--consistency-policy resync".to_owned(),
            Policy::Ppl => "--consistency-policy ppl".to_owned(),
            Policy::Journal => format!("--write-journal /dev/nbd{MEMBERS}"),
        };
        let rows = [0, 7, 22].map(|row| (row * self.half.row_blocks()).to_string());
        let script = format!(
            "cd {shared}; export BRAID_SIMD=scalar\n\
             mkfifo /tmp/stdin; exec 8<> /tmp/stdin\n\
             ./program serve-members /tmp/members {members} < /tmp/stdin > /tmp/said 2>&1 8>&- &\n\
             for wait in $(seq 200); do grep -q serving /tmp/said && break; sleep 0.05; done\n\
             for nr in {slots}; do nbd-client -unix /tmp/members -N $nr /dev/nbd$nr > /dev/null; done\n\
             yes | mdadm --create /dev/md0 --run --quiet --assume-clean --level {level} --raid-devices {MEMBERS} --chunk {chunk} --size {size} \
             {policy} /dev/nbd[0-3]\n\
             dd if=version-0 of=/dev/md0 bs=1M oflag=direct status=none; sync\n\
             writer() {{ RANDOM=$1; while :; do local at=$((RANDOM % 4)); dd if=version-$((RANDOM % 2)) of=/dev/md0 bs=4k \
             skip=$((at + $2)) seek=$((at + $2)) count=$((1 + RANDOM % 13)) oflag=direct conv=notrunc status=none; done; }}\n\
             for row in {rows}; do writer $((row + {life})) $row & done\n\
             sleep 0.{pause}; cat /sys/block/md0/stat; echo cut {life} >&8; sleep 0.5\n\
             echo {CRASHED} > /run/rig/status; echo 1 > /proc/sys/kernel/panic_on_oops; echo c > /proc/sysrq-trigger\n",
            shared = uml::SHARED,
            members = members.join(" "),
            slots = (0..devices).map(|nr| nr.to_string()).collect::<Vec<_>>().join(" "),
            level = self.level.md_number(),
            chunk = CHUNK >> 10,
            size = (ROWS * CHUNK) >> 10,
            rows = rows.join(" "),
            pause = 50 + life % 50,
        );
        let output = uml::run(&script, self.folder(), 512, LIMIT).expect("the guest runs");
        assert_eq!(output.status, CRASHED, "{}", output.text);
    }

    /// braid starts a copy of the array, without the members in these slots.
    fn read_by_braid(
        &self,
        name: &str,
        missing: &[usize],
        (force, torn_max): (bool, usize),
    ) -> Result<(), String> {
        let copy = format!("{}-by-braid", without(name, missing));
        copy_without(self.folder(), name, &copy, missing)?;
        let bytes = write_hole::read(&self.shard, self.folder(), &copy, missing, force)?;
        self.half.compare(&bytes, missing, torn_max)
    }

    /// In each life the array is `written`, without a log: in one of them something is lost that nobody was writing.
    fn hole_shows(&self, written: impl Fn(u64) -> String) -> bool {
        (0..CONTROLS).any(|life| {
            let name = written(life);
            let read = |missing: &[usize]| self.read_by_braid(&name, missing, (true, TORN_MAX));
            missing(self.level).any(|missing| read(&missing).is_err())
        })
    }
}

/// Both start what braid was writing when the power was cut, in so many lives of an array.
fn both_start_what_braid_was_writing(
    level: Level,
    (policy, torn_max): (Policy, usize),
    lives: u64,
) {
    let world = World::new(level);
    world.make("log", policy);
    let mut script = across::preamble(500);
    for life in 0..lives {
        world.write_by_braid("log", life);
        for missing in missing(level) {
            let read = world.read_by_braid("log", &missing, (false, torn_max));
            read.unwrap_or_else(|why| {
                panic!("{level}, life {life} without {missing:?}, by braid: {why}")
            });
            let name = without(&format!("log{life}"), &missing);
            copy_without(world.folder(), "log", &name, &missing).expect("there is room");
            let mut devices = String::new();
            for nr in write_hole::devices(world.folder(), &name, &missing) {
                let _ = writeln!(script, "losetup /dev/loop{nr} {name}.{nr}");
                let _ = write!(devices, " /dev/loop{nr}");
            }
            let _ = writeln!(
                script,
                "mdadm --assemble --run --quiet /dev/md0{devices}\nmdadm --readwrite --quiet /dev/md0\n\
                 dd if=/dev/md0 of={name}.out bs=1M status=none\n\
                 echo check > /sys/block/md0/md/sync_action; settle\n\
                 echo {name}: mismatch_cnt $(cat /sys/block/md0/md/mismatch_cnt)\n\
                 mdadm --stop --quiet /dev/md0; losetup -D"
            );
        }
    }
    let said = uml::run(&script, world.folder(), 512, LIMIT).expect("the guest runs").text;
    for life in 0..lives {
        for missing in missing(level) {
            let name = without(&format!("log{life}"), &missing);
            let line = format!("{name}: mismatch_cnt 0\n");
            assert!(said.contains(&line), "{line:?} is not in:\n{said}");
            let bytes =
                std::fs::read(world.folder().join(format!("{name}.out"))).expect("it is read");
            let compared = world.half.compare(&bytes, &missing, torn_max);
            compared.unwrap_or_else(|why| panic!("{level} {name}, started by md: {why}\n{said}"));
        }
    }
}

#[test]
fn both_start_what_braid_was_writing_with_a_log() {
    both_start_what_braid_was_writing(Level::Raid5, (Policy::Ppl, TORN_MAX), 5);
}

#[test]
fn both_start_what_braid_was_writing_with_a_journal() {
    for level in LEVELS {
        both_start_what_braid_was_writing(level, (Policy::Journal, 0), 2);
    }
}

#[test]
fn braid_starts_what_md_was_writing_with_a_journal() {
    for level in LEVELS {
        let world = World::new(level);
        for life in 0..2 {
            let name = format!("journal{life}");
            world.write_by_md(&name, Policy::Journal, life);
            for missing in missing(level) {
                let read = world.read_by_braid(&name, &missing, (false, 0));
                read.unwrap_or_else(|why| {
                    panic!("{level}, life {life} without {missing:?}: {why}")
                });
            }
        }
    }
}

#[test]
fn without_a_log_braids_half_written_rows_lose_what_nobody_was_writing() {
    let world = World::new(Level::Raid5);
    world.make("bare", Policy::Resync);
    assert!(world.hole_shows(|life| {
        world.write_by_braid("bare", life);
        "bare".to_owned()
    }));
}

#[test]
fn braid_starts_what_md_was_writing_with_a_log() {
    let world = World::new(Level::Raid5);
    for life in 0..3 {
        let name = format!("log{life}");
        world.write_by_md(&name, Policy::Ppl, life);
        for missing in missing(Level::Raid5) {
            let read = world.read_by_braid(&name, &missing, (false, TORN_MAX));
            read.unwrap_or_else(|why| panic!("life {life} without {missing:?}: {why}"));
        }
    }
}

#[test]
fn without_a_log_mds_half_written_rows_lose_what_nobody_was_writing() {
    let world = World::new(Level::Raid5);
    assert!(world.hole_shows(|life| {
        let name = format!("bare{life}");
        world.write_by_md(&name, Policy::Resync, life);
        name
    }));
}

//! The write journal: what its log holds comes to the members at assembly, wherever power fails meanwhile and whoever is
//! missing, and without it nothing is written.

use crate::array::Array;
use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions};
use crate::status::{ArrayState, JobKind, JobOutcome, MemberState};
use braid_device::{IoErrorKind, Target};
use braid_format::journal::{BLOCK, Meta, Payload, Seed};
use braid_format::superblock::{Role, Superblock};
use braid_layout::{Layout, Level, Parity, Spec};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KIB: usize = 1 << 10;
const CHUNK: usize = 16 * KIB;
/// Bytes of each component that are used: four stripes.
const SIZE: u64 = 4 * CHUNK as u64;
const RING: u64 = 64;

/// An array that was stopped cleanly, full of a pattern, with a journal whose log is made by hand.
struct Journaled {
    /// The journal is the last.
    members: Vec<Arc<TestMember>>,
    parity: Parity,
    /// What the array holds, and what it is to hold when the log is replayed.
    content: Vec<u8>,
    /// Where the next meta block goes: its ring block, and its number.
    next: (u64, u64),
}

impl Journaled {
    fn new(world: &World, level: Level, disks: usize) -> Journaled {
        let members = members("m", disks + 1, 4 << 20);
        let options = CreateOptions {
            chunk_size: Some(CHUNK as u64),
            assume_clean: true,
            bitmap: CreateBitmap::None,
            size: Some(SIZE),
            ..CreateOptions::new("data", level, disks)
        };
        world.create(&members[..disks], options);
        let (array, control) = world.assemble(&members[..disks]);
        let content = pattern(0, array.info().device.size as usize);
        world.write(&array, 0, 0, &content).unwrap();
        world.stop(&control);
        let spec = Spec {
            level,
            layout: braid_layout::default_layout(level),
            chunk_size: CHUNK as u64,
            raid_disks: disks,
            component_size: SIZE,
            member_sizes: Vec::new(),
        };
        let Layout::Parity(parity) = Layout::new(&spec).unwrap() else { panic!("no parity") };
        let made = Journaled { members, parity, content, next: (5, 77) };
        let mut superblock = Superblock::clone(&world.superblock(&made.members[0]));
        for member in made.members[..disks].iter().rev() {
            superblock = world.superblock(member);
            superblock.journal = true;
            superblock.roles[disks] = Role::Journal;
            made.put(world, member, &superblock);
        }
        superblock.dev_number = disks as u32;
        superblock.device_uuid = [7; 16];
        superblock.bblog_offset = 0;
        superblock.bblog_size = 0;
        superblock.data_size = RING * 8 + 3;
        superblock.journal_tail = made.next.0 * 8;
        made.put(world, made.journal(), &superblock);
        made
    }

    fn journal(&self) -> &Arc<TestMember> {
        self.members.last().unwrap()
    }

    fn put(&self, world: &World, member: &Arc<TestMember>, superblock: &Superblock) {
        world.scribble(member, superblock.super_offset * 512, &superblock.to_bytes());
    }

    /// Logs the blocks of new data at these array offsets, which are of one row, with their parity if it is wanted.
    fn log(&mut self, world: &World, offsets: &[usize], salt: u64, with_parity: bool) {
        let superblock = world.superblock(self.journal());
        let seed = Seed::of(&superblock.set_uuid);
        let (mut payloads, mut blocks) = (Vec::new(), Vec::new());
        for offset in offsets {
            let block = pattern(salt + *offset as u64, BLOCK);
            self.content[*offset..offset + BLOCK].copy_from_slice(&block);
            payloads.push(Payload::Data {
                location: *offset as u64 / 512,
                checksum: seed.checksum(&block),
            });
            blocks.push(block);
        }
        if with_parity {
            let (stripe, _, within) = self.parity.locate(offsets[0] as u64);
            let row = (self.parity.member_offset(stripe) + within) / 512;
            let (p, q) = self.row_parity(stripe, within);
            let sums = (seed.checksum(&p), q.as_ref().map(|q| seed.checksum(q)));
            payloads.push(Payload::Parity { location: row, p: sums.0, q: sums.1 });
            blocks.extend([Some(p), q].into_iter().flatten());
        }
        let (at, seq) = self.next;
        let meta = Meta { seq, position: at * 8, payloads }.to_bytes(seed).unwrap();
        for (nr, block) in
            (0..).zip(std::iter::once(&meta[..]).chain(blocks.iter().map(|b| &b[..])))
        {
            let place = superblock.data_offset * 512 + (at + nr) % RING * BLOCK as u64;
            world.scribble(self.journal(), place, block);
        }
        self.next = ((at + 1 + blocks.len() as u64) % RING, seq + 1);
    }

    fn row_parity(&self, stripe: u64, within: u64) -> (Vec<u8>, Option<Vec<u8>>) {
        let map = self.parity.map_stripe(stripe);
        let mut data: Vec<Option<&[u8]>> = vec![None; self.parity.q_width()];
        for k in 0..map.data_chunks() {
            let at = self.parity.array_offset(stripe, k, within) as usize;
            data[map.exponent(k)] = Some(&self.content[at..at + BLOCK]);
        }
        let (mut p, mut q) = (vec![0; BLOCK], vec![0; BLOCK]);
        braid_parity::pq(&data, &mut p, &mut q);
        (p, map.q_slot().map(|_| q))
    }

    /// Writes a block of the array's content as it is to be to the member that holds it.
    fn to_member(&self, world: &World, offset: usize) {
        let (stripe, k, within) = self.parity.locate(offset as u64);
        let slot = self.parity.data_slot(stripe, k);
        let data = world.superblock(&self.members[slot]).data_offset * 512;
        let at = data + self.parity.member_offset(stripe) + within;
        world.scribble(&self.members[slot], at, &self.content[offset..offset + BLOCK]);
    }

    fn without(&self, slots: &[usize]) -> Vec<Arc<TestMember>> {
        let there = self.members.iter().enumerate().filter(|(slot, _)| !slots.contains(slot));
        there.map(|(_, member)| Arc::clone(member)).collect()
    }

    /// Assembles without the members of `missing`, and compares all that the array holds.
    fn assembles(&self, world: &World, missing: &[usize]) -> (Arc<Array>, Rc<Control>) {
        let (array, control) = world.assemble(&self.without(missing));
        assert_eq!(world.status(&control).resynced, None);
        assert!(!world.status(&control).state.contains(&ArrayState::ReadOnly));
        self.holds(world, &array, &format!("{missing:?}"));
        (array, control)
    }

    fn holds(&self, world: &World, array: &Array, what: &str) {
        let found = world.read(array, 0, 0, self.content.len()).unwrap();
        for at in (0..found.len()).step_by(512) {
            assert!(found[at..at + 512] == self.content[at..at + 512], "byte {at}, {what}");
        }
    }
}

/// Rows with parity, one of them twice, and rows with data alone, one of those after a round with parity.
fn fill(world: &World, made: &mut Journaled) {
    let chunk = CHUNK;
    made.log(world, &[0, chunk], 1000, true);
    // It came to one of the members only.
    made.to_member(world, 0);
    made.log(world, &[chunk], 2000, true);
    made.log(world, &[4 * KIB], 3000, false);
    let second = made.parity.stripe_size() as usize;
    made.log(world, &[second + 8 * KIB, second + chunk + 8 * KIB], 4000, true);
    made.log(world, &[second + 8 * KIB], 5000, false);
}

#[test]
fn what_the_log_holds_comes_to_the_members_whoever_is_missing() {
    for (level, disks) in [(Level::Raid4, 3), (Level::Raid5, 4), (Level::Raid6, 5)] {
        let mut missing: Vec<Vec<usize>> = vec![vec![]];
        missing.extend((0..disks).map(|slot| vec![slot]));
        if level == Level::Raid6 {
            let pairs = (0..disks).flat_map(|one| (one + 1..disks).map(move |two| vec![one, two]));
            missing.extend(pairs);
        }
        for missing in missing {
            let world = World::new(1);
            let mut made = Journaled::new(&world, level, disks);
            made.log(&world, &[0, CHUNK], 1000, true);
            made.log(&world, &[CHUNK], 2000, true);
            made.log(&world, &[4 * KIB], 3000, false);
            let second = made.parity.stripe_size() as usize;
            made.log(&world, &[second + 8 * KIB], 4000, true);
            made.log(&world, &[second + 8 * KIB, second + CHUNK + 8 * KIB], 5000, false);
            let (_array, control) = made.assembles(&world, &missing);
            assert_eq!(world.check(&control), 0, "{level} without {missing:?}");
            let journal = &world.status(&control).members.last().cloned().unwrap();
            assert_eq!((journal.state, journal.slot), (MemberState::Journal, None));
            world.stop(&control);
            // An empty meta block, behind the log that was there and far from it in numbers.
            let superblock = world.superblock(made.journal());
            assert_eq!(superblock.own_role(), Role::Journal);
            assert_eq!(superblock.events, world.superblock(&made.without(&missing)[0]).events);
            let at = (superblock.data_offset + superblock.journal_tail) as usize * 512;
            let block = world.contents(made.journal())[at..at + BLOCK].to_vec();
            let meta = Meta::parse(&block, Seed::of(&superblock.set_uuid)).unwrap();
            assert!(meta.payloads.is_empty() && meta.position == superblock.journal_tail);
            assert!(meta.seq >= made.next.1 + 10_000, "{}", meta.seq);
        }
    }
}

/// Has power fail at the `at`-th write of a replay, and the replay then done again without the member of `missing`. False
/// when power was there to the end.
fn cut(level: Level, disks: usize, at: u64, missing: &[usize]) -> bool {
    let world = World::new(1);
    let mut made = Journaled::new(&world, level, disks);
    fill(&world, &mut made);
    made.members[0].power.store(at, Ordering::Relaxed);
    let _ = world.try_assemble(&made.members, AssembleOptions::default());
    let there = made.members[0].power.load(Ordering::Relaxed) > 0;
    let world = world.crash();
    made.members[0].power.store(u64::MAX, Ordering::Relaxed);
    let (_array, control) = made.assembles(&world, missing);
    assert_eq!(world.check(&control), 0, "write {at}, without {missing:?}");
    !there
}

#[test]
fn nothing_of_the_log_is_lost_wherever_power_fails_during_its_replay_and_whoever_is_missing_then() {
    for (level, disks) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        for missing in 0..disks {
            let mut at = 0;
            while cut(level, disks, at, &[missing]) {
                at += 1;
            }
            assert!(at > 20, "{at} writes");
        }
    }
}

#[test]
fn an_array_without_its_journal_is_read_only_until_force_gives_that_up() {
    let world = World::new(1);
    let mut made = Journaled::new(&world, Level::Raid5, 4);
    let old = made.content.clone();
    made.log(&world, &[0], 1000, true);
    let before: Vec<Vec<u8>> = made.members.iter().map(|member| world.contents(member)).collect();
    let some = made.without(&[4]);
    let (array, control) = world.assemble(&some);
    let status = world.status(&control);
    assert!(status.state.contains(&ArrayState::ReadOnly));
    assert!(status.left_out.iter().any(|line| line.contains("--force")), "{:?}", status.left_out);
    assert_eq!(world.write(&array, 0, 0, &old[..BLOCK]).unwrap_err().kind, IoErrorKind::Refused);
    world.stop(&control);
    for (member, before) in made.members.iter().zip(&before) {
        assert!(world.contents(member) == *before, "a member was written");
    }
    let options = AssembleOptions { force: true, ..AssembleOptions::default() };
    let array = world.try_assemble(&some, options).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    world.wait_idle(&control);
    let resync = world.status(&control).last_job.unwrap();
    assert_eq!((resync.kind, resync.outcome), (JobKind::Resync, JobOutcome::Done));
    assert_eq!(world.check(&control), 0);
    world.write(&array, 0, 0, &old[..BLOCK]).unwrap();
    world.stop(&control);
    assert!(!world.superblock(&made.members[0]).journal);
    // The journal that was gone is none of the array's any more.
    let (array, control) = world.assemble(&made.members);
    let status = world.status(&control);
    assert!(status.left_out[0].contains("has none any more"), "{:?}", status.left_out);
    made.content = old;
    made.holds(&world, &array, "the members alone");
    world.stop(&control);
}

#[test]
fn a_journal_that_is_stale_or_damaged_counts_as_missing() {
    type Damage = fn(&mut Superblock);
    let damages: [(Damage, &str); 4] = [
        (|superblock| superblock.events -= 2, "2 updates older"),
        (|superblock| superblock.journal_tail = 1 << 40, "journal_tail is"),
        (|superblock| superblock.journal_tail = 4, "journal_tail is"),
        (|superblock| superblock.data_size = 5 * 8, "cannot hold one row"),
    ];
    for (damage, says) in damages {
        let world = World::new(1);
        let mut made = Journaled::new(&world, Level::Raid5, 4);
        let old = made.content.clone();
        made.log(&world, &[0], 1000, true);
        let mut superblock = world.superblock(made.journal());
        damage(&mut superblock);
        made.put(&world, made.journal(), &superblock);
        let (array, control) = world.assemble(&made.members);
        let status = world.status(&control);
        assert!(status.state.contains(&ArrayState::ReadOnly), "{says}");
        assert!(status.left_out.iter().any(|line| line.contains(says)), "{:?}", status.left_out);
        made.content = old;
        made.holds(&world, &array, says);
        world.stop(&control);
    }
}

#[test]
fn a_log_that_was_not_written_whole_is_replayed_as_far_as_it_was() {
    let world = World::new(1);
    let mut made = Journaled::new(&world, Level::Raid5, 4);
    made.log(&world, &[0, CHUNK], 1000, true);
    let good = made.content.clone();
    let begins = made.next.0;
    made.log(&world, &[2 * CHUNK], 2000, true);
    let superblock = world.superblock(made.journal());
    // A block behind the second meta block.
    let place = superblock.data_offset * 512 + (begins + 2) * BLOCK as u64;
    world.scribble(made.journal(), place, &[0x77; BLOCK]);
    made.content = good;
    let (_array, control) = made.assembles(&world, &[]);
    assert_eq!(world.check(&control), 0);
    world.stop(&control);
}

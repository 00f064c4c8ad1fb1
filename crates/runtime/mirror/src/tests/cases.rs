//! Case by case: damage, legs that fail, requests that cannot be, a mirror on a mirror.

use super::rig::{all_of, ask, commit, disk, flush, open, over, read, shard, write};
use crate::region::BLOCK;
use crate::{Mirror, MirrorError, Open, ROOT, is_damage};
use braid_device::volatile::VolatileDisk;
use braid_device::{Device, IoErrorKind, Op, Request};
use braid_shard::Shard;
use std::cell::RefCell;
use std::rc::Rc;

const SIZE: usize = 2 << 20;

fn bytes(of: u8) -> Vec<u8> {
    (0..BLOCK * 3).map(|at| (at / 7) as u8 ^ of).collect()
}

/// A mirror with something in it, flushed.
fn filled(shard: &Shard, disks: &[VolatileDisk]) -> Rc<Mirror> {
    let mirror = over(shard, disks, Open::Create);
    for of in 0..20 {
        write(shard, &mirror, u64::from(of) * 20_480, &bytes(of)).unwrap();
    }
    commit(shard, &mirror, Vec::new(), Some(b"root".to_vec())).unwrap();
    mirror
}

fn holds_all(shard: &Shard, mirror: &Rc<Mirror>) {
    for of in 0..20 {
        let found = read(shard, mirror, u64::from(of) * 20_480, BLOCK * 3).unwrap();
        assert!(found == bytes(of), "{of}");
    }
    let own = Rc::clone(mirror);
    let root = shard.block_on(async move { own.root().await }).unwrap();
    assert_eq!(root[..5], *b"root\0");
}

/// Changes bits of the region of a leg that hold block `block` of the device.
fn rot(mirror: &Mirror, disk: &VolatileDisk, block: u64) {
    let mut bytes = disk.bytes();
    bytes[mirror.place(1 + block) as usize + 100] ^= 4;
    disk.set_bytes(bytes);
}

#[test]
fn what_was_written_is_there_on_either_leg_alone() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE)];
    let mirror = filled(&shard, &disks);
    holds_all(&shard, &mirror);
    assert_eq!(mirror.info().logical_block, 4096);
    drop(mirror);
    for disk in &disks {
        let alone = over(&shard, std::slice::from_ref(disk), Open::AfterStop);
        holds_all(&shard, &alone);
        assert!(!alone.must_verify() && alone.mended() == 0);
    }
}

#[test]
fn only_what_is_known_to_be_as_it_was_written_is_read_ahead() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE)];
    let mirror = filled(&shard, &disks);
    let ahead = |mirror: &Rc<Mirror>, block: usize, count: usize| {
        let own = Rc::clone(mirror);
        shard.block_on(async move { own.read_ahead((block * BLOCK) as u64, count * BLOCK).await })
    };
    // Each 3 blocks of 5 are written; the sum of one that never was is not known.
    assert!(ahead(&mirror, 10, 2).unwrap() == bytes(2)[..2 * BLOCK]);
    assert!(ahead(&mirror, 10, 100).unwrap() == bytes(2));
    assert!(ahead(&mirror, 13, 100).unwrap().is_empty());
    assert!(ahead(&mirror, 1 << 20, 100).unwrap().is_empty());
    rot(&mirror, &disks[0], 16);
    assert!(ahead(&mirror, 15, 100).unwrap() == bytes(3)[..BLOCK]);
    assert_eq!(mirror.mended(), 0);
    disks[0].make_unreadable(mirror.place(1 + 20));
    assert!(ahead(&mirror, 20, 3).is_err());
    assert!(mirror.take_detached().is_empty());
    // A user that verifies has not verified these.
    mirror.begin_verification();
    assert!(ahead(&mirror, 15, 3).unwrap() == bytes(3)[..BLOCK]);
    assert!(mirror.end_verification());
    rot(&mirror, &disks[1], 16);
    holds_but(&shard, &mirror, 3);
}

/// Reads everything but what was written as `of`.
fn holds_but(shard: &Shard, mirror: &Rc<Mirror>, lost: u8) {
    for of in 0..20 {
        let found = read(shard, mirror, u64::from(of) * 20_480, BLOCK * 3);
        assert_eq!(found.is_ok_and(|found| found == bytes(of)), of != lost, "{of}");
    }
}

#[test]
fn rot_in_either_leg_is_mended_from_the_other() {
    for hurt in 0..2 {
        for how in [Open::AfterStop, Open::AfterCrash] {
            let shard = shard();
            let disks = [disk("a", SIZE), disk("b", SIZE)];
            let mirror = filled(&shard, &disks);
            (0..100).step_by(5).for_each(|block| rot(&mirror, &disks[hurt], block));
            // Its root, too.
            let mut bytes = disks[hurt].bytes();
            bytes[mirror.place(0) as usize] ^= 1;
            disks[hurt].set_bytes(bytes);
            if how == Open::AfterStop {
                holds_all(&shard, &mirror);
                assert_eq!(mirror.mended(), if hurt == 0 { 21 } else { 0 });
            }
            drop(mirror);
            let mirror = over(&shard, &disks, how);
            holds_all(&shard, &mirror);
            flush(&shard, &mirror).unwrap();
            if how == Open::AfterCrash {
                for disk in &disks {
                    holds_all(&shard, &over(&shard, std::slice::from_ref(disk), Open::AfterStop));
                }
            }
        }
    }
}

#[test]
fn what_two_of_three_legs_have_lost_is_had_from_the_third() {
    for right in 0..3 {
        for how in [Open::AfterStop, Open::AfterCrash] {
            let shard = shard();
            let disks = [disk("a", SIZE), disk("b", SIZE), disk("c", SIZE)];
            let mirror = filled(&shard, &disks);
            let hurt = |leg: usize| (0..100).step_by(5).map(move |block| (leg, block));
            for (leg, block) in (0..3).filter(|leg| *leg != right).flat_map(hurt) {
                rot(&mirror, &disks[leg], block);
            }
            drop(mirror);
            let mirror = over(&shard, &disks, how);
            holds_all(&shard, &mirror);
            flush(&shard, &mirror).unwrap();
            drop(mirror);
            if how == Open::AfterCrash {
                for disk in &disks {
                    let alone = over(&shard, std::slice::from_ref(disk), Open::AfterStop);
                    holds_all(&shard, &alone);
                    assert_eq!(alone.mended(), 0);
                }
            }
        }
    }
}

#[test]
fn blocks_that_the_first_of_three_cannot_read_are_the_same_on_the_others() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE), disk("c", SIZE)];
    let mirror = filled(&shard, &disks);
    disks[0].make_unreadable(mirror.place(1));
    rot(&mirror, &disks[1], 0);
    drop(mirror);
    let mirror = over(&shard, &disks, Open::AfterCrash);
    assert_eq!(mirror.held().collect::<Vec<_>>(), [1, 2]);
    holds_all(&shard, &mirror);
    drop(mirror);
    for disk in &disks[1..] {
        holds_all(&shard, &over(&shard, std::slice::from_ref(disk), Open::AfterStop));
    }
}

#[test]
fn a_block_that_no_leg_has_is_an_error_until_it_is_written() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE)];
    let mirror = filled(&shard, &disks);
    disks.iter().for_each(|disk| rot(&mirror, disk, 5));
    let error = read(&shard, &mirror, 0, BLOCK * 10).unwrap_err();
    assert!(is_damage(&error) && error.kind == IoErrorKind::Medium, "{error}");
    assert_eq!(read(&shard, &mirror, 0, BLOCK * 3).unwrap(), bytes(0));
    write(&shard, &mirror, 20_480, &bytes(1)).unwrap();
    holds_all(&shard, &mirror);
    assert_eq!(mirror.held().count(), 2);
}

#[test]
fn a_block_of_the_table_is_had_from_the_other_leg_or_the_user_has_to_verify() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE)];
    drop(filled(&shard, &disks));
    let hurt = |disk: &VolatileDisk| {
        let mut bytes = disk.bytes();
        bytes[BLOCK + 3] ^= 1;
        disk.set_bytes(bytes);
    };
    hurt(&disks[0]);
    let mirror = over(&shard, &disks, Open::AfterStop);
    assert!(!mirror.must_verify() && mirror.mended() == 1);
    holds_all(&shard, &mirror);
    drop(mirror);
    hurt(&disks[1]);
    let mirror = over(&shard, &disks, Open::AfterStop);
    assert!(mirror.must_verify());
    let own = Rc::clone(&mirror);
    shard.block_on(async move { own.adopt_all().await }).unwrap();
    assert!(!mirror.must_verify());
    drop(mirror);
    let mirror = over(&shard, &disks, Open::AfterStop);
    assert!(!mirror.must_verify());
    holds_all(&shard, &mirror);
}

#[test]
fn a_leg_that_fails_is_reported_before_the_request_completes() {
    for failing in 0..2 {
        let shard = shard();
        let disks = [disk("a", SIZE), disk("b", SIZE)];
        let mirror = filled(&shard, &disks);
        let seen: Rc<RefCell<Vec<usize>>> = Rc::default();
        let told = Rc::clone(&seen);
        mirror.on_detached(move |detached| told.borrow_mut().push(detached.leg));
        disks[failing].fail();
        write(&shard, &mirror, 0, &bytes(0)).unwrap();
        assert_eq!(*seen.borrow(), [failing]);
        flush(&shard, &mirror).unwrap();
        holds_all(&shard, &mirror);
        // The last one stays, whatever it does.
        disks[1 - failing].fail();
        let error = write(&shard, &mirror, 0, &bytes(0)).unwrap_err();
        assert_eq!(error.kind, IoErrorKind::Medium);
        assert!(!is_damage(&read(&shard, &mirror, 0, BLOCK).unwrap_err()));
        assert_eq!((seen.borrow().len(), mirror.held().count()), (1, 1));
        assert!(mirror.detach(1 - failing, "it was asked for").is_err());
    }
}

#[test]
fn a_leg_that_cannot_read_a_block_is_detached_where_the_other_can() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE)];
    let mirror = filled(&shard, &disks);
    disks[0].make_unreadable(mirror.place(1));
    assert_eq!(read(&shard, &mirror, 0, BLOCK * 3).unwrap(), bytes(0));
    let detached = mirror.take_detached();
    assert_eq!((detached.len(), detached[0].leg), (1, 0));
    assert!(detached[0].why.contains("reading failed: medium error"), "{}", detached[0].why);
}

#[test]
fn requests_that_cannot_be_are_refused_and_change_nothing() {
    let shard = shard();
    let disks = [disk("a", SIZE)];
    let mirror = filled(&shard, &disks);
    let size = mirror.info().size;
    let invalid = |result: Result<(), braid_device::IoError>| {
        assert_eq!(result.unwrap_err().kind, IoErrorKind::Invalid);
    };
    let before = disks[0].bytes();
    invalid(write(&shard, &mirror, 512, &[0; BLOCK]));
    invalid(write(&shard, &mirror, 0, &[0; 512]));
    invalid(write(&shard, &mirror, size, &[0; BLOCK]));
    invalid(read(&shard, &mirror, size - 4096, BLOCK * 2).map(drop));
    let beyond = vec![(0, vec![1; BLOCK]), (size, vec![1; BLOCK])];
    invalid(commit(&shard, &mirror, beyond, None));
    let first = vec![(0, vec![1; BLOCK])];
    invalid(commit(&shard, &mirror, first, Some(vec![0; ROOT + 1])));
    flush(&shard, &mirror).unwrap();
    assert!(disks[0].bytes() == before);
    holds_all(&shard, &mirror);
    let none = open(&shard, Vec::new(), Open::AfterStop);
    assert!(matches!(none.err(), Some(MirrorError::Failed(_))));
    let small = open(&shard, vec![all_of(disk("s", BLOCK * 2).device())], Open::Create);
    assert!(small.err().unwrap().to_string().contains("too few"));
}

#[test]
fn zeroes_are_written_and_discards_leave_everything_readable() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE)];
    let mirror = filled(&shard, &disks);
    let len = 3 * BLOCK as u64;
    let zero = Op::WriteZeroes { len, unmap: true, fua: true };
    ask(&shard, &mirror, Request { offset: 20_480, op: zero }).unwrap();
    assert_eq!(read(&shard, &mirror, 20_480, len as usize).unwrap(), vec![0; len as usize]);
    ask(&shard, &mirror, Request { offset: 40_960, op: Op::Discard { len } }).unwrap();
    assert_eq!(read(&shard, &mirror, 40_960, len as usize).unwrap().len(), len as usize);
    disks.iter().for_each(|disk| disk.cut(&mut |_| 0));
    drop(mirror);
    let mirror = over(&shard, &disks, Open::AfterCrash);
    assert_eq!(read(&shard, &mirror, 20_480, len as usize).unwrap(), vec![0; len as usize]);
}

#[test]
fn a_mirror_lies_on_a_mirror() {
    let shard = shard();
    let disks = [disk("a", SIZE), disk("b", SIZE), disk("c", SIZE)];
    let lower = over(&shard, &disks[..2], Open::Create);
    let region = |lower: &Rc<Mirror>| all_of(Rc::clone(lower) as Rc<dyn Device>);
    let both = vec![region(&lower), all_of(disks[2].device())];
    let upper = open(&shard, both, Open::Create).unwrap();
    write(&shard, &upper, 8192, &bytes(9)).unwrap();
    flush(&shard, &upper).unwrap();
    disks[2].fail();
    write(&shard, &upper, 40_960, &bytes(8)).unwrap();
    flush(&shard, &upper).unwrap();
    drop((upper, lower));
    // Damage of a leg of the lower one never reaches the upper one.
    let lower = over(&shard, &disks[..2], Open::AfterStop);
    rot(&lower, &disks[0], 7);
    let upper = open(&shard, vec![region(&lower)], Open::AfterStop).unwrap();
    assert_eq!(read(&shard, &upper, 8192, BLOCK * 3).unwrap(), bytes(9));
    assert_eq!(read(&shard, &upper, 40_960, BLOCK * 3).unwrap(), bytes(8));
}

//! Handles on one thread; loans between threads are tested with the mailboxes.

use super::memory::{CLASS_MAX_SHIFT, KEEP_PER_CLASS};
use super::{ALIGN, BufMut, LEN_MAX, Loan, Pool};

fn numbered(pool: &Pool, len: usize) -> BufMut {
    let mut buf = pool.get(len);
    buf.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    buf
}

#[test]
fn every_buffer_is_aligned_and_as_long_as_asked() {
    let pool = Pool::new(0);
    for len in [0, 1, 511, 4096, 4097, 65536, (1 << 25) - 1, (1 << 25) + 1] {
        let buf = pool.get(len);
        assert_eq!(buf.len(), len);
        assert_eq!(buf.as_ptr() as usize % ALIGN, 0, "{len}");
    }
}

#[test]
fn memory_is_counted_while_in_use_and_kept_for_the_next_of_its_class() {
    let pool = Pool::new(0);
    let buf = pool.get(5000);
    let place = buf.as_ptr();
    assert_eq!((pool.outstanding(), pool.kept()), (8192, 0));
    drop(buf);
    assert_eq!((pool.outstanding(), pool.kept()), (0, 8192));
    let again = pool.get(8192);
    assert_eq!(again.as_ptr(), place);
    assert_eq!((pool.outstanding(), pool.kept()), (8192, 0));
    let other = pool.get(4096);
    assert_eq!(pool.outstanding(), 12288);
    drop((again, other));
    assert_eq!((pool.outstanding(), pool.kept()), (0, 12288));
}

#[test]
fn what_is_beyond_the_bounds_of_a_class_goes_back_to_the_system() {
    let pool = Pool::new(0);
    drop(pool.get((1 << CLASS_MAX_SHIFT) + 1));
    assert_eq!((pool.outstanding(), pool.kept()), (0, 0));
    let block = 16 << 20;
    let many: Vec<BufMut> = (0..KEEP_PER_CLASS / block + 2).map(|_| pool.get(block)).collect();
    drop(many);
    assert_eq!((pool.outstanding(), pool.kept()), (0, KEEP_PER_CLASS));
}

#[test]
fn what_is_not_used_between_two_trimmings_goes_back_to_the_system() {
    let pool = Pool::new(0);
    let many: Vec<BufMut> = (0..10).map(|_| pool.get(4096)).collect();
    drop((many, pool.get(1 << 20)));
    pool.trim_unused();
    assert_eq!(pool.kept(), 40960 + (1 << 20), "all was used since");
    drop([pool.get(4096), pool.get(4096)]);
    pool.trim_unused();
    assert_eq!(pool.kept(), 8192);
    pool.trim_unused();
    assert_eq!((pool.kept(), pool.outstanding()), (0, 0));
}

#[test]
fn zeroed_is_zero_also_in_used_memory() {
    let pool = Pool::new(0);
    drop(numbered(&pool, 4096));
    assert!(pool.zeroed(4096).iter().all(|byte| *byte == 0));
    assert_eq!(&*pool.copy_of(b"braid"), b"braid");
}

#[test]
fn parts_are_written_apart_and_put_together_again() {
    let pool = Pool::new(0);
    let mut first = numbered(&pool, 300);
    let mut middle = first.split_off(100);
    let mut last = middle.split_off(50);
    assert_eq!((first.len(), middle.len(), last.len()), (100, 50, 150));
    middle.fill(0xaa);
    last[0] = 0xbb;
    let last = first.rejoin(last).unwrap_err();
    middle.rejoin(last).unwrap();
    first.rejoin(middle).unwrap();
    let mut expected: Vec<u8> = (0..300).map(|at| at as u8).collect();
    expected[100..150].fill(0xaa);
    expected[150] = 0xbb;
    assert_eq!(&*first, expected);
    drop(first);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn parts_of_different_blocks_do_not_join() {
    let pool = Pool::new(0);
    let mut one = pool.get(4096);
    let tail = one.split_off(4096);
    let other = pool.get(4096);
    let other = one.rejoin(other).unwrap_err();
    one.rejoin(tail).unwrap();
    one.truncate(10);
    assert_eq!(one.len(), 10);
    one.truncate(usize::MAX);
    assert_eq!(one.len(), 10);
    drop((one, other));
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn the_last_part_gives_the_memory_back() {
    let pool = Pool::new(0);
    let mut first = pool.get(4096);
    let rest = first.split_off(512);
    drop(first);
    assert_eq!(pool.outstanding(), 4096);
    let slice = rest.freeze().slice(10..20);
    assert_eq!(pool.outstanding(), 4096);
    drop(slice);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn frozen_buffers_are_shared_and_become_writable_only_when_alone() {
    let pool = Pool::new(0);
    let buf = numbered(&pool, 200).freeze();
    let (copy, slice) = (buf.clone(), buf.slice(50..60));
    assert_eq!(&*slice, (50..60).collect::<Vec<u8>>());
    assert_eq!(&*slice.slice(2..4), [52, 53]);
    let buf = buf.try_into_mut().unwrap_err();
    drop(copy);
    drop(buf);
    let mut alone = slice.try_into_mut().unwrap();
    alone.fill(1);
    assert_eq!(alone.len(), 10);
}

#[test]
#[should_panic(expected = "slice out of range")]
fn a_slice_beyond_the_handle_is_refused_though_the_block_has_it() {
    let mut buf = Pool::new(0).get(4096);
    drop(buf.split_off(100));
    let _ = buf.freeze().slice(50..101);
}

#[test]
#[should_panic(expected = "split at 11 of 10 bytes")]
fn a_split_beyond_the_end_is_refused() {
    let _ = Pool::new(0).get(10).split_off(11);
}

#[test]
#[should_panic(expected = "a buffer of")]
fn an_absurd_length_is_refused_before_it_is_rounded() {
    let _ = Pool::new(0).get(LEN_MAX);
}

#[test]
fn a_buffer_outlives_its_pool() {
    let pool = Pool::new(0);
    let buf = numbered(&pool, 4096);
    drop(pool);
    assert_eq!(buf[255], 255);
}

#[test]
fn a_writable_loan_comes_back_with_what_the_borrower_wrote() {
    let (home, away) = (Pool::new(0), Pool::new(1));
    let loan = numbered(&home, 4096).into_loan().unwrap();
    assert_eq!((loan.home(), loan.len(), loan.is_empty()), (0, 4096, false));
    let mut borrowed = away.adopt_mut(loan).unwrap();
    assert_eq!(borrowed[7], 7);
    let part = borrowed.split_off(4000);
    let borrowed = borrowed.into_loan().unwrap_err();
    let mut borrowed = borrowed;
    borrowed.rejoin(part).unwrap();
    borrowed.fill(9);
    let loan = borrowed.into_loan().unwrap();
    let loan = away.reclaim(loan).unwrap_err();
    let back = home.reclaim(loan).unwrap();
    assert_eq!(&*back, [9; 4096]);
    drop(back);
    assert_eq!((home.outstanding(), away.outstanding()), (0, 0));
}

#[test]
fn a_loan_for_reading_is_never_writable() {
    let (home, away) = (Pool::new(0), Pool::new(1));
    let kept = numbered(&home, 4096).freeze();
    let loan = away.adopt_mut(kept.slice(0..10).into_loan().unwrap()).unwrap_err();
    let borrowed = away.adopt(loan);
    assert_eq!(&*borrowed, (0..10).collect::<Vec<u8>>());
    let borrowed = borrowed.try_into_mut().unwrap_err();
    let loan = home.reclaim(borrowed.into_loan().unwrap()).unwrap_err();
    let kept = kept.try_into_mut().unwrap_err();
    home.release(loan).unwrap();
    assert!(kept.try_into_mut().is_ok());
}

#[test]
fn dropped_borrowed_handles_leave_their_loan_to_be_sent_home() {
    let (home, away) = (Pool::new(0), Pool::new(1));
    let borrowed = away.adopt_mut(home.get(8192).into_loan().unwrap()).unwrap().freeze();
    let copy = borrowed.slice(5..6);
    let mut returns: Vec<Loan> = Vec::new();
    drop(borrowed);
    away.take_returns(&mut returns);
    assert!(returns.is_empty());
    drop(copy);
    away.take_returns(&mut returns);
    assert_eq!((returns.len(), home.outstanding()), (1, 8192));
    for loan in returns {
        home.release(loan).unwrap();
    }
    assert_eq!(home.outstanding(), 0);
}

#[test]
fn a_pool_with_the_same_number_is_not_home() {
    let (home, twin) = (Pool::new(3), Pool::new(3));
    let loan = home.get(4096).into_loan().unwrap();
    let loan = twin.reclaim(loan).unwrap_err();
    let loan = twin.release(loan).unwrap_err();
    home.release(loan).unwrap();
    assert_eq!(home.outstanding(), 0);
}

#[test]
fn fixed_memory_is_handed_out_as_a_whole_when_nobody_has_a_part() {
    let pool = Pool::new(0);
    let fixed = pool.fixed(10_000);
    let mut whole = fixed.take().unwrap();
    whole[9_999] = 7;
    let place = whole.as_ptr();
    assert_eq!(
        (whole.len(), fixed.position(&whole), fixed.take().is_none()),
        (10_000, Some(0), true)
    );
    let rest = whole.split_off(4096).freeze();
    drop(whole);
    assert!(fixed.take().is_none(), "somebody reads the rest");
    assert_eq!(fixed.position(&rest), Some(4096));
    assert_eq!(fixed.position(&pool.get(1)), None);
    assert!(rest.try_into_mut().is_err(), "it is not the only handle");
    let whole = fixed.take().unwrap();
    assert_eq!((whole.as_ptr(), whole[9_999]), (place, 7));
    drop(fixed);
    assert_eq!(pool.outstanding(), 16_384, "the handle keeps it");
    drop(whole);
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn parts_are_one_buffer_again_and_other_memory_is_copied() {
    let pool = Pool::new(0);
    let whole = |pool: &Pool| {
        let mut buf = pool.get(3000);
        buf.iter_mut().zip(0_u32..).for_each(|(byte, nr)| *byte = nr as u8);
        buf
    };
    let mut first = whole(&pool);
    let at = first.as_ptr();
    let mut second = first.split_off(1000);
    let third = second.split_off(700);
    let joined = pool.joined([first, second, third]).unwrap();
    assert_eq!((joined.as_ptr(), &joined[..]), (at, &whole(&pool)[..]));
    let (mut first, other) = (joined, whole(&pool));
    let mut second = first.split_off(1000);
    let third = second.split_off(700);
    let second = pool.copy_of(&second);
    let joined = pool.joined([first, second, third]).unwrap();
    assert_eq!(&joined[..], &other[..]);
    assert!(pool.joined([]).is_none());
}

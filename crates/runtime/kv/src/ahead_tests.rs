use super::*;
use std::cell::RefCell;
use std::sync::mpsc;

const BLOCKS: u64 = 1000;

/// A mirror of which each block holds its number, and that notes what is read ahead of it.
#[derive(Default)]
struct Source {
    begun: RefCell<Vec<(u64, u64)>>,
    /// The first block that is not as it was written.
    unsure: Option<u64>,
}

impl Source {
    fn bytes(first: u64, end: u64) -> Vec<u8> {
        (first..end).flat_map(|block| [block as u8; BLOCK]).collect()
    }

    fn begin(&self, first: u64, count: u64) -> Coming {
        self.begun.borrow_mut().push((first, count));
        let end = (first + count).min(self.unsure.unwrap_or(BLOCKS));
        let (send, receive) = mpsc::sync_channel(1);
        send.send(Ok(Source::bytes(first, end.max(first)))).unwrap();
        receive
    }

    /// True when it was kept.
    fn read(&self, ahead: &mut Ahead, first: u64, count: u64) -> bool {
        let begin = |first, count| self.begin(first, count);
        let mut out = vec![0xee; count as usize * BLOCK];
        let kept = ahead.get(first, &mut out, &begin);
        match kept {
            true => assert!(out == Source::bytes(first, first + count), "block {first}"),
            false => ahead.note_read(first, count, &begin),
        }
        kept
    }
}

#[test]
fn only_reads_that_follow_each_other_are_a_scan() {
    let (source, mut ahead) = (Source::default(), Ahead::default());
    for first in [100, 500, 60, 300, 700, 101] {
        assert!(!source.read(&mut ahead, first, 1));
    }
    assert_eq!(source.begun.borrow()[..], []);
    assert!(!source.read(&mut ahead, 105, 2));
    assert_eq!(source.begun.borrow()[..], [(107, RUN_MIN)]);
}

#[test]
fn a_scan_waits_for_its_first_blocks_only() {
    let (source, mut ahead) = (Source::default(), Ahead::default());
    let mut missed = 0;
    let mut at = 10;
    while at + 4 < BLOCKS {
        // Some are left out, and pages have several blocks.
        missed += u64::from(!source.read(&mut ahead, at, 1 + at % 4));
        at += 1 + at % 4 + at % 3;
        // Others are read meanwhile.
        if at % 7 == 0 {
            source.read(&mut ahead, (at * 37) % BLOCKS / 2, 1);
        }
    }
    assert!(missed <= 6, "{missed}");
    let longest = source.begun.borrow().iter().map(|(_, count)| *count).max();
    assert_eq!(longest, Some(RUN_MAX));
}

#[test]
fn a_scan_that_jumps_ahead_for_a_block_goes_on_where_it_was() {
    let (source, mut ahead) = (Source::default(), Ahead::default());
    (10..12).for_each(|first| assert!(!source.read(&mut ahead, first, 1)));
    for first in 12..800 {
        assert!(source.read(&mut ahead, first, 1), "{first}");
        let jump = if first < 100 { 5 } else { 90 };
        assert!(source.read(&mut ahead, first + jump, 1), "{first}");
    }
}

#[test]
fn what_is_not_sure_is_not_kept_and_the_scan_goes_on_behind_it() {
    let source = Source { unsure: Some(20), ..Source::default() };
    let mut ahead = Ahead::default();
    (10..12).for_each(|first| assert!(!source.read(&mut ahead, first, 1)));
    (12..20).for_each(|first| assert!(source.read(&mut ahead, first, 1), "{first}"));
    assert!(!source.read(&mut ahead, 20, 1));
    let sure = Source::default();
    assert!(!sure.read(&mut ahead, 21, 1));
    (22..60).for_each(|first| assert!(sure.read(&mut ahead, first, 1), "{first}"));
}

#[test]
fn nothing_is_kept_after_it_is_told_to_forget() {
    let (source, mut ahead) = (Source::default(), Ahead::default());
    for first in 10..40 {
        source.read(&mut ahead, first, 1);
    }
    ahead.forget();
    // The scan goes on, with what is read from now on.
    assert!(!source.read(&mut ahead, 40, 1) && !source.read(&mut ahead, 30, 1));
    assert!(source.read(&mut ahead, 41, 1));
}

//! The answer to a client that asks which parts of a range are holes.

use std::ops::Range;

use braid_device::{Device, Holes};

use crate::protocol::constants::{STATE_HOLE, STATE_ZERO};

/// Extents in one reply; a client that wants more asks again from where they end.
const EXTENTS_MAX: usize = 256;
/// Bytes about which the device is asked at a time.
const STEP_BYTES: u64 = 4 << 30;
/// Where a step ends it is at a multiple of this, which is one of every block.
const STEP_ALIGN: u64 = 1 << 20;
/// Steps for one reply: a device that knows little of its holes must not keep a shard busy for the whole of a large export.
const STEPS_MAX: usize = 64;

/// The extents from `bytes.start` on: their lengths, and their states (`STATE_*`). At least one, all multiples of the device's
/// block where the range is, and not beyond `bytes`. Ends early, with what is known by then, once there is `enough`.
pub(super) async fn extents_of(
    device: &dyn Device,
    bytes: Range<u64>,
    only_one: bool,
    enough: impl Fn() -> bool,
) -> Vec<(u64, u32)> {
    let block = u64::from(device.info().logical_block.max(1));
    let mut extents: Vec<(u64, u32)> = Vec::new();
    let mut at = bytes.start;
    for step in 0..STEPS_MAX {
        if step > 0 && enough() {
            break;
        }
        let last = at.saturating_add(STEP_BYTES);
        let end = if last < bytes.end { last - last % STEP_ALIGN } else { bytes.end };
        let holes = device.holes(at..end).await;
        for (length, state) in extents_within(&(at..end), &holes, block) {
            match extents.last_mut() {
                Some((whole, same)) if *same == state => *whole += length,
                _ => extents.push((length, state)),
            }
            at += length;
        }
        if at >= bytes.end || extents.len() >= EXTENTS_MAX || (only_one && extents.len() > 1) {
            break;
        }
    }
    extents.truncate(if only_one { 1 } else { EXTENTS_MAX });
    extents
}

/// The extents from `bytes.start` on, as far as `holes` tells: at least one.
fn extents_within(bytes: &Range<u64>, holes: &Holes, block: u64) -> Vec<(u64, u32)> {
    // A client may count in bytes, and a hole begin within a block: what is there of it is data.
    let end = match bytes.end <= holes.until {
        true => bytes.end,
        false => bytes.start.max(holes.until - holes.until % block),
    };
    let mut extents = Vec::new();
    let mut at = bytes.start;
    for hole in holes.within(at..end) {
        let start = hole.start.next_multiple_of(block).max(at);
        let stop = if hole.end == bytes.end { hole.end } else { hole.end - hole.end % block };
        if start >= stop {
            continue;
        }
        for (to, state) in [(start, 0), (stop, STATE_HOLE | STATE_ZERO)] {
            if to > at && extents.len() < EXTENTS_MAX {
                extents.push((to - at, state));
                at = to;
            }
        }
    }
    if at < end && extents.len() < EXTENTS_MAX {
        extents.push((end - at, 0));
    }
    if extents.is_empty() {
        // Nothing is known: data, which is a safe answer (proto.md, `NBD_CMD_BLOCK_STATUS`).
        extents.push((bytes.end - bytes.start, 0));
    }
    extents
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use braid_device::{Completion, DeviceInfo, FindHoles, Request};
    use std::cell::RefCell;
    use std::future::{Future, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const HOLE: u32 = STATE_HOLE | STATE_ZERO;

    /// Has holes, and tells at most so many bytes of them at a time.
    struct Sparse {
        info: DeviceInfo,
        holes: Vec<Range<u64>>,
        tells: u64,
        asked: RefCell<Vec<Range<u64>>>,
    }

    impl Device for Sparse {
        fn info(&self) -> &DeviceInfo {
            &self.info
        }

        fn submit(&self, _: Request, _: Completion) {}

        fn holes(&self, bytes: Range<u64>) -> FindHoles {
            self.asked.borrow_mut().push(bytes.clone());
            let until = bytes.end.min(bytes.start.saturating_add(self.tells));
            let below = self.holes.iter().filter(|hole| hole.start < until);
            let ranges = below.map(|hole| hole.start..hole.end.min(until)).collect();
            Box::pin(ready(Holes { until, ranges }))
        }
    }

    fn sparse(holes: &[Range<u64>], tells: u64) -> Sparse {
        let info = DeviceInfo { logical_block: 512, ..DeviceInfo::plain("sparse", 1 << 50) };
        Sparse { info, holes: holes.to_vec(), tells, asked: RefCell::default() }
    }

    fn ask(device: &Sparse, bytes: Range<u64>, one: bool) -> Vec<(u64, u32)> {
        let asking = pin!(extents_of(device, bytes, one, || false));
        match asking.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(extents) => extents,
            Poll::Pending => panic!("this device tells at once"),
        }
    }

    fn extents(bytes: Range<u64>, tells: u64, ranges: &[Range<u64>], one: bool) -> Vec<(u64, u32)> {
        ask(&sparse(ranges, tells), bytes, one)
    }

    fn hole(start: u64, end: u64) -> Range<u64> {
        start..end
    }

    #[test]
    fn holes_and_data_come_in_turn_and_cover_what_was_asked_for() {
        let holes = [0..1024, 2048..4096];
        assert_eq!(
            extents(0..8192, 8192, &holes, false),
            [(1024, HOLE), (1024, 0), (2048, HOLE), (4096, 0)]
        );
        assert_eq!(extents(512..3072, 8192, &holes, false), [(512, HOLE), (1024, 0), (1024, HOLE)]);
        assert_eq!(extents(512..3072, 8192, &holes, true), [(512, HOLE)]);
        assert_eq!(extents(4096..8192, 8192, &holes, false), [(4096, 0)]);
    }

    #[test]
    fn what_is_not_known_yet_is_asked_for_and_is_data_when_nothing_is_ever_known() {
        assert_eq!(extents(0..8192, 4096, &[hole(0, 1024)], false), [(1024, HOLE), (7168, 0)]);
        assert_eq!(extents(0..8192, 0, &[], false), [(8192, 0)]);
        assert_eq!(extents(0..8192, 100, &[], false), [(8192, 0)]);
    }

    #[test]
    fn parts_of_blocks_are_data() {
        assert_eq!(
            extents(0..4096, 4096, &[hole(100, 1500)], false),
            [(512, 0), (512, HOLE), (3072, 0)]
        );
        assert_eq!(extents(0..4096, 4096, &[hole(100, 600)], false), [(4096, 0)]);
        // A client that counts in bytes has its bounds where it likes.
        assert_eq!(extents(3..1000, 4096, &[hole(0, 4096)], false), [(509, 0), (488, HOLE)]);
    }

    #[test]
    fn very_many_holes_are_told_in_several_replies() {
        let holes: Vec<Range<u64>> = (0..1000).map(|nr| nr * 1024..nr * 1024 + 512).collect();
        let told = extents(0..1_024_000, 1_024_000, &holes, false);
        assert_eq!(told.len(), EXTENTS_MAX);
        assert!(told.iter().all(|(length, _)| *length == 512));
        // The same where each look tells of a few only.
        assert_eq!(extents(0..1_024_000, 5000, &holes, false), told[..]);
    }

    #[test]
    fn one_extent_may_be_longer_than_a_look_and_looks_are_bounded() {
        let all = 40 << 40;
        let device = sparse(&[hole(512, 1 << 50)], u64::MAX);
        assert_eq!(ask(&device, 0..all, false)[0], (512, 0));
        let device = sparse(&[hole(0, 1 << 50)], u64::MAX);
        let [(length, HOLE)] = ask(&device, 1 << 20..all, true)[..] else { panic!("one hole") };
        assert_eq!(length, STEPS_MAX as u64 * STEP_BYTES);
        assert_eq!(device.asked.borrow().len(), STEPS_MAX);
        assert!(device.asked.borrow().iter().all(|range| range.end - range.start <= STEP_BYTES));
        // To the end of what was asked for, and no further.
        assert_eq!(ask(&device, 512..(5 << 30) + 512, false), [(5 << 30, HOLE)]);
    }

    #[test]
    fn whoever_has_enough_gets_what_is_known_by_then() {
        let device = sparse(&[hole(0, 1 << 50)], u64::MAX);
        let asking = pin!(extents_of(&device, 0..1 << 40, false, || true));
        let Poll::Ready(told) = asking.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("this device tells at once")
        };
        assert_eq!(told, [(STEP_BYTES, HOLE)]);
    }
}

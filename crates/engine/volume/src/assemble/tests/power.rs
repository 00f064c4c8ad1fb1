//! Devices whose power is cut: at a superblock, or when somebody says so.

use super::*;
use braid_device::{Completion, DeviceInfo, IoError, IoErrorKind, Op, Outcome, Request, Sink};
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The power of several devices.
#[derive(Clone)]
pub struct Power {
    off: Rc<Cell<bool>>,
    /// Writes of superblocks until the cut; never where `None`.
    left: Rc<Cell<Option<u32>>>,
    /// The bytes that get there of the superblock in whose middle it goes off.
    kept: Rc<Cell<(usize, usize)>>,
    /// Writes of anything until the cut; never where `None`.
    writes_left: Rc<Cell<Option<u32>>>,
    pub superblocks: Rc<Cell<u32>>,
}

impl Default for Power {
    fn default() -> Power {
        Power {
            off: Rc::default(),
            left: Rc::default(),
            kept: Rc::new(Cell::new((0, 64))),
            writes_left: Rc::default(),
            superblocks: Rc::default(),
        }
    }
}

impl Power {
    /// Goes off in the middle of superblock `number`, from 0.
    pub fn cut_at(number: u32) -> Power {
        let power = Power::default();
        power.left.set(Some(number));
        power
    }

    /// The same; bytes `kept` of the superblock get there.
    pub fn cut_with(number: u32, kept: Range<usize>) -> Power {
        let power = Power::cut_at(number);
        power.kept.set((kept.start, kept.end));
        power
    }

    /// Goes off in the middle of superblock `number` from now on, from 0.
    pub fn cut_in(&self, number: u32) {
        self.left.set(Some(number));
    }

    /// Goes off instead of write `number`, from 0.
    pub fn cut_at_write(number: u32) -> Power {
        let power = Power::default();
        power.writes_left.set(Some(number));
        power
    }

    pub fn off(&self) {
        self.off.set(true);
    }

    /// It is not cut any more.
    pub fn stays_on(&self) {
        self.writes_left.set(None);
    }

    pub fn is_off(&self) -> bool {
        self.off.get()
    }

    pub fn device(&self, ram: &Ram) -> Rc<Cut> {
        let inner = ram.device();
        let info = DeviceInfo { volatile_cache: true, ..inner.info().clone() };
        let (refused, fails_flush) = (RefCell::new(None), Cell::new(false));
        Rc::new(Cut { info, inner, power: self.clone(), refused, fails_flush })
    }
}

/// A device with such power.
pub struct Cut {
    info: DeviceInfo,
    inner: Rc<dyn Device>,
    power: Power,
    refused: RefCell<Option<Range<u64>>>,
    fails_flush: Cell<bool>,
}

impl Cut {
    /// Writes to these bytes fail from now on.
    pub fn refuse(&self, range: Range<u64>) {
        *self.refused.borrow_mut() = Some(range);
    }

    /// The next flush fails.
    pub fn fail_flush(&self) {
        self.fails_flush.set(true);
    }

    fn is_superblock(&self, request: &Request) -> bool {
        let last = self.inner.info().size - 4096;
        matches!(request.op, Op::Write { .. }) && (request.offset == 0 || request.offset == last)
    }
}

/// Hears of what nobody waits for.
struct Nobody;

impl Sink for Nobody {
    fn complete(&self, _: u64, _: Outcome) {}
}

impl Device for Cut {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let fail = |request: Request, done: Completion, kind| {
            done.complete(Outcome::failed(IoError::new(kind), request.op));
        };
        if matches!(request.op, Op::Write { .. }) {
            match self.power.writes_left.get() {
                Some(0) => self.power.off.set(true),
                left => self.power.writes_left.set(left.map(|left| left - 1)),
            }
        }
        if self.power.off.get() {
            return fail(request, done, IoErrorKind::Gone);
        }
        let refused = self.refused.borrow().as_ref().is_some_and(|range| {
            matches!(request.op, Op::Write { .. }) && range.contains(&request.offset)
        });
        if refused || matches!(request.op, Op::Flush) && self.fails_flush.take() {
            return fail(request, done, IoErrorKind::Medium);
        }
        if self.is_superblock(&request) {
            match self.power.left.get() {
                Some(0) => {
                    self.power.off.set(true);
                    // A part of it gets there.
                    if let Op::Write { bufs, .. } = &request.op {
                        let (from, to) = self.power.kept.get();
                        let at = request.offset + from as u64;
                        let part = Request::write(at, bufs[0].slice(from..to), false);
                        self.inner.submit(part, Completion::new(Rc::new(Nobody), 0));
                    }
                    return fail(request, done, IoErrorKind::Gone);
                }
                left => self.power.left.set(left.map(|left| left - 1)),
            }
            self.power.superblocks.set(self.power.superblocks.get() + 1);
        }
        self.inner.submit(request, done);
    }
}

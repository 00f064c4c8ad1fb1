//! The rules that select requests and the faults for them.

use super::list::List;
use crate::error::IoErrorKind;
use crate::random::Random;
use crate::request::{Op, Request};
use braid_shard::Nanos;
use braid_shard::mailbox::Remote;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
    /// Write-zeroes.
    WriteZeroes,
}

impl OpKind {
    fn of(op: &Op) -> OpKind {
        match op {
            Op::Read(_) => OpKind::Read,
            Op::Write { .. } => OpKind::Write,
            Op::Flush => OpKind::Flush,
            Op::Discard { .. } => OpKind::Discard,
            Op::WriteZeroes { .. } => OpKind::WriteZeroes,
        }
    }
}

/// The fault that a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It fails; the device below does not see it.
    Fail(IoErrorKind),
    /// It does not complete until [`Faults::release`].
    Hang,
    /// It reaches the device below so many nanoseconds later.
    Delay(Nanos),
    /// Only that many logical blocks at the beginning of a write reach the device below; then it fails
    /// with a medium error. Other requests fail immediately.
    Torn(u64),
    /// One bit of the data that a read returns is wrong, without an error. Other requests are not affected.
    FlipBit,
}

/// A fault and the requests that it applies to. Made with [`Rule::new`] and restricted by the other methods.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    action: Action,
    kind: Option<OpKind>,
    range: Range<u64>,
    after: u64,
    times: u64,
    probability: f64,
}

impl Rule {
    /// `action` for every request.
    pub fn new(action: Action) -> Rule {
        Rule { action, kind: None, range: 0..u64::MAX, after: 0, times: u64::MAX, probability: 1.0 }
    }

    /// Only for requests of this kind.
    pub fn on(mut self, kind: OpKind) -> Rule {
        self.kind = Some(kind);
        self
    }

    /// Only for requests that touch these bytes; flushes touch none.
    pub fn within(mut self, range: Range<u64>) -> Rule {
        self.range = range;
        self
    }

    /// Not for the first `count` requests that would apply.
    pub fn after(mut self, count: u64) -> Rule {
        self.after = count;
        self
    }

    /// For `count` requests, then no more.
    pub fn times(mut self, count: u64) -> Rule {
        self.times = count;
        self
    }

    /// For this share of the requests that would apply, from 0 to 1.
    pub fn with_probability(mut self, probability: f64) -> Rule {
        self.probability = probability;
        self
    }

    fn fits(&self, request: &Request) -> bool {
        if self.kind.is_some_and(|kind| kind != OpKind::of(&request.op)) {
            return false;
        }
        let whole = self.range == (0..u64::MAX);
        let end = request.offset.saturating_add(request.len());
        whole || request.offset < self.range.end && self.range.start < end
    }
}

/// Identifies a rule for [`Faults::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(usize);

/// A rule with the remaining counts.
struct Active {
    rule: Rule,
    after: AtomicU64,
    times: AtomicU64,
    removed: AtomicBool,
}

impl Active {
    fn new(rule: Rule) -> Active {
        Active {
            after: AtomicU64::new(rule.after),
            times: AtomicU64::new(rule.times),
            removed: AtomicBool::new(false),
            rule,
        }
    }

    /// True if the rule applies to this request; counts the match.
    fn applies(&self, request: &Request, random: &Random) -> bool {
        if self.removed.load(Ordering::Acquire) || !self.rule.fits(request) {
            return false;
        }
        if self.times.load(Ordering::Relaxed) == 0 || count_down(&self.after) {
            return false;
        }
        random.chance(self.rule.probability) && count_down(&self.times)
    }
}

/// Decrements `count`; false if it is zero already.
fn count_down(count: &AtomicU64) -> bool {
    let less = |left: u64| left.checked_sub(1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

struct Shared {
    rules: List<Active>,
    /// Rules that were not removed.
    in_force: AtomicUsize,
    gone: AtomicBool,
    /// Number of calls of [`Faults::release`].
    releases: AtomicU64,
    /// Requests that a rule has applied to.
    hits: AtomicU64,
    random: Random,
    shards: List<Remote>,
}

/// The faults of a device, for all shards.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

impl Faults {
    /// No rules yet; `seed` decides all random choices.
    pub fn new(seed: u64) -> Faults {
        Faults(Arc::new(Shared {
            rules: List::new(),
            in_force: AtomicUsize::new(0),
            gone: AtomicBool::new(false),
            releases: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            random: Random::new(seed),
            shards: List::new(),
        }))
    }

    /// Adds a rule after the others.
    pub fn add(&self, rule: Rule) -> RuleId {
        let index = self.0.rules.push(Active::new(rule));
        self.0.in_force.fetch_add(1, Ordering::Release);
        RuleId(index)
    }

    /// Removes a rule; one that is not there any more is no error.
    pub fn remove(&self, id: RuleId) {
        if let Some(rule) = self.0.rules.iter().nth(id.0) {
            self.disable(rule);
        }
    }

    /// Removes all rules.
    pub fn clear(&self) {
        self.0.rules.iter().for_each(|rule| self.disable(rule));
    }

    fn disable(&self, rule: &Active) {
        if !rule.removed.swap(true, Ordering::AcqRel) {
            self.0.in_force.fetch_sub(1, Ordering::Release);
        }
    }

    /// Makes the device disappear, or come back: while it is gone every request fails with
    /// [`IoErrorKind::Gone`], and so do those that hang.
    pub fn set_gone(&self, gone: bool) {
        self.0.gone.store(gone, Ordering::Release);
        if gone {
            self.release();
        }
    }

    /// Passes the requests that hang now on to the device below.
    pub fn release(&self) {
        self.0.releases.fetch_add(1, Ordering::AcqRel);
        // The empty job only wakes the shard, whose filter checks for releases when idle.
        for shard in self.0.shards.iter() {
            shard.run(|_| {});
        }
    }

    /// Requests that a rule has applied to so far. Those that failed as gone are not counted.
    pub fn hits(&self) -> u64 {
        self.0.hits.load(Ordering::Relaxed)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0.gone.load(Ordering::Acquire)
    }

    pub(super) fn releases(&self) -> u64 {
        self.0.releases.load(Ordering::Acquire)
    }

    pub(super) fn watch(&self, shard: Remote) {
        if !self.0.shards.iter().any(|known| known.id() == shard.id()) {
            self.0.shards.push(shard);
        }
    }

    /// Chooses the fault for `request`.
    pub(super) fn decide(&self, request: &Request) -> Option<Action> {
        if self.0.in_force.load(Ordering::Acquire) == 0 {
            return None;
        }
        let applying = self.0.rules.iter().find(|rule| rule.applies(request, &self.0.random))?;
        self.0.hits.fetch_add(1, Ordering::Relaxed);
        Some(applying.rule.action)
    }

    /// A number below `limit`.
    pub(super) fn draw(&self, limit: u64) -> u64 {
        self.0.random.below(limit)
    }
}

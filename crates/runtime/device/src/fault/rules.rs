//! Which requests go wrong, and how.

use crate::device::{IoErrorKind, Op, Request};
use braid_shard::Nanos;
use braid_shard::mailbox::Remote;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It fails; the device below does not see it.
    Fail(IoErrorKind),
    /// It does not complete until [`Faults::release`].
    Hang,
    /// It reaches the device below so many nanoseconds later.
    Delay(Nanos),
    /// Of a write only the first so many logical blocks reach the device below; then it fails
    /// with a medium error. Other requests fail at once.
    Torn(u64),
    /// One bit of what was read is wrong, and nothing says so. Does nothing to other requests.
    FlipBit,
}

/// When what happens. Made with [`Rule::new`] and restricted by the other methods.
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

    /// Whether it applies to this one; counts it.
    fn applies(&mut self, request: &Request, random: &mut u64) -> bool {
        if self.times == 0 || !self.fits(request) {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        // 53 bits: what a double holds exactly.
        let drawn = (crate::random::next(random) >> 11) as f64 / (1u64 << 53) as f64;
        if drawn >= self.probability {
            return false;
        }
        self.times -= 1;
        true
    }
}

/// Names a rule, to remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

struct State {
    rules: Vec<(RuleId, Rule)>,
    next_id: u64,
    random: u64,
    shards: Vec<Remote>,
}

struct Shared {
    /// There are rules.
    active: AtomicBool,
    gone: AtomicBool,
    /// How often hanging requests were released.
    releases: AtomicU64,
    /// Requests to which something was done.
    hits: AtomicU64,
    state: Mutex<State>,
}

/// The switchboard of a device's faults, for all shards.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

impl Faults {
    /// No rules yet; `seed` decides all random choices.
    pub fn new(seed: u64) -> Faults {
        Faults(Arc::new(Shared {
            active: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            releases: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            state: Mutex::new(State {
                rules: Vec::new(),
                next_id: 0,
                random: seed,
                shards: Vec::new(),
            }),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole, so a panic elsewhere does not spoil it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule behind the others.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut state = self.state();
        let id = RuleId(state.next_id);
        state.next_id += 1;
        state.rules.push((id, rule));
        self.0.active.store(true, Ordering::Release);
        id
    }

    /// Removes a rule; one that is not there any more is no error.
    pub fn remove(&self, id: RuleId) {
        let mut state = self.state();
        state.rules.retain(|(known, _)| *known != id);
        self.0.active.store(!state.rules.is_empty(), Ordering::Release);
    }

    /// Removes all rules.
    pub fn clear(&self) {
        let mut state = self.state();
        state.rules.clear();
        self.0.active.store(false, Ordering::Release);
    }

    /// The device is gone, from now on (or back, with `false`): every request fails with
    /// [`IoErrorKind::Gone`], those that hang too.
    pub fn set_gone(&self, gone: bool) {
        self.0.gone.store(gone, Ordering::Release);
        if gone {
            self.release();
        }
    }

    /// Lets the requests that hang now go on to the device below.
    pub fn release(&self) {
        self.0.releases.fetch_add(1, Ordering::AcqRel);
        // Only to wake the shards: each filter looks when its shard is idle.
        for shard in &self.state().shards {
            shard.run(|_| {});
        }
    }

    /// Requests to which something was done so far, not counting those that failed as gone.
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
        let shards = &mut self.state().shards;
        if !shards.iter().any(|known| known.id() == shard.id()) {
            shards.push(shard);
        }
    }

    /// What shall happen to `request`.
    pub(super) fn decide(&self, request: &Request) -> Option<Action> {
        if !self.0.active.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state();
        let State { rules, random, .. } = &mut *state;
        let applying = rules
            .iter_mut()
            .find_map(|(_, rule)| rule.applies(request, random).then_some(rule.action));
        if applying.is_some() {
            self.0.hits.fetch_add(1, Ordering::Relaxed);
        }
        applying
    }

    /// A number below `limit` (at least 1).
    pub(super) fn draw(&self, limit: u64) -> u64 {
        crate::random::next(&mut self.state().random) % limit.max(1)
    }
}

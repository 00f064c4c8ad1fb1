//! Levels 4, 5 and 6: stripes of data chunks with P, or P and Q.
//!
//! Owns which slot holds which data chunk, P and Q of every stripe, and the order in which data
//! enters Q (`raid5.c`: the sector mapping and the syndrome order; numbers in `raid5.h`). Does not
//! know the arithmetic of P and Q. Invariant: in every stripe the slots of the data chunks, of P
//! and of Q are distinct and together are all slots.

use crate::divide::{Divisor, wrapped};
use crate::spec::within_limit;
use crate::{LayoutError, Level, Slot, Spec};

/// GF(2^8) has 255 powers of its generator: one more syndrome place would repeat a coefficient, and
/// the two members that share it could not be told apart.
const MAX_Q_WIDTH: usize = 255;

/// The role of a slot in one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Data chunk `k` of the stripe, in array order from 0.
    Data(usize),
    /// The XOR of the data chunks.
    P,
    /// The second syndrome, level 6 only.
    Q,
}

/// The geometry of a level 4, 5 or 6 array. A *stripe* is one chunk of every member at the same
/// chunk number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parity {
    level: Level,
    slots: usize,
    /// Data chunks per stripe.
    data: usize,
    chunk_shift: u32,
    stripes: u64,
    /// Component byte at which the first stripe starts.
    start: u64,
    /// The number of the first stripe.
    first: u64,
    rule: Rule,
    by_data: Divisor,
    by_period: Divisor,
}

/// One row of md's table of layouts, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    /// Slot of P where the rotation stands at 0, and its direction.
    p: Walk,
    /// Stripes until P is back; 1 when it never moves.
    period: usize,
    /// Rotation of stripe 0.
    advance: u64,
    q: QPlace,
    data: Order,
    /// DDF: the exponent in Q is the slot number.
    ddf: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Up(usize),
    Down(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QPlace {
    None,
    AfterP,
    BeforeP,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Data on the remaining slots, lowest first.
    Ascending,
    /// Data chunk 0 this many slots after P, the others following, wrapping at `wrap`.
    FromP { distance: usize, wrap: usize },
}

impl Rule {
    /// The rules of level 4 and of the layouts 0 to 5, 8 to 10 and 16 to 20.
    fn of(level: Level, layout: u32, n: usize) -> Option<Rule> {
        let last = n - 1;
        let fixed = |p| Rule {
            p: Walk::Up(p),
            period: 1,
            advance: 0,
            q: if level == Level::Raid6 { QPlace::AfterP } else { QPlace::None },
            data: Order::Ascending,
            ddf: false,
        };
        let rotating = |p| Rule { p, period: n, ..fixed(0) };
        let from_p = |distance| Order::FromP { distance, wrap: n };
        if level == Level::Raid4 {
            return Some(fixed(last));
        }
        let parities = level.parity_count();
        let native = match layout {
            0 => rotating(Walk::Down(last)),
            1 => rotating(Walk::Up(0)),
            2 => Rule { data: from_p(parities), ..rotating(Walk::Down(last)) },
            3 => Rule { data: from_p(parities), ..rotating(Walk::Up(0)) },
            4 => fixed(0),
            5 => fixed(n - parities),
            _ if level == Level::Raid6 => return Rule::of_raid6(layout, n, rotating),
            _ => return None,
        };
        Some(native)
    }

    fn of_raid6(layout: u32, n: usize, rotating: impl Fn(Walk) -> Rule) -> Option<Rule> {
        // A level 5 array of n-1 slots with Q added on the last slot.
        let with_q_last = |p| Rule { period: n - 1, q: QPlace::Last, ..rotating(p) };
        let (up, down) = (Walk::Up(0), Walk::Down(n - 2));
        let from_p = Order::FromP { distance: 1, wrap: n - 1 };
        Some(match layout {
            8 => Rule { ddf: true, ..rotating(Walk::Up(0)) },
            9 => Rule { ddf: true, advance: 1, ..rotating(Walk::Down(n - 1)) },
            10 => Rule {
                ddf: true,
                q: QPlace::BeforeP,
                data: Order::FromP { distance: 1, wrap: n },
                ..rotating(Walk::Down(n - 1))
            },
            16 => with_q_last(down),
            17 => with_q_last(up),
            18 => Rule { data: from_p, ..with_q_last(down) },
            19 => Rule { data: from_p, ..with_q_last(up) },
            20 => Rule { period: 1, ..with_q_last(up) },
            _ => return None,
        })
    }
}

impl Parity {
    pub(crate) fn new(spec: &Spec) -> Result<Self, LayoutError> {
        let (level, slots) = (spec.level, spec.raid_disks);
        let unknown = LayoutError::UnknownLayout { level, layout: spec.layout };
        let rule = Rule::of(level, spec.layout, slots).ok_or(unknown)?;
        if rule.q != QPlace::None {
            let max = if rule.ddf { MAX_Q_WIDTH } else { MAX_Q_WIDTH + level.parity_count() };
            if slots > max {
                return Err(LayoutError::TooManySlots { level, slots, max });
            }
        }
        let chunk_shift = spec.paged_chunk_shift()?;
        let stripes = spec.component_chunks(chunk_shift, 1)?;
        let data = slots - level.parity_count();
        within_limit(level, (stripes << chunk_shift).checked_mul(data as u64))?;
        // Any u64 offset may be asked for: the largest chunk number bounds the dividends.
        let max_chunk = u64::MAX >> chunk_shift;
        Ok(Parity {
            level,
            slots,
            data,
            chunk_shift,
            stripes,
            start: 0,
            first: 0,
            rule,
            by_data: Divisor::new(data as u64, max_chunk),
            by_period: Divisor::new(rule.period as u64, max_chunk),
        })
    }

    /// The same, with the first stripe at component byte `start`, which is whole sectors: while an array is reshaped the data of
    /// its old shape starts so far behind that of the new one.
    ///
    /// # Errors
    /// A place within a sector, or behind which the component does not fit.
    pub fn starting_at(self, start: u64) -> Result<Parity, LayoutError> {
        let end = self.used_component_size().checked_add(start);
        within_limit(self.level, end)?;
        match start.is_multiple_of(crate::spec::SECTOR) {
            true => Ok(Parity { start, ..self }),
            false => Err(LayoutError::TooLarge { level: self.level }),
        }
    }

    /// The same, with stripes numbered from `first` on: while an array is reshaped no stripe of its old shape has the number
    /// of one of the new shape.
    pub fn numbered_from(self, first: u64) -> Parity {
        Parity { first, ..self }
    }

    /// Component byte at which the first stripe starts.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The number of the first stripe: 0, unless it is [`numbered_from`](Parity::numbered_from) another.
    #[inline]
    pub fn first_stripe(&self) -> u64 {
        self.first
    }

    /// A stripe's place in their order, from 0.
    #[inline]
    fn nth(&self, stripe: u64) -> u64 {
        debug_assert!(stripe >= self.first && stripe - self.first < self.stripes);
        stripe - self.first
    }

    /// The level: 4, 5 or 6.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Data chunks per stripe.
    #[inline]
    pub fn data_chunks(&self) -> usize {
        self.data
    }

    /// Parity chunks per stripe: 1, or 2 at level 6.
    #[inline]
    pub fn parity_count(&self) -> usize {
        self.slots - self.data
    }

    /// Chunk size in bytes, a power of two.
    #[inline]
    pub fn chunk_size(&self) -> u64 {
        1 << self.chunk_shift
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Bytes of data in one stripe.
    #[inline]
    pub fn stripe_size(&self) -> u64 {
        (self.data_chunks() as u64) << self.chunk_shift
    }

    /// Size of the array in bytes.
    pub fn array_size(&self) -> u64 {
        self.stripes * self.stripe_size()
    }

    /// Stripes after which all slots have the roles again that they had.
    pub fn period(&self) -> u64 {
        self.rule.period as u64
    }

    /// Bytes used on every member.
    pub fn used_component_size(&self) -> u64 {
        self.stripes << self.chunk_shift
    }

    /// The stripe of an array offset, the data chunk `k` in it, and the offset within that chunk.
    #[inline(always)]
    pub fn locate(&self, offset: u64) -> (u64, usize, u64) {
        let (nth, k) = self.by_data.div_rem(offset >> self.chunk_shift);
        (self.first + nth, k as usize, offset & (self.chunk_size() - 1))
    }

    /// The array offset of byte `within` of data chunk `k` of `stripe`.
    ///
    /// The inverse of [`Parity::locate`]; all three must be in range.
    #[inline]
    pub fn array_offset(&self, stripe: u64, k: usize, within: u64) -> u64 {
        debug_assert!(k < self.data_chunks());
        ((self.nth(stripe) * self.data_chunks() as u64 + k as u64) << self.chunk_shift) + within
    }

    /// The component offset of a stripe's chunk, the same on every member.
    #[inline]
    pub fn member_offset(&self, stripe: u64) -> u64 {
        self.start + (self.nth(stripe) << self.chunk_shift)
    }

    /// The places of one stripe, to be asked repeatedly.
    #[inline]
    pub fn map_stripe(&self, stripe: u64) -> StripeMap {
        let n = self.slots;
        let p = self.p_at(self.nth(stripe));
        let q = self.q_for(p);
        // In ascending order the wrap doubles as the mark: no data chunk is found by wrapping at 0.
        let (first, wrap) = match self.rule.data {
            Order::Ascending => (0, 0),
            Order::FromP { distance, wrap } => (wrapped(p + distance, wrap), wrap),
        };
        // At most MAX_SLOTS = 1920 slots: every number fits 16 bits.
        StripeMap {
            slots: n as u16,
            p: p as u16,
            q: q as u16,
            first: first as u16,
            wrap: wrap as u16,
            ddf: self.rule.ddf,
        }
    }

    /// The slot of P in the stripe that is so far from the first.
    #[inline(always)]
    fn p_at(&self, nth: u64) -> Slot {
        let rotation = self.by_period.div_rem(nth + self.rule.advance).1 as usize;
        match self.rule.p {
            Walk::Up(start) => start + rotation,
            Walk::Down(start) => start - rotation,
        }
    }

    /// The slot of Q in a stripe whose P is in `p`; the number of slots where there is no Q.
    #[inline(always)]
    fn q_for(&self, p: Slot) -> Slot {
        let n = self.slots;
        match self.rule.q {
            QPlace::None => n,
            QPlace::AfterP => wrapped(p + 1, n),
            QPlace::BeforeP => wrapped(p + n - 1, n),
            QPlace::Last => n - 1,
        }
    }

    /// The slots of data chunk `k` of a stripe, of P, and of Q where there is one: all that an update of one chunk needs.
    #[inline(always)]
    pub fn slots_of(&self, stripe: u64, k: usize) -> (Slot, Slot, Option<Slot>) {
        let p = self.p_at(self.nth(stripe));
        let q = self.q_for(p);
        let data = match self.rule.data {
            Order::FromP { distance, wrap } => wrapped(wrapped(p + distance, wrap) + k, wrap),
            Order::Ascending => self.map_stripe(stripe).data_slot(k),
        };
        (data, p, (q < self.slots).then_some(q))
    }

    /// The slot of P in a stripe.
    #[inline]
    pub fn p_slot(&self, stripe: u64) -> Slot {
        self.map_stripe(stripe).p_slot()
    }

    /// The slot of Q in a stripe; `None` at levels 4 and 5.
    #[inline]
    pub fn q_slot(&self, stripe: u64) -> Option<Slot> {
        self.map_stripe(stripe).q_slot()
    }

    /// The slot of data chunk `k` of a stripe.
    #[inline(always)]
    pub fn data_slot(&self, stripe: u64, k: usize) -> Slot {
        // For every read: of the usual layouts less has to be known than a whole map.
        match self.rule.data {
            Order::FromP { distance, wrap } => {
                let first = wrapped(self.p_at(self.nth(stripe)) + distance, wrap);
                wrapped(first + k, wrap)
            }
            Order::Ascending => self.map_stripe(stripe).data_slot(k),
        }
    }

    /// The role of a slot in a stripe.
    #[inline]
    pub fn role(&self, stripe: u64, slot: Slot) -> Role {
        self.map_stripe(stripe).role(slot)
    }

    /// The slot holds nothing but parity, in all stripes (`raid5.c`: `only_parity`).
    pub fn only_parity(&self, slot: Slot) -> bool {
        // From one stripe of a period to the next P moves, and what moves with it.
        let stripes = self.first..self.first.saturating_add(self.period());
        let data = |stripe| matches!(self.role(stripe, slot), Role::Data(_));
        slot < self.slots && !stripes.take(self.stripes as usize).any(data)
    }

    /// The power of the generator that data chunk `k` of a stripe has in Q; `k` where there is no
    /// Q. It is below [`Parity::q_width`], and often is not `k`.
    #[inline]
    pub fn q_exponent(&self, stripe: u64, k: usize) -> usize {
        self.map_stripe(stripe).exponent(k)
    }

    /// Places in the list of blocks that Q is computed over, gaps included: the slots for the DDF
    /// layouts (P's and Q's places count as zero blocks), the data chunks for all others.
    pub fn q_width(&self) -> usize {
        if self.rule.ddf { self.slots } else { self.data_chunks() }
    }

    /// The array offset that a member's byte holds; `None` when it is parity or out of range.
    pub fn logical(&self, slot: Slot, component_offset: u64) -> Option<u64> {
        let component_offset = component_offset.checked_sub(self.start)?;
        let nth = component_offset >> self.chunk_shift;
        if slot >= self.slots || nth >= self.stripes {
            return None;
        }
        let stripe = self.first + nth;
        match self.role(stripe, slot) {
            Role::Data(k) => {
                let within = component_offset & (self.chunk_size() - 1);
                Some(self.array_offset(stripe, k, within))
            }
            Role::P | Role::Q => None,
        }
    }
}

/// The places of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeMap {
    slots: u16,
    p: u16,
    /// `slots` when there is no Q.
    q: u16,
    /// Slot of data chunk 0, where data goes round.
    first: u16,
    /// Slots after which data goes round; 0 when it does not but ascends.
    wrap: u16,
    ddf: bool,
}

impl StripeMap {
    /// The slot of P.
    #[inline]
    pub fn p_slot(&self) -> Slot {
        self.p.into()
    }

    /// The slot of Q; `None` at levels 4 and 5.
    #[inline]
    pub fn q_slot(&self) -> Option<Slot> {
        (self.q < self.slots).then_some(self.q.into())
    }

    /// Number of slots.
    #[inline]
    pub fn slots(&self) -> usize {
        self.slots.into()
    }

    /// Number of data chunks.
    #[inline]
    pub fn data_chunks(&self) -> usize {
        self.slots() - 1 - usize::from(self.q < self.slots)
    }

    /// The slot of data chunk `k` (below the number of data chunks).
    #[inline]
    pub fn data_slot(&self, k: usize) -> Slot {
        debug_assert!(k < self.data_chunks());
        if self.wrap != 0 {
            return wrapped(usize::from(self.first) + k, self.wrap.into());
        }
        let (low, high) = self.parity_ascending();
        let slot = k + usize::from(k >= low);
        slot + usize::from(slot >= high)
    }

    /// The slots of data chunk 0, 1, 2 and so on.
    pub fn data_slots(self) -> impl ExactSizeIterator<Item = Slot> {
        (0..self.data_chunks()).map(move |k| self.data_slot(k))
    }

    /// The role of a slot (below the number of slots).
    #[inline]
    pub fn role(&self, slot: Slot) -> Role {
        debug_assert!(slot < self.slots());
        if slot == self.p_slot() {
            return Role::P;
        }
        if slot == usize::from(self.q) {
            return Role::Q;
        }
        if self.wrap != 0 {
            let (first, wrap) = (usize::from(self.first), usize::from(self.wrap));
            return Role::Data(wrapped(slot + wrap - first, wrap));
        }
        let (low, high) = self.parity_ascending();
        Role::Data(slot - usize::from(slot > low) - usize::from(slot > high))
    }

    /// The power of the generator that data chunk `k` has in Q; `k` where there is no Q.
    #[inline]
    pub fn exponent(&self, k: usize) -> usize {
        let Some(q) = self.q_slot() else { return k };
        let slot = self.data_slot(k);
        if self.ddf {
            return slot;
        }
        // Data is numbered walking round from the slot after Q; P is passed over.
        let n = self.slots();
        let steps = |slot: usize| wrapped(slot + n - 1 - q, n);
        let distance = steps(slot);
        distance - usize::from(distance > steps(self.p_slot()))
    }

    fn parity_ascending(&self) -> (usize, usize) {
        (self.p.min(self.q).into(), self.p.max(self.q).into())
    }
}

#[cfg(test)]
#[path = "parity_tests.rs"]
mod tests;

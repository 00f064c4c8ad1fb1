//! The members as one shard sees them at one instant, which may be read and which must be written, and where bytes live on
//! them.
//!
//! Control makes a [`ViewUpdate`] whenever a member's state changes and sends it to every shard;
//! an operation takes the shard's current [`View`] when it holds its range, and keeps it.

use crate::state::bad_blocks::BadBlocks;
use crate::state::flags::MemberFlags;
use crate::state::geometries::{Geometries, InUnit};
use crate::state::geometry::Geometry;
use braid_device::{Device, IoError, IoErrorKind};
use braid_layout::{Level, Slot};
use braid_shard::plant::planted;
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// Identifies a member within a running array; never reused.
pub type MemberNr = u32;

/// The ways in which a slot's member may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// No usable member.
    Missing,
    /// Everything on it is valid.
    InSync,
    /// Valid below `recovered` (component bytes); must be written everywhere.
    Rebuilding {
        /// Component bytes from 0.
        recovered: u64,
    },
}

/// The state of one slot, as control sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotUpdate {
    /// The member that holds it.
    pub member: Option<MemberNr>,
    /// Where its component starts, in bytes.
    pub data_offset: u64,
    /// See there.
    pub state: SlotState,
    /// Component bytes that are recorded as bad, in whole logical blocks of the array; `None` when there are
    /// none.
    pub bad: Option<Arc<BadBlocks>>,
    /// The member has a log that bad blocks can be recorded in.
    pub has_log: bool,
    /// The member flags, as far as the level uses them.
    pub flags: MemberFlags,
    /// The member has failed, which is not recorded yet: it is written, and not read.
    pub suspect: bool,
}

impl SlotUpdate {
    /// A slot without a member.
    pub const EMPTY: SlotUpdate = SlotUpdate {
        member: None,
        data_offset: 0,
        state: SlotState::Missing,
        bad: None,
        has_log: false,
        flags: MemberFlags { write_mostly: false, failfast: false },
        suspect: false,
    };
}

/// A member that is filled to take the place of one that still serves: all that is written to that one it gets too, and
/// nothing is read from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacementUpdate {
    /// The slot that it is to take.
    pub slot: Slot,
    /// Its number.
    pub member: MemberNr,
    /// Where its component starts, in bytes.
    pub data_offset: u64,
    /// As [`SlotUpdate::bad`].
    pub bad: Option<Arc<BadBlocks>>,
}

/// The states, without handles: what control sends.
#[derive(Clone, Debug)]
pub struct ViewUpdate {
    /// Where bytes live.
    pub geometries: Geometries,
    /// By slot.
    pub slots: Vec<SlotUpdate>,
    /// Members that are filled to replace others; seldom any.
    pub replacements: Vec<ReplacementUpdate>,
    /// Redundancy is known to hold below this: component bytes for parity levels, array bytes for
    /// mirrors; `u64::MAX` when it holds everywhere.
    pub resynced: u64,
    /// Too many members have failed: writes are refused.
    pub broken: bool,
    /// Nothing may be written.
    pub read_only: bool,
}

/// One slot, with the handle of this shard.
#[derive(Clone)]
pub struct SlotView {
    nr: Option<MemberNr>,
    device: Option<Rc<dyn Device>>,
    data_offset: u64,
    state: SlotState,
    bad: Option<Arc<BadBlocks>>,
    has_log: bool,
    flags: MemberFlags,
    suspect: bool,
}

impl SlotView {
    #[inline]
    fn is_bad(&self, bytes: &Range<u64>) -> bool {
        self.bad.as_ref().is_some_and(|bad| bad.overlaps(bytes))
    }
}

/// See the module's documentation.
///
/// A replacement has a number as if it were one more slot, behind those of the array ([`View::replacement_of`]): outcomes of
/// writes that are tagged with slots tell it from the member that it replaces.
pub struct View {
    geometries: Geometries,
    /// Those of the array, then the replacements.
    slots: SmallVec<[SlotView; 8]>,
    /// The slots that the replacements are to take, in the order in which those stand.
    replaced: SmallVec<[Slot; 2]>,
    /// See [`ViewUpdate::resynced`].
    pub resynced: u64,
    /// See [`ViewUpdate::broken`].
    pub broken: bool,
    /// See [`ViewUpdate::read_only`].
    pub read_only: bool,
    degraded: bool,
    /// All members can be read everywhere.
    all_readable: bool,
    any_bad: bool,
    /// Some member can be read in parts only.
    uneven: bool,
    any_write_mostly: bool,
    rotational: bool,
}

impl View {
    /// Joins states with this shard's handles. A member without a handle counts as missing.
    pub fn new(update: &ViewUpdate, device: impl Fn(MemberNr) -> Option<Rc<dyn Device>>) -> View {
        let mut slots: SmallVec<[SlotView; 8]> = update
            .slots
            .iter()
            .map(|slot| {
                let SlotUpdate { member, data_offset, state, bad, has_log, flags, suspect } =
                    slot.clone();
                let device = match state {
                    SlotState::Missing => None,
                    _ => member.and_then(&device),
                };
                let state = if device.is_some() { state } else { SlotState::Missing };
                SlotView { nr: member, device, data_offset, state, bad, has_log, flags, suspect }
            })
            .collect();
        let degraded = slots.iter().any(|slot| slot.state != SlotState::InSync);
        let mut any_bad = slots.iter().any(|slot| slot.bad.is_some());
        let all_readable = !degraded && !any_bad && !slots.iter().any(|slot| slot.suspect);
        let half = |slot: &SlotView| match slot.state {
            SlotState::Rebuilding { recovered } => recovered > 0,
            _ => false,
        };
        let uneven = any_bad || slots.iter().any(half);
        let any_write_mostly = slots.iter().any(|slot| slot.flags.write_mostly);
        let mut devices = slots.iter().filter_map(|slot| slot.device.as_ref());
        let rotational = devices.all(|device| device.info().rotational);
        let mut replaced = SmallVec::new();
        for ReplacementUpdate { slot, member, data_offset, bad } in update.replacements.clone() {
            let Some(handle) = device(member) else { continue };
            any_bad |= bad.is_some();
            replaced.push(slot);
            slots.push(SlotView {
                nr: Some(member),
                device: Some(handle),
                data_offset,
                state: SlotState::Rebuilding { recovered: 0 },
                bad,
                has_log: false,
                flags: MemberFlags::default(),
                suspect: false,
            });
        }
        View {
            geometries: update.geometries.clone(),
            slots,
            replaced,
            resynced: update.resynced,
            broken: update.broken,
            read_only: update.read_only,
            degraded,
            all_readable,
            any_bad,
            uneven,
            any_write_mostly,
            rotational,
        }
    }

    /// The geometry of each part of the array.
    pub fn geometries(&self) -> &Geometries {
        &self.geometries
    }

    /// The level that the array ends with, and has everywhere unless it is being reshaped.
    pub(crate) fn level(&self) -> Level {
        self.geometries.whole().level
    }

    /// The geometry of an array byte.
    #[inline]
    pub fn geometry_at(&self, array_byte: u64) -> &Geometry {
        self.geometries.at(array_byte)
    }

    /// Where an array byte lies among the units of its geometry.
    #[inline]
    pub fn locate_unit(&self, array_byte: u64) -> InUnit<'_> {
        self.geometries.locate(array_byte)
    }

    /// The geometry of a unit.
    #[inline]
    pub fn geometry_of(&self, unit: u64) -> &Geometry {
        self.geometries.of_unit(unit)
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len() - self.replaced.len()
    }

    /// Some member is being replaced.
    #[inline]
    pub(crate) fn any_replacement(&self) -> bool {
        !self.replaced.is_empty()
    }

    /// The number under which [`View::member`] and [`View::member_nr`] have the replacement of the slot's member, if that
    /// is being replaced.
    pub(crate) fn replacement_of(&self, slot: Slot) -> Option<Slot> {
        let nr = self.replaced.iter().position(|replaced| *replaced == slot)?;
        Some(self.slots() + nr)
    }

    /// The slot itself, and [the number of its replacement](View::replacement_of) if there is one: where what is written
    /// to the slot goes.
    pub(crate) fn written_with(&self, slot: Slot) -> impl Iterator<Item = Slot> + use<> {
        std::iter::once(slot).chain(self.replacement_of(slot))
    }

    /// The number is that of a replacement.
    pub(crate) fn is_replacement(&self, slot: Slot) -> bool {
        slot >= self.slots()
    }

    /// True when some slot is not wholly in sync.
    #[inline]
    pub fn degraded(&self) -> bool {
        self.degraded
    }

    /// The slot's state.
    #[inline]
    pub fn state(&self, slot: Slot) -> SlotState {
        self.slots.get(slot).map_or(SlotState::Missing, |slot| slot.state)
    }

    /// All members hold what they should, everywhere.
    #[inline]
    pub fn all_readable(&self) -> bool {
        self.all_readable
    }

    /// The slot's member holds what it should in all of these component bytes.
    #[inline]
    pub fn readable(&self, slot: Slot, bytes: &Range<u64>) -> bool {
        self.all_readable || self.readable_here(slot, bytes)
    }

    #[inline(never)]
    fn readable_here(&self, slot: Slot, bytes: &Range<u64>) -> bool {
        let Some(slot) = self.slots.get(slot) else { return false };
        let valid = match slot.state {
            SlotState::InSync => true,
            SlotState::Rebuilding { recovered } => {
                bytes.end <= recovered || planted("read-past-recovery")
            }
            SlotState::Missing => false,
        };
        valid && !slot.suspect && !slot.is_bad(bytes)
    }

    /// Some member has failed, and that is not recorded yet.
    pub fn any_suspect(&self) -> bool {
        self.slots.iter().any(|slot| slot.suspect)
    }

    /// Some member has blocks recorded as bad.
    #[inline]
    pub fn any_bad(&self) -> bool {
        self.any_bad
    }

    /// Some of these component bytes are recorded as bad on the slot's member.
    #[inline]
    pub fn is_bad(&self, slot: Slot, bytes: &Range<u64>) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.is_bad(bytes))
    }

    /// The slot's member has a log that bad blocks can be recorded in.
    pub fn has_log(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.has_log)
    }

    /// Some member is to be read only where there is no other.
    #[inline]
    pub fn any_write_mostly(&self) -> bool {
        self.any_write_mostly
    }

    /// The slot's member is to be read only where there is no other.
    #[inline]
    pub fn write_mostly(&self, slot: Slot) -> bool {
        self.any_write_mostly && self.slots.get(slot).is_some_and(|slot| slot.flags.write_mostly)
    }

    /// The first error fails the slot's member, unless it is the last that has the data.
    pub fn failfast(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.flags.failfast)
    }

    /// All members are disks with a head that has to move.
    #[inline]
    pub fn rotational(&self) -> bool {
        self.rotational
    }

    /// Some member can be read in parts only: it has bad blocks, or is half rebuilt.
    #[inline]
    pub fn uneven(&self) -> bool {
        self.uneven
    }

    /// Where, after the start of these component bytes, it changes whether the slot's member can be read
    /// (they are recorded as bad, or not rebuilt yet); their end when it does not.
    pub fn next_change(&self, slot: Slot, bytes: &Range<u64>) -> u64 {
        let Some(slot) = self.slots.get(slot) else { return bytes.end };
        let rebuilt = match slot.state {
            SlotState::Rebuilding { recovered } if recovered > bytes.start => {
                recovered.min(bytes.end)
            }
            _ => bytes.end,
        };
        let bad = slot.bad.as_ref().map_or(bytes.end, |bad| bad.next_change(bytes));
        rebuilt.min(bad)
    }

    /// The end of the first of these component bytes over which each member can be read, or cannot.
    #[inline]
    pub fn same_until(&self, bytes: &Range<u64>) -> u64 {
        if !self.uneven {
            return bytes.end;
        }
        let ends = (0..self.slots()).map(|slot| self.next_change(slot, bytes));
        ends.min().unwrap_or(bytes.end)
    }

    /// The error for a reader whose bytes have no source left.
    pub fn no_copy_left(&self) -> IoError {
        // An array above this one goes on with its other blocks, or fails it.
        let lost = self.broken && !planted("lost-as-medium");
        IoError::new(if lost { IoErrorKind::Lost } else { IoErrorKind::Medium })
    }

    /// The slot has a member, so it must be written.
    #[inline]
    pub fn writable(&self, slot: Slot) -> bool {
        self.state(slot) != SlotState::Missing
    }

    /// Slots without a member.
    pub fn missing(&self) -> impl Iterator<Item = Slot> {
        let slots = if self.degraded { self.slots() } else { 0 };
        (0..slots).filter(|slot| !self.writable(*slot))
    }

    /// The slot's device and the byte where its component starts.
    #[inline]
    pub fn member(&self, slot: Slot) -> Option<(&Rc<dyn Device>, u64)> {
        let slot = self.slots.get(slot)?;
        slot.device.as_ref().map(|device| (device, slot.data_offset))
    }

    /// Which member has the slot.
    pub fn member_nr(&self, slot: Slot) -> Option<MemberNr> {
        self.slots.get(slot).and_then(|slot| slot.nr)
    }

    /// Devices of all slots that have one, and of replacements.
    pub fn devices(&self) -> impl Iterator<Item = (Slot, &Rc<dyn Device>)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, view)| view.device.as_ref().map(|device| (slot, device)))
    }
}

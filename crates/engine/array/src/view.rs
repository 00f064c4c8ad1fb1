//! What a shard knows of the members at one instant: who may be read, who must be written.
//!
//! Control makes a [`ViewUpdate`] whenever a member's state changes and sends it to every shard;
//! an operation takes the shard's current [`View`] when it holds its range, and keeps it.

use braid_device::Device;
use braid_layout::Slot;
use smallvec::SmallVec;
use std::rc::Rc;

/// Identifies a member within a running array; never reused.
pub type MemberNr = u32;

/// What a slot's member can be used for.
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

/// The states, without handles: what control sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewUpdate {
    /// By slot: the member, where its component starts (bytes), and its state.
    pub slots: Vec<(Option<MemberNr>, u64, SlotState)>,
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
}

/// See the module's documentation.
pub struct View {
    slots: SmallVec<[SlotView; 8]>,
    /// See [`ViewUpdate::resynced`].
    pub resynced: u64,
    /// See [`ViewUpdate::broken`].
    pub broken: bool,
    /// See [`ViewUpdate::read_only`].
    pub read_only: bool,
    degraded: bool,
}

impl View {
    /// Joins states with this shard's handles. A member without a handle counts as missing.
    pub fn new(update: &ViewUpdate, device: impl Fn(MemberNr) -> Option<Rc<dyn Device>>) -> View {
        let slots: SmallVec<[SlotView; 8]> = update
            .slots
            .iter()
            .map(|(member, data_offset, state)| {
                let device = match state {
                    SlotState::Missing => None,
                    _ => member.and_then(&device),
                };
                let state = if device.is_some() { *state } else { SlotState::Missing };
                SlotView { nr: *member, device, data_offset: *data_offset, state }
            })
            .collect();
        let degraded = slots.iter().any(|slot| slot.state != SlotState::InSync);
        View {
            slots,
            resynced: update.resynced,
            broken: update.broken,
            read_only: update.read_only,
            degraded,
        }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
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

    /// The slot's member may be read up to component byte `end`.
    #[inline]
    pub fn readable(&self, slot: Slot, end: u64) -> bool {
        match self.state(slot) {
            SlotState::InSync => true,
            SlotState::Rebuilding { recovered } => {
                end <= recovered || cfg!(feature = "plant-read-past-recovery")
            }
            SlotState::Missing => false,
        }
    }

    /// The slot has a member, so it must be written.
    #[inline]
    pub fn writable(&self, slot: Slot) -> bool {
        self.state(slot) != SlotState::Missing
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

    /// True when the view has a handle on member `nr`.
    pub(crate) fn uses(&self, nr: MemberNr) -> bool {
        self.slots.iter().any(|slot| slot.nr == Some(nr) && slot.device.is_some())
    }

    /// Devices of all slots that have one.
    pub fn devices(&self) -> impl Iterator<Item = (Slot, &Rc<dyn Device>)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, view)| view.device.as_ref().map(|device| (slot, device)))
    }
}

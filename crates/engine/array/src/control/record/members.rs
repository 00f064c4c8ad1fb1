//! Control's record of each member, and what is derived from all of them: the view for the engines
//! and the role table.

use crate::control::record::bad_list::Bad;
use crate::control::record::read_error_count::ReadErrors;
use crate::metadata::reservations::Held;
use crate::state::flags::MemberFlags;
use crate::state::geometries::Geometries;
use crate::state::view::{MemberNr, ReplacementUpdate, SlotState, SlotUpdate, ViewUpdate};
use braid_device::Opener;
use braid_device::meter::Metered;
use braid_format::SECTOR;
use braid_format::superblock::{CLEAN, Role, Superblock, role_table_len};
use braid_layout::{Level, Slot};
use braid_shard::plant::planted;
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// The standing of a member in its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Holds the slot, all of it valid.
    InSync(Slot),
    /// Holds the slot, valid below `recovered`; `checkpoint` is the part of that which is durable.
    /// Component bytes. With `by_bitmap` it was a member before, and lacks only what bits are set for.
    Rebuilding { slot: Slot, recovered: u64, checkpoint: u64, by_bitmap: bool },
    /// Is filled to take the slot of a member that serves meanwhile; as [`Standing::Rebuilding`].
    Replacing { slot: Slot, recovered: u64, checkpoint: u64 },
    /// Waits to be needed.
    Spare,
    /// Keeps the write journal, and nothing else.
    Journal,
    /// Has failed; why.
    Faulty(String),
}

impl Standing {
    /// The slot that it holds: nobody else has its place in the array.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Standing::InSync(slot) | Standing::Rebuilding { slot, .. } => Some(*slot),
            Standing::Replacing { .. }
            | Standing::Spare
            | Standing::Journal
            | Standing::Faulty(_) => None,
        }
    }

    /// The slot whose bytes are on it: one that it holds, or that it is filled for.
    pub(crate) fn slot_on_it(&self) -> Option<Slot> {
        match self {
            Standing::Replacing { slot, .. } => Some(*slot),
            other => other.slot(),
        }
    }

    /// It does not have all yet that it is to have.
    pub(crate) fn is_filled(&self) -> bool {
        matches!(self, Standing::Rebuilding { .. } | Standing::Replacing { .. })
    }

    /// Its progress, and the part of that which is durable, where it is being filled.
    pub(crate) fn progress_mut(&mut self) -> Option<(&mut u64, &mut u64)> {
        match self {
            Standing::Rebuilding { recovered, checkpoint, .. }
            | Standing::Replacing { recovered, checkpoint, .. } => Some((recovered, checkpoint)),
            _ => None,
        }
    }

    fn role(&self) -> Role {
        match self {
            // A role table has at most 1920 entries, so slots fit.
            Standing::InSync(slot)
            | Standing::Rebuilding { slot, .. }
            | Standing::Replacing { slot, .. } => Role::Slot(*slot as u16),
            Standing::Spare => Role::Spare,
            Standing::Journal => Role::Journal,
            Standing::Faulty(_) => Role::Faulty,
        }
    }
}

/// One member of a running array.
pub(crate) struct Member {
    pub(crate) nr: MemberNr,
    pub(crate) name: String,
    pub(crate) opener: Arc<dyn Opener>,
    /// The home shard's handle.
    pub(crate) device: Rc<Metered>,
    /// As it was last written to this member.
    pub(crate) superblock: Superblock,
    pub(crate) standing: Standing,
    /// Its disk is reserved for this host.
    pub(crate) reservation: Option<Held>,
    /// Why it gets no more requests: it does not answer, or was failed by command. It is recorded as faulty as soon as the
    /// superblocks can be written.
    pub(crate) given_up: Option<String>,
    /// It failed because its device had gone or did not answer: nothing speaks against it when it is there again.
    pub(crate) away: bool,
    /// The array cannot do without it, although a stop has given it up: that is not recorded.
    pub(crate) needed: bool,
    /// It is to be replaced as soon as there is a spare (md's `want_replacement`, which no superblock keeps).
    pub(crate) want_replacement: bool,
    /// A spare: the member that it is to replace.
    pub(crate) replaces: Option<MemberNr>,
    pub(crate) bad: Bad,
    pub(crate) read_errors: ReadErrors,
    /// Bytes in which checks and repairs have named it wrong, since it became a member.
    pub(crate) wrong: u64,
}

/// The parts of a member that differ with the way in which it comes in.
pub(crate) struct NewMember {
    pub(crate) nr: MemberNr,
    pub(crate) opener: Arc<dyn Opener>,
    pub(crate) device: Rc<Metered>,
    pub(crate) superblock: Superblock,
    pub(crate) standing: Standing,
    pub(crate) bad: Bad,
}

impl Member {
    /// A member that has just been assembled, added or re-added: nothing has been found wrong with it.
    pub(crate) fn new(new: NewMember) -> Member {
        let NewMember { nr, opener, device, superblock, standing, bad } = new;
        Member {
            nr,
            name: opener.name().to_string(),
            opener,
            device,
            superblock,
            standing,
            reservation: None,
            given_up: None,
            away: false,
            needed: false,
            want_replacement: false,
            replaces: None,
            bad,
            read_errors: ReadErrors::default(),
            wrong: 0,
        }
    }

    /// The sector that component bytes are counted from: the first of its data, while the array is reshaped the first of both
    /// shapes' data.
    pub(crate) fn component_start(&self) -> u64 {
        let now = self.superblock.data_offset;
        self.superblock.new_data_offset().map_or(now, |new| new.min(now))
    }

    /// Its flags, as far as the level makes use of them: as in md levels 1 and 10 know failfast, and level 1
    /// alone knows write-mostly.
    fn flags_at(&self, level: Level) -> MemberFlags {
        let flags = MemberFlags::of(&self.superblock);
        MemberFlags {
            write_mostly: flags.write_mostly && level == Level::Raid1,
            failfast: flags.failfast && matches!(level, Level::Raid1 | Level::Raid10),
        }
    }

    /// Some of the data is on it: it holds a slot, or is the replacement of who does.
    pub(crate) fn holds_data(&self) -> bool {
        self.standing.slot_on_it().is_some()
    }

    pub(crate) fn is_faulty(&self) -> bool {
        matches!(self.standing, Standing::Faulty(_))
    }
}

/// All members and what the superblocks say of the array as a whole.
pub(crate) struct Roster {
    pub(crate) members: Vec<Member>,
    /// The fields that all superblocks share, as last written.
    pub(crate) shared: Superblock,
    /// The last update before this start, where `shared` is not that: a reshape had just begun, and is taken back.
    pub(crate) begun: Option<Box<Superblock>>,
    /// The superblocks say that writes may be under way.
    pub(crate) dirty: bool,
    /// Redundancy holds below this; bytes as in [`ViewUpdate::resynced`].
    pub(crate) resynced: u64,
    /// The part of `resynced` that is durable on the members.
    pub(crate) resync_checkpoint: u64,
    /// Too many members have failed.
    pub(crate) broken: bool,
    pub(crate) next_nr: MemberNr,
    /// A slot that changes hands; `None` before and after its update.
    pub(crate) handing_over: Option<HandingOver>,
}

/// A slot that is given to a replacement, and is not in the superblocks yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandingOver {
    pub(crate) slot: Slot,
    /// The member that had it until now.
    pub(crate) from: MemberNr,
    pub(crate) to: MemberNr,
}

/// Brings up to date the fields of a member's superblock that an update changes in all of them.
fn take_update(superblock: &mut Superblock, shared: &Superblock) {
    superblock.events = shared.events;
    superblock.size = shared.size;
    superblock.level = shared.level;
    superblock.layout = shared.layout;
    superblock.chunk_sectors = shared.chunk_sectors;
    superblock.raid_disks = shared.raid_disks;
    superblock.reshape = shared.reshape;
    superblock.utime = shared.utime;
    superblock.resync_offset = shared.resync_offset;
    superblock.roles.clone_from(&shared.roles);
    superblock.v0.present = shared.v0.present;
}

impl Roster {
    /// The home shard's handles on all members, for calls during which the roster may change.
    pub(crate) fn devices(&self) -> Vec<Rc<Metered>> {
        self.members.iter().map(|member| Rc::clone(&member.device)).collect()
    }

    pub(crate) fn member(&self, nr: MemberNr) -> Option<&Member> {
        self.members.iter().find(|member| member.nr == nr)
    }

    pub(crate) fn member_mut(&mut self, nr: MemberNr) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.nr == nr)
    }

    pub(crate) fn holder(&self, slot: Slot) -> Option<&Member> {
        self.members.iter().find(|member| member.standing.slot() == Some(slot))
    }

    /// The journal device, if it is there.
    pub(crate) fn journal(&self) -> Option<&Member> {
        let is_there =
            |member: &&Member| member.standing == Standing::Journal && member.given_up.is_none();
        self.members.iter().find(is_there)
    }

    /// The same, to be changed.
    pub(crate) fn journal_mut(&mut self) -> Option<&mut Member> {
        let nr = self.journal()?.nr;
        self.member_mut(nr)
    }

    /// The array has a journal and has lost it: nothing may be written.
    pub(crate) fn lacks_journal(&self) -> bool {
        self.shared.journal && self.journal().is_none() && !planted("journal-loss-ignored")
    }

    fn in_sync(&self, slot: Slot) -> bool {
        let holds = |member: &Member| member.standing == Standing::InSync(slot);
        self.members.iter().any(|member| holds(member) && member.given_up.is_none())
    }

    /// Slots without a member that is wholly in sync.
    pub(crate) fn degraded(&self, slots: usize) -> usize {
        (0..slots).filter(|slot| !self.in_sync(*slot)).count()
    }

    /// The byte of the component below which some member that is not wholly in sync can be read.
    pub(crate) fn rebuilt_below(&self) -> u64 {
        let recovered = self.members.iter().map(|member| match member.standing {
            Standing::Rebuilding { recovered, .. } => recovered,
            _ => 0,
        });
        recovered.max().unwrap_or(0)
    }

    /// The first slot without any member.
    pub(crate) fn empty_slot(&self, slots: usize) -> Option<Slot> {
        (0..slots).find(|slot| self.holder(*slot).is_none())
    }

    /// A member other than `nr` that is being filled, or a spare that a slot waits for.
    pub(crate) fn other_to_fill(&self, nr: MemberNr, slots: usize) -> Option<MemberNr> {
        let others = || self.members.iter().filter(|member| member.nr != nr);
        let begun = others().find(|member| matches!(member.standing, Standing::Rebuilding { .. }));
        let spare = others().find(|member| member.standing == Standing::Spare);
        begun.or(spare.filter(|_| self.empty_slot(slots).is_some())).map(|member| member.nr)
    }

    /// The array can go on if member `nr` fails.
    pub(crate) fn survives_without(&self, geometries: &Geometries, nr: MemberNr) -> bool {
        let lost = self.member(nr).and_then(|member| match member.standing {
            Standing::InSync(slot) => Some(slot),
            _ => None,
        });
        lost.is_none() || geometries.survives(|slot| lost != Some(slot) && self.in_sync(slot))
    }

    /// The array can go on if member `nr` fails and those of `others` do, too.
    pub(crate) fn survives_without_all(
        &self,
        geometries: &Geometries,
        nr: MemberNr,
        others: &[MemberNr],
    ) -> bool {
        let held = |nr: &MemberNr| match self.member(*nr).map(|member| &member.standing) {
            Some(Standing::InSync(slot)) => Some(*slot),
            _ => None,
        };
        let Some(own) = held(&nr) else { return true };
        let lost: Vec<Slot> = others.iter().filter_map(held).collect();
        geometries.survives(|slot| slot != own && !lost.contains(&slot) && self.in_sync(slot))
    }

    /// The level has redundancy and [`survives_without_all`](Roster::survives_without_all), and nothing is lost that member
    /// `nr` alone still holds, since it is recorded as bad on others: nobody need give that up to whoever only says
    /// nothing.
    pub(crate) fn spares(
        &self,
        geometries: &Geometries,
        nr: MemberNr,
        others: &[MemberNr],
    ) -> bool {
        geometries.whole().level.has_redundancy()
            && self.survives_without_all(geometries, nr, others)
            && !self.is_only_source(geometries, nr, others)
    }

    /// These are not recorded as failed, whatever becomes of them in the stop that is under way.
    pub(crate) fn needs(&mut self, needed: &[MemberNr]) {
        for member in self.members.iter_mut().filter(|member| needed.contains(&member.nr)) {
            member.needed = true;
        }
    }

    /// Of these members those that the array can do without, all together.
    pub(crate) fn dispensable(
        &self,
        geometries: &Geometries,
        members: impl Iterator<Item = MemberNr>,
    ) -> Vec<MemberNr> {
        let mut without: Vec<MemberNr> = Vec::new();
        for nr in members {
            if self.survives_without_all(geometries, nr, &without) {
                without.push(nr);
            }
        }
        without
    }

    /// The update for the engines; `suspects` must not be read.
    pub(crate) fn view(
        &self,
        geometries: &Geometries,
        read_only: bool,
        suspects: &[MemberNr],
    ) -> ViewUpdate {
        let geometry = geometries.whole();
        let slots = (0..geometries.widest().slots()).map(|slot| match self.holder(slot) {
            None => SlotUpdate::EMPTY,
            Some(member) => SlotUpdate {
                member: Some(member.nr),
                data_offset: member.component_start().saturating_mul(SECTOR_BYTES),
                state: match member.standing {
                    Standing::Rebuilding { recovered, .. } => SlotState::Rebuilding { recovered },
                    _ => SlotState::InSync,
                },
                bad: member.bad_component_bytes(geometry),
                has_log: member.bad_block_log().is_some(),
                flags: member.flags_at(geometry.level),
                suspect: suspects.contains(&member.nr),
            },
        });
        let replacement = |member: &Member| match member.standing {
            Standing::Replacing { slot, .. } => Some(ReplacementUpdate {
                slot,
                member: member.nr,
                data_offset: member.component_start().saturating_mul(SECTOR_BYTES),
                bad: member.bad_component_bytes(geometry),
            }),
            _ => None,
        };
        ViewUpdate {
            geometries: geometries.clone(),
            slots: slots.collect(),
            replacements: self.members.iter().filter_map(replacement).collect(),
            resynced: self.resynced,
            broken: self.broken,
            read_only: read_only || self.lacks_journal(),
        }
    }

    /// The `resync_offset` that the superblocks shall have, in sectors.
    fn resync_offset(&self) -> u64 {
        // As md: what was being written is in the journal.
        let resyncs = self.dirty && self.journal().is_none();
        match (resyncs, self.resync_checkpoint) {
            (true, _) => 0,
            (false, u64::MAX) => CLEAN,
            (false, checkpoint) => checkpoint / SECTOR_BYTES,
        }
    }

    /// Makes the superblocks of the next update: counts it, and brings every field up to date on
    /// every member that is not faulty.
    pub(crate) fn prepare_update(&mut self, now: u64) {
        self.shared.events = self.shared.events.saturating_add(1);
        self.shared.set_update_time(now);
        self.shared.resync_offset = self.resync_offset();
        for role in &mut self.shared.roles {
            // Members that are not here count as absent, which is stored like a spare.
            *role = Role::Spare;
        }
        let keeps_recovery = self.shared.version.has_recovery_offset();
        let mut present = 0_u32;
        for member in &self.members {
            let number = member.superblock.dev_number;
            present |= 1_u32.checked_shl(number).unwrap_or(0);
            let role = match &member.standing {
                // Nothing could say how much of it is valid.
                Standing::Rebuilding { .. } if !keeps_recovery => Role::Spare,
                standing => standing.role(),
            };
            if let Some(place) = self.shared.roles.get_mut(number as usize) {
                *place = role;
            }
        }
        self.shared.v0.present = present;
        for member in self.members.iter_mut().filter(|member| !member.is_faulty()) {
            let superblock = &mut member.superblock;
            take_update(superblock, &self.shared);
            superblock.bitmap_offset = self.shared.bitmap_offset;
            superblock.recovery_by_bitmap =
                matches!(member.standing, Standing::Rebuilding { by_bitmap: true, .. });
            superblock.replacement = matches!(member.standing, Standing::Replacing { .. });
            superblock.recovery_offset = match member.standing {
                // A replacement that is whole says so before it takes the slot.
                Standing::Replacing { checkpoint: u64::MAX, .. } => None,
                Standing::Rebuilding { checkpoint, .. }
                | Standing::Replacing { checkpoint, .. } => Some(checkpoint / SECTOR_BYTES),
                // When it is given a slot the update may reach the others and not the spare itself.
                // md takes the slot from the freshest table and the rest from the member's own
                // superblock, one update older: which must not say then that all of it is valid.
                Standing::Spare => Some(0),
                _ => None,
            };
        }
    }

    /// Gives the members that missed the last update what it said, as [`Roster::prepare_update`] would have; their numbers, and
    /// the superblocks that tell them. One update says the same on all members, so that it is told also where the next one takes
    /// back what it began.
    /// A spare is not among them: its age does not matter, and what it missed may be the slot that it was to get. That would be
    /// in its superblock then, without what else belongs to it.
    pub(crate) fn catch_up(&mut self) -> Vec<(MemberNr, Superblock)> {
        let (shared, begun) = (&self.shared, self.begun.take());
        let missed = |member: &&mut Member| {
            !member.is_faulty()
                && member.standing != Standing::Spare
                && member.superblock.events < shared.events
        };
        let mut behind = Vec::new();
        for member in self.members.iter_mut().filter(missed) {
            take_update(&mut member.superblock, shared);
            let mut told = member.superblock.clone();
            if let Some(begun) = &begun {
                take_update(&mut told, begun);
                told.new_offset = begun.new_offset;
            }
            behind.push((member.nr, told));
        }
        behind
    }

    /// Makes the role table long enough for a member with this number.
    ///
    /// # Errors
    /// Why it cannot be, as text.
    pub(crate) fn make_room_for(&mut self, dev_number: u32) -> Result<(), String> {
        let roles = dev_number as usize + 1;
        let max = self.shared.version.max_members();
        if roles > max {
            return Err(format!("a superblock lists at most {max} members; remove one first"));
        }
        if roles > self.shared.roles.len() {
            self.shared.roles.resize(role_table_len(roles).min(max), Role::Spare);
        }
        Ok(())
    }

    /// A dev number for one more member: the first from the number of slots on that no member has.
    pub(crate) fn free_dev_number(&self) -> u32 {
        let mut number = self.shared.raid_disks;
        while self.members.iter().any(|member| member.superblock.dev_number == number) {
            number += 1;
        }
        number
    }
}

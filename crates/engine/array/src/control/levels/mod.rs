//! Another level while the array runs, as by `mdadm --grow --level`, or at level 1 another number of copies: every byte stays
//! where it is, and only the superblocks and the engines learn what the members are to each other from now on. `rules` says
//! which levels that is possible for.
//!
//! ```text
//!  requests wait ─► the superblocks say that all writes have ended
//!    ─► (to level 0: there is no bitmap ─► who has no data is no member, and how much of each of the others is data)
//!    ─► superblocks of the new level ─► engines have it ─► requests go on ─► spares are rebuilt in slots that are new
//! ```
//!
//! Whatever the moment of a crash, the freshest superblock has the old level or the new one, and both name the same place for
//! each byte; a member that missed the update is brought in line by the assembly. What a parity that is no longer kept was on
//! is a spare. At level 0 nobody is a member who has no data: second copies, parity and spares leave the array, and as with mdadm
//! they count as failed in the update before. A crash between the two leaves an array of the old level without redundancy.
//!
//! Does not know of changes that move data, of which this may be one step (`steps`).

pub(crate) mod rules;

use crate::control::membership::former::Former;
use crate::control::record::members::{Member, Standing};
use crate::control::reshaping::Basis;
use crate::control::{Control, commands};
use crate::engine::Engine;
use crate::error::ControlError;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use crate::state::view::MemberNr;
use braid_format::SECTOR;
use braid_layout::{Level, Slot};
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use rules::{Shape, mirror_of, shape_at};
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;
const DOING: &str = "changing the level or shape";

/// The level that an array is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedLevel {
    /// It.
    pub level: Level,
    /// Bytes of a chunk, for an array that has none; `None`: 64 KiB, or the most that its size is a multiple of.
    pub chunk_size: Option<u64>,
    /// md's number of the layout that it must come to; `None`: whichever leaves every byte where it is.
    pub layout: Option<u32>,
    /// Slots that it must come to; `None`: as many as it needs. At level 1, which stays: copies.
    pub raid_disks: Option<usize>,
}

/// A change of the level: as it was, and as it is or would be. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relevelled {
    /// The level.
    pub level: (Level, Level),
    /// md's number of the layout.
    pub layout: (u32, u32),
    /// Slots.
    pub raid_disks: (usize, usize),
    /// Bytes of a chunk; 0 where there are none.
    pub chunk_size: (u64, u64),
    /// Bytes that users see: they see the same.
    pub array_size: u64,
    /// Bytes that are written to each member that is rebuilt.
    pub component_size: u64,
    /// The spares that are rebuilt then, in order.
    pub rebuilt: Vec<String>,
    /// The members that lose their slots and are spares.
    pub freed: Vec<String>,
    /// The members that leave the array, since level 0 has no use for what they hold.
    pub leaving: Vec<String>,
    /// Slots without a member, until one is added for each of them.
    pub empty: usize,
}

impl Control {
    /// Has another level from now on, without moving anything. Slots that are new are for spares, which are rebuilt.
    /// `dry_run`: only says what it would be.
    ///
    /// # Errors
    /// The array is not in a state for it, or has something that the new level does not; data would have to move, and then
    /// what can be done first. Nothing has changed then.
    pub async fn change_level(
        self: &Rc<Self>,
        wanted: WantedLevel,
        dry_run: bool,
    ) -> Result<Relevelled, ControlError> {
        let _settings = self.in_effect.turn.take(1).await;
        let (_, planned) = self.plan_level(wanted)?;
        if dry_run {
            return Ok(planned);
        }
        let mut left = Vec::new();
        self.change_shape(DOING, self.take_over(wanted, &mut left)).await?;
        for member in left {
            self.membership.has_left(member).await;
        }
        if planned.level.1.has_redundancy() {
            self.keep_watch();
        }
        tracing::info!(
            "array {}: {} -> {}, {} slots -> {}",
            self.record.name,
            planned.level.0,
            planned.level.1,
            planned.raid_disks.0,
            planned.raid_disks.1
        );
        Ok(planned)
    }

    /// Refuses where something stands in the way of any other level.
    fn may_change_level(&self) -> Result<(), ControlError> {
        commands::needs_working(&self.record, DOING)?;
        self.leads_nowhere_else(DOING)?;
        self.ever_has_level()?;
        let refuse = |why: String| Err(self.no_shape(DOING, why));
        let roster = self.record.roster.borrow();
        if let Some(name) = roster.being_replaced() {
            let job = format!("the replacement of {name}");
            return refuse(commands::not_done_yet(&self.record, &job));
        }
        drop(roster);
        commands::unsettled(&self.record).map_or(Ok(()), refuse)
    }

    /// Refuses where something stands in the way that waiting does not help against.
    pub(crate) fn ever_has_level(&self) -> Result<(), ControlError> {
        let refuse = |why: String| Err(self.no_shape(DOING, why));
        let roster = self.record.roster.borrow();
        let (name, shared) = (&self.record.name, &roster.shared);
        if shared.ppl.is_some() || shared.journal {
            let why = format!(
                "it has a partial parity log or a write journal, which belongs to its level; as for md, take that away first: \
                 braid grow {name} --consistency-policy resync"
            );
            return refuse(why);
        }
        Ok(())
    }

    /// The report of a change of `basis` to `shape`, at levels that have parity or two copies, and the array as it would be
    /// after it; slots that are new are for spares.
    ///
    /// # Errors
    /// Nothing that passes by itself.
    pub(crate) fn level_after(
        &self,
        basis: &Basis,
        shape: &Shape,
    ) -> Result<(Relevelled, Basis), ControlError> {
        self.ever_has_level()?;
        let (old, disks) = (&basis.geometry, shape.layout.slots());
        let new = new_geometry(old, shape);
        self.suits(&new)?;
        let mut holders = basis.holders.clone();
        let (mut freed, mut leaving) = (holders.have_slots(disks), Vec::new());
        if new.level == Level::Raid0 {
            leaving = holders.without_spares();
            freed.clear();
        }
        let rebuilt = holders.fill();
        let names = |members: Vec<MemberNr>| -> Vec<String> {
            members.into_iter().map(|nr| self.record.member_name(nr)).collect()
        };
        let relevelled = Relevelled {
            level: (old.level, shape.level),
            layout: (old.layout_number, shape.number),
            raid_disks: (old.slots(), disks),
            chunk_size: (old.layout.chunk_size(), shape.layout.chunk_size()),
            array_size: self.record.engine.size.get(),
            component_size: shape.component,
            empty: holders.empty(),
            rebuilt: names(rebuilt),
            freed: names(freed),
            leaving: names(leaving),
        };
        Ok((relevelled, Basis { geometry: Arc::new(new), holders, moved_by: basis.moved_by }))
    }

    /// Refuses a geometry that does not suit the settings, or whose members the superblocks cannot list.
    fn suits(&self, new: &Geometry) -> Result<(), ControlError> {
        self.settings_suit(new, DOING)?;
        let most = self.record.roster.borrow().shared.version.max_members();
        if new.slots() > most {
            return Err(
                self.no_shape(DOING, format!("its superblocks list {most} members at most"))
            );
        }
        Ok(())
    }

    fn plan_level(&self, wanted: WantedLevel) -> Result<(Shape, Relevelled), ControlError> {
        let refuse = |why: String| self.no_shape(DOING, why);
        self.may_change_level()?;
        let geometry = self.record.geometry();
        let shape = match (geometry.level, wanted.level, wanted.raid_disks) {
            (Level::Raid1, Level::Raid1, Some(copies)) => {
                mirror_of(&geometry, copies, self.slots_in_sync())
            }
            _ => shape_at(&geometry, wanted.level, wanted.chunk_size),
        };
        let shape = shape.map_err(refuse)?;
        let (now, disks) = (geometry.slots(), shape.layout.slots());
        let name = &self.record.name;
        if let Some(asked) = wanted.layout.filter(|asked| *asked != shape.number) {
            let named = |number| braid_layout::layout_name(shape.level, number).unwrap_or_default();
            let why = format!(
                "layout {} would move data; change the level first, which leads to layout {}, and when it is whole the layout: \
                 braid grow {name} --layout {}",
                named(asked),
                named(shape.number),
                named(asked)
            );
            return Err(refuse(why));
        }
        if let Some(asked) = wanted.raid_disks.filter(|asked| *asked != disks) {
            let why = format!(
                "{} has {disks} slots when nothing moves, not {asked}; change the level first, and when it is whole the number \
                 of slots: braid grow {name} --raid-devices {asked}",
                shape.level
            );
            return Err(refuse(why));
        }
        let new = new_geometry(&geometry, &shape);
        self.suits(&new)?;
        let leaving = self.leaving(&shape);
        let roster = self.record.roster.borrow();
        let holds = |member: &Member, slot: usize| match member.standing {
            Standing::InSync(held) => shape.slot_for(held) == Some(slot),
            _ => false,
        };
        let held = |slot: usize| roster.members.iter().any(|member| holds(member, slot));
        if shape.renumbers() && !roster.shared.version.has_recovery_offset() {
            let version = roster.shared.version;
            let why =
                format!("metadata {version} numbers members by their slots, which would change");
            return Err(refuse(why));
        }
        if !new.survives(held) {
            return Err(refuse(format!("{} cannot go on with the members that it has", new.level)));
        }
        let leaving = leaving?;
        let empty = (0..disks).filter(|slot| !held(*slot)).count();
        let stays = |member: &&Member| !leaving.contains(&member.nr);
        let staying = || roster.members.iter().filter(stays);
        let lost = staying()
            .filter(|m| m.standing.slot().is_some_and(|slot| shape.slot_for(slot).is_none()));
        let freed: Vec<String> = lost.map(|member| member.name.clone()).collect();
        let spares = staying().filter(|member| member.standing == Standing::Spare);
        let spares: Vec<String> = spares.map(|member| member.name.clone()).collect();
        let rebuilt: Vec<String> = spares.into_iter().chain(freed.clone()).take(empty).collect();
        let planned = Relevelled {
            level: (geometry.level, shape.level),
            layout: (geometry.layout_number, shape.number),
            raid_disks: (now, disks),
            chunk_size: (geometry.layout.chunk_size(), shape.layout.chunk_size()),
            array_size: self.record.engine.size.get(),
            component_size: shape.component,
            empty: empty - rebuilt.len(),
            rebuilt,
            freed,
            leaving: leaving.into_iter().map(|nr| self.record.member_name(nr)).collect(),
        };
        Ok((shape, planned))
    }

    fn slots_in_sync(&self) -> Vec<Slot> {
        let roster = self.record.roster.borrow();
        let in_sync = roster.members.iter().filter_map(|member| match member.standing {
            Standing::InSync(slot) if member.given_up.is_none() => Some(slot),
            _ => None,
        });
        let mut slots: Vec<Slot> = in_sync.collect();
        slots.sort_unstable();
        slots
    }

    /// The members that leave the array, since level 0 has no use for them: second copies, parity, and all without a slot.
    fn leaving(&self, shape: &Shape) -> Result<Vec<MemberNr>, ControlError> {
        let mut leaving = Vec::new();
        if shape.level != Level::Raid0 {
            return Ok(leaving);
        }
        let roster = self.record.roster.borrow();
        for slot in 0..shape.layout.slots() {
            let holds = |member: &&Member| match member.standing {
                Standing::InSync(held) => shape.slot_for(held) == Some(slot),
                _ => false,
            };
            let holders: Vec<&Member> = roster.members.iter().filter(holds).collect();
            let suits = |member: &&&Member| {
                let sound = member.given_up.is_none() && !self.record.suspects.contains(member.nr);
                sound && member.bad.now.is_empty()
            };
            let Some(stays) = holders.iter().find(suits) else {
                let names: Vec<&str> = holders.iter().map(|member| member.name.as_str()).collect();
                let why = format!(
                    "{} has bad blocks recorded, which only redundancy makes good; replace it first",
                    names.join(" as well as ")
                );
                return Err(self.no_shape(DOING, why));
            };
            let others = holders.iter().filter(|member| member.nr != stays.nr);
            leaving.extend(others.map(|member| member.nr));
        }
        let no_data = roster.members.iter().filter(|member| match member.standing {
            Standing::InSync(slot) => shape.slot_for(slot).is_none(),
            _ => true,
        });
        leaving.extend(no_data.map(|member| member.nr));
        Ok(leaving)
    }

    /// Takes the new level over; requests wait meanwhile, and no job runs.
    async fn take_over(
        self: &Rc<Self>,
        wanted: WantedLevel,
        left: &mut Vec<Former>,
    ) -> Result<(), ControlError> {
        let turn = self.record.turn().await;
        let old = self.record.geometry();
        if old.level.has_redundancy() {
            // Nothing is under way, so all agree.
            let agree = |engine: &Engine| engine.consistency.try_deactivate(false);
            self.record.engines.ask(agree).await;
            self.mark_clean(&turn).await;
        }
        let (shape, planned) = self.plan_level(wanted)?;
        let new = new_geometry(&old, &shape);
        let sectors = shape.component / SECTOR_BYTES;
        // By itself: whoever misses the other update must know how much of it is data, and whose place it has.
        let leaving = self.leaving(&shape)?;
        if new.level == Level::Raid0 {
            self.bitmap.take_away(&turn).await;
            self.still_works(&turn).await?;
            for nr in &leaving {
                self.record.drop_member(*nr, "level 0 has neither parity, nor copies, nor spares");
            }
            self.each_superblock(|superblock| superblock.data_size = sectors);
            self.record.record_dropped(&turn).await;
            self.still_works(&turn).await?;
        }
        left.extend(self.has_level(&shape, &leaving));
        self.record.write_superblocks(&turn).await;
        self.still_works(&turn).await?;
        self.record.send_geometries(&Geometries::one(Arc::new(new))).await;
        let reports = Arc::clone(&self.record.engine.home.reports);
        let redundant = planned.level.1.has_redundancy();
        let has_level = move |engine: &Engine| {
            engine.has_other_shape();
            engine.splits.count_losses((!redundant).then(|| Arc::clone(&reports)));
        };
        self.record.engines.ask(has_level).await;
        Ok(())
    }

    /// The roster says what the superblocks are to say. Gives the members that are none any more.
    fn has_level(&self, shape: &Shape, leaving: &[MemberNr]) -> Vec<Former> {
        let disks = shape.layout.slots();
        let mut roster = self.record.roster.borrow_mut();
        let shared = &mut roster.shared;
        shared.level = shape.level.md_number();
        if !planted("new-layout-unrecorded") {
            shared.layout = shape.number;
        }
        shared.chunk_sectors = (shape.layout.chunk_size() / SECTOR_BYTES) as u32;
        shared.raid_disks = disks as u32;
        let sized = !shape.level.uses_member_sizes();
        shared.size = if sized { shape.component / SECTOR_BYTES } else { 0 };
        shared.raid0_layout = false;
        for member in &mut roster.members {
            member.superblock.raid0_layout = false;
            // Between two slots nobody else has the new one: all change at once.
            let kept = shape.renumbers() && planted("old-slot-kept");
            if let Some(slot) = member.standing.slot().filter(|_| !kept) {
                member.standing = shape.slot_for(slot).map_or(Standing::Spare, Standing::InSync);
            }
        }
        let left = roster.members.extract_if(.., |member| leaving.contains(&member.nr));
        left.map(Former::of).collect()
    }

    fn each_superblock(&self, change: impl Fn(&mut braid_format::superblock::Superblock)) {
        let mut roster = self.record.roster.borrow_mut();
        roster.members.iter_mut().for_each(|member| change(&mut member.superblock));
    }

    /// The superblocks could be written.
    async fn still_works(&self, _turn: &Share) -> Result<(), ControlError> {
        match self.record.roster.borrow().broken {
            true => Err(ControlError::Failed { doing: DOING, array: self.record.name.clone() }),
            false => Ok(()),
        }
    }
}

/// The geometry that an array of `geometry` has in another shape.
pub(crate) fn new_geometry(geometry: &Geometry, shape: &Shape) -> Geometry {
    let component = if shape.level.uses_member_sizes() { 0 } else { shape.component };
    let shaped = geometry.shaped(shape.level, shape.number, shape.layout.clone());
    shaped.with(shape.layout.clone(), component)
}

//! More members in use while the array runs, as by `mdadm --grow --raid-devices`: spares get new slots, and the data of all
//! members moves to a place before the old one, so that nothing that is still read is written over.
//!
//! Here it begins, with one update of the superblocks; a job moves the data (`jobs/reshape`).
//!
//! Does not write a backup file: where there is no room before the data of some member, only mdadm can do it.

use crate::control::record::members::{Member, Standing};
use crate::control::{Control, commands};
use crate::engine::Engine;
use crate::error::ControlError;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use crate::state::view::MemberNr;
use braid_format::SECTOR;
use braid_format::superblock::{Reshape, Superblock, Use};
use braid_layout::{Layout, Spec};
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;
/// A window has whole chunks, and is held in memory.
const CHUNK_MAX: u64 = 16 << 20;
/// The data moves by so much at most, in bytes: enough for any window.
const MOVE_MAX: u64 = 64 << 20;

/// A change of the number of members: as it was, and as it is to be or would be. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoreSlots {
    /// Slots.
    pub raid_disks: (usize, usize),
    /// Bytes that users see; the new size from the end of the reshape on.
    pub array_size: (u64, u64),
    /// Data that is read and written again.
    pub moved: u64,
    /// Bytes that are written to each member, on which the time that it takes depends.
    pub on_each: u64,
    /// So far before its old place the data of each member goes.
    pub data_moves_by: u64,
    /// The spares that get slots, in order.
    pub spares: Vec<String>,
}

/// All that a reshape begins with.
struct Begin {
    geometries: Geometries,
    reshape: Reshape,
    raid_disks: u32,
    /// Sectors, negative.
    new_offset: i32,
    spares: Vec<MemberNr>,
}

/// Sectors from the superblock on in which mdadm puts no data (getinfo_super1 of super1.c).
const METADATA: u64 = 72;
/// Bytes of the largest blocks that a member may have.
const BLOCK_MAX: u64 = 4096;

const DOING: &str = "changing the number of members";

impl Control {
    /// Has `disks` slots from now on, of which spares get the new ones; a job moves the data while requests go on, and users
    /// see the larger array when it is done. `dry_run`: only says what it would be.
    ///
    /// # Errors
    /// The array is not in a state for it; too few spares; no room before the data of some member. Nothing has changed
    /// then.
    pub async fn set_raid_disks(
        &self,
        disks: usize,
        dry_run: bool,
    ) -> Result<MoreSlots, ControlError> {
        let _settings = self.in_effect.turn.take(1).await;
        let (_, planned) = self.plan_reshape(disks)?;
        if dry_run {
            return Ok(planned);
        }
        self.change_shape(DOING, self.begin_reshape(disks)).await?;
        Ok(planned)
    }

    /// Refuses where something stands in the way of any other shape, whatever it is to be.
    fn may_reshape(&self, geometry: &Geometry) -> Result<(), ControlError> {
        commands::needs_working(&self.record, DOING)?;
        let refuse = |why: String| Err(self.no_shape(DOING, why));
        if !geometry.has_parity() {
            return refuse(format!(
                "braid does that at levels 4, 5 and 6, not at {}",
                geometry.level
            ));
        }
        if geometry.layout.chunk_size() > CHUNK_MAX {
            return refuse(format!("chunks of more than {CHUNK_MAX} bytes are not moved"));
        }
        let roster = self.record.roster.borrow();
        let shared = &roster.shared;
        if shared.reshape.is_some() {
            return refuse(commands::not_done_yet(&self.record, "a reshape"));
        }
        if shared.ppl.is_some() {
            let why = format!(
                "it has a partial parity log, which lies where the data goes; as for md, take that away first: braid grow {} \
                 --consistency-policy resync",
                self.record.name
            );
            return refuse(why);
        }
        if shared.journal {
            return refuse(
                "it has a write journal; as in md, such an array is not reshaped".to_string(),
            );
        }
        if !shared.version.data_follows() {
            let why = format!(
                "metadata {} leaves no room before the data, so that only a backup file would do, which braid does not \
                 write: mdadm --grow --backup-file does",
                shared.version
            );
            return refuse(why);
        }
        if roster.resynced != u64::MAX {
            return refuse(commands::not_done_yet(&self.record, "a resync"));
        }
        if roster.degraded(geometry.slots()) > 0 {
            return refuse("a member is missing; have it rebuilt first".to_string());
        }
        if let Some(member) = roster.members.iter().find(|member| !member.bad.now.is_empty()) {
            let why = format!("{} has bad blocks recorded; replace it first", member.name);
            return refuse(why);
        }
        Ok(())
    }

    fn plan_reshape(&self, disks: usize) -> Result<(Begin, MoreSlots), ControlError> {
        let refuse = |why: String| self.no_shape(DOING, why);
        let geometry = self.record.geometry();
        self.may_reshape(&geometry)?;
        let now = geometry.slots();
        if disks <= now {
            let why = format!("it has {now} slots; braid makes them more, not fewer");
            return Err(refuse(why));
        }
        let roster = self.record.roster.borrow();
        let spares = roster.members.iter().filter(|member| member.standing == Standing::Spare);
        let spares: Vec<&Member> = spares.take(disks - now).collect();
        if spares.len() < disks - now {
            let (have, need, name) = (spares.len(), disks - now, &self.record.name);
            let why = format!(
                "{need} spares are needed for {disks} slots, and it has {have}; add more first: braid add {name} MEMBER"
            );
            return Err(refuse(why));
        }
        let layout = self.layout_of(&geometry, disks)?;
        let chunk = geometry.layout.chunk_size();
        let moves_by = self.data_moves_by(roster.members.iter(), chunk)?;
        let new = geometry.over(layout);
        let old = match &geometry.layout {
            Layout::Parity(parity) => parity.clone().starting_at(moves_by),
            _ => return Err(refuse("it has no parity".to_string())),
        };
        let old = old.map_err(|error| refuse(error.to_string()))?;
        let old = geometry.over(Layout::Parity(old));
        let seen = self.record.engine.size.get();
        let planned = MoreSlots {
            raid_disks: (now, disks),
            array_size: (seen, if self.record.shows_all.get() { new.whole_blocks() } else { seen }),
            moved: geometry.array_size(),
            on_each: geometry.sync_size(),
            data_moves_by: moves_by,
            spares: spares.iter().map(|member| member.name.clone()).collect(),
        };
        let number = |number: usize| {
            u32::try_from(number).map_err(|_| refuse(format!("{number} slots are too many")))
        };
        let added = i32::try_from(disks - now).map_err(|_| refuse("too many slots".to_string()))?;
        let begin = Begin {
            geometries: Geometries::two(Arc::new(new), Arc::new(old), 0),
            reshape: Reshape {
                new_level: roster.shared.level,
                position: 0,
                delta_disks: added,
                new_layout: roster.shared.layout,
                new_chunk_sectors: roster.shared.chunk_sectors,
                backwards: false,
            },
            raid_disks: number(disks)?,
            // At most `MOVE_MAX`.
            new_offset: -((moves_by / SECTOR_BYTES) as i32),
            spares: spares.iter().map(|member| member.nr).collect(),
        };
        Ok((begin, planned))
    }

    fn layout_of(&self, geometry: &Geometry, disks: usize) -> Result<Layout, ControlError> {
        let spec = Spec {
            level: geometry.level,
            layout: geometry.layout_number,
            chunk_size: geometry.layout.chunk_size(),
            raid_disks: disks,
            component_size: geometry.component_size,
            member_sizes: Vec::new(),
        };
        Layout::new(&spec).map_err(|error| self.no_shape(DOING, error.to_string()))
    }

    /// Bytes by which the data of all members moves: half of the room before it, so that there is some left for another
    /// time, a chunk at least.
    fn data_moves_by<'a>(
        &self,
        members: impl Iterator<Item = &'a Member>,
        chunk: u64,
    ) -> Result<u64, ControlError> {
        let mut least = MOVE_MAX;
        let bitmap = self.record.bitmap();
        let bitmap = bitmap.map_or(0, |bitmap| bitmap.keeper.borrow().len() as u64);
        let bitmap_sectors = bitmap.next_multiple_of(BLOCK_MAX) / SECTOR_BYTES;
        for member in members.filter(|member| !member.is_faulty()) {
            let room =
                room_before_data(&member.superblock, bitmap_sectors).saturating_mul(SECTOR_BYTES);
            if room < chunk {
                let why = format!(
                    "{} has {room} bytes free before its data, and a chunk of {chunk} is needed, so that only a backup \
                     file would do, which braid does not write: mdadm --grow --backup-file does",
                    member.name
                );
                return Err(self.no_shape(DOING, why));
            }
            least = least.min(room);
        }
        Ok((least / 2 / chunk * chunk).max(chunk))
    }

    /// Requests wait, and no job runs.
    async fn begin_reshape(&self, disks: usize) -> Result<(), ControlError> {
        let turn = self.record.turn().await;
        let (begin, _) = self.plan_reshape(disks)?;
        let Begin { geometries, reshape, raid_disks, new_offset, spares } = begin;
        for nr in &spares {
            self.give_bitmap_to(*nr).await?;
        }
        {
            let mut roster = self.record.roster.borrow_mut();
            let first = geometries.before().slots();
            for (slot, nr) in (first..).zip(&spares) {
                if let Some(member) = roster.member_mut(*nr) {
                    member.standing = Standing::InSync(slot);
                }
            }
            roster.shared.raid_disks = raid_disks;
            roster.shared.reshape = Some(reshape);
            roster.shared.new_offset = new_offset;
            for member in roster.members.iter_mut().filter(|member| !member.is_faulty()) {
                member.superblock.new_offset = new_offset;
            }
        }
        self.record.write_superblocks(&turn).await;
        if self.record.roster.borrow().broken {
            let array = self.record.name.clone();
            return Err(ControlError::Failed { doing: DOING, array });
        }
        self.record.send_geometries(&geometries).await;
        self.record.engines.ask(Engine::has_more_slots).await;
        Ok(())
    }

    /// A spare that is to get a slot has the array's bitmap, if there is one.
    async fn give_bitmap_to(&self, nr: MemberNr) -> Result<(), ControlError> {
        let (device, superblock, name) = {
            let roster = self.record.roster.borrow();
            let Some(member) = roster.member(nr) else { return Ok(()) };
            (member.device.as_device(), member.superblock.clone(), member.name.clone())
        };
        if self.record.bitmap().is_some_and(|bitmap| !bitmap.fits(&device, &superblock)) {
            return Err(self.no_shape(DOING, format!("{name} has no room for the array's bitmap")));
        }
        match self.bitmap.give_bitmap(&device, &superblock).await {
            // Nobody sets a bit meanwhile; one that is cleared on the others may stay set here.
            Ok(pen) => {
                drop(pen);
                Ok(())
            }
            Err(error) => {
                let (array, doing) = (self.record.name.clone(), "writing the bitmap of");
                Err(ControlError::Io { array, doing, member: name, error })
            }
        }
    }
}

/// Sectors between a member's metadata, with a bitmap of `bitmap_sectors`, and its data.
fn room_before_data(superblock: &Superblock, bitmap_sectors: u64) -> u64 {
    let areas = superblock.areas();
    // Of the area of a bitmap all is counted that it may grow into.
    let fixed = areas.iter().filter(|area| matches!(area.what, Use::Ppl | Use::BadBlockLog));
    let fixed = fixed.map(|area| area.sectors.end).max().unwrap_or(0);
    let bitmap = superblock.bitmap_sector().map_or(0, |at| at.saturating_add(bitmap_sectors));
    let end = fixed.max(bitmap).max(superblock.super_offset.saturating_add(METADATA));
    superblock.data_offset.saturating_sub(end)
}

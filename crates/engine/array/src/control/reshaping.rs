//! Another shape while the array runs, as by `mdadm --grow` with `--raid-devices`, `--chunk` and `--layout`: the data of all
//! members moves to a place before the old one, or behind it, so that nothing that is still read is written over.
//!
//! ```text
//!  more members    towards the start of each member, from the array's start to its end; spares get the new slots
//!  fewer members   towards the end of each member, from the array's end to its start; who loses a slot is a spare then
//!  as many         the first of these two for which all members have room
//! ```
//!
//! Here it begins, with one update of the superblocks; a job moves the data (`jobs/reshape`).
//!
//! Does not write a backup file: where there is no room beside the data of some member, only mdadm can do it.

use crate::control::holders::Holders;
use crate::control::jobs::way::Way;
use crate::control::record::members::Standing;
use crate::control::{Control, commands};
use crate::engine::Engine;
use crate::error::ControlError;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use crate::state::view::MemberNr;
use braid_device::spec::show_size;
use braid_format::SECTOR;
use braid_format::superblock::{Reshape, Superblock, Use};
use braid_layout::{Layout, Level, Spec};
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;
/// A window has whole chunks, and is held in memory.
const CHUNK_MAX: u64 = 16 << 20;
/// The data moves by so much at most, in bytes: enough for any window.
const MOVE_MAX: u64 = 64 << 20;

/// The shape that an array is to have; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedShape {
    /// Slots.
    pub raid_disks: Option<usize>,
    /// Bytes of a chunk.
    pub chunk_size: Option<u64>,
    /// md's number of the layout.
    pub layout: Option<u32>,
}

/// A change of the shape: as it was, and as it is to be or would be. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshaped {
    /// The level.
    pub level: Level,
    /// Slots.
    pub raid_disks: (usize, usize),
    /// Bytes of a chunk.
    pub chunk_size: (u64, u64),
    /// md's number of the layout.
    pub layout: (u32, u32),
    /// Bytes that users see; the new size from the end of the reshape on.
    pub array_size: (u64, u64),
    /// Data that is read and written again.
    pub moved: u64,
    /// Bytes that are written to each member, on which the time that it takes depends.
    pub on_each: u64,
    /// So far from its old place the data of each member goes.
    pub data_moves_by: u64,
    /// It goes towards the end of each member, from the end of the array to its start.
    pub backwards: bool,
    /// The spares that get slots, in order.
    pub spares: Vec<String>,
    /// The members that lose their slots and are spares from the end of the reshape on.
    pub freed: Vec<String>,
}

/// A reshape of which everything is known that depends on the two shapes, and on who is a member.
struct Outline {
    way: Way,
    /// The shape that it leads to, as it will be in the end.
    whole: Geometry,
    /// Bytes, negative towards the start.
    moves_by: i64,
    spares: Vec<MemberNr>,
    reshaped: Reshaped,
}

/// An array that a reshape would begin with: as it is, or as it will be after other changes.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    pub(crate) geometry: Arc<Geometry>,
    pub(crate) holders: Holders,
    /// Bytes by which reshapes until then have moved the data of all members, negative towards the start.
    pub(crate) moved_by: i64,
}

/// All that a reshape begins with.
struct Begin {
    geometries: Geometries,
    reshape: Reshape,
    raid_disks: u32,
    /// Sectors, negative towards the start.
    new_offset: i32,
    spares: Vec<MemberNr>,
}

/// The room beside the data of the members into which it may move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
}

/// Free room beside the data of every member.
struct Room {
    side: Side,
    /// So much at least.
    bytes: u64,
}

impl Room {
    /// Bytes that the data may move by, whole chunks: first half of the room, so that there is some left for another time, then
    /// more of it.
    fn distances(&self, chunk: u64) -> impl Iterator<Item = u64> {
        let first = (self.bytes / 2 / chunk).max(1);
        (first..=self.bytes / chunk).take(DISTANCES).map(move |chunks| chunks * chunk)
    }
}

/// Distances that are tried: copies of a chunk, and those of the one beside it, lie in no more rows, or there is more room.
const DISTANCES: usize = 64;
/// Said where data would have to be written over itself.
const NO_BACKUP: &str = "so that only a backup file would do, which braid does not write: mdadm --grow --backup-file does";

/// Sectors from the superblock on in which mdadm puts no data (getinfo_super1 of super1.c).
const METADATA: u64 = 72;
/// Bytes of the largest blocks that a member may have.
const BLOCK_MAX: u64 = 4096;

const DOING: &str = "changing the shape";

impl Control {
    /// Has another shape from now on: a job moves the data while requests go on, and users see the size of the new shape
    /// when it is done. More members get the slots of spares. `dry_run`: only says what it would be.
    ///
    /// # Errors
    /// The array is not in a state for it; too few spares; no room beside the data of some member; users would see less.
    /// Nothing has changed then.
    pub async fn reshape(
        &self,
        wanted: WantedShape,
        dry_run: bool,
    ) -> Result<Reshaped, ControlError> {
        let _settings = self.in_effect.turn.take(1).await;
        let (_, planned) = self.plan_reshape(wanted)?;
        if dry_run {
            return Ok(planned);
        }
        self.change_shape(DOING, self.begin_reshape(wanted)).await?;
        Ok(planned)
    }

    /// Refuses where something stands in the way of any other shape, whatever it is to be.
    fn may_reshape(&self, geometry: &Geometry) -> Result<(), ControlError> {
        commands::needs_working(&self.record, DOING)?;
        let refuse = |why: String| Err(self.no_shape(DOING, why));
        let roster = self.record.roster.borrow();
        if roster.shared.reshape.is_some() {
            return refuse(commands::not_done_yet(&self.record, "a reshape"));
        }
        self.leads_nowhere_else(DOING)?;
        self.is_ever_reshaped(geometry)?;
        if roster.resynced != u64::MAX {
            return refuse(commands::not_done_yet(&self.record, "a resync"));
        }
        if roster.degraded(geometry.slots()) > 0 {
            return refuse("a member is missing; have it rebuilt first".to_string());
        }
        // As in md; its spare is one that the reshape might have taken.
        if let Some(name) = roster.being_replaced() {
            let job = format!("the replacement of {name}");
            return refuse(commands::not_done_yet(&self.record, &job));
        }
        Ok(())
    }

    /// Refuses where something stands in the way that waiting does not help against, of an array that has or will have
    /// `geometry`.
    pub(crate) fn is_ever_reshaped(&self, geometry: &Geometry) -> Result<(), ControlError> {
        let refuse = |why: String| Err(self.no_shape(DOING, why));
        if geometry.level == Level::Raid0 {
            let name = &self.record.name;
            let why = format!(
                "{} has nothing to fall back on while data moves; change it to level 4 first, which takes a member for parity \
                 beside those that are to come: braid grow {name} --level 4, braid add {name} MEMBER for each of them, and when \
                 the parity is made braid grow {name} --level 0 with --raid-devices or --chunk as wanted, after which the parity \
                 leaves",
                geometry.level
            );
            return refuse(why);
        }
        match &geometry.layout {
            Layout::Parity(_) => {}
            Layout::Raid10(raid10) if !raid10.is_far() => {}
            Layout::Raid10(_) => {
                return refuse(
                    "its layout is far, whose copies lie so far apart that, as for md, its data cannot be moved in place"
                        .to_string(),
                );
            }
            _ => {
                return refuse(format!(
                    "braid does that at levels 4, 5, 6 and 10, and gives level 1 more copies or fewer, but nothing at {}",
                    geometry.level
                ));
            }
        }
        let roster = self.record.roster.borrow();
        let shared = &roster.shared;
        if !geometry.has_parity() && shared.bitmap_offset != 0 {
            let name = &self.record.name;
            let why = format!(
                "its write-intent bitmap counts bytes of the array, whose places change; take it away first: braid grow {name} \
                 --bitmap none, and give it another when the reshape has ended: braid grow {name} --bitmap internal"
            );
            return refuse(why);
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
        if let Some(member) = roster.members.iter().find(|member| !member.bad.now.is_empty()) {
            let why = format!("{} has bad blocks recorded; replace it first", member.name);
            return refuse(why);
        }
        Ok(())
    }

    /// The shape that is wanted, of which everything is known but whether there is room for it.
    fn new_shape(&self, geometry: &Geometry, wanted: WantedShape) -> Result<Layout, ControlError> {
        let refuse = |why: String| self.no_shape(DOING, why);
        let used = geometry.layout.used_size(0);
        let chunk = wanted.chunk_size.unwrap_or(geometry.layout.chunk_size());
        let spec = Spec {
            level: geometry.level,
            layout: wanted.layout.unwrap_or(geometry.layout_number),
            chunk_size: chunk,
            raid_disks: wanted.raid_disks.unwrap_or(geometry.slots()),
            component_size: used,
            member_sizes: Vec::new(),
        };
        let same = spec.layout == geometry.layout_number
            && chunk == geometry.layout.chunk_size()
            && spec.raid_disks == geometry.slots();
        if same {
            return Err(refuse("it has that shape already".to_string()));
        }
        if chunk.max(geometry.layout.chunk_size()) > CHUNK_MAX {
            return Err(refuse(format!("chunks of more than {CHUNK_MAX} bytes are not moved")));
        }
        // As md has it (raid5.c: check_reshape).
        let least = if geometry.level == Level::Raid6 { 4 } else { 2 };
        if spec.raid_disks < least.min(geometry.slots()) {
            return Err(refuse(format!("{} needs {least} members at least", geometry.level)));
        }
        let layout = Layout::new(&spec).map_err(|error| refuse(error.to_string()))?;
        self.has_as_many_copies(geometry, &layout)?;
        if layout.used_size(0) != used {
            let why = format!(
                "{used} bytes are used of each component, which are no whole chunks of {chunk}; as for md, use less of them \
                 first: braid grow {} --size {}K",
                self.record.name,
                used / chunk * chunk / 1024
            );
            return Err(refuse(why));
        }
        let new = geometry.shaped(spec.level, spec.layout, layout.clone());
        let (seen, left) = (self.record.engine.size.get(), new.whole_blocks());
        if left < seen {
            let why = format!(
                "{left} bytes are left of the {seen} that its users see: what lies behind is lost. When nothing there is \
                 needed, say so first: braid grow {} --array-size {}K",
                self.record.name,
                left / 1024
            );
            return Err(refuse(why));
        }
        self.settings_suit(&new, DOING)?;
        Ok(layout)
    }

    /// Refuses copies that a reshape cannot make, as md does (raid10.c: raid10_check_reshape).
    fn has_as_many_copies(&self, geometry: &Geometry, new: &Layout) -> Result<(), ControlError> {
        let (Layout::Raid10(now), Layout::Raid10(new)) = (&geometry.layout, new) else {
            return Ok(());
        };
        if new.is_far() {
            let why = "layout far puts the copies of all data behind the first ones, so that, as for md, it cannot be made in \
                       place; near (n) and offset (o) can"
                .to_string();
            return Err(self.no_shape(DOING, why));
        }
        let (have, wanted) = (now.copy_count(), new.copy_count());
        if have != wanted {
            let why = format!(
                "it has {have} copies of each chunk, and a reshape, as in md, makes no other number than that"
            );
            return Err(self.no_shape(DOING, why));
        }
        Ok(())
    }

    /// The holders of `disks` slots, of which spares get those that are new, and these spares.
    fn spares_for(
        &self,
        before: &Holders,
        now: usize,
        disks: usize,
    ) -> Result<(Holders, Vec<MemberNr>), ControlError> {
        let (need, have) = (disks.saturating_sub(now), before.spares().len());
        if have < need {
            let name = &self.record.name;
            let why = format!(
                "{need} spares are needed for {disks} slots, and it has {have}; add more first: braid add {name} MEMBER"
            );
            return Err(self.no_shape(DOING, why));
        }
        let mut after = before.clone();
        after.have_slots(disks);
        let spares = if need > 0 { after.fill() } else { Vec::new() };
        Ok((after, spares))
    }

    fn plan_reshape(&self, wanted: WantedShape) -> Result<(Begin, Reshaped), ControlError> {
        let geometry = self.record.geometry();
        self.may_reshape(&geometry)?;
        let holders = Holders::now(&self.record.roster.borrow(), geometry.slots());
        let basis = Basis { geometry: Arc::clone(&geometry), holders, moved_by: 0 };
        let (outline, _) = self.outline(&basis, wanted)?;
        let Outline { way, whole, moves_by, spares, reshaped } = outline;
        let (now, disks) = (geometry.slots(), whole.slots());
        let roster = self.record.roster.borrow();
        // Slots and chunks fit the superblock's fields: layouts have limits far below.
        let border = way.border(0);
        let begin = Begin {
            geometries: way.geometries(&whole, (geometry.level, geometry.layout_number), border),
            reshape: Reshape {
                new_level: roster.shared.level,
                position: border / SECTOR_BYTES,
                delta_disks: disks as i32 - now as i32,
                new_layout: whole.layout_number,
                new_chunk_sectors: (whole.layout.chunk_size() / SECTOR_BYTES) as u32,
                backwards: reshaped.backwards,
            },
            raid_disks: disks as u32,
            new_offset: (moves_by / SECTOR_BYTES as i64) as i32,
            spares,
        };
        Ok((begin, reshaped))
    }

    /// The report of a reshape of `basis`, and the array as it would be after it.
    ///
    /// # Errors
    /// Nothing that passes by itself: the shape cannot be, there are too few spares, or there is no room beside the data.
    pub(crate) fn shape_after(
        &self,
        basis: &Basis,
        wanted: WantedShape,
    ) -> Result<(Reshaped, Basis), ControlError> {
        let (outline, after) = self.outline(basis, wanted)?;
        Ok((outline.reshaped, after))
    }

    fn outline(
        &self,
        basis: &Basis,
        wanted: WantedShape,
    ) -> Result<(Outline, Basis), ControlError> {
        let refuse = |why: String| self.no_shape(DOING, why);
        let geometry = &basis.geometry;
        let old = &geometry.layout;
        let new = self.new_shape(geometry, wanted)?;
        let number = wanted.layout.unwrap_or(geometry.layout_number);
        let (now, disks) = (geometry.slots(), new.slots());
        let (holders, spares) = self.spares_for(&basis.holders, now, disks)?;
        let chunk = new.chunk_size().max(old.chunk_size());
        let room = |side| self.room_to_move(side, chunk, old, basis.moved_by);
        let room = match disks.cmp(&now) {
            std::cmp::Ordering::Greater => room(Side::Before)?,
            std::cmp::Ordering::Less => room(Side::Behind)?,
            std::cmp::Ordering::Equal => {
                room(Side::Before).or_else(|no| room(Side::Behind).map_err(|_| no))?
            }
        };
        let backwards = room.side == Side::Behind;
        // At most `MOVE_MAX`.
        let signed = |by: u64| if backwards { by as i64 } else { -(by as i64) };
        let together = || refuse("the two shapes do not go together".to_string());
        let way = |by| {
            let way = Way::new(new.clone(), old.clone(), signed(by), backwards);
            way.ok_or_else(together)
        };
        way(chunk)?;
        // The copies of a chunk may lie in several rows: then more than a chunk is needed.
        let leading = |by| way(by).ok().filter(|way| way.leads_to_the_end(0)).map(|way| (by, way));
        let Some((moves_by, way)) = room.distances(chunk).find_map(leading) else {
            let why = format!(
                "{} are free {} the data of some member, which are too few chunks of {} for copies in several rows; {NO_BACKUP}",
                show_size(room.bytes),
                if backwards { "behind" } else { "before" },
                show_size(chunk)
            );
            return Err(refuse(why));
        };
        let whole = || geometry.shaped(geometry.level, number, new.clone());
        let (seen, all) = (self.record.engine.size.get(), whole().whole_blocks());
        let names = |members: &[MemberNr]| -> Vec<String> {
            members.iter().map(|nr| self.record.member_name(*nr)).collect()
        };
        let freed = basis.holders.clone().have_slots(disks);
        let reshaped = Reshaped {
            level: geometry.level,
            raid_disks: (now, disks),
            chunk_size: (old.chunk_size(), new.chunk_size()),
            layout: (geometry.layout_number, number),
            array_size: (seen, if self.record.shows_all.get() { all } else { seen }),
            moved: new.array_size().min(old.array_size()),
            on_each: new.used_size(0),
            data_moves_by: moves_by,
            backwards,
            spares: names(&spares),
            freed: names(&freed),
        };
        let signed = signed(moves_by);
        let after =
            Basis { geometry: Arc::new(whole()), holders, moved_by: basis.moved_by + signed };
        Ok((Outline { way, whole: whole(), moves_by: signed, spares, reshaped }, after))
    }

    /// The room on this side of the data of all members, a chunk at least. `moved`: it has moved by so many bytes until then.
    fn room_to_move(
        &self,
        side: Side,
        chunk: u64,
        old: &Layout,
        moved: i64,
    ) -> Result<Room, ControlError> {
        let mut least = MOVE_MAX;
        let bitmap = self.record.bitmap();
        let bitmap = bitmap.map_or(0, |bitmap| bitmap.keeper.borrow().len() as u64);
        let bitmap_sectors = bitmap.next_multiple_of(BLOCK_MAX) / SECTOR_BYTES;
        let used = old.used_size(0);
        let roster = self.record.roster.borrow();
        for member in roster.members.iter().filter(|member| !member.is_faulty()) {
            let bytes = |sectors: u64| sectors.saturating_mul(SECTOR_BYTES);
            let (room, place) = match side {
                Side::Before => {
                    (bytes(room_before_data(&member.superblock, bitmap_sectors)), "before its data")
                }
                Side::Behind => {
                    (bytes(member.superblock.data_size).saturating_sub(used), "behind its data")
                }
            };
            let room = match side {
                Side::Before => room.saturating_add_signed(moved),
                Side::Behind => room.saturating_add_signed(-moved),
            };
            if room < chunk {
                let (name, array) = (&member.name, &self.record.name);
                let instead = match side {
                    Side::Before => String::new(),
                    Side::Behind => {
                        let less = used.saturating_sub(chunk - room) / chunk * chunk;
                        format!(
                            "; or use less of the components, which makes room: braid grow {array} --size {}K",
                            less / 1024
                        )
                    }
                };
                let why = format!(
                    "{name} has {} free {place}, and a chunk of {} is needed, {NO_BACKUP}{instead}",
                    show_size(room),
                    show_size(chunk)
                );
                return Err(self.no_shape(DOING, why));
            }
            least = least.min(room);
        }
        Ok(Room { side, bytes: least })
    }

    /// Requests wait, and no job runs.
    async fn begin_reshape(&self, wanted: WantedShape) -> Result<(), ControlError> {
        let turn = self.record.turn().await;
        let (begin, _) = self.plan_reshape(wanted)?;
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
        self.record.engines.ask(Engine::has_other_shape).await;
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

//! More or less of each component in use while the array runs, as by `mdadm --grow --size`, and less of the array shown to
//! its users, as by `mdadm --grow --array-size`.
//!
//! ```text
//!  requests wait ─► members that have become larger are opened anew ─► superblocks without a bitmap
//!    ─► superblocks with the new size, and where redundancy ends ─► engines have it ─► a bitmap over it
//!    ─► requests go on ─► resync of what is new
//! ```
//!
//! Whatever the moment of a crash, the freshest superblock has the old size or the new one, and none has a bitmap that says
//! less than it must. Smaller is what nobody uses: as in md the array is made smaller for its users first.
//!
//! Does not know how much a file system on the array needs.

use crate::control::{Control, commands};
use crate::engine::Engine;
use crate::error::ControlError;
use crate::metadata::superblock::sectors;
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use crate::state::view::MemberNr;
use braid_device::meter::Metered;
use braid_device::{Device, Opener};
use braid_format::SECTOR;
use braid_format::superblock::{Superblock, V0_SIZE_MAX, Version};
use braid_layout::{Layout, Spec};
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;
/// The unit of a component without chunks: what every client's block divides.
const UNCHUNKED: u64 = 4096;

/// A size that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedSize {
    /// All that there is.
    Max,
    /// So many bytes; a component gets whole chunks of them.
    Bytes(u64),
}

/// A change of sizes, in bytes: as they were, and as they are or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// What is used of each component.
    pub component_size: (u64, u64),
    /// The size that users of the array see.
    pub array_size: (u64, u64),
    /// Bytes of redundancy to be made: of each component at parity levels, else of the array.
    pub resync: u64,
    /// Bytes for each bit of the bitmap, where there is one.
    pub bitmap_chunk: Option<(u32, u32)>,
}

/// A member, and how much of its device is there for data.
struct Room {
    nr: MemberNr,
    name: String,
    opener: Arc<dyn Opener>,
    /// Opened just now.
    device: Rc<dyn Device>,
    /// Sectors for data, and whether that is more than its superblock says.
    sectors: u64,
    more: bool,
}

const SIZE: &str = "changing the component size";
const ARRAY_SIZE: &str = "changing the size that users see";

impl Control {
    /// Uses so much of each component from now on. Requests wait for a moment, until the superblocks say so; what is new
    /// becomes redundant by a resync. Who has the array open keeps the size that it had. `dry_run`: only says what it would be.
    ///
    /// # Errors
    /// The array is not in a state for it, or its level, layout or consistency policy do not allow it; a member is too
    /// small; a smaller component while users see more of the array. Nothing has changed then, but that a bitmap may be lost
    /// when a member does not take the new one.
    pub async fn set_component_size(
        &self,
        wanted: WantedSize,
        dry_run: bool,
    ) -> Result<Resized, ControlError> {
        let _settings = self.in_effect.turn.take(1).await;
        self.may_resize()?;
        let rooms = self.rooms()?;
        let (geometry, resized) = self.resized(wanted, &rooms)?;
        if dry_run || resized.component_size.0 == resized.component_size.1 {
            return Ok(resized);
        }
        self.change_shape(SIZE, self.resize(rooms, geometry, resized)).await?;
        Ok(resized)
    }

    /// Shows users so many bytes of the array from now on, until it is stopped. `dry_run`: only says what it would be.
    ///
    /// # Errors
    /// More than the members hold; less while somebody has the array open.
    pub async fn set_array_size(
        &self,
        wanted: WantedSize,
        dry_run: bool,
    ) -> Result<Resized, ControlError> {
        let _settings = self.in_effect.turn.take(1).await;
        commands::needs_working(&self.record, ARRAY_SIZE)?;
        if self.record.roster.borrow().shared.reshape.is_some() {
            let why = commands::not_done_yet(&self.record, "a reshape");
            return Err(self.no_shape(ARRAY_SIZE, why));
        }
        let geometry = self.record.geometry();
        let most = geometry.whole_blocks();
        let size = match wanted {
            WantedSize::Max => most,
            WantedSize::Bytes(bytes) => bytes,
        };
        let block = u64::from(geometry.logical_block);
        if size > most || size == 0 || !size.is_multiple_of(block) {
            let why = format!(
                "{size} bytes cannot be; give a multiple of {block} up to {most}, which its members hold"
            );
            return Err(self.no_shape(ARRAY_SIZE, why));
        }
        let now = self.record.engine.size.get();
        let component = geometry.component_size;
        let resized = Resized {
            component_size: (component, component),
            array_size: (now, size),
            resync: 0,
            bitmap_chunk: None,
        };
        if dry_run || size == now {
            return Ok(resized);
        }
        // Whoever opens it from here on sees the new size.
        self.record.engine.size.set(size);
        if size < now {
            let open = self.record.engines.ask(Engine::devices_open).await;
            let users: usize = open.into_iter().flatten().sum();
            if users > 0 {
                self.record.engine.size.set(now);
                let why = format!(
                    "it is open {users} times, by clients or an array above, which would lose its end under their \
                     hands: disconnect them first"
                );
                return Err(self.no_shape(ARRAY_SIZE, why));
            }
        }
        self.record.shows_all.set(size == most);
        tracing::info!("array {}: users see {size} bytes of it now", self.record.name);
        Ok(resized)
    }

    /// As in md no resync or recovery is due meanwhile, and nothing but a bitmap closes the write hole.
    fn may_resize(&self) -> Result<(), ControlError> {
        commands::needs_working(&self.record, SIZE)?;
        let geometry = self.record.geometry();
        let refuse = |why: String| Err(self.no_shape(SIZE, why));
        if !geometry.level.has_redundancy() {
            return refuse(format!(
                "{} uses all of its members and has no component size",
                geometry.level
            ));
        }
        if let Layout::Raid10(raid10) = &geometry.layout
            && raid10.is_far()
        {
            let why = "layouts with far copies cannot be resized, here as in md";
            return refuse(why.to_string());
        }
        let roster = self.record.roster.borrow();
        if roster.shared.ppl.is_some() || roster.shared.journal {
            let why = "it has a partial parity log or a journal; as in md, take that away first";
            return refuse(why.to_string());
        }
        drop(roster);
        commands::unsettled(&self.record).map_or(Ok(()), refuse)
    }

    /// How much room each member has for data now: its device may have become larger since it was opened.
    fn rooms(&self) -> Result<Vec<Room>, ControlError> {
        let known: Vec<_> = {
            let roster = self.record.roster.borrow();
            let there = roster.members.iter().filter(|member| !member.is_faulty());
            there
                .map(|m| (m.nr, m.name.clone(), Arc::clone(&m.opener), m.superblock.clone()))
                .collect()
        };
        let mut rooms = Vec::with_capacity(known.len());
        for (nr, name, opener, superblock) in known {
            let device = opener
                .open(&self.record.shard)
                .map_err(|source| self.no_shape(SIZE, format!("opening {name}: {source}")))?;
            let now = sectors_for_data(&superblock, sectors(device.info()));
            let sectors = now.max(superblock.data_size);
            let more = sectors > superblock.data_size;
            rooms.push(Room { nr, name, opener, device, sectors, more });
        }
        Ok(rooms)
    }

    /// The geometry with the wanted size, and what that means.
    fn resized(
        &self,
        wanted: WantedSize,
        rooms: &[Room],
    ) -> Result<(Geometry, Resized), ControlError> {
        let refuse = |why: String| self.no_shape(SIZE, why);
        let geometry = self.record.geometry();
        let version = self.record.roster.borrow().shared.version;
        let smallest = rooms.iter().min_by_key(|room| room.sectors);
        let Some(smallest) = smallest else { return Err(refuse("it has no member".to_string())) };
        let mut most = smallest.sectors;
        if version == Version::V0_90 {
            most = most.min(V0_SIZE_MAX);
        }
        let most = most.saturating_mul(SECTOR_BYTES);
        let bytes = match wanted {
            WantedSize::Max => most,
            WantedSize::Bytes(bytes) if bytes > most => {
                let name = &smallest.name;
                let why = format!(
                    "{bytes} bytes of each component do not fit {name}, which has {most} for data; the largest is --size max"
                );
                return Err(refuse(why));
            }
            WantedSize::Bytes(bytes) => bytes,
        };
        let unit = match geometry.layout.chunk_size() {
            0 => UNCHUNKED,
            chunk => chunk,
        };
        let spec = Spec {
            level: geometry.level,
            layout: geometry.layout_number,
            chunk_size: geometry.layout.chunk_size(),
            raid_disks: geometry.slots(),
            component_size: bytes / unit * unit,
            member_sizes: Vec::new(),
        };
        let layout = Layout::new(&spec).map_err(|error| refuse(error.to_string()))?;
        let component = match &layout {
            Layout::Raid10(raid10) => raid10.used_component_size(),
            _ => spec.component_size,
        };
        let new = geometry.with(layout, component);
        let (seen, most) = (self.record.engine.size.get(), new.whole_blocks());
        let shows_all = self.record.shows_all.get();
        if component < geometry.component_size && seen > most {
            let why = format!(
                "with {component} bytes of each component {most} are left of the {seen} that its users see: what lies \
                 behind is lost. When nothing there is needed, say so first: braid grow {} --array-size {most}",
                self.record.name
            );
            return Err(refuse(why));
        }
        let grows = component > geometry.component_size;
        let resync = if grows { new.sync_size().saturating_sub(geometry.sync_size()) } else { 0 };
        let resized = Resized {
            component_size: (geometry.component_size, component),
            array_size: (seen, if shows_all { most } else { seen }),
            resync,
            bitmap_chunk: self.bitmap_chunk(new.sync_size())?,
        };
        Ok((new, resized))
    }

    /// Bytes for each bit of the bitmap, now and over `sync_size` bytes.
    fn bitmap_chunk(&self, sync_size: u64) -> Result<Option<(u32, u32)>, ControlError> {
        let Some(bitmap) = self.record.bitmap() else { return Ok(None) };
        let now = bitmap.keeper.borrow().superblock.chunk_bytes;
        let then = self.bitmap.wider(SIZE, now, sync_size)?;
        let then = then.keeper.borrow().superblock.chunk_bytes;
        Ok(Some((now, then)))
    }

    /// Changes the size; requests wait meanwhile, and no job runs.
    async fn resize(
        &self,
        rooms: Vec<Room>,
        geometry: Geometry,
        resized: Resized,
    ) -> Result<(), ControlError> {
        self.reopen(rooms.iter().filter(|room| room.more)).await?;
        let turn = self.record.turn().await;
        self.may_resize()?;
        let old = self.record.geometry();
        let more: Vec<&Room> = rooms.iter().filter(|room| room.more).collect();
        // By itself: a member whose superblock missed the other update must have room for what that says.
        if !more.is_empty() {
            for room in more {
                if let Some(member) = self.record.roster.borrow_mut().member_mut(room.nr) {
                    member.superblock.data_size = room.sectors;
                }
            }
            self.record.write_superblocks(&turn).await;
        }
        let chunk = self.bitmap.take_away(&turn).await;
        let new = Geometries::one(Arc::new(geometry));
        let grows = resized.resync > 0;
        {
            let mut roster = self.record.roster.borrow_mut();
            if !planted("size-not-recorded") {
                roster.shared.size = resized.component_size.1 / SECTOR_BYTES;
            }
            if grows && !planted("grown-part-in-sync") {
                roster.resynced = old.sync_size();
                roster.resync_checkpoint = old.sync_size();
            }
        }
        self.record.write_superblocks(&turn).await;
        self.in_superblocks(&turn).await?;
        self.record.send_geometries(&new).await;
        self.record.engine.size.set(resized.array_size.1);
        let sizes = resized.component_size;
        tracing::info!("array {}: component size {} -> {}", self.record.name, sizes.0, sizes.1);
        let Some(chunk) = chunk else { return Ok(()) };
        let sync_size = self.record.geometry().sync_size();
        let bitmap = self.bitmap.wider(SIZE, chunk, sync_size)?;
        let from = if grows { old.sync_size() } else { u64::MAX };
        self.bitmap.give_back(&turn, bitmap, from).await
    }

    /// The superblocks could be written.
    async fn in_superblocks(&self, _turn: &Share) -> Result<(), ControlError> {
        match self.record.roster.borrow().broken {
            true => Err(ControlError::Failed { doing: SIZE, array: self.record.name.clone() }),
            false => Ok(()),
        }
    }

    /// Opens members anew on all shards.
    async fn reopen(&self, rooms: impl Iterator<Item = &Room>) -> Result<(), ControlError> {
        for Room { nr, name, opener, device, .. } in rooms {
            let (nr, opener) = (*nr, Arc::clone(opener));
            let opened = self.record.engines.ask(move |engine| engine.reopen_member(nr, &*opener));
            for answer in opened.await.into_iter().flatten() {
                answer
                    .map_err(|source| self.no_shape(SIZE, format!("opening {name}: {source}")))?;
            }
            let metered = Metered::new(&self.record.shard, Rc::clone(device));
            self.unanswered.give_up_when_overdue(&metered);
            if let Some(member) = self.record.roster.borrow_mut().member_mut(nr) {
                member.device = metered;
                self.unanswered.wait_for_space(member);
            }
        }
        Ok(())
    }
}

/// Sectors for data on a device of `sectors` sectors. Where the superblock stands behind the data it says what there is: it
/// would have to move for more.
fn sectors_for_data(superblock: &Superblock, sectors: u64) -> u64 {
    match superblock.version.data_follows() {
        true => sectors.saturating_sub(superblock.data_offset),
        false => superblock.data_size,
    }
}

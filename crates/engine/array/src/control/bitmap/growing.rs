//! A write-intent bitmap added to the running array, or taken away: `mdadm --grow --bitmap`.
//!
//! ```text
//!  add:     bitmap, all bits set, on every member ─► superblocks that have it ─► engines record
//!  remove:  superblocks without it, on every member ─► engines record no more
//! ```
//!
//! Whatever the moment of a crash, the freshest superblock has a bitmap that says at least what it must,
//! or none, which means a whole resync. Writes that began before a bitmap was there hold none of its bits;
//! no bit is cleared before they have ended (`crate::metadata::bitmap::intent`).
//!
//! Invariant: while a superblock with the bitmap may be the freshest, every write is recorded in it, or
//! all its bits are set.

use crate::control::bitmap::WriteIntent;
use crate::control::commands;
use crate::control::record::running_bitmap::Bitmap;
use crate::engine::Engine;
use crate::engine::recorded::Recorded;
use crate::error::ControlError;
use crate::metadata::bitmap::Shape;
use crate::metadata::bitmap::keeper::{Keeper, clear_bits};
use crate::status::BitmapStatus;
use braid_format::SECTOR;
use braid_format::bitmap::BitmapSuperblock;
use braid_format::placement::{BitmapPlace, place_added_bitmap};
use braid_format::superblock::Superblock;
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::rc::Rc;

const SECTOR_BYTES: u64 = SECTOR as u64;

impl WriteIntent {
    /// Adds an internal bitmap where mdadm would, `chunk` bytes for each bit (`None`: 64 MiB, or what
    /// fits). From the moment that this comes back an unclean stop costs the resync of what was being
    /// written, once the bits that are set at first have been cleared.
    ///
    /// # Errors
    /// The array has one, or is not in a state for it; a chunk that cannot be; a member without room.
    /// No superblock has changed then.
    pub async fn add(self: &Rc<Self>, chunk: Option<u64>) -> Result<BitmapStatus, ControlError> {
        let doing = "adding a bitmap";
        commands::needs_redundancy(&self.record, doing)?;
        let turn = self.record.turn().await;
        self.needs_settled(doing)?;
        if self.record.bitmap().is_some() {
            let why = "it has one; to give it another chunk, remove it first";
            return Err(self.no_bitmap_change(doing, why.to_string()));
        }
        if self.record.roster.borrow().shared.ppl.is_some() {
            let why = "it has a partial parity log in the place of one; take that away first: --consistency-policy resync";
            return Err(self.no_bitmap_change(doing, why.to_string()));
        }
        if self.record.roster.borrow().shared.journal {
            return Err(self.no_bitmap_change(
                doing,
                "it has a write journal, and md runs none with both".to_string(),
            ));
        }
        let sync_size = self.record.geometry().sync_size();
        let bitmap = Rc::new(self.new_bitmap(doing, chunk, sync_size)?);
        self.put(&turn, Rc::clone(&bitmap)).await?;
        drop(turn);
        tracing::info!("array {}: has a bitmap now", self.record.name);
        Ok(bitmap.status())
    }

    /// Takes the bitmap away. From then on an unclean stop costs a whole resync, and members that were
    /// away come back as spares.
    ///
    /// # Errors
    /// The array has none, or is not in a state for it, or failed on the way.
    pub async fn remove(&self) -> Result<(), ControlError> {
        let doing = "removing the bitmap";
        commands::needs_redundancy(&self.record, doing)?;
        let turn = self.record.turn().await;
        self.needs_settled(doing)?;
        let Some(bitmap) = self.record.bitmap() else {
            return Err(self.no_bitmap_change(doing, "it has none".to_string()));
        };
        self.record.roster.borrow_mut().shared.bitmap_offset = 0;
        self.record.write_superblocks(&turn).await;
        if self.record.roster.borrow().broken {
            // Superblocks with the bitmap may be the freshest.
            self.record.roster.borrow_mut().shared.bitmap_offset = bitmap.offset();
            return Err(ControlError::Failed { doing, array: self.record.name.clone() });
        }
        self.record.engines.ask(|engine: &Engine| engine.record_by(Recorded::Resync)).await;
        self.record.current_bitmap.set(None);
        drop(turn);
        self.record.changed.notify_all();
        tracing::info!("array {}: has no bitmap any more", self.record.name);
        Ok(())
    }

    fn no_bitmap_change(&self, doing: &'static str, why: String) -> ControlError {
        ControlError::Bitmap { doing, array: self.record.name.clone(), why }
    }

    /// As in md no resync or recovery goes on meanwhile: they may go by the bitmap.
    fn needs_settled(&self, doing: &'static str) -> Result<(), ControlError> {
        commands::needs_working(&self.record, doing)?;
        match commands::unsettled(&self.record) {
            Some(why) => Err(self.no_bitmap_change(doing, why)),
            None => Ok(()),
        }
    }

    // --- Another size of what it covers ---------------------------------------------------------

    /// Takes the bitmap away because the size of what it covers changes; gives its bytes for each bit. `None`: there was
    /// none, or it could not be taken away, since too many members have failed. Nothing of the array is under way.
    pub(crate) async fn take_away(&self, turn: &Share) -> Option<u32> {
        let bitmap = self.record.bitmap()?;
        self.record.roster.borrow_mut().shared.bitmap_offset = 0;
        self.record.write_superblocks(turn).await;
        if self.record.roster.borrow().broken {
            self.record.roster.borrow_mut().shared.bitmap_offset = bitmap.offset();
            return None;
        }
        self.record.engines.ask(|engine: &Engine| engine.record_by(Recorded::Resync)).await;
        self.record.current_bitmap.set(None);
        let chunk = bitmap.keeper.borrow().superblock.chunk_bytes;
        Some(chunk)
    }

    /// A bitmap over what the array is now, for [`WriteIntent::give_back`]: with `chunk` bytes for each bit or, as md does
    /// it, twice that, and so on, until it fits its room. `sync_size`: the bytes that it is to cover.
    ///
    /// # Errors
    /// No chunk fits.
    pub(crate) fn wider(
        &self,
        doing: &'static str,
        chunk: u32,
        sync_size: u64,
    ) -> Result<Rc<Bitmap>, ControlError> {
        let chunks = std::iter::successors(Some(chunk), |chunk| chunk.checked_mul(2));
        let mut error = None;
        for chunk in chunks {
            match self.new_bitmap(doing, Some(chunk.into()), sync_size) {
                Ok(bitmap) => return Ok(Rc::new(bitmap)),
                Err(why) => error = error.or(Some(why)),
            }
        }
        let none = || self.no_bitmap_change(doing, "no bitmap fits".to_string());
        Err(error.unwrap_or_else(none))
    }

    /// Gives the array another bitmap after [`WriteIntent::take_away`]. Everything from byte `from` on has to be resynced.
    ///
    /// # Errors
    /// A member did not take it: the array has none then.
    pub(crate) async fn give_back(
        self: &Rc<Self>,
        turn: &Share,
        bitmap: Rc<Bitmap>,
        from: u64,
    ) -> Result<(), ControlError> {
        if !planted("grown-part-not-in-bitmap") {
            bitmap.keeper.borrow_mut().need_from(from);
        }
        self.put(turn, bitmap).await
    }

    /// Has all members, then the superblocks, then the engines have the bitmap.
    async fn put(self: &Rc<Self>, turn: &Share, bitmap: Rc<Bitmap>) -> Result<(), ControlError> {
        let failures = self.record.write_whole_bitmap(&bitmap).await;
        if let Some((member, error)) = failures.into_iter().next() {
            let (array, member) = (self.record.name.clone(), self.record.member_name(member));
            return Err(ControlError::Io { array, doing: "writing the bitmap of", member, error });
        }
        self.record.current_bitmap.set(Some(Rc::clone(&bitmap)));
        self.record.roster.borrow_mut().shared.bitmap_offset = bitmap.offset();
        self.record.write_superblocks(turn).await;
        let recorded = Recorded::Bitmap(bitmap.nr, bitmap.keeper.borrow().shape());
        self.record.engines.ask(move |engine: &Engine| engine.record_by(recorded)).await;
        let (clearing, cleared) = (Rc::clone(self), bitmap);
        self.record.shard.spawn(async move { clearing.clear_now_and_then(cleared).await });
        self.record.changed.notify_all();
        Ok(())
    }

    /// A bitmap with all bits set over `sync_size` bytes, which no superblock speaks of yet.
    fn new_bitmap(
        &self,
        doing: &'static str,
        chunk: Option<u64>,
        sync_size: u64,
    ) -> Result<Bitmap, ControlError> {
        let refuse = |why: String| self.no_bitmap_change(doing, why);
        let chunk = chunk.map(|bytes| {
            u32::try_from(bytes).map_err(|_| {
                refuse(format!("a chunk of {bytes} bytes is too large; 2G is the most"))
            })
        });
        let chunk = chunk.transpose()?;
        let roster = self.record.roster.borrow();
        let members = roster.members.iter().filter(|member| !member.is_faulty());
        let superblocks: Vec<&Superblock> =
            members.clone().map(|member| &member.superblock).collect();
        let sync_size = sync_size.div_ceil(SECTOR_BYTES);
        let place = place_added_bitmap(&superblocks, sync_size, chunk)
            .map_err(|error| refuse(error.to_string()))?;
        let bitmap = self.bitmap_at(&place, &roster.shared);
        for member in members {
            if !bitmap.fits(&member.device.as_device(), &member.superblock) {
                return Err(refuse(format!("{} has no room for it", member.name)));
            }
        }
        Ok(bitmap)
    }

    fn bitmap_at(&self, place: &BitmapPlace, shared: &Superblock) -> Bitmap {
        let superblock = BitmapSuperblock {
            // Members that are away may lack anything: they come back as spares.
            events_cleared: shared.events.saturating_add(1),
            ..BitmapSuperblock::new(shared.bitmap_uuid(), place.sync_size, place.chunk_bytes)
        };
        let shape = Shape::new(place.chunk_bytes, superblock.bits());
        let none = clear_bits(shape.bits().into());
        let mut all = none.clone();
        for bit in 0..shape.bits() {
            all.set(bit.into());
        }
        let keeper = Keeper::new(superblock, all, none);
        self.record.current_bitmap.make(&self.record.shard, place.offset, keeper)
    }
}

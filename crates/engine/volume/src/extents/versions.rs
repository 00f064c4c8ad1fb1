//! Extents that snapshots have: of a group of extents there is the present version, and one for each snapshot for which it was saved.
//!
//! An extent belongs to one stripe of one file. All versions that name it name its first block; the present one may have been
//! cut shorter since. It is freed with the last of them.

use super::group::{ExtentGroup, FileExtents, is_same};
use super::map::{ExtentMap, Replaced};
use super::owners::Common;
use super::reservation::Reservation;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::{Extent, PER_GROUP, encode, parse};
use braid_format::volume::keys;
use braid_format::volume::snapshot::{Saved, file_of, in_snapshot, snapshot_of};
use braid_shard::plant::planted;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The extents of a group.
type List = [Extent; PER_GROUP as usize];

/// The versions of a group of extents that were saved, by the snapshot that each was saved for.
type Versions = BTreeMap<u32, List>;

const NONE: List = [Extent::HOLE; PER_GROUP as usize];

impl ExtentMap {
    /// The extents of a file's group, as they are now, that a snapshot has, too: a bit for each.
    pub(super) async fn shared_of(
        &self,
        file: &Rc<FileExtents>,
        group: u64,
        list: &List,
    ) -> Result<u64, Errno> {
        loop {
            let changes = self.snapshots.changes();
            let newest = self.snapshots.newest(file.subvolume(), file.ino());
            let Some(newest) = newest.filter(|_| file.ino() == file_of(file.ino())) else {
                return Ok(0);
            };
            let kept = self.kept_by(file.ino(), group, newest).await?;
            if self.snapshots.changes() == changes {
                let pairs = list.iter().zip(&kept).enumerate();
                let shared = pairs.filter(|(_, (now, kept))| is_same(now, kept));
                return Ok(shared.fold(0, |all, (at, _)| all | 1 << at));
            }
        }
    }

    /// The extents of a group that snapshots have of which `newest` is the last, and may be of use to the present version: as
    /// the last of them sees it that still needs it.
    async fn kept_by(&self, ino: Ino, group: u64, newest: u32) -> Result<List, Errno> {
        let key = keys::extents(ino, group);
        // The store first: see transactions/view.rs.
        let failed = |error| self.transactions.store_failed(&error);
        let now = self.transactions.store().get(&key).await.map_err(failed)?;
        let saved = self.transactions.all_saved(&key).await.map_err(failed)?;
        let value = match saved.last_key_value() {
            Some((id, _)) if *id >= newest => {
                let needed = saved.into_iter().rev().find(|(_, saved)| *saved != Saved::Gone);
                needed.and_then(|(_, saved)| saved.value())
            }
            _ => now,
        };
        self.list_of(ino, group, value)
    }

    pub(super) fn list_of(
        &self,
        ino: Ino,
        group: u64,
        value: Option<Vec<u8>>,
    ) -> Result<List, Errno> {
        let list = value.map(|bytes| parse(ino, group, self.geometry.stripe, &bytes)).transpose();
        Ok(list.map_err(|error| self.transactions.damaged(&error))?.unwrap_or(NONE))
    }

    /// The versions of a group of a file that were saved.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn versions(&self, ino: Ino, group: u64) -> Result<Versions, Errno> {
        let saved = self.transactions.all_saved(&keys::extents(ino, group)).await;
        let saved = saved.map_err(|error| self.transactions.store_failed(&error))?;
        let needed = saved.into_iter().filter(|(_, saved)| *saved != Saved::Gone);
        let lists = needed.map(|(id, saved)| Ok((id, self.list_of(ino, group, saved.value())?)));
        lists.collect()
    }

    /// The same with the one that the newest snapshot sees, also where it was not saved yet.
    async fn all_versions(&self, file: &FileExtents, group: u64) -> Result<Versions, Errno> {
        let ino = file_of(file.ino());
        let newest = self.snapshots.newest(file.subvolume(), ino);
        let Some(newest) = newest else { return self.versions(ino, group).await };
        let seen = self.seen_by(ino, group, newest).await?;
        let mut versions = self.versions(ino, group).await?;
        if let Some(seen) = seen
            && versions.last_key_value().is_none_or(|(id, _)| *id < newest)
        {
            versions.insert(newest, seen);
        }
        Ok(versions)
    }

    /// A group as the newest snapshot that sees the file does. `None`: that is being removed, and has let it go.
    async fn seen_by(&self, ino: Ino, group: u64, newest: u32) -> Result<Option<List>, Errno> {
        let key = keys::extents(ino, group);
        let failed = |error| self.transactions.store_failed(&error);
        // The store first: see transactions/view.rs.
        let now = self.transactions.store().get(&key).await.map_err(failed)?;
        let value = match self.transactions.saved_from(&key, newest).await.map_err(failed)? {
            Some((_, Saved::Gone)) => return Ok(None),
            Some((_, saved)) => saved.value(),
            None => now,
        };
        self.list_of(ino, group, value).map(Some)
    }

    /// An extent with all that any version of its stripe has of it: its length, and what is written of it. With the snapshot
    /// that sees all of that, or 0 for the file as `group` has it; `None`: there is none.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn whole_of(
        &self,
        group: &ExtentGroup,
        file: &FileExtents,
        stripe: u64,
    ) -> Result<(Extent, Option<u32>), Errno> {
        let own = group.get(stripe);
        let mut all = own;
        let versions = self.all_versions(file, group.key().1).await?;
        let ones = versions.iter().map(|(id, list)| (*id, list[(stripe % PER_GROUP) as usize]));
        let ones: Vec<(u32, Extent)> = ones.filter(|(_, one)| is_same(one, &own)).collect();
        for (_, one) in &ones {
            all.blocks = all.blocks.max(one.blocks);
            all.written |= one.written;
        }
        let own = std::iter::once((snapshot_of(file.ino()), own));
        let mut owners = own.chain(ones);
        let of = owners.find(|(_, one)| one.written == all.written && one.blocks == all.blocks);
        Ok((all, of.map(|(id, _)| id)))
    }

    /// An extent, `whole` as [`whole_of`](ExtentMap::whole_of) gives it, was copied to reserved blocks: all versions of the stripes that
    /// have it name these from now on, and the old ones are freed, which [`prepare_free`](ExtentMap::prepare_free) has seen.
    /// `owners` are these stripes, of files as they are now, or in a snapshot: one, or all that are recorded as owners of a `common`
    /// extent. `None`: it is not the extent of all of them any more.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn publish_moved(
        &self,
        owners: &[(&FileExtents, u64)],
        common: Option<&Common>,
        whole: Extent,
        reservation: &Reservation,
    ) -> Result<Option<Replaced>, Errno> {
        let inos: BTreeSet<Ino> = owners.iter().map(|(file, _)| file_of(file.ino())).collect();
        let mut _held = Vec::new();
        for ino in inos {
            _held.push(self.snapshots.versions.exclusive(ino..ino + 1).await);
        }
        // Reads of the old blocks by way of a snapshot end first, and later ones find the new blocks.
        let _shut = self.snapshots.readers.shut().await;
        let mut versions: BTreeMap<(Ino, u64), Versions> = BTreeMap::new();
        for (file, number) in owners {
            let (ino, group) = (file_of(file.ino()), number / PER_GROUP);
            let at = (number % PER_GROUP) as usize;
            if file.ino() != ino && is_same(&self.now_of(ino, group).await?[at], &whole) {
                return Ok(None);
            }
            let found = self.all_versions(file, group).await?;
            versions.insert((ino, group), found);
        }
        // From here to the end in one step.
        let has_it = |(file, number): &(&FileExtents, u64)| {
            let (ino, group) = (file_of(file.ino()), number / PER_GROUP);
            let at = (number % PER_GROUP) as usize;
            let mut saved = versions.get(&(ino, group)).into_iter().flat_map(BTreeMap::values);
            let now = self.known_groups(ino, group).into_iter();
            let mut now = now.filter(|group| group.key().0 == ino);
            saved.any(|list| is_same(&list[at], &whole))
                || now.any(|group| is_same(&group.get(*number), &whole))
        };
        if !owners.iter().all(has_it) {
            return Ok(None);
        }
        let moved = |old: Extent| {
            let Extent { start, brick, .. } = reservation.extent(0);
            Extent { start, brick, ..old }
        };
        reservation.confirm();
        self.note_republished();
        for ((ino, group), versions) in versions {
            let key = keys::extents(ino, group);
            for (id, mut list) in versions {
                let same = list.iter_mut().filter(|extent| is_same(extent, &whole));
                if same.map(|extent| *extent = moved(*extent)).count() == 0 {
                    continue;
                }
                let value = encode(&list).map_or(Saved::Absent, Saved::Value);
                self.transactions.set(keys::saved(&key, id), Some(value.encode()));
                if !planted("moved-version-not-noted") {
                    self.snapshots.note_saved(id, &key);
                }
            }
            for known in self.known_groups(ino, group) {
                let placed = known.placed().into_iter();
                for (stripe, extent) in placed.filter(|(_, extent)| is_same(extent, &whole)) {
                    known.set_moved(stripe, moved(extent));
                    if known.key().0 == ino {
                        self.note_changed(&known);
                    }
                }
            }
        }
        let new = moved(whole);
        match (common, owners) {
            (None, [(file, stripe)]) => {
                self.watches.tell(|watch| watch.extent(file.ino(), *stripe, (whole, false), new));
            }
            (None, _) => {}
            (Some(common), _) => {
                self.owners.moved(whole.place(), common, new.place());
                self.watches.tell(|watch| watch.common_moved(&whole, &new));
            }
        }
        self.free(whole);
        Ok(Some(Replaced { before: 0, after: 0 }))
    }

    /// The stripes of a version of a group with extents that no later version has, as far as is known without waiting for
    /// changes.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn own_of(&self, ino: Ino, group: u64, id: u32) -> Result<Vec<(u64, Extent)>, Errno> {
        let versions = self.versions(ino, group).await?;
        let Some(list) = versions.get(&id) else { return Ok(Vec::new()) };
        let now = self.now_of(ino, group).await?;
        let later = versions.range(id + 1..).next().map_or(now, |(_, list)| *list);
        let stripes = list.iter().zip(group.wrapping_mul(PER_GROUP)..).zip(&later);
        let own = stripes.filter(|((own, _), later)| !own.is_hole() && !is_same(own, later));
        Ok(own.map(|((own, stripe), _)| (stripe, *own)).collect())
    }

    /// The present version of a group.
    pub(super) async fn now_of(&self, ino: Ino, group: u64) -> Result<List, Errno> {
        let stored = self.transactions.stored(&keys::extents(ino, group)).await?;
        let stored = self.list_of(ino, group, stored)?;
        Ok(self.group_now(ino, group).map_or(stored, |group| group.list()))
    }

    /// A group in memory, which may have changed; that of a file that was removed since the last commit, too.
    pub(super) fn group_now(&self, ino: Ino, group: u64) -> Option<Rc<ExtentGroup>> {
        let changed = self.changed_groups((ino, group)..(ino, group.saturating_add(1)));
        let file = self.files.borrow().get(&ino).and_then(std::rc::Weak::upgrade);
        changed.into_iter().next().or_else(|| file?.known(group))
    }

    /// The groups in memory of a file, as it is now and in snapshots.
    pub(super) fn known_groups(&self, ino: Ino, group: u64) -> Vec<Rc<ExtentGroup>> {
        let files = self.files.borrow();
        let now = files.get(&ino).into_iter();
        let ids = self.snapshots.all().into_iter().map(|(id, _)| id);
        let inside = ids.filter_map(|id| files.get(&in_snapshot(ino, id)));
        let known = now.chain(inside).filter_map(|file| file.upgrade()?.known(group));
        known.collect()
    }

    /// Takes all extents out of memory, so that it is found out anew which of them snapshots have, too. Nothing may have changed
    /// since the last commit, and nobody change anything.
    pub fn release_all(&self) {
        for file in self.files.take().into_values().filter_map(|file| file.upgrade()) {
            file.release_all();
        }
        self.kept.set(0);
    }

    /// The version of a group that was saved for snapshot `id` goes: frees the extents that no other version has, and says that it
    /// is gone. Nobody changes anything meanwhile. `newest`: the last snapshot that sees the file.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn drop_version(
        &self,
        ino: Ino,
        group: u64,
        id: u32,
        newest: Option<u32>,
    ) -> Result<(), Errno> {
        let mut versions = self.versions(ino, group).await?;
        if let Some(newest) = newest.filter(|newest| *newest > id)
            && versions.range(id + 1..).next_back().is_none_or(|(last, _)| *last < newest)
        {
            // It sees the group as it was committed last, unless it is being removed as well.
            if let Some(seen) = self.seen_by(ino, group, newest).await? {
                versions.insert(newest, seen);
            }
        }
        let Some(gone) = versions.get(&id) else { return Ok(()) };
        let older = versions.range(..id).next_back().map_or(NONE, |(_, list)| *list);
        for extent in gone {
            self.prepare_free(*extent).await?;
        }
        let later = versions.range(id + 1..).next().map(|(_, list)| *list);
        let is_last = later.is_none();
        let newer = match later {
            Some(later) => later,
            None => self.now_of(ino, group).await?,
        };
        let known = self.group_now(ino, group);
        let first = group.wrapping_mul(PER_GROUP);
        let mut common = BTreeMap::new();
        for extent in gone.iter().filter(|extent| !extent.is_hole()) {
            if let Some(found) = self.owners.of(extent.place()).await? {
                common.insert(extent.place(), found.blocks);
            }
        }
        for ((gone, stripe), (older, newer)) in
            gone.iter().zip(first..).zip(older.iter().zip(&newer))
        {
            let common = common.get(&gone.place()).copied();
            self.free_version((ino, stripe, id), *gone, [*older, *newer], common);
            if is_last && is_same(gone, newer) && !is_same(gone, older) {
                known.iter().for_each(|known| known.unshare(stripe));
            }
        }
        let key = keys::saved(&keys::extents(ino, group), id);
        self.transactions.set(key, Some(Saved::Gone.encode()));
        Ok(())
    }

    /// Frees the blocks of an extent of a version that goes which no other version has; `others`: the same stripe in those
    /// next to it. Of a `common` extent so many blocks stay until it has no owner.
    pub(super) fn free_version(
        &self,
        of: (Ino, u64, u32),
        gone: Extent,
        others: [Extent; 2],
        common: Option<u16>,
    ) {
        let same = others.iter().filter(|other| is_same(other, &gone));
        let kept = same.map(|other| other.blocks).max().unwrap_or(0);
        if gone.is_hole() || kept >= gone.blocks {
            return;
        }
        self.record.snapshots_free((gone.blocks - kept).into());
        let mut freed_from = kept;
        if let Some(blocks) = common.filter(|_| kept == 0) {
            self.owners.leave(gone.place(), (of.0, of.1));
            freed_from = blocks.min(gone.blocks);
        }
        let start = gone.start + u64::from(freed_from);
        let free = Extent { start, blocks: gone.blocks - freed_from, ..gone };
        if free.is_hole() {
            return;
        }
        let ino = in_snapshot(of.0, of.2);
        self.watches.tell(|watch| watch.extent(ino, of.1, (free, false), Extent::HOLE));
        self.free(free);
    }
}

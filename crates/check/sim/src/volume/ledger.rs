//! The metadata of a volume, read from the records of its store alone, without asking the engine: every block in use
//! has one owner, every owner's blocks are in use, names and counts agree. Every commit leaves it so.

use braid_format::volume::brick_record::BrickRecord;
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::project::ProjectRecord;
use braid_format::volume::snapshot::{Saved, SnapshotRecord, SubvolumeRecord};
use braid_format::volume::volume_record::VolumeRecord;
use braid_format::volume::{extent, keys, space};
use braid_layout::buckets::Buckets;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// Pairs of a store.
pub(super) type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

/// The type nibble of directories.
const DIRECTORY: u8 = 4;
/// The root directory's number.
const ROOT: u64 = braid_filesystem::ROOT;

/// What the records say.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Blocks in use, by brick.
    pub used: BTreeMap<u16, u64>,
    /// Blocks of each data area, by brick.
    pub blocks: BTreeMap<u16, u64>,
    /// Files that are to be removed or trimmed.
    pub orphans: BTreeSet<u64>,
    /// Files in all.
    pub files: usize,
}

struct Reader<'a> {
    pairs: &'a BTreeMap<Vec<u8>, Vec<u8>>,
    ledger: Ledger,
    /// Owner of each block, by brick and block: a file and its group of extents, whose versions may share blocks.
    owners: BTreeMap<(u16, u64), (u64, u64)>,
    /// Blocks of extents that files do not have any more.
    kept: u64,
    inodes: BTreeMap<u64, InodeRecord>,
    /// Common extents: where each begins, its blocks and its owners; and the owners that were seen to have it.
    common: BTreeMap<(u16, u64), Common>,
    /// Stripes with their extents, as they are now; and those that only snapshots have, of common extents.
    present: BTreeSet<OfStripe>,
    past: BTreeSet<OfStripe>,
    /// The file, the stripe and the brick of each extent.
    places: BTreeSet<(u64, u64, u16)>,
    /// Blocks of extents, by file.
    held: BTreeMap<u64, u64>,
}

/// A stripe of a file, with its copy, and where an extent of it begins.
type OfStripe = (u64, u64, extent::Place);

/// The owner of blocks that several files may have.
const NOBODY: (u64, u64) = (0, 0);

/// A common extent as it is recorded, and the stripes that were seen to have it.
#[derive(Default)]
struct Common {
    blocks: u16,
    owners: BTreeSet<(u64, u64)>,
    seen: BTreeSet<(u64, u64)>,
}

/// Reads the records.
///
/// # Errors
/// What does not agree.
pub fn read(pairs: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Ledger, String> {
    let reader = Reader {
        pairs,
        ledger: Ledger::default(),
        owners: BTreeMap::new(),
        kept: 0,
        inodes: BTreeMap::new(),
        common: BTreeMap::new(),
        present: BTreeSet::new(),
        past: BTreeSet::new(),
        places: BTreeSet::new(),
        held: BTreeMap::new(),
    };
    reader.read()
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl<'a> Reader<'a> {
    fn all(&self, tag: u8) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.pairs
            .range(vec![tag]..keys::after(&[tag]))
            .filter(|(key, _)| key.len() > 1)
            .map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    fn read(mut self) -> Result<Ledger, String> {
        let record = self.pairs.get(keys::VOLUME).ok_or("there is no record of the volume")?;
        let volume = VolumeRecord::parse(record).map_err(text)?;
        for (key, value) in self.all(b'b') {
            let id = keys::brick_of(key).ok_or("a key of a brick that is none")?;
            let brick = BrickRecord::parse(id, value).map_err(text)?;
            self.ledger.blocks.insert(id, brick.blocks);
        }
        self.bricks(&volume)?;
        for (key, value) in self.all(b'I') {
            let ino = keys::ino_of(key).ok_or("a key of a file that is none")?;
            if ino >= volume.next_ino {
                return Err(format!("file {ino} has a number that will be given again"));
            }
            self.inodes.insert(ino, InodeRecord::parse(ino, value).map_err(text)?);
        }
        for (key, _) in self.all(b'O') {
            self.ledger.orphans.insert(keys::ino_of(key).ok_or("an orphan's key that is none")?);
        }
        self.common(volume.common)?;
        self.extents(volume.stripe)?;
        self.snapshots(&volume)?;
        self.owners_have()?;
        self.projects(volume.counted)?;
        self.blocks()?;
        self.names()?;
        self.ledger.files = self.inodes.len();
        Ok(self.ledger)
    }

    /// Placement, and what is recorded of free space, name bricks that there are.
    fn bricks(&self, volume: &VolumeRecord) -> Result<(), String> {
        let bytes = self.pairs.get(keys::BUCKETS).ok_or("there are no buckets")?;
        let placed = Buckets::from_bytes(bytes).map_err(text)?;
        let placed: Vec<u16> = placed.bricks().map(|(id, _)| id).collect();
        let space = self.all(b'A').chain(self.all(b'S'));
        let space = space.filter_map(|(key, _)| keys::brick_and_group(key)).map(|(id, _)| id);
        let mut named = placed.into_iter().chain(volume.proxy).chain(space);
        if let Some(id) = named.find(|id| !self.ledger.blocks.contains_key(id)) {
            return Err(format!("brick {id} is named, and is none of the volume's"));
        }
        match self.ledger.blocks.keys().find(|id| **id >= volume.next_brick) {
            Some(id) => Err(format!("brick {id} has a number that will be given again")),
            None => Ok(()),
        }
    }

    /// The recorded common extents; their blocks are nobody's alone.
    fn common(&mut self, may_be: bool) -> Result<(), String> {
        for (key, value) in self.all(b'E') {
            let (at, owner) = keys::owner_of(key).ok_or("a key of a common extent that is none")?;
            match owner {
                None => {
                    let blocks = keys::common_blocks(value).ok_or("a common extent is damaged")?;
                    self.common.insert(at, Common { blocks, ..Common::default() });
                    for block in at.1..at.1 + u64::from(blocks) {
                        if self.owners.insert((at.0, block), NOBODY).is_some() {
                            return Err(format!("two common extents have block {block}"));
                        }
                    }
                }
                Some(owner) => {
                    let common = self.common.get_mut(&at).ok_or("an owner of nothing")?;
                    common.owners.insert(owner);
                }
            }
        }
        let ownerless = self.common.iter().filter(|(_, common)| common.owners.is_empty());
        for (at, _) in ownerless {
            if !self.pairs.contains_key(&keys::left(*at)) {
                return Err(format!("the common extent at {at:?} is forgotten"));
            }
        }
        match may_be || self.common.is_empty() {
            true => Ok(()),
            false => Err("there are common extents, and the volume does not say so".into()),
        }
    }

    /// A stripe has this extent, in some version. True: it is a common one.
    fn see_common(
        &mut self,
        extent: &extent::Extent,
        owner: (u64, u64),
        is_now: bool,
    ) -> Result<bool, String> {
        let Some(common) = self.common.get_mut(&extent.place()).filter(|_| !extent.is_hole())
        else {
            return match extent.common {
                true if is_now => Err(format!("stripe {owner:?} has a common extent of nobody")),
                _ => Ok(false),
            };
        };
        if is_now && (!extent.common || extent.blocks != common.blocks) {
            return Err(format!(
                "stripe {owner:?} has {extent:?}, of {} common blocks",
                common.blocks
            ));
        }
        common.seen.insert(owner);
        Ok(true)
    }

    /// Those have a common extent that are recorded as its owners.
    fn owners_have(&self) -> Result<(), String> {
        match self.common.iter().find(|(_, common)| common.seen != common.owners) {
            None => Ok(()),
            Some((at, common)) => Err(format!(
                "the common extent at {at:?} is recorded for {:?}, and {:?} have it",
                common.owners, common.seen
            )),
        }
    }

    fn extents(&mut self, stripe: u64) -> Result<(), String> {
        for (key, value) in self.all(b'P') {
            let ids = (keys::ino_of(key), keys::second_of(key));
            let (Some(ino), Some(group)) = ids else {
                return Err("a key of extents that is none".to_string());
            };
            if !self.inodes.contains_key(&ino) {
                return Err(format!("file {ino} has extents and no attributes"));
            }
            let extents = extent::parse(ino, group, stripe, value).map_err(text)?;
            for (extent, number) in extents.into_iter().zip(group * extent::PER_GROUP..) {
                let place = (ino, extent::stripe_of(number), extent.brick);
                if !extent.is_hole() && !self.places.insert(place) {
                    let (ino, stripe, brick) = place;
                    return Err(format!(
                        "two copies of stripe {stripe} of file {ino} are on brick {brick}"
                    ));
                }
                if !extent.is_hole() && !self.ledger.blocks.contains_key(&extent.brick) {
                    return Err(format!(
                        "file {ino} lies on brick {}, which is none",
                        extent.brick
                    ));
                }
                *self.held.entry(ino).or_default() += u64::from(extent.blocks);
                if !extent.is_hole() {
                    self.present.insert((ino, number, extent.place()));
                }
                if self.see_common(&extent, (ino, number), true)? {
                    continue;
                }
                for block in extent.start..extent.start + u64::from(extent.blocks) {
                    let other = self.owners.insert((extent.brick, block), (ino, group));
                    if let Some((other, _)) = other {
                        let brick = extent.brick;
                        return Err(format!(
                            "block {block} of brick {brick} belongs to files {other} and {ino}"
                        ));
                    }
                }
            }
        }
        for (ino, inode) in &self.inodes {
            let held = self.held.get(ino).copied().unwrap_or(0);
            if inode.blocks != held {
                let blocks = inode.blocks;
                return Err(format!("file {ino} says {blocks} blocks and has {held}"));
            }
        }
        Ok(())
    }

    /// Saved values are of snapshots that there are, and what they have is nobody else's, but for other versions of it.
    fn snapshots(&mut self, volume: &VolumeRecord) -> Result<(), String> {
        let mut there = BTreeSet::new();
        for (key, value) in self.all(b'N') {
            let id = keys::snapshot_of(key).ok_or("a key of a snapshot that is none")?;
            let record = SnapshotRecord::parse(id, value).map_err(text)?;
            if id > volume.last_snapshot || record.next_ino > volume.next_ino {
                return Err(format!("snapshot {id} is of later: {record:?}"));
            }
            there.insert(id);
        }
        for (key, value) in self.all(b'U') {
            let id = keys::subvolume_of(key).ok_or("a key of a subvolume that is none")?;
            SubvolumeRecord::parse(id, value).map_err(text)?;
        }
        for (key, value) in self.all(b'Z') {
            let (of, id) = keys::saved_of(key).ok_or("a key of a saved value that is none")?;
            if !there.contains(&id) || !keys::is_saved(of) {
                return Err(format!("something is saved for snapshot {id}, which is none"));
            }
            let saved = Saved::parse(value).map_err(text)?;
            let (Some(value), Some((ino, group, _))) = (saved.value(), keys::saved_extents_of(key))
            else {
                continue;
            };
            let extents = extent::parse(ino, group, volume.stripe, &value).map_err(text)?;
            for (extent, number) in extents.into_iter().zip(group * extent::PER_GROUP..) {
                let mut start = extent.start;
                if self.see_common(&extent, (ino, number), false)? {
                    let blocks = self.common.get(&extent.place()).map_or(0, |common| common.blocks);
                    let blocks = u64::from(blocks.min(extent.blocks));
                    let of = (ino, number, extent.place());
                    // Each file counts what only its snapshots have, whoever else has it.
                    if !self.present.contains(&of) && self.past.insert(of) {
                        self.kept += blocks;
                    }
                    start += blocks;
                }
                for block in start..extent.start + u64::from(extent.blocks) {
                    let owner = self.owners.entry((extent.brick, block));
                    if let Entry::Vacant(_) = &owner {
                        self.kept += 1;
                    }
                    let owner = *owner.or_insert((ino, group));
                    if owner != (ino, group) {
                        let (brick, other) = (extent.brick, owner.0);
                        return Err(format!(
                            "block {block} of brick {brick} belongs to file {ino} in snapshot {id}, and to file {other}"
                        ));
                    }
                }
            }
        }
        match self.kept == volume.snapshot_blocks {
            true => Ok(()),
            false => Err(format!(
                "only snapshots have {} blocks, and it says {}",
                self.kept, volume.snapshot_blocks
            )),
        }
    }

    /// What projects are recorded to take is what their files take.
    fn projects(&self, counted: bool) -> Result<(), String> {
        let mut taken: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for inode in self.inodes.values().filter(|inode| inode.project != 0) {
            let (files, blocks) = taken.entry(inode.project).or_default();
            (*files, *blocks) = (*files + 1, *blocks + inode.blocks);
        }
        for (key, value) in self.all(b'Q') {
            let id = keys::project_of(key).ok_or("a key of a project that is none")?;
            let record = ProjectRecord::parse(id, value).map_err(text)?;
            let found = taken.remove(&id).unwrap_or_default();
            if (record.files, record.blocks) != found || !counted {
                return Err(format!("project {id} is {record:?}, and has {found:?}"));
            }
        }
        match taken.keys().next() {
            Some(id) => Err(format!("project {id} has files and no record")),
            None => Ok(()),
        }
    }

    fn blocks(&mut self) -> Result<(), String> {
        let mut used: BTreeMap<(u16, u32), u64> = BTreeMap::new();
        let mut owned = 0;
        for (key, value) in self.all(b'A') {
            let (brick, group) =
                keys::brick_and_group(key).ok_or("a key of blocks that is none")?;
            let words = space::parse_blocks(brick, group, value).map_err(text)?;
            for (nr, word) in (0_u64..).zip(words.iter()) {
                for bit in (0..64).filter(|bit| word & 1 << bit != 0) {
                    let block = u64::from(group) * space::GROUP_BLOCKS + nr * 64 + bit;
                    *used.entry((brick, group)).or_default() += 1;
                    *self.ledger.used.entry(brick).or_default() += 1;
                    if block >= self.ledger.blocks.get(&brick).copied().unwrap_or(0) {
                        return Err(format!("block {block} is in use, and not on brick {brick}"));
                    }
                    if !self.owners.contains_key(&(brick, block)) {
                        return Err(format!("block {block} of brick {brick} is lost: no file's"));
                    }
                    owned += 1;
                }
            }
        }
        if owned != self.owners.len() {
            let missing = self.owners.len() - owned;
            return Err(format!("{missing} blocks of files are not marked as in use"));
        }
        let mut counted = BTreeMap::new();
        for (key, value) in self.all(b'S') {
            let (brick, index) = keys::brick_and_group(key).ok_or("a key of usage that is none")?;
            let counts = space::parse_usage(brick, index, value).map_err(text)?;
            for (group, count) in (index * space::PER_USAGE..).zip(counts) {
                if count != 0 {
                    counted.insert((brick, group), u64::from(count));
                }
            }
        }
        if counted != used {
            return Err(format!("blocks in use are counted as {counted:?}, and are {used:?}"));
        }
        Ok(())
    }

    fn names(&mut self) -> Result<(), String> {
        let mut links: BTreeMap<u64, u32> = BTreeMap::new();
        let mut by_name = BTreeMap::new();
        for (key, value) in self.all(b'D') {
            let ids = (keys::ino_of(key), keys::name_of(key));
            let (Some(dir), Some(name)) = ids else {
                return Err("a key of a name that is none".to_string());
            };
            let entry = ByName::parse(value).map_err(text)?;
            let Some(inode) = self.inodes.get(&entry.ino) else {
                return Err(format!("a name in directory {dir} is of no file, {}", entry.ino));
            };
            if inode.kind != entry.kind {
                return Err(format!("a name of file {} says another type", entry.ino));
            }
            if inode.kind == DIRECTORY {
                *links.entry(dir).or_default() += 1;
                *links.entry(entry.ino).or_default() += 1;
                if inode.parent != dir {
                    let (ino, parent) = (entry.ino, inode.parent);
                    return Err(format!("directory {ino} is in {dir}, and says {parent}"));
                }
            } else {
                *links.entry(entry.ino).or_default() += 1;
            }
            by_name.insert((dir, entry.cookie), (entry.ino, entry.kind, name.to_vec()));
        }
        let mut by_cookie = BTreeMap::new();
        for (key, value) in self.all(b'C') {
            let ids = (keys::ino_of(key), keys::second_of(key));
            let (Some(dir), Some(cookie)) = ids else {
                return Err("a key of a cookie that is none".to_string());
            };
            let entry = ByCookie::parse(value).map_err(text)?;
            by_cookie.insert((dir, cookie), (entry.ino, entry.kind, entry.name));
        }
        if by_name != by_cookie {
            return Err("names and cookies of directories do not agree".to_string());
        }
        for (ino, inode) in &self.inodes {
            // A directory is also named by its own dot, and the root by nobody else.
            let named = links.get(ino).copied().unwrap_or(0);
            let own = u32::from(inode.kind == DIRECTORY && (named > 0 || *ino == ROOT));
            let names = named + own + u32::from(*ino == ROOT);
            if inode.nlink != names {
                return Err(format!("file {ino} says {} names and has {names}", inode.nlink));
            }
            if names == 0 && !self.ledger.orphans.contains(ino) {
                return Err(format!("file {ino} has no name and is not to be removed"));
            }
        }
        let entries = |dir| by_name.range((dir, 0)..=(dir, u64::MAX)).count() as u64;
        for (ino, inode) in self.inodes.iter().filter(|(_, inode)| inode.kind == DIRECTORY) {
            if inode.entries != entries(*ino) {
                let (says, has) = (inode.entries, entries(*ino));
                return Err(format!("directory {ino} says {says} entries and has {has}"));
            }
        }
        for (key, _) in self.all(b'X') {
            let ino = keys::ino_of(key).ok_or("a key of an attribute that is none")?;
            if !self.inodes.contains_key(&ino) {
                return Err(format!("file {ino} has extended attributes and is not there"));
            }
        }
        Ok(())
    }
}

//! Files copied off the bricks of a volume in any state, into a folder.
//!
//! The engine's `salvage` gives records and bytes; here they become files. Invariants: a file in `files/` has every byte that
//! the metadata names; nothing is written outside the folder, whatever names the metadata has.

use crate::exit::refused;
use crate::members::{Member, parse_brick};
use crate::on_shard;
use anyhow::{Context, Result, bail};
use braid_control::protocol::Code;
use braid_control::protocol::volume::ListedVolume;
use braid_device::file::Mode;
use braid_device::{OpenError, Opener};
use braid_format::brick::{BrickSuperblock, VolumeState};
use braid_format::volume::inode::{InodeRecord, Stamp};
use braid_format::volume::snapshot::{LISTING_NAME, file_of, in_snapshot, snapshot_of};
use braid_nbd::ExportUri;
use braid_shard::Shard;
use braid_volume::assemble::{FoundBrick, examine_to_save};
use braid_volume::salvage::{self, LostRange, Salvage, SnapshotOf};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Timespec, Timestamps, Uid, XattrFlags};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uuid::Uuid;

/// Bytes of the metadata that are kept in memory.
const CACHE_BYTES: usize = 64 << 20;
/// The directory at the top.
const ROOT: u64 = 1;
/// Where files go: those that are whole, those that are not, those without a name.
const WHOLE: &str = "files";
const INCOMPLETE: &str = "incomplete";
const NAMELESS: &str = "nameless";
/// Type nibbles of `st_mode`.
const DIRECTORY: u8 = 4;
const REGULAR: u8 = 8;
const LINK: u8 = 10;

/// The outcome of a salvage.
#[derive(Debug, Default, Serialize)]
pub struct Outcome {
    /// The volume's name.
    pub name: String,
    /// Files that are whole, directories and others not counted.
    pub files: usize,
    /// Bytes of these.
    pub bytes: u64,
    /// Files of which something is lost, may be old, or is not as it was written.
    pub incomplete: usize,
    /// Files whose names are lost, whole or not.
    pub nameless: usize,
    /// Snapshots that were copied, too; their files are among those that are counted.
    pub snapshots: usize,
    /// Lost parts, with the reason: one sentence each.
    pub lost: Vec<String>,
    /// Of the incomplete files those with bytes that are not what was written, as their checksums say.
    pub rotten: Vec<Rotten>,
    /// Notes for the user: one sentence each.
    pub notes: Vec<String>,
}

/// A file that was copied with bytes that are not what was written.
#[derive(Debug, Serialize)]
pub struct Rotten {
    /// Its place, as [`Outcome::lost`] names it.
    pub file: String,
    /// First byte and number of bytes of each part.
    pub ranges: Vec<(u64, u64)>,
}

/// Copies all that can be had from these bricks to the folder `into`, which is made or must be empty; also what snapshots show,
/// with `snapshots`. `mounted` are the volumes that are known to be mounted.
///
/// # Errors
/// When the volume is mounted, no copy of the metadata can be opened, or the folder cannot be written to.
pub fn salvage(
    bricks: &[String],
    into: &Path,
    snapshots: bool,
    mounted: &[ListedVolume],
) -> Result<Outcome> {
    let doing = || format!("making a folder to copy to: {}", into.display());
    if into.exists() && fs::read_dir(into).with_context(doing)?.next().is_some() {
        bail!("{}: it is not empty; name a new folder (--into)", into.display());
    }
    let shards = on_shard::start_shards(1)?;
    let home = shards.remotes().first().context("one shard was started")?;
    let mut openers = Vec::new();
    let mut notes = Vec::new();
    for brick in bricks {
        match parse_brick(brick).and_then(|member| prepare(&member)) {
            Ok((opener, used)) => openers.push((brick.clone(), opener, used)),
            Err(error) => notes.push(format!("{brick} cannot be used: {error:#}")),
        }
    }
    let (into, mounted) = (into.to_path_buf(), mounted.to_vec());
    on_shard::run(home, move |shard| async move {
        let mut found: Vec<FoundBrick> = Vec::new();
        for (brick, opener, used) in openers {
            let opened = match opener.open(&shard) {
                Ok(device) => examine_to_save(&shard, device).await.map_err(anyhow::Error::from),
                Err(error) => Err(error.into()),
            };
            match opened {
                Ok(one) => {
                    refuse_used((&brick, used), &one.superblock, &mounted)?;
                    notes.extend(one.notes.iter().cloned());
                    // No lock keeps other machines from it.
                    if ExportUri::is_meant(&brick)
                        && one.superblock.volume_state == VolumeState::Mounted
                    {
                        notes.push(format!(
                            "{brick} says that the volume is mounted, on another machine perhaps, or was when its server was \
                             killed: where it is mounted, what is copied here is an old state"
                        ));
                    }
                    found.push(one);
                }
                Err(error) => notes.push(format!("{brick} cannot be used: {error:#}")),
            }
        }
        fs::create_dir_all(&into)
            .with_context(|| format!("making a folder to copy to: {}", into.display()))?;
        copy(&shard, found, (into, snapshots), notes).await
    })?
}

/// Opens a brick so that nobody writes to it meanwhile; where somebody does already, to look at it only, and why.
fn prepare(member: &Member) -> Result<(Arc<dyn Opener>, Option<OpenError>)> {
    match member.prepare(Mode::ReadOnly) {
        Ok(opener) => Ok((opener, None)),
        Err(used) => Ok((member.prepare(Mode::Examine)?, Some(used))),
    }
}

/// Refuses a brick of a volume that is mounted, or which somebody else has open: what is read of it is an old state, in which
/// nothing seems to be lost.
fn refuse_used(
    (brick, used): (&str, Option<OpenError>),
    superblock: &BrickSuperblock,
    mounted: &[ListedVolume],
) -> Result<()> {
    let name = superblock.volume_name.as_str();
    let uuid = Uuid::from_bytes(superblock.volume_uuid).to_string();
    let why = match (mounted.iter().find(|one| one.uuid == uuid), used) {
        (Some(ListedVolume { name, dir: Some(dir), .. }), _) => {
            format!("it is mounted at {dir}; `braid volume unmount {name}` first")
        }
        (Some(ListedVolume { name, .. }), _) => {
            format!("it is mounted; `braid volume unmount {name}` first")
        }
        (None, Some(used)) => format!(
            "its brick {brick} is in use, by a server with another control socket (--control) perhaps, which has the \
             volume mounted: unmount it there first: {}",
            used.why
        ),
        (None, None) => return Ok(()),
    };
    Err(refused(Code::InUse, format!("salvaging volume {name}: {why}")))
}

async fn copy(
    shard: &Shard,
    found: Vec<FoundBrick>,
    (into, snapshots): (PathBuf, bool),
    mut notes: Vec<String>,
) -> Result<Outcome> {
    let bricks = found.iter().map(|brick| usize::from(brick.superblock.brick_count)).max();
    let missing = bricks.unwrap_or(0).saturating_sub(found.len());
    let volume = salvage::open(shard, found, CACHE_BYTES).await.map_err(|error| {
        let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
        anyhow::anyhow!("{error}{notes}")
    })?;
    if missing > 0 {
        notes.push(format!("{missing} of the volume's bricks are not among these"));
    }
    notes.extend(volume.notes.iter().cloned());
    let known = volume.snapshots().await;
    let mut lost = Vec::new();
    let mut of_folders: BTreeMap<u64, Vec<SnapshotOf>> = BTreeMap::new();
    if snapshots {
        let why = known.damaged.into_iter();
        lost.extend(why.map(|why| format!("snapshots may be lost altogether: {why}")));
        for snapshot in known.found {
            of_folders.entry(snapshot.folder).or_default().push(snapshot);
        }
    } else if !known.found.is_empty() {
        let count = crate::output::count(known.found.len(), "snapshot");
        notes.push(format!("{count} not copied: --snapshots copies what they show, too"));
    }
    let taken = of_folders.values().flatten();
    let taken = taken.map(|one| (snapshot_of(one.root), one.name.clone())).collect();
    let mut copying = Copying {
        volume: &volume,
        into,
        taken,
        snapshots: of_folders,
        places: BTreeMap::new(),
        directories: Vec::new(),
        refused: None,
        outcome: Outcome { name: volume.name.clone(), notes, lost, ..Outcome::default() },
    };
    let copied = copying.all().await;
    let Copying { outcome, into, .. } = copying;
    volume.close().await;
    copied?;
    if !outcome.lost.is_empty() {
        let path = into.join("lost.txt");
        let text = outcome.lost.join("\n") + "\n";
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(outcome)
}

struct Copying<'a> {
    volume: &'a Salvage,
    into: PathBuf,
    /// The snapshots of folders that are still to be copied, by the folder.
    snapshots: BTreeMap<u64, Vec<SnapshotOf>>,
    /// The names of all of them, by their numbers.
    taken: BTreeMap<u32, String>,
    /// Where each file is, that was seen; nowhere if it could not be copied.
    places: BTreeMap<u64, Option<PathBuf>>,
    /// Their attributes come last: what is made in them changes their times.
    directories: Vec<(PathBuf, InodeRecord)>,
    /// The first attribute that the folder's file system did not take, and how many.
    refused: Option<(String, usize)>,
    outcome: Outcome,
}

impl Copying<'_> {
    async fn all(&mut self) -> Result<()> {
        self.tree((ROOT, DIRECTORY), PathBuf::from(WHOLE)).await?;
        let all = self.volume.inodes().await;
        for why in all.damaged {
            self.lost(format!("files may be lost altogether: {why}"));
        }
        self.nameless(all.found.into_iter().collect(), Path::new(NAMELESS)).await?;
        // Those of folders that are lost.
        for snapshot in std::mem::take(&mut self.snapshots).into_values().flatten() {
            let folder = PathBuf::from(NAMELESS).join(snapshot.folder.to_string());
            self.lost(format!("{}: the folder of a snapshot is lost", folder.display()));
            self.tree((snapshot.root, DIRECTORY), place_of(&snapshot, &folder)).await?;
            self.outcome.snapshots += 1;
        }
        if !self.taken.is_empty() {
            self.nameless_of_snapshots().await?;
        }
        for (path, record) in std::mem::take(&mut self.directories).into_iter().rev() {
            self.set_attributes(&path, &record);
        }
        if let Some((first, count)) = self.refused.take() {
            self.outcome.notes.push(format!(
                "attributes could not be set on {count} files and directories: {first}"
            ));
        }
        Ok(())
    }

    /// Those of these files that were not met by a name go to a folder, by their numbers.
    async fn nameless(&mut self, all: BTreeSet<u64>, folder: &Path) -> Result<()> {
        // Directories first, those above before those below where that can be told.
        let mut rest = all;
        rest.retain(|ino| !self.places.contains_key(ino));
        let mut of_directories = Vec::new();
        for ino in &rest {
            if let Ok(Some(record)) = self.volume.inode(*ino).await
                && record.kind == DIRECTORY
            {
                let above = in_snapshot(record.parent, snapshot_of(*ino));
                of_directories.push((rest.contains(&above), *ino));
            }
        }
        of_directories.sort_unstable();
        for ino in of_directories.into_iter().map(|(_, ino)| ino).chain(rest.iter().copied()) {
            if self.places.contains_key(&ino) {
                continue;
            }
            if let Ok(Some(record)) = self.volume.inode(ino).await
                && record.nlink == 0
            {
                // It was removed while somebody had it open.
                continue;
            }
            let before = (self.outcome.files, self.outcome.incomplete);
            let place = folder.join(file_of(ino).to_string());
            self.lost(format!("{}: its name is lost", place.display()));
            // Its record says what it is.
            self.tree((ino, 0), place).await?;
            let (files, incomplete) = before;
            self.outcome.nameless +=
                self.outcome.files - files + self.outcome.incomplete - incomplete;
        }
        Ok(())
    }

    /// The same for what only snapshots have of files: each once, as the last snapshot shows it that was taken before it changed.
    async fn nameless_of_snapshots(&mut self) -> Result<()> {
        let all = self.volume.saved_inodes().await;
        for why in all.damaged {
            self.lost(format!("files of snapshots may be lost altogether: {why}"));
        }
        let mut of_snapshots: BTreeMap<u32, BTreeSet<u64>> = BTreeMap::new();
        for ino in all.found {
            of_snapshots.entry(snapshot_of(ino)).or_default().insert(ino);
        }
        for (id, files) in of_snapshots {
            let Some(name) = self.taken.get(&id) else { continue };
            let folder = Path::new(NAMELESS).join(OsStr::from_bytes(LISTING_NAME)).join(name);
            self.nameless(files, &folder).await?;
        }
        Ok(())
    }

    fn lost(&mut self, what: String) {
        self.outcome.lost.push(what);
    }

    /// A file, or a directory with all that is below it; with the type that its name tells.
    async fn tree(&mut self, (ino, kind): (u64, u8), place: PathBuf) -> Result<()> {
        let mut ahead = vec![(ino, kind, place)];
        while let Some((ino, kind, place)) = ahead.pop() {
            let told = place.display().to_string();
            let record = match self.volume.inode(ino).await {
                Ok(record) => record.ok_or_else(|| "its attributes are not there".to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = &record {
                self.lost(format!("{told}: {why}"));
            }
            let kind = record.as_ref().map_or(kind, |record| record.kind);
            let done = match record {
                record if kind == DIRECTORY => {
                    if self.places.contains_key(&ino) {
                        self.lost(format!("{told}: this directory has another name already"));
                        continue;
                    }
                    self.places.insert(ino, Some(place.clone()));
                    if let Ok(record) = record {
                        self.directories.push((self.into.join(&place), record));
                    }
                    self.entries(ino, &place, &mut ahead).await
                }
                Ok(record) => self.one(ino, &record, &place).await,
                Err(_) => {
                    self.places.entry(ino).or_insert(None);
                    continue;
                }
            };
            match done {
                Err(error) if is_full(&error) => return Err(error),
                Err(error) => {
                    self.lost(format!("{told}: {error:#}"));
                    self.places.entry(ino).or_insert(None);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Makes a directory, and puts what is in it into `ahead`.
    async fn entries(
        &mut self,
        ino: u64,
        place: &Path,
        ahead: &mut Vec<(u64, u8, PathBuf)>,
    ) -> Result<()> {
        let path = self.into.join(place);
        made(&path, fs::create_dir_all(&path))?;
        for snapshot in self.snapshots.remove(&ino).into_iter().flatten() {
            ahead.push((snapshot.root, DIRECTORY, place_of(&snapshot, place)));
            self.outcome.snapshots += 1;
        }
        let entries = self.volume.entries(ino).await;
        for why in entries.damaged {
            self.lost(format!("{}: names in it are lost: {why}", place.display()));
        }
        for (name, entry) in entries.found {
            let unusable = matches!(&name[..], b"" | b"." | b"..")
                || name.iter().any(|byte| matches!(byte, b'/' | 0))
                || name.len() > 255;
            // It comes again among the nameless.
            if !unusable {
                ahead.push((entry.ino, entry.kind, place.join(OsStr::from_bytes(&name))));
            }
        }
        Ok(())
    }

    /// Anything but a directory.
    async fn one(&mut self, ino: u64, record: &InodeRecord, place: &Path) -> Result<()> {
        let path = self.into.join(place);
        let known = self.places.get(&ino).cloned();
        if let Some(known) = known {
            // Another name of one that was copied, or could not be.
            if let Some(known) = known {
                let whole = !known.starts_with(INCOMPLETE);
                let wanted = if whole { place.to_path_buf() } else { beside(place) };
                let wanted = self.into.join(wanted);
                made_above(&wanted)?;
                made(&wanted, fs::hard_link(self.into.join(known), &wanted))?;
            }
            return Ok(());
        }
        made_above(&path)?;
        let mut at = place.to_path_buf();
        match record.kind {
            REGULAR => match self.content(ino, record, place).await? {
                Some(place) => at = place,
                None => {
                    self.places.insert(ino, None);
                    return Ok(());
                }
            },
            LINK => made(&path, symlink(OsStr::from_bytes(&record.target), &path))?,
            kind => {
                let kind = FileType::from_raw_mode(u32::from(kind) << 12);
                let mode = rustix::fs::Mode::from_raw_mode(u32::from(record.perm));
                let node = rustix::fs::mknodat(CWD, &path, kind, mode, record.rdev.into());
                if let Err(error) = node {
                    self.lost(format!("{}: a special file: {error}", place.display()));
                    self.places.insert(ino, None);
                    return Ok(());
                }
            }
        }
        let attributes = self.volume.attributes(ino).await;
        for why in attributes.damaged {
            self.lost(format!("{}: extended attributes are lost: {why}", at.display()));
        }
        let path = self.into.join(&at);
        for (name, value) in attributes.found {
            let name = OsStr::from_bytes(&name);
            if let Err(error) = rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty()) {
                self.refuse(&path, &error);
            }
        }
        self.set_attributes(&path, record);
        self.places.insert(ino, Some(at));
        Ok(())
    }

    /// A file's bytes; gives where they are, if they could be copied at all.
    async fn content(
        &mut self,
        ino: u64,
        record: &InodeRecord,
        place: &Path,
    ) -> Result<Option<PathBuf>> {
        let path = self.into.join(place);
        let file = made(&path, File::create_new(&path))?;
        if let Err(error) = file.set_len(record.size) {
            let size = record.size;
            self.lost(format!("{}: a size of {size} bytes: {error}", place.display()));
            made(&path, fs::remove_file(&path))?;
            return Ok(None);
        }
        let mut failed = None;
        let lost = self
            .volume
            .read(ino, record.size, |at, bytes| match file.write_all_at(bytes, at) {
                Ok(()) => true,
                Err(error) => {
                    failed = Some(error);
                    false
                }
            })
            .await;
        if let Some(error) = failed {
            return Err(error).with_context(|| format!("writing {}", path.display()));
        }
        if lost.is_empty() {
            self.outcome.files += 1;
            self.outcome.bytes += record.size;
            return Ok(Some(place.to_path_buf()));
        }
        self.outcome.incomplete += 1;
        let mut rotten = Vec::new();
        for LostRange { bytes, why, is_rotten } in lost {
            let (from, count) = (bytes.start, bytes.end - bytes.start);
            self.lost(format!("{}: bytes {from}+{count}: {why}", place.display()));
            rotten.extend(is_rotten.then_some((from, count)));
        }
        if !rotten.is_empty() {
            let file = place.display().to_string();
            self.outcome.rotten.push(Rotten { file, ranges: rotten });
        }
        let apart = beside(place);
        let wanted = self.into.join(&apart);
        made_above(&wanted)?;
        made(&wanted, fs::rename(&path, &wanted))?;
        Ok(Some(apart))
    }

    fn set_attributes(&mut self, path: &Path, record: &InodeRecord) {
        let time = |stamp: Stamp| Timespec { tv_sec: stamp.seconds, tv_nsec: stamp.nanos.into() };
        let times =
            Timestamps { last_access: time(record.atime), last_modification: time(record.mtime) };
        let (owner, group) = (Uid::from_raw(record.uid), Gid::from_raw(record.gid));
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let mut set = rustix::fs::chownat(CWD, path, Some(owner), Some(group), nofollow);
        if record.kind != LINK {
            // After the owner, whose change takes bits away.
            let mode = Permissions::from_mode(u32::from(record.perm) & 0o7777);
            let mode = fs::set_permissions(path, mode);
            set = set.and(mode.map_err(|error| {
                rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
            }));
        }
        if let Err(error) = set.and(rustix::fs::utimensat(CWD, path, &times, nofollow)) {
            self.refuse(path, &error);
        }
    }

    fn refuse(&mut self, path: &Path, error: &rustix::io::Errno) {
        let first = || (format!("{}: {error}", path.display()), 0);
        self.refused.get_or_insert_with(first).1 += 1;
    }
}

/// The place of what a snapshot shows, by that of its folder: where it is when the volume is mounted.
fn place_of(snapshot: &SnapshotOf, folder: &Path) -> PathBuf {
    folder.join(OsStr::from_bytes(LISTING_NAME)).join(&snapshot.name)
}

/// The place of one that is not whole.
fn beside(place: &Path) -> PathBuf {
    Path::new(INCOMPLETE).join(place)
}

/// The folder can take nothing more, so that going on would lose one file after the other.
fn is_full(error: &anyhow::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(StorageFull | QuotaExceeded | ReadOnlyFilesystem))
}

fn made<T>(path: &Path, result: std::io::Result<T>) -> Result<T> {
    result.with_context(|| format!("writing {}", path.display()))
}

/// Makes the folder that `path` is to be in.
fn made_above(path: &Path) -> Result<()> {
    match path.parent() {
        Some(above) => made(above, fs::create_dir_all(above)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volumes::here;
    use braid_device::Device;
    use braid_device::ram::Ram;
    use braid_filesystem::{Caller, FileSystem, Kind, NewNode, Writing};
    use braid_volume::{Volume, assemble};
    use std::rc::Rc;
    use uuid::Uuid;

    #[test]
    fn incomplete_files_keep_their_paths_and_a_full_disk_is_an_end() {
        assert_eq!(beside(Path::new("files/a/b")), Path::new("incomplete/files/a/b"));
        let full = anyhow::Error::from(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert!(is_full(&full.context("writing a file")));
        let long = std::io::Error::from(std::io::ErrorKind::InvalidFilename);
        assert!(!is_full(&anyhow::Error::from(long)));
    }

    /// A volume on this device: a file in a snapshot of it that was removed then, and one that was made later.
    async fn with_a_snapshot(shard: &Shard, device: Rc<dyn Device>) -> Result<u64> {
        let owner = Caller::default();
        let new = assemble::NewVolume {
            name: "data".to_string(),
            uuid: Uuid::from_u128(1),
            stripe: 128 << 10,
            checksums: true,
            copies: 1,
            metadata_size: None,
            owner,
            now: here::now(),
        };
        let plan = assemble::BrickPlan {
            uuid: Uuid::from_u128(2),
            weight: None,
            domain: String::new(),
            info: device.info().clone(),
        };
        let plan = assemble::plan_create(&new, &[plan])?;
        assemble::create(shard, plan, &[Rc::clone(&device)], here::clock()).await?;
        let found = vec![examine_to_save(shard, device).await?];
        let assembly = assemble::assemble(found, assemble::AssembleOptions::default())?;
        let opened = assemble::open(shard, assembly, here::clock(), CACHE_BYTES).await?;
        let volume = Volume::mount(shard, opened.mount_of()).await?;
        let file = NewNode { kind: Kind::File, perm: 0o640, umask: 0, rdev: 0, target: b"" };
        let ino = volume.make(owner, ROOT, b"a", file).await?.attr.ino;
        let buf = shard.pool().copy_of(b"what only the snapshot has").freeze();
        volume.write(ino, 0, buf, Writing::default()).await?;
        volume.take_snapshot(ROOT, "daily").await?;
        volume.unlink(ROOT, b"a").await?;
        let file = NewNode { kind: Kind::File, perm: 0o640, umask: 0, rdev: 0, target: b"" };
        volume.make(owner, ROOT, b"later", file).await?;
        volume.close().await?;
        opened.close().await?;
        Ok(ino)
    }

    #[test]
    fn what_only_a_snapshot_has_is_copied_by_its_number_where_no_name_leads_to_it() {
        let shards = on_shard::start_shards(1).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let into = folder.path().to_path_buf();
        let done = on_shard::run(shards.remotes().first().unwrap(), move |shard| async move {
            let ram = Ram::new("ram", 32 << 20);
            let ino = with_a_snapshot(&shard, ram.device()).await?;
            let found = vec![examine_to_save(&shard, ram.device()).await?];
            let volume = salvage::open(&shard, found, CACHE_BYTES).await?;
            let one = volume.snapshots().await.found.remove(0);
            let taken = BTreeMap::from([(snapshot_of(one.root), one.name)]);
            // The folder that the snapshot is of was met, and no name in it.
            let places = BTreeMap::from([(one.root, None)]);
            let mut copying = Copying {
                volume: &volume,
                into,
                taken,
                places,
                snapshots: BTreeMap::new(),
                directories: Vec::new(),
                refused: None,
                outcome: Outcome::default(),
            };
            copying.nameless_of_snapshots().await?;
            let outcome = copying.outcome;
            volume.close().await;
            Ok::<_, anyhow::Error>((ino, outcome))
        });
        let (ino, outcome) = done.unwrap().unwrap();
        let place = format!("nameless/.snapshots/daily/{ino}");
        assert_eq!(outcome.lost, [format!("{place}: its name is lost")]);
        assert_eq!((outcome.nameless, outcome.files, outcome.incomplete), (1, 1, 0));
        assert_eq!(fs::read(folder.path().join(&place)).unwrap(), b"what only the snapshot has");
    }
}

//! The metadata of a volume of many stripes, written as records.
//!
//! Invariant: `braid volume check` finds nothing wrong with it.

use anyhow::{Context, ensure};
use braid_device::Opener;
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_filesystem::{Caller, ROOT, Time};
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::extent::{Extent, PER_GROUP, encode};
use braid_format::volume::inode::{FLAG_NO_ATTRIBUTES, InodeRecord, Stamp};
use braid_format::volume::space::{GROUP_BLOCKS, PER_USAGE, WORDS, encode_blocks, encode_usage};
use braid_format::volume::volume_record::VolumeRecord;
use braid_format::volume::{BLOCK, NO_BRICK, keys};
use braid_kv::{Change, KvStore, Store};
use braid_layout::buckets::Buckets;
use braid_mirror::{Mirror, Open, Region};
use braid_shard::Shard;
use braid_volume::{Format, NewBrick, first_records};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use uuid::Uuid;

/// Bytes of a stripe.
const STRIPE: u64 = 128 << 10;
/// Stripes of a file: 1 GiB.
pub const STRIPES_OF_FILE: u64 = 8192;
/// Bricks of the volume.
pub const BRICKS: u16 = 4;
/// Bytes of a brick, and of the one that is added.
pub const BRICK: u64 = 4 << 40;
/// Bytes of the metadata region.
const REGION: u64 = 8 << 30;
/// Bytes that the database keeps in memory, as in a mount.
const CACHE: usize = 64 << 20;
/// Changes of a commit.
const BATCH: usize = 8192;
/// The type nibble of a regular file.
const FILE: u8 = 8;
/// The first number of a file.
pub const FIRST_INO: u64 = ROOT + 1;

/// The file that brick `nr` lies in.
pub fn brick_path(folder: &Path, nr: u16) -> PathBuf {
    folder.join(format!("brick-{nr}"))
}

/// Which brick it is.
pub fn brick_uuid(nr: u16) -> Uuid {
    Uuid::from_u128(u128::from(nr) + 1)
}

/// The file that the metadata lies in.
pub fn region_path(folder: &Path) -> PathBuf {
    folder.join("metadata")
}

/// Opens the store in `path`.
///
/// # Errors
/// When it cannot be opened.
pub fn open_store(shard: &Shard, path: &Path, how: Open) -> anyhow::Result<KvStore> {
    let device = FileMember::open(path, Mode::ReadWrite)?.open(shard)?;
    let size = device.info().size;
    let region = Region::new(device, 0, size).context("opening the region")?;
    let home = shard.clone();
    let mirror = shard.block_on(async move { Mirror::open(&home, vec![region], how).await })?;
    Ok(shard.block_on(KvStore::open(shard, mirror, CACHE))?)
}

/// Makes the bricks, and the metadata of a volume with so many stripes.
///
/// # Errors
/// When a file cannot be made or written.
pub fn make(folder: &Path, stripes: u64) -> anyhow::Result<()> {
    for nr in 0..=BRICKS {
        create_sparse(brick_path(folder, nr), BRICK).context("making a brick")?;
    }
    let path = region_path(folder);
    create_sparse(&path, REGION).context("making the metadata region")?;
    let shard = Shard::with_ring(0).context("starting a shard")?;
    let store = open_store(&shard, &path, Open::Create)?;
    let mut maker = Maker { shard: shard.clone(), store: store.clone(), batch: Vec::new() };
    maker.all(stripes)?;
    shard.block_on(store.stop())?;
    drop((maker, store));
    // The region is closed with what the shard still holds.
    shard.abandon();
    Ok(())
}

struct Maker {
    shard: Shard,
    store: KvStore,
    batch: Vec<Change>,
}

impl Maker {
    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> anyhow::Result<()> {
        self.batch.push((key, value));
        if self.batch.len() >= BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        Ok(self.shard.block_on(self.store.commit(batch))?)
    }

    fn all(&mut self, stripes: u64) -> anyhow::Result<()> {
        let brick = |nr| NewBrick {
            uuid: brick_uuid(nr),
            weight: BRICK,
            blocks: BRICK / BLOCK,
            domain: String::new(),
        };
        let bricks: Vec<NewBrick> = (0..BRICKS).map(brick).collect();
        let owner = Caller { uid: 0, gid: 0 };
        let format = Format { stripe: STRIPE, checksums: false, copies: 1 };
        let records = first_records(Uuid::from_u128(99), format, &bricks, owner, Time::default())?;
        let files = stripes.div_ceil(STRIPES_OF_FILE);
        for (key, value) in records {
            let value = value.context("a first record is empty")?;
            self.put(key.clone(), Some(with_files(&key, value, files)?))?;
        }
        let weights: Vec<(u16, u64)> = (0..BRICKS).map(|nr| (nr, BRICK)).collect();
        let buckets = Buckets::new(&weights)?;
        let mut next = [0; BRICKS as usize];
        let mut left = stripes;
        for file in 0..files {
            let some = left.min(STRIPES_OF_FILE);
            left -= some;
            self.file(FIRST_INO + file, some, &buckets, &mut next)?;
        }
        for (nr, used) in (0..).zip(next) {
            self.space(nr, used)?;
        }
        self.flush()
    }

    /// A file of so many stripes; `next`: the first free block of each brick.
    fn file(
        &mut self,
        ino: u64,
        stripes: u64,
        buckets: &Buckets,
        next: &mut [u64],
    ) -> anyhow::Result<()> {
        let (per, name) = (STRIPE / BLOCK, format!("file-{ino}").into_bytes());
        let cookie = cookie_of(ino);
        let record = InodeRecord {
            kind: FILE,
            perm: 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            flags: FLAG_NO_ATTRIBUTES,
            size: stripes * STRIPE,
            blocks: stripes * per,
            generation: 0,
            atime: Stamp::default(),
            mtime: Stamp::default(),
            ctime: Stamp::default(),
            crtime: Stamp::default(),
            parent: 0,
            next_cookie: 0,
            entries: 0,
            brick: NO_BRICK,
            project: 0,
            copies: 1,
            held: 1,
            subvolume: 0,
            target: Vec::new(),
        };
        self.put(keys::inode(ino), Some(record.encode()))?;
        self.put(keys::name(ROOT, &name), Some(ByName { ino, cookie, kind: FILE }.encode()))?;
        let by_cookie = ByCookie { ino, kind: FILE, name };
        self.put(keys::cookie(ROOT, cookie), Some(by_cookie.encode()))?;
        for group in 0..stripes.div_ceil(PER_GROUP) {
            let some = group * PER_GROUP..stripes.min((group + 1) * PER_GROUP);
            let mut list = Vec::with_capacity(PER_GROUP as usize);
            for stripe in some {
                let brick = buckets.brick_of(ino, stripe);
                let next = next.get_mut(usize::from(brick)).context("no such brick")?;
                list.push(Extent {
                    start: *next,
                    written: u32::MAX,
                    blocks: per as u16,
                    brick,
                    common: false,
                });
                *next += per;
            }
            self.put(keys::extents(ino, group), encode(&list))?;
        }
        Ok(())
    }

    /// The first `used` blocks of a brick are in use.
    fn space(&mut self, nr: u16, used: u64) -> anyhow::Result<()> {
        ensure!(used * BLOCK <= BRICK, "brick {nr} is too small for {used} blocks");
        let groups = used.div_ceil(GROUP_BLOCKS);
        let of = |group: u64| (used - group * GROUP_BLOCKS).min(GROUP_BLOCKS);
        for group in 0..groups {
            let mut words = Box::new([0u64; WORDS]);
            for (word, first) in words.iter_mut().zip((0..).step_by(64)) {
                let bits = of(group).saturating_sub(first).min(64);
                *word = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
            }
            self.put(keys::blocks(nr, group as u32), encode_blocks(&words))?;
        }
        let counts: Vec<u16> = (0..groups).map(|group| of(group) as u16).collect();
        for (index, counts) in (0..).zip(counts.chunks(PER_USAGE as usize)) {
            self.put(keys::usage(nr, index), encode_usage(counts))?;
        }
        Ok(())
    }
}

/// The place of a file in the root directory's order of reading.
fn cookie_of(ino: u64) -> u64 {
    (1 << 62) - 1 - (ino - FIRST_INO)
}

/// A first record of a volume, as it is when there are so many files in the root directory.
fn with_files(key: &[u8], value: Vec<u8>, files: u64) -> anyhow::Result<Vec<u8>> {
    if key == keys::VOLUME {
        let record = VolumeRecord::parse(&value)?;
        return Ok(VolumeRecord { next_ino: FIRST_INO + files, ..record }.encode());
    }
    if key == keys::inode(ROOT) {
        let record = InodeRecord::parse(ROOT, &value)?;
        return Ok(InodeRecord { next_cookie: files + 1, entries: files, ..record }.encode());
    }
    Ok(value)
}

/// The devices of some bricks.
///
/// # Errors
/// When one cannot be opened.
pub fn open_bricks(
    shard: &Shard,
    folder: &Path,
    numbers: std::ops::Range<u16>,
) -> anyhow::Result<Vec<(Uuid, Rc<dyn braid_device::Device>)>> {
    let open = |nr| {
        let device = FileMember::open(brick_path(folder, nr), Mode::ReadWrite)?.open(shard)?;
        anyhow::Ok((brick_uuid(nr), device))
    };
    numbers.map(open).collect()
}

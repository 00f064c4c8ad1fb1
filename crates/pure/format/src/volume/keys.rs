//! The keys of the metadata store.

use super::extent::Place;

/// The key of the volume's record.
pub const VOLUME: &[u8] = b"V";
/// The key of the table of buckets.
pub const BUCKETS: &[u8] = b"B";
/// The key of a further row of that table: the bricks of copy `row`, from 1 on.
pub fn buckets_row(row: usize) -> Vec<u8> {
    // There are at most as many rows as a stripe can have copies.
    key(b'B', &[row as u8], &[])
}

/// The key of the job in progress.
pub const JOB: &[u8] = b"J";
/// The key of the check in progress.
pub const CHECK: &[u8] = b"K";

fn key(tag: u8, first: &[u8], second: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + first.len() + second.len());
    key.push(tag);
    key.extend_from_slice(first);
    key.extend_from_slice(second);
    key
}

/// The first key after all that begin with `prefix`.
pub fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// The key of a brick's record.
pub fn brick(id: u16) -> Vec<u8> {
    key(b'b', &id.to_be_bytes(), &[])
}

/// The key of a file's attributes.
pub fn inode(ino: u64) -> Vec<u8> {
    key(b'I', &ino.to_be_bytes(), &[])
}

/// The key of a directory entry, by its name.
pub fn name(directory: u64, name: &[u8]) -> Vec<u8> {
    key(b'D', &directory.to_be_bytes(), name)
}

/// The key of a directory entry, by its cookie.
pub fn cookie(directory: u64, cookie: u64) -> Vec<u8> {
    key(b'C', &directory.to_be_bytes(), &cookie.to_be_bytes())
}

/// The key of the extents of stripes `group * 64` to `group * 64 + 63`.
pub fn extents(ino: u64, group: u64) -> Vec<u8> {
    key(b'P', &ino.to_be_bytes(), &group.to_be_bytes())
}

/// The key of the checksums of a file's blocks `window * 256` to `window * 256 + 255`.
pub fn sums(ino: u64, window: u64) -> Vec<u8> {
    key(b'H', &ino.to_be_bytes(), &window.to_be_bytes())
}

/// The key that marks windows `region * 256` to `region * 256 + 255` of a file as being written over in place.
pub fn intent(ino: u64, region: u64) -> Vec<u8> {
    key(b'W', &ino.to_be_bytes(), &region.to_be_bytes())
}

/// The key of an extended attribute.
pub fn xattr(ino: u64, name: &[u8]) -> Vec<u8> {
    key(b'X', &ino.to_be_bytes(), name)
}

/// The key that marks a file as to be trimmed or removed.
pub fn orphan(ino: u64) -> Vec<u8> {
    key(b'O', &ino.to_be_bytes(), &[])
}

/// The key of the bitmap of one group of a brick's blocks.
pub fn blocks(brick: u16, group: u32) -> Vec<u8> {
    key(b'A', &brick.to_be_bytes(), &group.to_be_bytes())
}

/// The key of the counts of blocks in use in groups `index * 1024` to `index * 1024 + 1023` of a brick.
pub fn usage(brick: u16, index: u32) -> Vec<u8> {
    key(b'S', &brick.to_be_bytes(), &index.to_be_bytes())
}

/// The key of a project.
pub fn project(id: u32) -> Vec<u8> {
    key(b'Q', &id.to_be_bytes(), &[])
}

/// The project of a project's key.
pub fn project_of(key: &[u8]) -> Option<u32> {
    let id = key.strip_prefix(b"Q")?;
    Some(u32::from_be_bytes(id.try_into().ok()?))
}

/// The key of a snapshot.
pub fn snapshot(id: u32) -> Vec<u8> {
    key(b'N', &id.to_be_bytes(), &[])
}

/// The snapshot of a snapshot's key.
pub fn snapshot_of(key: &[u8]) -> Option<u32> {
    let id = key.strip_prefix(b"N")?;
    Some(u32::from_be_bytes(id.try_into().ok()?))
}

/// The key of a subvolume.
pub fn subvolume(id: u16) -> Vec<u8> {
    key(b'U', &id.to_be_bytes(), &[])
}

/// The subvolume of a subvolume's key.
pub fn subvolume_of(key: &[u8]) -> Option<u16> {
    let id = key.strip_prefix(b"U")?;
    Some(u16::from_be_bytes(id.try_into().ok()?))
}

fn place(tag: u8, (brick, start): Place) -> Vec<u8> {
    key(tag, &brick.to_be_bytes(), &start.to_be_bytes())
}

/// The key of a common extent; its value is the number of its blocks, as [`common_value`] makes it.
pub fn common(at: Place) -> Vec<u8> {
    place(b'E', at)
}

/// The value of a common extent of `blocks` blocks.
pub fn common_value(blocks: u16) -> Vec<u8> {
    blocks.to_le_bytes().to_vec()
}

/// The blocks of a common extent, from its value; `None`: that is damaged.
pub fn common_blocks(value: &[u8]) -> Option<u16> {
    value.try_into().ok().map(u16::from_le_bytes)
}

/// The key that makes a stripe of a file, whose number has its copy, an owner of a common extent; its value is one octet 1.
pub fn owner(at: Place, (ino, number): (u64, u64)) -> Vec<u8> {
    let mut bytes = common(at);
    bytes.extend_from_slice(&ino.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes
}

/// The place, and the owner, of the key of a common extent or of an owner of one.
pub fn owner_of(key: &[u8]) -> Option<(Place, Option<(u64, u64)>)> {
    let rest = key.strip_prefix(b"E")?;
    let (at, owner) = rest.split_at_checked(10)?;
    let at = place_of(at)?;
    match owner.len() {
        0 => Some((at, None)),
        16 => Some((at, Some((number(owner, 0)?, number(owner, 8)?)))),
        _ => None,
    }
}

/// The key that says that an owner has left a common extent, so that it may have none any more; its value is one octet 1.
pub fn left(at: Place) -> Vec<u8> {
    place(b'F', at)
}

/// The place of such a key.
pub fn left_of(key: &[u8]) -> Option<Place> {
    place_of(key.strip_prefix(b"F")?)
}

fn place_of(bytes: &[u8]) -> Option<Place> {
    let (brick, start) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*brick), u64::from_be_bytes(start.try_into().ok()?)))
}

/// The key of the value that the record under `of` had before it changed, for snapshot `id`. Names have no zeros, and all other
/// keys of a kind are of one length: so these are in the order of the keys that they are about, and then of the snapshots.
pub fn saved(of: &[u8], id: u32) -> Vec<u8> {
    let mut bytes = key(b'Z', of, &[0]);
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes
}

/// The key and the snapshot that the key of a saved value is about.
pub fn saved_of(key: &[u8]) -> Option<(&[u8], u32)> {
    let (of, [0, id @ ..]) = key.strip_prefix(b"Z")?.split_last_chunk::<5>()? else { return None };
    Some((of, u32::from_be_bytes(*id)))
}

/// All saved groups of extents begin with this.
pub const SAVED_EXTENTS: &[u8] = b"ZP";

/// The file, the group and the snapshot of the key of a saved group of extents.
pub fn saved_extents_of(key: &[u8]) -> Option<(u64, u64, u32)> {
    let (of, id) = saved_of(key).filter(|(of, _)| of.first() == Some(&b'P'))?;
    Some((ino_of(of)?, second_of(of)?, id))
}

/// True for the keys whose values are saved for snapshots before they change: those of files, their names, attributes, extents
/// and checksums.
pub fn is_saved(key: &[u8]) -> bool {
    matches!(key.first(), Some(b'I' | b'D' | b'C' | b'P' | b'H' | b'X'))
}

/// The same key, of file `ino`. For keys that are about a file.
pub fn with_ino(key: &[u8], ino: u64) -> Vec<u8> {
    let mut bytes = key.to_vec();
    if let Some(place) = bytes.get_mut(1..9) {
        place.copy_from_slice(&ino.to_be_bytes());
    }
    bytes
}

fn number(key: &[u8], at: usize) -> Option<u64> {
    let bytes = key.get(at..at + 8)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// The number of the file that a key is about; `None` for keys that are not about one.
pub fn ino_of(key: &[u8]) -> Option<u64> {
    matches!(key.first(), Some(b'I' | b'O' | b'P' | b'H' | b'W' | b'D' | b'C' | b'X'))
        .then(|| number(key, 1))?
}

/// The second number of a key of extents, checksums, an intent or a cookie.
pub fn second_of(key: &[u8]) -> Option<u64> {
    matches!(key.first(), Some(b'P' | b'H' | b'W' | b'C')).then(|| number(key, 9))?
}

/// The name in a name or attribute key.
pub fn name_of(key: &[u8]) -> Option<&[u8]> {
    matches!(key.first(), Some(b'D' | b'X')).then(|| key.get(9..))?
}

/// The brick and the group, or index, of a key of blocks or usage.
pub fn brick_and_group(key: &[u8]) -> Option<(u16, u32)> {
    if !matches!(key.first(), Some(b'A' | b'S')) {
        return None;
    }
    let brick = u16::from_be_bytes(key.get(1..3)?.try_into().ok()?);
    let group = u32::from_be_bytes(key.get(3..7)?.try_into().ok()?);
    Some((brick, group))
}

/// The brick of a brick's key.
pub fn brick_of(key: &[u8]) -> Option<u16> {
    match key {
        [b'b', high, low] => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    }
}

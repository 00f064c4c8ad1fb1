//! The records of a volume's metadata, and their keys.
//!
//! An input is the record, or the key; in front of extents stands the stripe, as what 16 KiB are to be shifted by, and the
//! group.

use super::target::{PLAIN, Target, Verdict, head, must};
use crate::mutate::{be, le};
use braid_format::volume::RecordError;
use braid_format::volume::brick_record::BrickRecord;
use braid_format::volume::entry::{ByCookie, ByName};
use braid_format::volume::extent::{self, PER_GROUP, STRIPE_RANGE};
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::job::JobRecord;
use braid_format::volume::project::ProjectRecord;
use braid_format::volume::snapshot::{self, Saved, SnapshotRecord, SubvolumeRecord};
use braid_format::volume::space::{self, GROUP_BLOCKS};
use braid_format::volume::sums;
use braid_format::volume::volume_record::VolumeRecord;
use braid_format::volume::{BLOCK, keys};

/// Attributes of a file.
pub const INODE: Target = Target {
    name: "inode",
    what: "attributes of a file of a volume",
    fields: &[
        le(0, 1),
        le(1, 1),
        le(2, 2),
        le(12, 4),
        le(20, 4),
        le(24, 8),
        le(32, 8),
        le(48, 8),
        le(80, 4),
        le(96, 8),
        le(104, 8),
        le(112, 8),
        le(120, 2),
    ],
    run: |input| {
        read_back(
            input,
            |bytes| InodeRecord::parse(5, bytes),
            InodeRecord::encode,
            |record| {
                must(
                    record.atime.nanos < 1_000_000_000,
                    "a time has less than a second of nanoseconds",
                )
            },
        )
    },
    ..PLAIN
};

/// Where the stripes of a file lie.
pub const PLACES: Target = Target {
    name: "extents",
    what: "extents of the stripes of a file",
    fields: &[le(0, 1), le(1, 8), le(9, 8), le(17, 4), le(21, 2), le(23, 2), le(37, 2), le(53, 2)],
    run: extents,
    ..PLAIN
};

/// A directory's entry, by name.
pub const ENTRY_BY_NAME: Target = Target {
    name: "entry-by-name",
    what: "entry of a directory, as it is looked up",
    fields: &[le(0, 8), le(8, 8), le(16, 1)],
    run: |input| {
        read_back(input, ByName::parse, ByName::encode, |entry| {
            must(entry.ino != 0 && entry.cookie != 0, "numbers are not 0")
        })
    },
    ..PLAIN
};

/// A directory's entry, by cookie.
pub const ENTRY_BY_COOKIE: Target = Target {
    name: "entry-by-cookie",
    what: "entry of a directory, as it is listed",
    fields: &[le(0, 8), le(8, 1)],
    run: |input| {
        read_back(input, ByCookie::parse, ByCookie::encode, |entry| {
            must(entry.ino != 0 && !entry.name.is_empty(), "it names a file")
        })
    },
    ..PLAIN
};

/// Which blocks are in use.
pub const BLOCKS: Target = Target {
    name: "blocks",
    what: "blocks of a brick that are in use",
    run: |input| {
        let parsed = space::parse_blocks(1, 2, input);
        read_back_as(parsed, |words| {
            let written = space::encode_blocks(words);
            let used = words.iter().any(|word| *word != 0);
            must(written.is_some() == used, "there is a record where blocks are in use")?;
            must(written.is_none_or(|bytes| bytes == input), "what is written is what was read")
        })
    },
    ..PLAIN
};

/// How many are.
pub const USAGE: Target = Target {
    name: "usage",
    what: "how many blocks of a brick are in use",
    fields: &[le(0, 2), le(2, 2), le(4, 2)],
    run: |input| {
        let parsed = space::parse_usage(1, 2, input);
        read_back_as(parsed, |used| {
            let most = used.iter().all(|used| u64::from(*used) <= GROUP_BLOCKS);
            must(most, "a group has no more blocks in use than it has")?;
            let Some(bytes) = space::encode_usage(used) else {
                return must(used.iter().all(|used| *used == 0), "only what is 0 has no record");
            };
            let again = space::parse_usage(1, 2, &bytes);
            let same = |again: Vec<u16>| used.starts_with(&again);
            must(again.is_ok_and(same), "what is written is read back")
        })
    },
    ..PLAIN
};

/// The checksums of a file's blocks.
pub const SUMS: Target = Target {
    name: "sums",
    what: "checksums of 256 blocks of a file",
    fields: &[le(0, 4), le(4, 4), le(8, 4)],
    run: |input| {
        let parsed = sums::parse(1, 2, input);
        read_back_as(parsed, |known| {
            must(known.len() as u64 <= sums::PER_WINDOW, "a window has no more blocks")?;
            let Some(bytes) = sums::encode(known) else {
                let none = known.iter().all(|sum| *sum == sums::UNKNOWN);
                return must(none, "only what is not known has no record");
            };
            let again = sums::parse(1, 2, &bytes);
            let same = |again: Vec<u32>| known.starts_with(&again);
            must(again.is_ok_and(same), "what is written is read back")
        })
    },
    ..PLAIN
};

/// The mark of a region of a file.
pub const MARK: Target = Target {
    name: "mark",
    what: "mark of a region that is being written over, or has copies that miss something",
    fields: &[le(0, 1), le(1, 2), le(3, 2)],
    run: |input| {
        read_back_as(sums::IntentRecord::parse(1, 2, input), |mark| {
            let Some(bytes) = mark.encode() else {
                let none = !mark.written_over && mark.stale.is_empty();
                return must(none, "only a mark that says nothing has no record");
            };
            let again = sums::IntentRecord::parse(1, 2, &bytes);
            must(again.as_ref() == Ok(mark), "what is written is read back")
        })
    },
    ..PLAIN
};

/// A snapshot.
pub const SNAPSHOT: Target = Target {
    name: "snapshot",
    what: "snapshot of a folder of a volume",
    fields: &[le(0, 2), le(2, 1), le(4, 4), le(8, 8), le(16, 8), le(24, 1)],
    run: |input| {
        read_back(
            input,
            |bytes| SnapshotRecord::parse(7, bytes),
            SnapshotRecord::encode,
            |record| must(snapshot::is_name(&record.name), "its name can be that of a folder"),
        )
    },
    ..PLAIN
};

/// A folder of which there can be snapshots.
pub const SUBVOLUME: Target = Target {
    name: "subvolume",
    what: "folder of which there can be snapshots",
    fields: &[le(0, 8), le(8, 2), le(10, 1)],
    run: |input| {
        read_back(
            input,
            |bytes| SubvolumeRecord::parse(7, bytes),
            SubvolumeRecord::encode,
            |record| must(record.parent != 7, "it does not lie in itself"),
        )
    },
    ..PLAIN
};

/// A value that was saved for a snapshot.
pub const SAVED: Target = Target {
    name: "saved",
    what: "value that a record had before it changed",
    fields: &[le(0, 1)],
    run: |input| read_back(input, Saved::parse, |saved| saved.clone().encode(), |_| Ok(())),
    ..PLAIN
};

/// A brick.
pub const BRICK_RECORD: Target = Target {
    name: "brick-record",
    what: "brick, as a volume's metadata knows it",
    fields: &[le(16, 8), le(24, 8), le(32, 1)],
    run: |input| {
        read_back(input, |bytes| BrickRecord::parse(3, bytes), BrickRecord::encode, |_| Ok(()))
    },
    ..PLAIN
};

/// A volume.
pub const VOLUME_RECORD: Target = Target {
    name: "volume-record",
    what: "volume, as its metadata knows it",
    fields: &[le(16, 4), le(20, 2), le(22, 2), le(24, 8), le(32, 8), le(40, 1)],
    run: |input| {
        read_back(input, VolumeRecord::parse, VolumeRecord::encode, |record| {
            let stripe = record.stripe;
            must(
                stripe.is_power_of_two() && STRIPE_RANGE.contains(&stripe),
                "stripes are whole blocks",
            )
        })
    },
    ..PLAIN
};

/// What a project takes, and may take.
pub const PROJECT: Target = Target {
    name: "project",
    what: "what a project takes, and its limits",
    fields: &[le(0, 8), le(8, 8), le(16, 8), le(24, 8), le(32, 8), le(40, 4), le(44, 4)],
    run: |input| {
        read_back(
            input,
            |bytes| ProjectRecord::parse(7, bytes),
            ProjectRecord::encode,
            |record| {
                let goes = record.moving.is_none_or(|moving| moving.from != moving.to);
                must(goes, "files go from one project to another")
            },
        )
    },
    ..PLAIN
};

/// A job.
pub const JOB: Target = Target {
    name: "job",
    what: "job of a volume that goes on after a crash",
    fields: &[le(0, 1), le(1, 1), le(2, 2), le(8, 8), le(16, 8), le(24, 8), le(32, 8), le(40, 8)],
    run: |input| read_back(input, JobRecord::parse, JobRecord::encode, |_| Ok(())),
    ..PLAIN
};

/// Keys.
pub const KEYS: Target = Target {
    name: "keys",
    what: "keys of a volume's metadata",
    fields: &[le(0, 1), be(1, 8), be(9, 8), be(1, 2), be(3, 4)],
    run: key,
    ..PLAIN
};

/// What is read must be as `holds` says, and read again when it was written.
fn read_back<T: PartialEq>(
    input: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, RecordError>,
    encode: impl Fn(&T) -> Vec<u8>,
    holds: impl Fn(&T) -> Result<(), String>,
) -> Result<Verdict, String> {
    read_back_as(parse(input), |record| {
        holds(record)?;
        let again = parse(&encode(record));
        must(again.is_ok_and(|again| again == *record), "what is written is read back")
    })
}

fn read_back_as<T>(
    parsed: Result<T, RecordError>,
    holds: impl Fn(&T) -> Result<(), String>,
) -> Result<Verdict, String> {
    match parsed {
        Ok(record) => holds(&record).map(|()| Verdict::Accepted),
        Err(error) => {
            must(!error.to_string().contains(char::is_control), "an error fits a terminal")?;
            Ok(Verdict::Refused)
        }
    }
}

fn extents(input: &[u8]) -> Result<Verdict, String> {
    let (shift, rest) = head::<1>(input);
    let (group, record) = head::<8>(rest);
    let (shift, group) = (u32::from(shift[0]) % 13, u64::from_le_bytes(group));
    let stripe = STRIPE_RANGE.start() << shift;
    let parse = |bytes: &[u8]| extent::parse(7, group, stripe, bytes);
    read_back_as(parse(record), |extents| {
        let fits = |extent: &extent::Extent| u64::from(extent.blocks) * BLOCK <= stripe;
        must(extents.iter().all(fits), "an extent is no larger than a stripe")?;
        let first = group.wrapping_mul(PER_GROUP);
        must(extent::copy_of(first) < extent::COPIES_MAX, "there can be such a copy")?;
        let in_copy = u128::from(group % extent::groups_of_copy(1));
        let end = (in_copy + 1) * u128::from(PER_GROUP * stripe);
        must(end <= u128::from(u64::MAX), "the file can be so large")?;
        let Some(bytes) = extent::encode(extents) else {
            let holes = extents.iter().all(|extent| extent.is_hole());
            return must(holes, "only holes have no record");
        };
        must(parse(&bytes).as_ref() == Ok(extents), "what is written is read back")
    })
}

fn key(input: &[u8]) -> Result<Verdict, String> {
    let tag = input.first().copied();
    let mut known = false;
    let mut same = |built: Vec<u8>| {
        known |= built == input;
    };
    if let Some(ino) = keys::ino_of(input) {
        let name = keys::name_of(input).unwrap_or_default();
        let second = keys::second_of(input).unwrap_or_default();
        match tag {
            Some(b'I') => same(keys::inode(ino)),
            Some(b'O') => same(keys::orphan(ino)),
            Some(b'P') => same(keys::extents(ino, second)),
            Some(b'H') => same(keys::sums(ino, second)),
            Some(b'W') => same(keys::intent(ino, second)),
            Some(b'C') => same(keys::cookie(ino, second)),
            Some(b'D') => same(keys::name(ino, name)),
            Some(b'X') => same(keys::xattr(ino, name)),
            _ => return Err("does not hold: a key with a file has a known tag".to_string()),
        }
    }
    if let Some((brick, group)) = keys::brick_and_group(input) {
        let built =
            if tag == Some(b'A') { keys::blocks(brick, group) } else { keys::usage(brick, group) };
        same(built);
    }
    if let Some(brick) = keys::brick_of(input) {
        must(keys::brick(brick) == input, "a brick's key is read as it is built")?;
        known = true;
    }
    if let Some((of, id)) = keys::saved_of(input) {
        must(keys::saved(of, id) == input, "the key of a saved value is read as it is built")?;
        known = true;
    }
    if let Some(id) = keys::snapshot_of(input) {
        must(keys::snapshot(id) == input, "a snapshot's key is read as it is built")?;
        known = true;
    }
    if let Some(id) = keys::subvolume_of(input) {
        must(keys::subvolume(id) == input, "a subvolume's key is read as it is built")?;
        known = true;
    }
    let named = matches!(tag, Some(b'D' | b'X')) && input.len() >= 9;
    must(!named || known, "a key with a name is read as it is built")?;
    let after = keys::after(input);
    if !after.is_empty() {
        let longer = [input, &[0xff; 4]].concat();
        must(after > longer, "what comes after a prefix is behind all that begins with it")?;
    }
    Ok(if known { Verdict::Accepted } else { Verdict::Refused })
}

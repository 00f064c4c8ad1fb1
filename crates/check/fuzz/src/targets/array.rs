//! Whole arrays whose metadata is damaged, on several members at once: examined, assembled to be written as `serve`
//! does, and assembled to be read as `serve --read-only` does, salvaging included. Whatever comes of that ends, within
//! memory that does not depend on what the members say.
//!
//! An input is a byte for the sample, one for the options, one with a bit for each member that is left out, one that is
//! ignored, and 16 bytes for each change, of which at most [`CHANGES_MAX`] count; see [`Damage`]. Checksums are made
//! right after all changes.

mod disk;
mod samples;
mod uses;

use super::superblock::{V0_FIELDS, V1_FIELDS, seal_v0, seal_v1};
use super::target::{PLAIN, Target, Verdict, head};
use crate::mutate::{Field, le};
use braid_format::SECTOR;
use braid_format::superblock::{READ_LEN, Superblock, Version};
use disk::Disk;
use std::cell::OnceCell;

/// The arrays.
pub const ARRAY: Target = Target {
    name: "array",
    what: "arrays with damaged members: examined, assembled to be written and to be read",
    fields: FIELDS,
    run,
    // Freed ones count: jobs that read a little use buffers again and again.
    memory: 4 << 30,
    peak: 512 << 20,
    slowness: 100,
    ..PLAIN
};

/// More changes leave nothing that would be accepted.
const CHANGES_MAX: usize = 8;
/// Bytes before the changes.
const HEAD: usize = 4;
/// Bytes of a change.
const CHANGE: usize = 16;

const FIELDS: &[Field] = &[
    le(0, 1),
    le(1, 1),
    le(2, 1),
    le(4, 1),
    le(5, 1),
    le(6, 1),
    le(8, 4),
    le(12, 8),
    le(20, 1),
    le(21, 1),
    le(22, 1),
    le(24, 4),
    le(28, 8),
    le(36, 1),
    le(37, 1),
    le(38, 1),
    le(40, 4),
    le(44, 8),
];

thread_local! {
    /// The sample arrays, which are the same in every run.
    static SAMPLES: OnceCell<Vec<Vec<Disk>>> = const { OnceCell::new() };
}

/// One change.
struct Damage {
    /// Which member; 255: all of them.
    member: u8,
    /// In which part of its metadata.
    part: u8,
    /// Width of the value, where no field decides it; bit 7: the checksum stays as it was.
    how: u8,
    /// Which field, or which byte.
    at: usize,
    /// What stands there then.
    value: u64,
}

impl Damage {
    fn of(bytes: &[u8; CHANGE]) -> Damage {
        let [member, part, how, _, a0, a1, a2, a3, value @ ..] = *bytes;
        Damage {
            member,
            part,
            how,
            // Of 32 bits.
            at: u32::from_le_bytes([a0, a1, a2, a3]) as usize,
            value: u64::from_le_bytes(value),
        }
    }

    fn applies_to(&self, member: usize, members: usize) -> bool {
        self.member == 255 || usize::from(self.member) % members == member
    }

    /// Changes a member whose superblock was `sound`.
    fn apply(&self, disk: &Disk, sound: &Superblock) {
        let start = |sector: Option<u64>| sector.unwrap_or(0).saturating_mul(SECTOR as u64);
        let superblock = start(Some(sound.super_offset));
        let width = 1usize << (self.how & 3);
        let (at, width) = match self.part % 8 {
            0..=3 => {
                let fields = if sound.version == Version::V0_90 { V0_FIELDS } else { V1_FIELDS };
                // The first two choose the version and the size of an input of another target.
                let field = fields[2.min(fields.len())..][self.at % (fields.len() - 2)];
                (superblock + field.at as u64 - 2, field.len)
            }
            4 => (superblock + (self.at % READ_LEN) as u64, width),
            5 => (start(sound.bitmap_sector()) + (self.at % 256) as u64, width),
            6 => (start(sound.bitmap_sector()) + (self.at % 65536) as u64, width),
            _ => (start(sound.bblog_sector()) + (self.at % 4096) as u64, width),
        };
        disk.put(at, &self.value.to_le_bytes()[..width]);
    }
}

fn run(input: &[u8]) -> Result<Verdict, String> {
    let samples = SAMPLES.with(|samples| samples.get_or_init(samples::all).clone());
    let ([sample, options, absent, _], changes) = head::<HEAD>(input);
    let sample = &samples[usize::from(sample) % samples.len()];
    let (changes, _) = changes.as_chunks::<CHANGE>();
    let changes: Vec<Damage> = changes.iter().take(CHANGES_MAX).map(Damage::of).collect();
    let disks: Vec<Disk> = sample.iter().map(Disk::copy).collect();
    for (member, disk) in disks.iter().enumerate() {
        let here = || changes.iter().filter(|change| change.applies_to(member, disks.len()));
        let Some(sound) = disk.superblock() else { continue };
        here().for_each(|change| change.apply(disk, &sound));
        if here().all(|change| change.how & 0x80 == 0) {
            seal(disk, &sound);
        }
    }
    let mut there: Vec<Disk> = (0..)
        .zip(disks)
        .filter(|(member, _)| absent >> (member % 8) & 1 == 0)
        .map(|(_, disk)| disk)
        .collect();
    if options & 4 != 0 {
        there.reverse();
    }
    uses::all(&there, options & 1 != 0, options & 2 != 0)
}

fn seal(disk: &Disk, sound: &Superblock) {
    let at = sound.super_offset * SECTOR as u64;
    let mut bytes = disk.get(at, READ_LEN);
    match sound.version {
        Version::V0_90 => seal_v0(&mut bytes),
        _ => seal_v1(&mut bytes),
    }
    disk.put(at, &bytes);
}

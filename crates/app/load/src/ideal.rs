//! What a load must cost its members at least, and so what an ideal array would reach on them.
//!
//! Counts bytes: a small write to a parity array reads and writes more than its payload, a mirror
//! writes it several times. The members are then measured by themselves with that mix of reads and
//! writes, requests as large as the array's members see them, and as many bytes in flight; their
//! rate times [`RawLoad::factor`] is the ceiling. Does not know what is measured with it.

use crate::options::{Options, OptionsError};
use crate::rows::{cut, way};
use braid_device::spec::MemberSpec;
use braid_layout::{Layout, Level, Spec, default_layout};

/// Blocks over which the cost of random writes is averaged: far more than the pattern's period.
const SAMPLE: u64 = 1024;

/// The load that the members get when they are measured by themselves. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct RawLoad {
    /// Size of a request.
    pub block: u64,
    /// Requests in flight over all members.
    pub depth: u32,
    /// Percent of requests that read.
    pub reads: u8,
    /// Offsets are random.
    pub random: bool,
    /// Members that take part: those that have not failed.
    pub members: usize,
    /// Array bytes that such a byte is worth at best; `None` when braid has no formula for the case
    /// (writes to a degraded array).
    pub factor: Option<f64>,
}

/// Bytes that members read and write for each byte of payload.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    read: f64,
    write: f64,
}

/// The geometry of an array of `options` whose members have `component` bytes each.
pub fn layout(options: &Options, component: u64) -> Result<Layout, OptionsError> {
    let chunk = options.chunk.max(512);
    let whole = match options.level {
        Level::Raid1 => component,
        _ => component / chunk * chunk,
    };
    Ok(Layout::new(&Spec {
        level: options.level,
        layout: options.layout.unwrap_or_else(|| default_layout(options.level)),
        chunk_size: options.chunk,
        raid_disks: options.members.len(),
        component_size: whole,
        member_sizes: vec![whole; options.members.len()],
    })?)
}

/// The members' load for `options`.
///
/// # Errors
/// When the numbers make no array.
pub fn raw_load(options: &Options) -> Result<RawLoad, OptionsError> {
    let layout = layout(options, 1 << 30)?;
    let reads = f64::from(options.pattern.reads()) / 100.0;
    let read = read_cost(options, &layout);
    let write = if reads < 1.0 { write_cost(options, &layout) } else { Some(read) };
    let cost = write.map(|write| Cost {
        read: reads * read.read + (1.0 - reads) * write.read,
        write: (1.0 - reads) * write.write,
    });
    let pieces = match &layout {
        Layout::Parity(parity) => {
            options.block.div_ceil(options.chunk).min(parity.data_chunks() as u64)
        }
        Layout::Striped(_) | Layout::Raid10(_) => {
            options.block.div_ceil(options.chunk).min(options.members.len() as u64)
        }
        Layout::Mirror(_) | Layout::Linear(_) => 1,
    };
    let block = (options.block / pieces / 512 * 512).max(512);
    Ok(RawLoad {
        block,
        depth: options.depth.saturating_mul(pieces as u32),
        reads: match cost {
            Some(cost) => (cost.read / (cost.read + cost.write) * 100.0).round() as u8,
            None => options.pattern.reads(),
        },
        random: options.pattern.random(),
        members: options.members.len() - options.failed,
        factor: cost.map(|cost| 1.0 / (cost.read + cost.write)),
    })
}

fn read_cost(options: &Options, layout: &Layout) -> Cost {
    let read = match layout {
        // A block of a failed member costs one of every member that is needed to recover it. One
        // after the other, those are read anyway.
        Layout::Parity(parity) if options.pattern.random() => {
            let lost = options.failed as f64 / options.members.len() as f64;
            1.0 - lost + lost * parity.data_chunks() as f64
        }
        _ => 1.0,
    };
    Cost { read, write: 0.0 }
}

fn write_cost(options: &Options, layout: &Layout) -> Option<Cost> {
    let copies = |write: usize| Some(Cost { read: 0.0, write: write as f64 });
    match layout {
        Layout::Striped(_) | Layout::Linear(_) => copies(1),
        Layout::Mirror(_) => copies(options.members.len() - options.failed),
        _ if options.failed > 0 => None,
        Layout::Raid10(raid10) => copies(raid10.copy_count()),
        Layout::Parity(parity) => {
            let (data, checks) = (parity.data_chunks(), parity.parity_count());
            if !options.pattern.random() {
                // One after the other: whole stripes, however small the requests.
                return Some(Cost { read: 0.0, write: (data + checks) as f64 / data as f64 });
            }
            let (mut read, mut write, mut payload) = (0, 0, 0);
            for block in 0..SAMPLE {
                for_stripes(
                    block * options.block,
                    options.block,
                    parity.stripe_size(),
                    |_, extent| {
                        for piece in cut(&extent, options.chunk) {
                            let high = piece.rows.end - piece.rows.start;
                            let written = piece.written.len();
                            read += high * way(written, data, checks).1 as u64;
                            write += high * (written + checks) as u64;
                            payload += high * written as u64;
                        }
                    },
                );
            }
            let per_byte = |bytes: u64| bytes as f64 / payload as f64;
            Some(Cost { read: per_byte(read), write: per_byte(write) })
        }
    }
}

/// Calls `each` with every stripe that `len` bytes at `offset` touch, and where within its data.
pub fn for_stripes(
    offset: u64,
    len: u64,
    stripe_size: u64,
    mut each: impl FnMut(u64, std::ops::Range<u64>),
) {
    let mut at = offset;
    while at < offset + len {
        let stripe = at / stripe_size;
        let start = stripe * stripe_size;
        let end = (offset + len).min(start + stripe_size);
        each(stripe, at - start..end - start);
        at = end;
    }
}

/// Bytes of a member that is in memory; `None` for others.
pub fn memory_size(member: &MemberSpec) -> Option<u64> {
    match member {
        MemberSpec::Ram(size) => Some(*size),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Pattern;

    fn of(level: Level, members: usize, pattern: Pattern, block: u64) -> Options {
        Options::new(level, vec![MemberSpec::Ram(1 << 30); members], pattern, block)
    }

    fn factor_and_reads(options: &Options) -> (f64, u8) {
        let raw = raw_load(options).unwrap();
        (raw.factor.unwrap(), raw.reads)
    }

    #[test]
    fn small_writes_cost_four_requests_on_raid5_and_six_on_raid6() {
        assert_eq!(factor_and_reads(&of(Level::Raid5, 5, Pattern::RandWrite, 4096)), (0.25, 50));
        assert_eq!(
            factor_and_reads(&of(Level::Raid6, 8, Pattern::RandWrite, 4096)),
            (1.0 / 6.0, 50)
        );
        // Two data chunks: reading the other one is cheaper.
        assert_eq!(
            factor_and_reads(&of(Level::Raid5, 3, Pattern::RandWrite, 4096)),
            (1.0 / 3.0, 33)
        );
    }

    #[test]
    fn whole_stripes_cost_their_parity_only() {
        for pattern in [Pattern::Write, Pattern::RandWrite] {
            let raw = raw_load(&of(Level::Raid5, 5, pattern, 1 << 20)).unwrap();
            assert_eq!((raw.factor, raw.reads), (Some(0.8), 0));
            assert_eq!((raw.block, raw.depth), (256 << 10, 128));
        }
    }

    #[test]
    fn mirrors_write_every_copy_and_read_one() {
        assert_eq!(factor_and_reads(&of(Level::Raid1, 2, Pattern::RandWrite, 4096)), (0.5, 0));
        assert_eq!(factor_and_reads(&of(Level::Raid10, 4, Pattern::Write, 1 << 20)), (0.5, 0));
        assert_eq!(factor_and_reads(&of(Level::Raid1, 3, Pattern::RandRead, 4096)), (1.0, 100));
        assert_eq!(factor_and_reads(&of(Level::Raid0, 4, Pattern::RandWrite, 4096)), (1.0, 0));
    }

    #[test]
    fn reads_of_a_failed_member_cost_all_others() {
        let degraded = Options { failed: 1, ..of(Level::Raid5, 5, Pattern::RandRead, 4096) };
        let raw = raw_load(&degraded).unwrap();
        assert_eq!((raw.members, raw.reads), (4, 100));
        assert!((1.0 / raw.factor.unwrap() - 1.6).abs() < 1e-9);
        let writes = Options { failed: 1, ..of(Level::Raid5, 5, Pattern::RandWrite, 4096) };
        assert_eq!(raw_load(&writes).unwrap().factor, None);
    }
}

//! What reads of mirrors give on modelled members, beside what one member gives: in virtual time, so the
//! figures are the same in every run.

use super::VirtualClock;
use braid_device::{Device, Target};
use braid_layout::Level;
use braid_load::generator::Generator;
use braid_load::measure::{Slice, Until};
use braid_load::offsets::Region;
use braid_load::options::{Options, Pattern};
use braid_load::under_test::{context, create_and_assemble, prepare, wanted};
use braid_shard::Shard;
use braid_shard::sync::promise;
use std::rc::Rc;
use std::sync::Arc;

/// Who is read: a member by itself, or an array of so many.
#[derive(Clone, Copy)]
enum Who {
    Member,
    Array(Level, Option<u32>, usize),
}

/// Bytes of each member.
const MEMBER: &str = "256M";
const NANOS: u64 = 500_000_000;

/// Reads in `streams` places at once, each with `depth` requests of `block` bytes in flight; the sum.
fn read(kind: &str, who: Who, pattern: Pattern, block: u64, (streams, depth): (u64, u32)) -> Slice {
    let shard = Shard::with_reactor(0, Rc::new(VirtualClock::default()));
    let (level, layout, count) = match who {
        Who::Member => (Level::Raid0, None, 1),
        Who::Array(level, layout, count) => (level, layout, count),
    };
    let spec: braid_device::spec::MemberSpec = format!("model:{kind},{MEMBER}").parse().unwrap();
    let openers: Vec<_> = (0..count).map(|nr| prepare(&spec, nr).unwrap()).collect();
    let options =
        Options { layout, depth, ..Options::new(level, vec![spec; count], pattern, block) };
    let (own, ctx) = (shard.clone(), context(&shard, vec![shard.remote()]));
    let slice = shard.block_on(async move {
        let device: Rc<dyn Device> = match who {
            Who::Member => openers[0].open(&own).unwrap(),
            Who::Array(..) => {
                let made = create_and_assemble(ctx, openers, wanted(&options)).await.unwrap();
                Arc::clone(&made.0).open(&own).unwrap()
            }
        };
        let size = device.info().size;
        let generators: Vec<Rc<Generator>> = (0..streams)
            .map(|stream| {
                let region = Region::share(0..size, block, stream, streams).unwrap();
                Generator::new(&own, vec![(Rc::clone(&device), region)], options.traffic())
            })
            .collect();
        let mut sum = Slice::default();
        for nanos in [NANOS / 4, NANOS] {
            let mut slices = Vec::new();
            for generator in &generators {
                let (give, slice) = promise(&own);
                let generator = Rc::clone(generator);
                own.spawn(async move {
                    give.fulfil(generator.slice(Until::Nanos(nanos)).await.unwrap());
                });
                slices.push(slice);
            }
            sum = Slice::default();
            for slice in slices {
                let slice = slice.await.unwrap();
                sum.bytes += slice.bytes;
                sum.requests += slice.requests;
                sum.seconds = slice.seconds.max(sum.seconds);
            }
        }
        sum
    });
    shard.abandon();
    slice
}

/// The array's rate over that of one member with one stream of the same requests.
fn over_one_member(
    kind: &str,
    who: Who,
    pattern: Pattern,
    block: u64,
    (streams, depth): (u64, u32),
) -> f64 {
    let rate = |slice: Slice| slice.bytes as f64 / slice.seconds;
    let one = rate(read(kind, Who::Member, pattern, block, (1, depth)));
    let array = rate(read(kind, who, pattern, block, (streams, depth)));
    println!(
        "{kind} {} {pattern:?} {block} x{streams} depth {depth}: {:.1} MB/s, member {:.1} MB/s: {:.2}",
        match who {
            Who::Member => "member".to_string(),
            Who::Array(level, layout, count) => format!("{level} {layout:?} of {count}"),
        },
        array / 1e6,
        one / 1e6,
        array / one
    );
    array / one
}

const NEAR_2: u32 = 0x102;
const FAR_2: u32 = 0x201;
const OFFSET_2: u32 = 0x1_0201;
const K: u64 = 1 << 10;

const MIRROR: Who = Who::Array(Level::Raid1, None, 2);
const NEAR: Who = Who::Array(Level::Raid10, Some(NEAR_2), 4);
const FAR: Who = Who::Array(Level::Raid10, Some(FAR_2), 4);
const OFFSET: Who = Who::Array(Level::Raid10, Some(OFFSET_2), 4);

/// Loads with their streams and depth, and what they give at least in terms of one member.
type Row = (&'static str, Who, Pattern, u64, (u64, u32), f64);

fn hold(rows: &[Row]) {
    for (kind, who, pattern, block, streams, least) in rows {
        let ratio = over_one_member(kind, *who, *pattern, *block, *streams);
        assert!(ratio >= *least, "{ratio:.2}, should be {least} at least");
    }
}

#[test]
fn each_stream_has_the_whole_speed_of_a_disk() {
    use Pattern::Read;
    hold(&[
        ("hdd", MIRROR, Read, 64 * K, (1, 1), 0.99),
        ("hdd", MIRROR, Read, 64 * K, (2, 1), 1.98),
        ("hdd", MIRROR, Read, 64 * K, (2, 8), 1.98),
        ("hdd", MIRROR, Read, 16 * 1024 * K, (1, 1), 0.99),
        ("hdd", NEAR, Read, 64 * K, (2, 1), 1.98),
        ("hdd", NEAR, Read, 4096 * K, (2, 1), 3.9),
        ("hdd", OFFSET, Read, 4096 * K, (1, 1), 1.98),
    ]);
}

#[test]
fn one_stream_on_layout_far_has_the_speed_of_all_disks() {
    hold(&[("hdd", FAR, Pattern::Read, 4096 * K, (1, 1), 3.9)]);
}

#[test]
fn one_deep_stream_has_the_bandwidth_of_all_members_without_heads() {
    use Pattern::Read;
    hold(&[
        ("sata-ssd", MIRROR, Read, 1024 * K, (1, 8), 1.9),
        ("sata-ssd", MIRROR, Read, 16 * 1024 * K, (1, 1), 1.9),
        ("sata-ssd", NEAR, Read, 4096 * K, (1, 1), 3.7),
        ("sata-ssd", FAR, Read, 4096 * K, (1, 1), 3.7),
        ("sata-ssd", OFFSET, Read, 4096 * K, (1, 1), 3.5),
    ]);
}

#[test]
fn random_reads_keep_all_members_busy() {
    use Pattern::RandRead;
    for (kind, mirror, ten) in [("hdd", 1.9, 3.7), ("sata-ssd", 1.9, 3.2)] {
        hold(&[
            (kind, MIRROR, RandRead, 4 * K, (1, 32), mirror),
            (kind, NEAR, RandRead, 4 * K, (1, 32), ten),
            (kind, FAR, RandRead, 4 * K, (1, 32), ten),
            (kind, OFFSET, RandRead, 4 * K, (1, 32), ten),
        ]);
    }
}

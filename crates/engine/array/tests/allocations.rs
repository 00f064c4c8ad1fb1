//! In steady state a request allocates nothing.

#![allow(clippy::unwrap_used)]

use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, Context, CreateOptions, MemberSelector};
use braid_device::ram::Ram;
use braid_device::{Device, IoSets, Opener, Request, Target};
use braid_layout::Level;
use braid_shard::Shard;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 64 << 10;
/// Requests before counting starts, and while it goes on.
const WARM_UP: u64 = 8000;
const COUNTED: u64 = 4000;

fn start(shard: &Shard, level: Level, members: usize) -> Arc<Array> {
    let next = AtomicU8::new(1);
    let context = Context {
        shard: shard.clone(),
        remotes: vec![shard.remote()],
        wall_clock: Arc::new(|| 1_700_000_000),
        new_uuid: Arc::new(move || [next.fetch_add(1, Ordering::Relaxed); 16]),
        has_ended: Arc::new(|_| false),
    };
    let openers: Vec<Arc<dyn Opener>> = (0..members)
        .map(|nr| {
            let ram = Arc::new(Ram::new(format!("ram{nr}"), 24 * MIB));
            ram as Arc<dyn Opener>
        })
        .collect();
    shard.block_on(async move {
        let wanted = CreateOptions {
            chunk_size: (level != Level::Raid1).then_some(CHUNK),
            assume_clean: true,
            data_offset: Some(MIB),
            ..CreateOptions::new("test", level, members)
        };
        create(&context, openers.iter().map(|opener| Some(Arc::clone(opener))).collect(), wanted)
            .await
            .unwrap();
        // An array that is marked clean and active again in between would write superblocks.
        let options = AssembleOptions { safe_mode_delay_ms: 1 << 40, ..Default::default() };
        assemble(&context, openers, options).await.unwrap()
    })
}

/// Sends requests of `block` bytes to places that jump about, `depth` at a time.
fn send(
    shard: &Shard,
    device: &Rc<dyn Device>,
    sets: &IoSets,
    (block, write): (u64, bool),
    (first, count): (u64, u64),
) {
    const DEPTH: u64 = 8;
    let places = device.info().size / block;
    let (device, sets, own) = (Rc::clone(device), sets.clone(), shard.clone());
    shard.block_on(async move {
        for round in first / DEPTH..(first + count) / DEPTH {
            let mut set = sets.start();
            for nr in 0..DEPTH {
                // Half of the rounds write neighbours, half jump.
                let place = if round % 2 == 0 { round * DEPTH + nr } else { (round + nr * 7) * 61 };
                let (at, len) = (place % places * block, block as usize);
                let buf = own.pool().get(len);
                let request = match write {
                    true => Request::write(at, buf.freeze(), false),
                    false => Request::read(at, buf),
                };
                set.submit(nr as u32, &*device, request);
            }
            assert!(set.finish().await.all(|(_, outcome)| outcome.result.is_ok()));
        }
    });
}

#[test]
fn a_request_in_steady_state_allocates_nothing() {
    let levels = [
        (Level::Raid0, 4),
        (Level::Raid5, 5),
        (Level::Raid6, 6),
        (Level::Raid1, 2),
        (Level::Raid10, 4),
    ];
    let whole = levels.map(|(level, members)| (level, members, false));
    let degraded = [(Level::Raid5, 5, true), (Level::Raid6, 6, true), (Level::Raid1, 2, true)];
    for (level, members, degraded) in whole.into_iter().chain(degraded) {
        let shard = Shard::with_ring(0).unwrap();
        let array = start(&shard, level, members);
        if degraded {
            let control = Control::find(&shard, array.id()).unwrap();
            shard.block_on(async move {
                control.membership().fail(&MemberSelector::Nr(0)).await.unwrap();
            });
        }
        let device = array.open(&shard).unwrap();
        let sets = IoSets::new(&shard);
        for load in [(4 << 10, true), (16 << 10, true), (256 << 10, true), (4 << 10, false)] {
            // Large ones take longer and find their steady state sooner.
            let less = if load.0 > CHUNK { 8 } else { 1 };
            let (warm_up, count) = (WARM_UP / less, COUNTED / less);
            send(&shard, &device, &sets, load, (0, warm_up));
            let counted = allocation_counter::measure(|| {
                send(&shard, &device, &sets, load, (warm_up, count));
            });
            // Growth of tables and `block_on` do not count as allocations of requests.
            assert!(
                counted.count_total < count / 100,
                "{level}, degraded: {degraded}, {load:?}: {} allocations in {count} requests",
                counted.count_total
            );
        }
        shard.abandon();
    }
}

//! Streams of writes smaller than a stripe, from a client that takes its time between two of them.

use crate::array::Array;
use crate::assemble::assemble;
use crate::control::Control;
use crate::control::tests::world::{UnderWay, World, pattern};
use crate::create::create;
use crate::options::CreateOptions;
use braid_device::Opener;
use braid_device::model::{Kind, Model};
use braid_layout::Level;
use braid_shard::Nanos;
use std::rc::Rc;
use std::sync::Arc;

const CHUNK: u64 = 64 << 10;
const STRIPE: u64 = 4 * CHUNK;
const SIZE: u64 = 8 << 20;
/// The client takes so long from one write to the next: a member needs much longer for its part of a stripe.
const BETWEEN: Nanos = 20_000;

fn start(world: &World) -> (Arc<Array>, Rc<Control>) {
    let ssd = |nr| Model::with_parameters(format!("m{nr}"), SIZE, Kind::SataSsd.parameters());
    let openers: Vec<Arc<dyn Opener>> =
        (0..5).map(|nr| Arc::new(ssd(nr).unwrap()) as Arc<dyn Opener>).collect();
    let (ctx, slots) = (world.ctx.clone(), openers.iter().cloned().map(Some).collect());
    let options = CreateOptions {
        chunk_size: Some(CHUNK),
        assume_clean: true,
        ..CreateOptions::new("streams", Level::Raid5, 5)
    };
    world.run(async move { create(&ctx, slots, options).await }).unwrap();
    let ctx = world.ctx.clone();
    let array =
        world.run(async move { assemble(&ctx, openers, Default::default()).await }).unwrap();
    let control = Control::find(&world.shards[0], array.id()).unwrap();
    // The first write waits for the superblocks to say that the array is in use.
    world.write(&array, 0, 0, &pattern(0, STRIPE as usize)).unwrap();
    (array, control)
}

/// Chunk `nr` of the array's data.
fn begin(world: &World, array: &Array, nr: u64) -> UnderWay {
    world.begin_write(array, nr * CHUNK, &pattern(nr * CHUNK, CHUNK as usize))
}

#[test]
fn a_stripe_of_a_stream_waits_for_the_rest_of_its_data_while_stripes_before_it_are_written() {
    let world = World::new(1);
    let (array, control) = start(&world);
    let before = world.status(&control).counters;
    let mut under_way: Vec<UnderWay> = (0..4).map(|nr| begin(&world, &array, nr)).collect();
    for nr in 4..8 {
        world.sleep(BETWEEN);
        under_way.push(begin(&world, &array, nr));
    }
    for write in under_way {
        world.end(write).unwrap();
    }
    let after = world.status(&control).counters;
    assert_eq!(after.full_stripes - before.full_stripes, 2);
    assert_eq!((after.rmw, after.reconstruct), (before.rmw, before.reconstruct));
    assert_eq!(
        world.read(&array, 0, 0, 2 * STRIPE as usize).unwrap(),
        pattern(0, 2 * STRIPE as usize)
    );
    assert_eq!(world.check(&control), 0);
}

#[test]
fn the_end_of_a_stream_is_written_when_nothing_before_it_is_under_way_any_more() {
    let world = World::new(1);
    let (array, control) = start(&world);
    let whole: Vec<UnderWay> = (0..4).map(|nr| begin(&world, &array, nr)).collect();
    world.sleep(BETWEEN);
    let before = world.status(&control).counters;
    let last = begin(&world, &array, 4);
    world.sleep(BETWEEN);
    assert!(last.borrow().is_none());
    for write in whole {
        world.end(write).unwrap();
    }
    world.end(last).unwrap();
    let after = world.status(&control).counters;
    assert_eq!(after.rmw + after.reconstruct - before.rmw - before.reconstruct, 1);
    assert_eq!(
        world.read(&array, 0, STRIPE, CHUNK as usize).unwrap(),
        pattern(STRIPE, CHUNK as usize)
    );
    assert_eq!(world.check(&control), 0);
}

#[test]
fn a_write_that_follows_no_stream_waits_for_nobody() {
    let world = World::new(1);
    let (array, control) = start(&world);
    let whole: Vec<UnderWay> = (8..12).map(|nr| begin(&world, &array, nr)).collect();
    world.sleep(BETWEEN);
    let before = world.status(&control).counters;
    let other = begin(&world, &array, 1);
    world.sleep(BETWEEN);
    let after = world.status(&control).counters;
    assert_eq!(after.batches - before.batches, 1, "it is on its way while the others are");
    for write in whole.into_iter().chain([other]) {
        world.end(write).unwrap();
    }
}

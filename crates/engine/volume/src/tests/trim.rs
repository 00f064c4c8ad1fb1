//! Free space that the bricks are told of.

use super::*;
use braid_device::{Completion, Device, DeviceInfo, Op, Outcome, Request};
use braid_filesystem::TrimRange;
use braid_shard::buffer::SharedMemory;
use std::sync::Arc;

/// A brick whose discarded blocks read as 9.
struct Marking {
    below: Rc<dyn Device>,
    memory: Arc<SharedMemory>,
}

impl Device for Marking {
    fn info(&self) -> &DeviceInfo {
        self.below.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        let Op::Discard { len } = request.op else { return self.below.submit(request, done) };
        self.memory.write(request.offset as usize, &vec![9; len as usize]);
        done.complete(Outcome::ok(request.op));
    }
}

const ALL: TrimRange = TrimRange { start: 0, len: u64::MAX, min_len: 0 };

#[test]
fn free_space_is_discarded_and_files_are_not() {
    let (world, store) = World::new(128 << 10, &[4, 8]);
    let mut from = world.mount_of(&store);
    for (brick, ram) in from.devices.iter_mut().zip(&world.bricks) {
        let (below, memory) = (Rc::clone(&brick.device), Arc::clone(ram.memory()));
        brick.device = Rc::new(Marking { below, memory });
    }
    let shard = world.shard.clone();
    let volume = world.shard.block_on(async move { Volume::mount(&shard, from).await }).unwrap();
    let bricks: Vec<_> = world.bricks.iter().map(|ram| Arc::clone(ram.memory())).collect();
    world.shard.block_on(async move {
        let (kept, gone) = (file(&volume, "kept").await, file(&volume, "gone").await);
        write(&volume, kept, 0, &[1; 3 << 20]).await.unwrap();
        write(&volume, gone, 0, &[2; 3 << 20]).await.unwrap();
        volume.forget(gone, 1);
        volume.unlink(ROOT, b"gone").await.unwrap();
        while volume.orphans.is_busy() {
            volume.shard.sleep(1_000_000).await;
        }
        // Freed blocks may be discarded once nothing can bring them back.
        let before = volume.trim(ALL).await.unwrap();
        assert!(before <= 6 << 20, "{before} bytes");
        volume.sync().await.unwrap();
        assert_eq!(volume.trim(ALL).await, Ok((12 << 20) - (3 << 20)));
        let mut left = [0; 10];
        for memory in bricks {
            let mut bytes = vec![0; memory.len()];
            memory.read(0, &mut bytes);
            bytes.iter().for_each(|byte| left[usize::from(*byte)] += 1);
        }
        assert_eq!((left[1], left[2], left[9]), (3 << 20, 0, 9 << 20), "{left:?}");
        assert_eq!(read_all(&volume, kept).await, vec![1; 3 << 20]);
        // All of it can be used again.
        let other = file(&volume, "other").await;
        write(&volume, other, 0, &vec![3; 9 << 20]).await.unwrap();
        assert_eq!(volume.trim(ALL).await, Ok(0));
    });
}

#[test]
fn a_range_and_a_least_length_bound_what_is_discarded() {
    let (world, store) = World::new(128 << 10, &[4, 8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        // The last MiB of the first brick and the first of the second.
        let range = TrimRange { start: 3 << 20, len: 2 << 20, min_len: 1 << 20 };
        assert_eq!(volume.trim(range).await, Ok(2 << 20));
        assert_eq!(volume.trim(TrimRange { min_len: (1 << 20) + 1, ..range }).await, Ok(0));
        let unaligned = TrimRange { start: 1, len: 8191, min_len: 0 };
        assert_eq!(volume.trim(unaligned).await, Ok(4096));
        assert_eq!(volume.trim(TrimRange { start: 1 << 40, ..ALL }).await, Ok(0));
    });
}

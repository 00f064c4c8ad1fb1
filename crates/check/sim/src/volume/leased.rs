//! Reads by leases, as another shard makes them: with a way of its own to the bricks, and the file system asked where that
//! does not suffice.

use crate::device::SimOpener;
use crate::machine::Machine;
use crate::world::World;
use braid_filesystem::{FileSystem, Ino, Leased, Leases};
use braid_shard::Shard;
use braid_volume::LeaseReader;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

/// A reader of the volume on `machine`, and of those of its bricks that `bricks` has, with the member of the world that each is.
pub fn reader(machine: &Machine, bricks: BTreeMap<Uuid, usize>) -> Rc<dyn Leases> {
    let world: Rc<World> = Rc::clone(&machine.world);
    let open = move |shard: &Shard, uuid: Uuid| {
        SimOpener::of(&world, *bricks.get(&uuid)?).open(shard).ok()
    };
    LeaseReader::new(machine.home(), Box::new(open), Arc::default())
}

/// Reads by leases, after one was asked for where that may help; `None`: they do not suffice.
pub async fn read<F: FileSystem>(
    fs: &F,
    leases: &dyn Leases,
    ino: Ino,
    offset: u64,
    len: usize,
) -> Option<Vec<u8>> {
    match leases.suffice(ino, offset, len) {
        Leased::Yes => {}
        Leased::Ask => {
            let lease = fs.lease(ino, offset).await;
            leases.keep(ino, lease);
        }
        Leased::No => return None,
    }
    leases.read(ino, offset, len, None).await.map(|bytes| bytes.to_vec())
}

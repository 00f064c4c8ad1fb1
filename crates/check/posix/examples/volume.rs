//! Mounts a volume over bricks in memory, for the cases to be run on: `cargo run --example volume -- DIR [MIB…]`. It
//! ends with its standard input.

use braid_device::ram::Ram;
use braid_filesystem::{Caller, Time};
use braid_fuse::{Mount, MountOptions};
use braid_kv::Store;
use braid_kv::model::ModelStore;
use braid_volume::{BrickDevice, MountOf, NewBrick, Volume, first_records};
use std::cell::RefCell;
use std::io::Read;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// The volume between its start and its mount.
#[derive(Default)]
struct Ready(RefCell<Option<Rc<Volume>>>);

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or_else(|| anyhow::anyhow!("which directory?"))?;
    let mut sizes: Vec<u64> = arguments.map(|size| size.parse()).collect::<Result<_, _>>()?;
    if sizes.is_empty() {
        sizes = vec![256, 512, 256];
    }
    let shards = braid_shard::threads::start(1)?;
    let remote = shards.remotes()[0].clone();
    let mounted = remote.call_async(move |shard, done| {
        let shard = shard.clone();
        let own = shard.clone();
        own.spawn(
            async move { done(start(&shard, &sizes).await.map_err(|error| error.to_string())) },
        );
    });
    mounted.ok_or_else(|| anyhow::anyhow!("the shard is gone"))?.map_err(anyhow::Error::msg)?;
    let options = MountOptions::new(dir, "volume");
    let mount = Mount::start(
        options,
        remote,
        |shard| shard.local::<Ready>().0.borrow_mut().take().expect("it was started just now"),
        |ended| eprintln!("ended: {:?}", ended.durable),
    )?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mount.unmount().map_err(|(error, _)| error)?;
    Ok(())
}

async fn start(shard: &braid_shard::Shard, sizes: &[u64]) -> anyhow::Result<()> {
    let bricks: Vec<Ram> = sizes.iter().map(|size| Ram::new("ram", size << 20)).collect();
    let new: Vec<NewBrick> = sizes
        .iter()
        .zip(1..)
        .map(|(size, id)| NewBrick {
            uuid: Uuid::from_u128(id),
            weight: *size,
            blocks: (size << 20) / 4096,
        })
        .collect();
    let store = ModelStore::new(shard);
    let records = first_records(Uuid::from_u128(9), 128 << 10, &new, Caller::default(), now())?;
    store.commit(records).await?;
    let devices = bricks.iter().zip(1..).map(|(ram, id)| BrickDevice {
        uuid: Uuid::from_u128(id),
        device: ram.device(),
        data_offset: 0,
    });
    let from = MountOf {
        devices: devices.collect(),
        store: Rc::new(store),
        clock: Rc::new(now),
        read_only: false,
    };
    let volume = Volume::mount(shard, from).await?;
    *shard.local::<Ready>().0.borrow_mut() = Some(volume);
    Ok(())
}

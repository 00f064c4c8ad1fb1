//! A volume whose metadata is full, with the real store on bricks in memory, mounted through FUSE and mounted again.
//!
//! Without the right to mount it says that it did not run.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use braid_device::Device;
use braid_device::ram::Ram;
use braid_filesystem::{Caller, Time};
use braid_fuse::{Mount, MountOptions};
use braid_posix::names;
use braid_shard::Shard;
use braid_shard::threads::Shards;
use braid_volume::assemble::{
    AssembleOptions, BrickPlan, NewVolume, Opened, assemble, create, examine, open, plan_create,
};
use braid_volume::{Clock, Volume};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// MiB of each brick.
const BRICKS: [u64; 2] = [16, 16];

/// State of the shard: the bricks, and the volume open on them.
#[derive(Default)]
struct Here {
    rams: RefCell<Vec<Ram>>,
    opened: RefCell<Option<Opened>>,
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

fn clock() -> Clock {
    Rc::new(now)
}

async fn make(shard: &Shard) {
    let named = BRICKS.iter().zip(0..);
    let rams: Vec<Ram> = named.map(|(size, nr)| Ram::new(format!("ram{nr}"), size << 20)).collect();
    let devices: Vec<Rc<dyn Device>> = rams.iter().map(Ram::device).collect();
    let new = NewVolume {
        name: "names".to_owned(),
        uuid: Uuid::from_u128(9),
        stripe: 128 << 10,
        checksums: true,
        copies: 1,
        metadata_size: None,
        owner: Caller::default(),
        now: now(),
    };
    let bricks: Vec<BrickPlan> = devices
        .iter()
        .zip(1..)
        .map(|(device, id)| BrickPlan {
            domain: String::new(),
            uuid: Uuid::from_u128(id),
            weight: None,
            info: device.info().clone(),
        })
        .collect();
    let plan = plan_create(&new, &bricks).unwrap();
    create(shard, plan, &devices, clock()).await.unwrap();
    *shard.local::<Here>().rams.borrow_mut() = rams;
}

async fn volume(shard: &Shard) -> Rc<Volume> {
    let here = shard.local::<Here>();
    let devices: Vec<Rc<dyn Device>> = here.rams.borrow().iter().map(Ram::device).collect();
    let mut found = Vec::new();
    for device in devices {
        found.push(examine(shard, device).await.unwrap());
    }
    let assembly = assemble(found, AssembleOptions::default()).unwrap();
    let opened = open(shard, assembly, clock(), 1 << 20).await.unwrap();
    let volume = Volume::mount(shard, opened.mount_of()).await.unwrap();
    *here.opened.borrow_mut() = Some(opened);
    volume
}

/// The volume between its start and its mount.
#[derive(Default)]
struct Ready(RefCell<Option<Rc<Volume>>>);

fn mounted(shards: &Shards, dir: &Path) -> Option<Mount> {
    let remote = shards.remotes()[0].clone();
    let started = remote.call_async(|shard, done| {
        let on = shard.clone();
        shard.spawn(async move {
            let volume = volume(&on).await;
            *on.local::<Ready>().0.borrow_mut() = Some(volume);
            done(());
        });
    });
    started.unwrap();
    let take = |shard: &Shard| shard.local::<Ready>().0.borrow_mut().take().unwrap();
    let mount = Mount::start(MountOptions::new(dir, "names"), remote, take, |_| ());
    mount.inspect_err(|error| eprintln!("not run: {error}")).ok()
}

fn unmount(shards: &Shards, mount: Mount) {
    mount.unmount().map_err(|(error, _)| error).unwrap();
    let closed = shards.remotes()[0].call_async(|shard, done| {
        let opened = shard.local::<Here>().opened.borrow_mut().take();
        shard.spawn(async move {
            done(opened.unwrap().close().await.map_err(|error| error.to_string()));
        });
    });
    closed.unwrap().unwrap();
}

#[test]
fn a_volume_whose_metadata_is_full_goes_on_and_keeps_all_names() {
    let shards = braid_shard::threads::start(1).unwrap();
    let made = shards.remotes()[0].call_async(|shard, done| {
        let on = shard.clone();
        shard.spawn(async move {
            make(&on).await;
            done(());
        });
    });
    made.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let Some(first) = mounted(&shards, dir.path()) else { return };
    let mut mount = Some(first);
    let plan = names::Plan { at_most: 1 << 20, drop_caches: false };
    let done = names::run(dir.path(), &plan, || {
        unmount(&shards, mount.take().unwrap());
        mount = mounted(&shards, dir.path());
        Ok(())
    });
    unmount(&shards, mount.unwrap());
    let done = done.unwrap();
    assert!(done.made > 1000 && done.made_again > 200, "{done:?}");
}

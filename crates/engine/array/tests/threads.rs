//! An array on real shards: threads, io_uring, mailboxes.

#![allow(clippy::unwrap_used)]

use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, Context, CreateOptions, MemberSelector};
use braid_device::ram::Ram;
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_layout::Level;
use braid_shard::threads;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const MIB: u64 = 1 << 20;

fn context(shard: &braid_shard::Shard, remotes: &[braid_shard::mailbox::Remote]) -> Context {
    let next = AtomicU8::new(1);
    Context {
        shard: shard.clone(),
        remotes: remotes.to_vec(),
        wall_clock: Arc::new(|| 1_700_000_000),
        new_uuid: Arc::new(move || [next.fetch_add(1, Ordering::Relaxed); 16]),
        has_ended: Arc::new(|_| false),
    }
}

/// Writes `bytes` at 0 on the shard with this number and reads them back there.
fn write_and_read(array: &Arc<Array>, on: usize, bytes: Vec<u8>) -> Vec<u8> {
    let served = Arc::clone(array);
    let work = move |shard: &braid_shard::Shard, done: Box<dyn FnOnce(Vec<u8>)>| {
        let (shard, device) = (shard.clone(), served.open(shard).unwrap());
        let sets = IoSets::new(&shard);
        let task = shard.clone();
        shard.spawn(async move {
            let pool = task.pool();
            let buf = pool.copy_of(&bytes).freeze();
            let written = sets.one(&*device, Request::write(0, buf, false)).await;
            written.result.unwrap();
            let read = sets.one(&*device, Request::read(0, pool.get(bytes.len()))).await;
            match read.op {
                Op::Read(bufs) => done(bufs.iter().flat_map(|buf| buf.to_vec()).collect()),
                other => panic!("a read came back as {other:?}"),
            }
        });
    };
    array.remotes()[on].call_async(work).unwrap()
}

#[test]
fn an_array_on_two_threads_is_written_degraded_rebuilt_and_stopped() {
    let shards = threads::start(2).unwrap();
    let remotes = shards.remotes().to_vec();
    let home = remotes[0].clone();
    let array = home
        .call_async(move |shard, done: Box<dyn FnOnce(Arc<Array>)>| {
            let ctx = context(shard, &remotes);
            shard.spawn(async move {
                let members: Vec<Arc<dyn Opener>> = (0..4)
                    .map(|nr| Arc::new(Ram::new(format!("m{nr}"), 16 * MIB)) as Arc<dyn Opener>)
                    .collect();
                let options = CreateOptions {
                    chunk_size: Some(64 << 10),
                    spares: 1,
                    ..CreateOptions::new("data", Level::Raid5, 3)
                };
                let given = members.iter().cloned().map(Some).collect();
                create(&ctx, given, options).await.unwrap();
                done(assemble(&ctx, members, AssembleOptions::default()).await.unwrap());
            });
        })
        .unwrap();

    let bytes: Vec<u8> = (0..5 * MIB).map(|i| (i % 251) as u8).collect();
    assert!(write_and_read(&array, 1, bytes.clone()) == bytes);
    let failed = array.control(|control| async move {
        let failed = control.membership().fail(&MemberSelector::Name("m1".to_string())).await;
        control.jobs().wait_idle().await;
        failed
    });
    failed.unwrap().unwrap();
    let status = array.control(|control| async move { control.status().await }).unwrap();
    assert_eq!((status.degraded, status.slots[1]), (0, Some(3)));
    assert!(write_and_read(&array, 0, bytes.clone()) == bytes);

    array.control(|control: Rc<_>| async move { control.stop().await }).unwrap();
    assert!(array.control(|control| async move { control.status().await }).is_none());
}

//! An export of another server as a device: reached, opened, lost, changed.

mod support;

use std::rc::Rc;
use std::sync::Arc;

use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Opener, Request, Target};
use braid_nbd::{ExportUri, NbdUri, RemoteExport};
use braid_shard::Shard;
use support::{DISK_BYTES, RamTarget, World};

fn uri(world: &World, export: &str) -> ExportUri {
    let text = format!("nbd+unix:///{export}?socket={}", world.socket().display());
    text.parse().expect("a good URI")
}

async fn one(shard: &Shard, device: &Rc<dyn Device>, request: Request) -> Result<Op, IoError> {
    let outcome = IoSets::new(shard).one(&**device, request).await;
    outcome.result.map(|()| outcome.op)
}

const GONE: IoError = IoError { kind: IoErrorKind::Gone, errno: 0 };

#[test]
fn each_opened_device_has_a_connection_of_its_own() {
    let world = World::new();
    let tcp = world.tcp().uri("disk").parse().expect("what is printed is read back");
    for uri in [uri(&world, "disk"), uri(&world, ""), tcp] {
        let remote = RemoteExport::reach(&uri, true).expect("it is served");
        assert_eq!((remote.name(), remote.notes()), (uri.to_string().as_str(), Vec::new()));
        world.on_shard(move |shard| async move {
            let device = remote.open(&shard).expect("nothing is done yet");
            assert_eq!((device.info().size, &device.info().name), (DISK_BYTES, &uri.to_string()));
            // One that nobody asks for anything connects to nobody.
            drop(remote.open(&shard));
            // More than the server takes at once, several at once, before the connection is there.
            let payload = shard.pool().copy_of(&vec![0xa5; 40 << 20]).freeze();
            let mut set = IoSets::new(&shard).start();
            set.submit(0, &*device, Request::write(4096, payload, true));
            set.submit(1, &*device, Request::flush());
            for (_, outcome) in set.finish().await {
                assert_eq!(outcome.result, Ok(()));
            }
            let op = Op::WriteZeroes { len: 4096, unmap: true, fua: false };
            one(&shard, &device, Request { offset: 8192, op }).await.expect("it can");
            drop(device);
            let device = remote.open(&shard).expect("again");
            let read = Request::read(0, shard.pool().get(16384));
            let Ok(Op::Read(bufs)) = one(&shard, &device, read).await else { panic!("no read") };
            let expected = [[0; 4096], [0xa5; 4096], [0; 4096], [0xa5; 4096]].concat();
            assert!(bufs[0][..] == expected, "what was written is not there");
        });
    }
}

#[test]
fn a_server_that_ends_takes_its_export_with_it_until_it_is_opened_anew() {
    let mut world = World::new();
    let remote = Arc::new(RemoteExport::reach(&uri(&world, "disk"), true).expect("it is served"));
    let opener = Arc::clone(&remote);
    world.on_shard(|shard| async move {
        let device = opener.open(&shard).expect("nothing is done yet");
        one(&shard, &device, Request::flush()).await.expect("it is served");
        *shard.local::<std::cell::RefCell<Option<Rc<dyn Device>>>>().borrow_mut() = Some(device);
    });
    world.stop();
    world.on_shard(move |shard| async move {
        let device = shard.local::<std::cell::RefCell<Option<Rc<dyn Device>>>>().take();
        let device = device.expect("put there above");
        for _ in 0..2 {
            let read = Request::read(0, shard.pool().get(4096));
            assert_eq!(one(&shard, &device, read).await.err(), Some(GONE));
        }
        let device = remote.open(&shard).expect("nothing is done yet");
        assert_eq!(one(&shard, &device, Request::flush()).await.err(), Some(GONE));
    });
}

#[test]
fn an_export_that_has_changed_is_not_used_as_what_it_was() {
    let world = World::new();
    let (before, after) = (uri(&world, "disk"), World::with(vec![shrunk()]));
    let remote = RemoteExport::reach(&before, true).expect("it is served");
    std::fs::rename(after.socket(), world.socket()).expect("one folder's socket for the other's");
    world.on_shard(move |shard| async move {
        let device = remote.open(&shard).expect("nothing is done yet");
        let read = Request::read(0, shard.pool().get(4096));
        assert_eq!(one(&shard, &device, read).await.err(), Some(GONE));
    });
}

#[test]
fn an_idle_device_lives_through_a_restart_of_its_server_if_what_is_served_is_the_same() {
    for (again, is_same) in [(None, true), (Some(shrunk()), false)] {
        let target: Arc<dyn Target> = Arc::new(RamTarget::new("disk", DISK_BYTES));
        let mut world = World::with(vec![Arc::clone(&target)]);
        let remote = RemoteExport::reach(&uri(&world, "disk"), true).expect("it is served");
        world.on_shard(move |shard| async move {
            let device = remote.open(&shard).expect("nothing is done yet");
            for at in [0, 8192] {
                let payload = shard.pool().copy_of(&[7; 4096]).freeze();
                one(&shard, &device, Request::write(at, payload, false)).await.expect("served");
            }
            one(&shard, &device, Request::flush()).await.expect("it is served");
            *shard.local::<std::cell::RefCell<Option<Rc<dyn Device>>>>().borrow_mut() =
                Some(device);
        });
        world.stop();
        let after = World::with(vec![again.unwrap_or(target)]);
        std::fs::rename(after.socket(), world.socket())
            .expect("one folder's socket for the other's");
        world.on_shard(move |shard| async move {
            let device = shard.local::<std::cell::RefCell<Option<Rc<dyn Device>>>>().take();
            let device = device.expect("put there above");
            let payload = shard.pool().copy_of(&[8; 4096]).freeze();
            let written = one(&shard, &device, Request::write(4096, payload, false)).await;
            assert_eq!(written.err(), (!is_same).then_some(GONE));
            let read = one(&shard, &device, Request::read(0, shard.pool().get(12288))).await;
            match read {
                Ok(Op::Read(bufs)) if is_same => {
                    assert!(bufs[0][..] == [[7; 4096], [8; 4096], [7; 4096]].concat());
                }
                other => assert_eq!((other.err(), is_same), (Some(GONE), false)),
            }
        });
    }
}

fn shrunk() -> Arc<dyn Target> {
    Arc::new(RamTarget::new("disk", DISK_BYTES / 2))
}

#[test]
fn what_cannot_be_used_is_refused_when_it_is_reached() {
    let world = World::new();
    let refused = |export: &str, writable| {
        RemoteExport::reach(&uri(&world, export), writable).expect_err("refused").to_string()
    };
    let said = refused("fixed", true);
    assert!(said.starts_with("opening nbd+unix:///fixed?socket=/"), "{said}");
    assert!(said.contains("read-only") && said.contains("--read-only"), "{said}");
    assert!(RemoteExport::reach(&uri(&world, "fixed"), false).is_ok());
    let said = refused("nothing", false);
    assert!(said.contains("refused export \"nothing\""), "{said}");
}

//! Data that comes with its command: how much may, and what becomes of it when memory is short.

use braid_doors::nvme::host::{Host, Link, PATIENCE, Silence, TERMINATED, Wishes};
use braid_doors::nvme::{Nvme, limits, start, subsystem};
use braid_doors::{Disk, Rig, Shape};
use braid_export::Export;
use braid_nvme::protocol::{Command, MAX_IN_ADMIN_CAPSULE, MAX_IN_CAPSULE, Sgl, Status, io};
use braid_nvme::{Limits, MEMORY_MIN};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// A write of `bytes` from the block `from` on.
fn write(link: &mut Link, from: u64, bytes: usize) -> Command {
    let last = (bytes / 512 - 1) as u32;
    let id = link.id();
    Command::of(io::WRITE, id, 1)
        .with(40, &from.to_le_bytes())
        .with(48, &last.to_le_bytes())
        .with_data(Sgl::InCapsule(0, bytes as u32))
}

/// It ends with a message that names the field of the length.
fn assert_ended(link: &mut Link) {
    let last = link.pdu(PATIENCE).ok().unwrap();
    assert_eq!((last.kind, last.header[8], last.header[10]), (TERMINATED, 1, 4));
    assert_eq!(link.completion(PATIENCE), Err(Silence::Disconnected));
}

#[test]
fn an_io_queue_takes_much_in_a_capsule_and_nobody_else_does() {
    let rig = Rig::new(&Nvme);
    let mut host = Host::connect(&rig.socket(), &subsystem(), Wishes::default()).unwrap();
    let data = vec![0x3c; MAX_IN_CAPSULE as usize];
    let whole = write(&mut host.io, 0, data.len());
    assert_eq!(host.io.ask(&whole, &data).unwrap().0.status, Status::SUCCESS);
    let too_much = write(&mut host.io, 0, data.len() + 512);
    host.io.send(&too_much, &vec![0; data.len() + 512]);
    assert_ended(&mut host.io);
    assert_eq!(rig.client().read(0, data.len() as u64), data);
    let more = vec![0; MAX_IN_ADMIN_CAPSULE as usize + 512];
    let mut fresh =
        Link::new(UnixStream::connect(rig.socket()).unwrap(), Wishes::default()).unwrap();
    for link in [&mut host.admin, &mut fresh] {
        let command = write(link, 0, more.len());
        link.send(&command, &more);
        assert_ended(link);
    }
    rig.assert_serves();
}

/// Hosts together send more than the budget holds, half of it with commands and half when they are asked, while the disk
/// answers nothing: the server stops taking from them, and goes on when it does.
#[test]
fn data_in_capsules_and_data_that_is_asked_for_share_memory_without_a_standstill() {
    const HOSTS: u64 = 8;
    const WRITES: u64 = 60;
    let shards = braid_shard::threads::start(2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (socket, disk) = (folder.path().join("socket"), Disk::new(Shape::default(), 1));
    let limits = Limits { memory: MEMORY_MIN, ..limits() };
    let server = start(&limits, &socket, shards.remotes(), Arc::new(disk.clone()));
    disk.hold(true);
    std::thread::scope(|scope| {
        let hosts = (0..HOSTS).map(|nr| {
            let socket = &socket;
            scope.spawn(move || {
                let mut host = Host::connect(socket, &subsystem(), Wishes::default()).unwrap();
                // More in all than MEMORY_MIN.
                for round in 0..WRITES {
                    let bytes = (MAX_IN_CAPSULE as usize) << (round % 2);
                    let command = write(&mut host.io, nr * 1024, bytes);
                    if round % 2 == 0 {
                        host.io.send(&command, &vec![nr as u8; bytes]);
                    } else {
                        let command = command.with_data(Sgl::Transport(bytes as u32));
                        host.io.data.insert(command.id(), vec![nr as u8; bytes]);
                        host.io.send(&command, &[]);
                    }
                }
                for _ in 0..WRITES {
                    assert_eq!(host.io.completion(PATIENCE).unwrap().status, Status::SUCCESS);
                }
            })
        });
        let hosts: Vec<_> = hosts.collect();
        std::thread::sleep(Duration::from_millis(500));
        disk.hold(false);
        hosts.into_iter().for_each(|host| host.join().unwrap());
    });
    let mut host = Host::connect(&socket, &subsystem(), Wishes::default()).unwrap();
    for nr in 0..HOSTS {
        let id = host.io.id();
        let read = Command::of(io::READ, id, 1)
            .with(40, &(nr * 1024).to_le_bytes())
            .with(48, &1023u32.to_le_bytes())
            .with_data(Sgl::Transport(512 << 10));
        let (completion, found) = host.io.ask(&read, &[]).unwrap();
        assert_eq!(completion.status, Status::SUCCESS);
        assert!(found[..256 << 10].iter().all(|byte| *byte == nr as u8));
    }
    server.stop();
}

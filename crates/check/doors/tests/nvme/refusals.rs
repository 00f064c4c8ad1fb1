//! Hosts that are not let in, and commands that are not carried out.

use braid_doors::nvme::host::{HOST_NQN, Host, Link, PATIENCE, Silence, TERMINATED, Wishes, names};
use braid_doors::nvme::{Nvme, limits, start, subsystem};
use braid_doors::{Disk, Rig, Shape};
use braid_export::Export;
use braid_nvme::Limits;
use braid_nvme::protocol::{Command, DISCOVERY_NQN, Sgl, Status, io};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn link(rig: &Rig<'_>) -> Link {
    Link::new(UnixStream::connect(rig.socket()).unwrap(), Wishes::default()).unwrap()
}

#[test]
fn a_wrong_name_is_refused_with_the_place_of_it_and_may_be_tried_again() {
    let rig = Rig::new(&Nvme);
    let mut link = link(&rig);
    let refused = link.connect(&names("nqn.2026-01.org.example:none"), 0).unwrap();
    assert_eq!(refused.status, Status::CONNECT_INVALID_PARAMETERS);
    // In the data, the name of the subsystem.
    assert_eq!(refused.result, 1 << 16 | 256);
    let before = link.identify(1, 0).unwrap().0;
    assert_eq!(before, Status::COMMAND_SEQUENCE);
    assert_eq!(link.connect(&names(&subsystem()), 0).unwrap().status, Status::SUCCESS);
}

#[test]
fn only_hosts_on_the_list_are_let_in() {
    let shards = braid_shard::threads::start(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (allowed, status) in [
        (HOST_NQN, Status::SUCCESS),
        ("nqn.2026-01.org.example:other", Status::CONNECT_INVALID_HOST),
    ] {
        let limits = Limits { hosts: vec![allowed.to_owned()], ..limits() };
        let (socket, disk) = (folder.path().join("socket"), Disk::new(Shape::default(), 1));
        let server = start(&limits, &socket, shards.remotes(), Arc::new(disk));
        for name in [subsystem(), DISCOVERY_NQN.to_owned()] {
            let mut link =
                Link::new(UnixStream::connect(&socket).unwrap(), Wishes::default()).unwrap();
            assert_eq!(link.connect(&names(&name), 0).unwrap().status, status);
        }
        server.stop();
    }
}

#[test]
fn a_queue_of_another_host_or_twice_or_too_many_is_refused() {
    let rig = Rig::new(&Nvme);
    let host = Host::connect(&rig.socket(), &subsystem(), Wishes::default()).unwrap();
    for (id, status) in
        [(1, Status::CONNECT_CONTROLLER_BUSY), (2, Status::CONNECT_INVALID_PARAMETERS)]
    {
        assert_eq!(link(&rig).connect(&host.names, id).unwrap().status, status);
    }
    let mut other = host.names.clone();
    other.host = "nqn.2026-01.org.example:other".to_owned();
    let refused = link(&rig).connect(&other, 1).unwrap();
    assert_eq!(refused.status, Status::CONNECT_INVALID_PARAMETERS);
}

#[test]
fn commands_that_cannot_be_done_have_their_status() {
    let rig = Rig::new(&Nvme);
    let mut host = Host::connect(&rig.socket(), &subsystem(), Wishes::default()).unwrap();
    let read = |host: &mut Host, namespace, length| {
        let id = host.io.id();
        Command::of(io::READ, id, namespace).with_data(Sgl::Transport(length))
    };
    let cases = [
        (read(&mut host, 1, 512), Status::SUCCESS),
        (read(&mut host, 2, 512), Status::INVALID_NAMESPACE),
        (read(&mut host, 1, 1024), Status::INVALID_SGL_LENGTH),
        (read(&mut host, 1, 512).with_data(Sgl::Other(0x40)), Status::INVALID_SGL_TYPE),
        (read(&mut host, 1, 512).with(1, &[0x41]), Status::INVALID_FIELD),
        (Command::of(0x7e, host.io.id(), 1), Status::INVALID_OPCODE),
        // 65536 blocks.
        (read(&mut host, 1, 32 << 20).with(48, &0xffffu32.to_le_bytes()), Status::LBA_OUT_OF_RANGE),
    ];
    for (command, status) in cases {
        let (completion, _) = host.io.ask(&command, &[]).unwrap();
        let either = [status, Status::INVALID_FIELD];
        assert!(either.contains(&completion.status), "{command:?}: {:?}", completion.status);
        assert_eq!(completion.status.is_success(), status.is_success());
    }
    let (status, page) = host.admin.log(1, 0, 1024).unwrap();
    assert_eq!(status, Status::SUCCESS);
    // The last failure is the first entry, the sixth of this controller.
    assert_eq!((page[0], page[8]), (6, 1));
}

#[test]
fn data_that_nobody_asked_for_ends_that_connection_with_the_reason() {
    let rig = Rig::new(&Nvme);
    let mut witness = rig.client();
    let mut host = Host::connect(&rig.socket(), &subsystem(), Wishes::default()).unwrap();
    host.io.send_data((1, 0), 0, &[0; 512], true);
    let last = host.io.pdu(PATIENCE).ok().unwrap();
    assert_eq!((last.kind, last.header[8]), (TERMINATED, 1));
    assert_eq!(host.io.completion(PATIENCE), Err(Silence::Disconnected));
    witness.fill(0, 512, 1);
    // The controller is there, and may have the queue again.
    assert_eq!(host.admin.identify(1, 0).unwrap().0, Status::SUCCESS);
}

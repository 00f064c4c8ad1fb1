//! Digests, alignment, data in pieces, flow control, events, discovery.

use braid_device::Target;
use braid_doors::nvme::host::{Host, Link, PATIENCE, Wishes, names};
use braid_doors::nvme::{Nvme, limits, subsystem};
use braid_doors::{Disk, Rig, Shape};
use braid_export::Export;
use braid_nvme::protocol::{Command, DISCOVERY_NQN, Sgl, Status, admin, io};
use braid_nvme::{Address, Server};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

fn with_blocks(host: &mut Host, opcode: u8, bytes: usize) -> Command {
    let last = (bytes / 512 - 1) as u32;
    let id = host.io.id();
    let command = Command::of(opcode, id, 1).with(48, &last.to_le_bytes());
    command.with_data(Sgl::Transport(bytes as u32))
}

#[test]
fn data_goes_both_ways_with_digests_in_pieces_and_at_every_alignment() {
    let rig = Rig::new(&Nvme);
    for (digests, alignment, without_flow, piece) in
        [(true, 0, false, 4096), (false, 31, true, 1 << 20), (true, 7, true, 60_000)]
    {
        let wishes = Wishes {
            header_digest: digests,
            data_digest: digests,
            alignment,
            without_flow,
            ..Wishes::default()
        };
        let mut host = Host::connect(&rig.socket(), &subsystem(), wishes).unwrap();
        host.io.piece = piece;
        let data: Vec<u8> = (0..300 * 512).map(|at| (at / 7) as u8).collect();
        let write = with_blocks(&mut host, io::WRITE, data.len());
        host.io.data.insert(write.id(), data.clone());
        let (completion, _) = host.io.ask(&write, &[]).unwrap();
        assert_eq!(completion.status, Status::SUCCESS);
        assert_eq!(completion.head == 0xffff, without_flow);
        let read = with_blocks(&mut host, io::READ, data.len());
        let (completion, found) = host.io.ask(&read, &[]).unwrap();
        assert_eq!(completion.status, Status::SUCCESS);
        assert!(found == data);
        // A success needs no capsule where no head is to be told.
        assert_eq!(host.io.without_capsule, u64::from(without_flow));
        for (expected, status) in
            [(data.clone(), Status::SUCCESS), (vec![1; data.len()], Status::COMPARE_FAILURE)]
        {
            let compare = with_blocks(&mut host, io::COMPARE, data.len());
            host.io.data.insert(compare.id(), expected);
            assert_eq!(host.io.ask(&compare, &[]).unwrap().0.status, status);
        }
    }
}

#[test]
fn damaged_data_is_not_written_and_the_host_may_try_again() {
    let rig = Rig::new(&Nvme);
    let wishes = Wishes { data_digest: true, ..Wishes::default() };
    let mut host = Host::connect(&rig.socket(), &subsystem(), wishes).unwrap();
    let write = with_blocks(&mut host, io::WRITE, 512).with_data(Sgl::InCapsule(0, 512));
    let mut capsule = write.capsule(&[5; 512], false, true);
    capsule[100] ^= 1;
    host.io.socket.send(&capsule, &[]).unwrap();
    let completion = host.io.completion(PATIENCE).unwrap();
    assert_eq!(completion.status, Status::TRANSIENT_TRANSPORT);
    assert_eq!(rig.disk.changes(), 0);
    let again = with_blocks(&mut host, io::WRITE, 512).with_data(Sgl::InCapsule(0, 512));
    assert_eq!(host.io.ask(&again, &[5; 512]).unwrap().0.status, Status::SUCCESS);
}

#[test]
fn a_host_is_told_that_a_namespace_has_grown_and_uses_all_of_it() {
    let rig = Rig::of(&Nvme, Shape { size: 8 << 20, ..Shape::default() });
    rig.disk.resize(4 << 20);
    let mut host = Host::connect(&rig.socket(), &subsystem(), Wishes::default()).unwrap();
    assert_eq!(host.admin.set_feature(0x0b, 1 << 8).unwrap().0, Status::SUCCESS);
    let wait = Command::of(admin::ASYNC_EVENT_REQUEST, 900, 0);
    host.admin.send(&wait, &[]);
    rig.disk.resize(8 << 20);
    let told = host.admin.completion(PATIENCE).unwrap();
    // A notice, about namespaces, and the log that names them.
    assert_eq!((told.command, told.result), (900, 2 | 4 << 16));
    for changed in [1, 0] {
        let (status, page) = host.admin.log(4, 0, 4096).unwrap();
        assert_eq!((status, page[0]), (Status::SUCCESS, changed));
    }
    let (_, page) = host.admin.identify(0, 1).unwrap();
    assert_eq!(u64::from_le_bytes(page[..8].try_into().unwrap()), 8 << 11);
    // On the connection that was there before; the first block that is new, and the one behind the end.
    for (block, status) in [(4u64 << 11, Status::SUCCESS), (8 << 11, Status::LBA_OUT_OF_RANGE)] {
        let id = host.io.id();
        let at = block.to_le_bytes();
        let write = Command::of(io::WRITE, id, 1).with(40, &at).with_data(Sgl::InCapsule(0, 512));
        assert_eq!(host.io.ask(&write, &[7; 512]).unwrap().0.status, status);
        let range = [&[0; 4][..], &1u32.to_le_bytes(), &at].concat();
        let discard = Command::of(io::DATASET_MANAGEMENT, host.io.id(), 1)
            .with(44, &[4])
            .with_data(Sgl::InCapsule(0, 16));
        assert_eq!(host.io.ask(&discard, &range).unwrap().0.status, status);
    }
}

#[test]
fn a_controller_whose_host_is_silent_ends() {
    let rig = Rig::new(&Nvme);
    let wishes = Wishes { keep_alive: 1000, ..Wishes::default() };
    let mut host = Host::connect(&rig.socket(), &subsystem(), wishes).unwrap();
    assert!(host.admin.completion(PATIENCE).is_err());
    assert!(host.io.completion(PATIENCE).is_err());
    rig.assert_serves();
}

#[test]
fn discovery_names_the_subsystems_and_the_address_that_was_asked() {
    let shards = braid_shard::threads::start(1).unwrap();
    let address: Address = "tcp:127.0.0.1:0".parse().unwrap();
    let disk: Arc<dyn Target> = Arc::new(Disk::new(Shape::default(), 1));
    let server = Server::start(&limits(), shards.remotes(), &[address], vec![disk]).unwrap();
    let Address::Tcp(place) = server.addresses()[0].clone() else { panic!("not TCP") };
    let stream = std::net::TcpStream::connect(place).unwrap();
    let socket = UnixStream::from(std::os::fd::OwnedFd::from(stream));
    let mut link = Link::new(socket, Wishes::default()).unwrap();
    assert_eq!(link.connect(&names(DISCOVERY_NQN), 0).unwrap().status, Status::SUCCESS);
    assert_eq!(link.set_property(0x14, 6 << 16 | 4 << 20 | 1), Some(Status::SUCCESS));
    let (_, page) = link.identify(1, 0).unwrap();
    assert_eq!(page[111], 2);
    let (status, log) = link.log(0x70, 0, 3072).unwrap();
    assert_eq!((status, log[8]), (Status::SUCCESS, 2));
    let entry = &log[2048..];
    assert_eq!(entry[..3], [3, 1, 2]);
    let text = |from: usize, width: usize| {
        let text = std::str::from_utf8(&entry[from..from + width]).unwrap();
        text.trim_end_matches(['\0', ' ']).to_owned()
    };
    assert_eq!(text(256, 256), subsystem());
    assert_eq!((text(32, 32), text(512, 256)), (place.port().to_string(), "127.0.0.1".into()));
    assert_eq!(server.locations("disk"), [format!("nvme+tcp://{place}/{}", subsystem())]);
    server.stop();
}

#[test]
fn the_namespace_has_the_uuid_of_its_subsystem() {
    let rig = Rig::new(&Nvme);
    let mut host = Host::connect(&rig.socket(), &subsystem(), Wishes::default()).unwrap();
    let (status, page) = host.admin.identify(3, 1).unwrap();
    assert_eq!((status, page[0], page[1]), (Status::SUCCESS, 3, 16));
    let hex: String = page[4..20].iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(subsystem().replace('-', "").ends_with(&hex));
    let (_, list) = host.admin.identify(2, 0).unwrap();
    assert_eq!(list[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    // One group, optimized, with the namespace.
    let (status, ana) = host.admin.log(0x0c, 0, 52).unwrap();
    assert_eq!((status, ana[8], ana[32], ana[48]), (Status::SUCCESS, 1, 1, 1));
}

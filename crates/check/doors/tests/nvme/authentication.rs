//! Hosts that must prove their names.

use braid_doors::nvme::host::{HOST_NQN, Link, PATIENCE, Silence, Wishes, names};
use braid_doors::nvme::proof::{
    Host, TRANSACTION, authentication, negotiate, prove, receive, send, send_bytes,
};
use braid_doors::nvme::{limits, start, subsystem};
use braid_doors::{Disk, Shape};
use braid_export::Export;
use braid_nvme::protocol::authentication::{Failure, Message};
use braid_nvme::protocol::{Command, ConnectData, DISCOVERY_NQN, Group, Sgl, Status};
use braid_nvme::{HostSecrets, Limits, Server};
use braid_shard::threads::Shards;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

const HOST_SECRET: &str =
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const OUR_SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
/// Connect: the host must prove its name.
const WANTED: u64 = 1 << 17;
/// The host of these tests, which knows the groups that Linux knows.
const LINUX: Host<'_> = Host {
    name: HOST_NQN,
    secret: HOST_SECRET,
    controllers: OUR_SECRET,
    groups: (&[0, 1, 2, 3, 4, 5], Group::Ffdhe3072),
};
const WRONG: Host<'_> = Host { secret: OUR_SECRET, ..LINUX };

struct Guarded {
    server: Server,
    _folder: tempfile::TempDir,
    socket: PathBuf,
    _shards: Shards,
}

/// A server at which the host of these tests has a secret, and the server one for it.
fn guarded(ours: bool) -> Guarded {
    let shards = braid_shard::threads::start(2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let secrets = HostSecrets {
        host: HOST_SECRET.parse().unwrap(),
        controller: ours.then(|| OUR_SECRET.parse().unwrap()),
    };
    let limits = Limits { secrets: [(HOST_NQN.to_owned(), secrets)].into(), ..limits() };
    let disk = Disk::new(Shape::default(), 1);
    let server = start(&limits, &socket, shards.remotes(), Arc::new(disk));
    Guarded { server, _folder: folder, socket, _shards: shards }
}

impl Guarded {
    fn link(&self) -> Link {
        Link::new(UnixStream::connect(&self.socket).unwrap(), Wishes::default()).unwrap()
    }

    /// A connection that is queue `id`, and what Connect gave.
    fn connected(&self, names: &ConnectData, id: u16) -> (Link, u64) {
        let mut link = self.link();
        let connected = link.connect(names, id).unwrap();
        assert_eq!(connected.status, Status::SUCCESS);
        (link, connected.result)
    }
}

fn is_let_in(link: &mut Link) -> bool {
    match link.property(0x1c, false) {
        Some(_) => link.identify(1, 0).unwrap().0 == Status::SUCCESS,
        None => false,
    }
}

fn gone(link: &mut Link) -> bool {
    matches!(link.completion(PATIENCE), Err(Silence::Disconnected))
}

#[test]
fn a_host_that_proves_its_name_is_let_in_on_every_queue() {
    let guarded = guarded(true);
    let mut names = names(&subsystem());
    let (mut admin, result) = guarded.connected(&names, 0);
    assert_eq!(result & !0xffff, WANTED);
    names.controller = result as u16;
    // Nothing else is done before.
    assert_eq!(admin.identify(1, 0).unwrap().0, Status::AUTHENTICATION_REQUIRED);
    assert_eq!(
        admin.set_property(0x14, 6 << 16 | 4 << 20 | 1),
        Some(Status::AUTHENTICATION_REQUIRED)
    );
    assert_eq!(receive(&mut admin), Err(Status::COMMAND_SEQUENCE));
    assert!(matches!(prove(&mut admin, &LINUX, None), Message::Success1 { response: None, .. }));
    assert!(is_let_in(&mut admin));
    assert_eq!(admin.set_property(0x14, 6 << 16 | 4 << 20 | 1), Some(Status::SUCCESS));
    admin.set_feature(7, 0).unwrap();
    // Both prove themselves.
    let (mut io, result) = guarded.connected(&names, 1);
    assert_eq!(result & !0xffff, WANTED);
    let flush = Command::of(0, 7, 1);
    assert_eq!(io.ask(&flush, &[]).unwrap().0.status, Status::AUTHENTICATION_REQUIRED);
    let answer = prove(&mut io, &LINUX, Some(vec![0x77; 48]));
    assert!(matches!(answer, Message::Success1 { response: Some(_), .. }));
    assert_eq!(io.ask(&flush, &[]).unwrap().0.status, Status::AUTHENTICATION_REQUIRED);
    send(&mut io, &Message::Success2 { transaction: TRANSACTION });
    assert_eq!(io.ask(&flush, &[]).unwrap().0.status, Status::SUCCESS);
    // Once more, as a host may at any time.
    assert!(matches!(prove(&mut admin, &LINUX, None), Message::Success1 { .. }));
    assert!(is_let_in(&mut admin));
    guarded.server.stop();
}

#[test]
fn a_host_proves_its_name_in_any_group_that_both_know() {
    let guarded = guarded(true);
    let names = names(&subsystem());
    for (groups, taken) in [
        (&[0][..], Group::Null),
        (&[0, 1], Group::Ffdhe2048),
        (&[1, 3, 0], Group::Ffdhe4096),
        (&[5, 2, 1], Group::Ffdhe3072),
    ] {
        let (mut admin, _) = guarded.connected(&names, 0);
        let host = Host { groups: (groups, taken), ..LINUX };
        let answer = prove(&mut admin, &host, Some(vec![0x77; 48]));
        assert!(matches!(answer, Message::Success1 { response: Some(_), .. }));
        send(&mut admin, &Message::Success2 { transaction: TRANSACTION });
        assert!(is_let_in(&mut admin));
        let (mut admin, _) = guarded.connected(&names, 0);
        let host = Host { groups: (groups, taken), ..WRONG };
        let answer = prove(&mut admin, &host, None);
        assert!(matches!(answer, Message::Failure1 { failure: Failure::Failed, .. }));
    }
    guarded.server.stop();
}

/// A value that would make the number known: 0, 1, p-1; and one of another length.
#[test]
fn a_value_that_is_none_of_the_group_is_refused() {
    let guarded = guarded(true);
    let names = names(&subsystem());
    let small = |number: u8| [&[0; 255][..], &[number]].concat();
    for value in [small(0), small(1), vec![0xff; 256], vec![7; 255], vec![7; 384], Vec::new()] {
        let (mut link, _) = guarded.connected(&names, 0);
        send(&mut link, &negotiate(&[1], &[1]));
        let Ok(Message::Challenge { transaction, hash, .. }) = receive(&mut link) else {
            panic!("no challenge")
        };
        let response = vec![0; hash.bytes()];
        let reply = Message::Reply { transaction, response, challenge: None, sequence: 0, value };
        // A length that is no multiple of four goes through as well.
        send(&mut link, &reply);
        let failure = Failure::Payload;
        assert_eq!(receive(&mut link), Ok(Message::Failure1 { transaction, failure }));
        assert!(gone(&mut link));
    }
    guarded.server.stop();
}

#[test]
fn a_wrong_secret_is_refused_with_the_protocols_words_and_ends_the_connection() {
    let guarded = guarded(false);
    let names = names(&subsystem());
    let (mut link, _) = guarded.connected(&names, 0);
    let refused = Message::Failure1 { transaction: TRANSACTION, failure: Failure::Failed };
    assert_eq!(prove(&mut link, &WRONG, None), refused);
    assert!(gone(&mut link));
    // A host that wants a proof that we cannot give.
    let (mut link, _) = guarded.connected(&names, 0);
    assert_eq!(prove(&mut link, &LINUX, Some(vec![1; 48])), refused);
    assert!(gone(&mut link));
    guarded.server.stop();
}

#[test]
fn messages_out_of_order_or_without_common_ground_are_refused() {
    let guarded = guarded(true);
    let names = names(&subsystem());
    let channel = Message::Negotiate { transaction: TRANSACTION, channel: true, chap: None };
    let other = Message::Negotiate { transaction: TRANSACTION, channel: false, chap: None };
    let reply = Message::Reply {
        transaction: 0,
        response: vec![0; 32],
        challenge: None,
        sequence: 0,
        value: Vec::new(),
    };
    for (bytes, expected) in [
        (negotiate(&[9], &[0]).encode(), Failure::Hash),
        (negotiate(&[1, 2, 3], &[4, 5]).encode(), Failure::Group),
        (channel.encode(), Failure::Concatenation),
        (other.encode(), Failure::Protocol),
        (reply.encode(), Failure::Message),
        (Message::Success2 { transaction: 0 }.encode(), Failure::Message),
        (negotiate(&[1], &[0]).encode()[..70].to_vec(), Failure::Payload),
        (vec![0xff; 100], Failure::Message),
    ] {
        let (mut link, _) = guarded.connected(&names, 0);
        assert_eq!(send_bytes(&mut link, &bytes), Status::SUCCESS);
        let Ok(Message::Failure1 { failure, .. }) = receive(&mut link) else { panic!("{bytes:?}") };
        assert_eq!(failure, expected);
        assert!(gone(&mut link));
    }
    let (mut link, _) = guarded.connected(&names, 0);
    let short = authentication(&mut link, 6, 8).with_data(Sgl::Transport(8));
    send(&mut link, &negotiate(&[1], &[0]));
    assert_eq!(link.ask(&short, &[]).unwrap().0.status, Status::INVALID_FIELD);
    let failure2 = Message::Failure2 { transaction: TRANSACTION, failure: Failure::Failed };
    send(&mut link, &failure2);
    assert!(gone(&mut link));
    guarded.server.stop();
}

#[test]
fn secrets_are_a_list_of_hosts_too_and_discovery_needs_no_proof() {
    let guarded = guarded(true);
    let (mut link, result) = guarded.connected(&names(DISCOVERY_NQN), 0);
    assert_eq!(result & WANTED, 0);
    assert!(is_let_in(&mut link));
    let mut other = names(&subsystem());
    other.host = "nqn.2026-01.org.example:other".to_owned();
    let refused = guarded.link().connect(&other, 0).unwrap();
    assert_eq!(refused.status, Status::CONNECT_INVALID_HOST);
    guarded.server.stop();
}

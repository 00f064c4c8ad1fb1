//! Clients that are refused: each with one line in the log, at the level that a server logs at unless it is told otherwise.
//!
//! One test, since the log is one for all.

#![forbid(unsafe_code)]
// Helpers of the test: unwrapping says that it has failed.
#![allow(clippy::unwrap_used)]

use braid_doors::nvme::host::{HOST_NQN, Link, PATIENCE, Silence, Wishes, names};
use braid_doors::nvme::proof::{Host, TRANSACTION, prove, send};
use braid_doors::nvme::{Nvme, limits, start, subsystem};
use braid_doors::{Adapter, Disk, Shape, nbd::Nbd};
use braid_export::Export;
use braid_nvme::protocol::authentication::{Failure, Message};
use braid_nvme::protocol::{Group, Status};
use braid_nvme::{HostSecrets, Limits};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HOST_SECRET: &str =
    "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:";
const OUR_SECRET: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The one line that the log has got since the last call.
fn one_line(about: &str) -> String {
    let bytes = std::mem::take(&mut *LOG.lock().unwrap());
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.lines().count(), 1, "{about}:\n{text}");
    text
}

/// Runs `client` at an NVMe door with these limits, and stops it.
fn at_nvme(limits: &Limits, client: impl FnOnce(&Path)) {
    let shards = braid_shard::threads::start(2).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let disk = Disk::new(Shape::default(), 1);
    let server = start(limits, &socket, shards.remotes(), Arc::new(disk));
    client(&socket);
    server.stop();
}

fn connected(socket: &Path) -> Link {
    let mut link = Link::new(UnixStream::connect(socket).unwrap(), Wishes::default()).unwrap();
    let connected = link.connect(&names(&subsystem()), 0).unwrap();
    assert_eq!(connected.status, Status::SUCCESS);
    link
}

fn gone(link: &mut Link) {
    assert_eq!(link.completion(PATIENCE).unwrap_err(), Silence::Disconnected);
}

/// A client that begins and does not go on is disconnected when its time is over.
fn late(adapter: &dyn Adapter) {
    let shards = braid_shard::threads::start(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let target = Arc::new(Disk::new(Shape::default(), 1));
    let limit = Duration::from_millis(50);
    let door = adapter.start_hurried(&socket, shards.remotes(), target, limit).unwrap();
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(&adapter.first_words()[..20]).unwrap();
    let mut said = Vec::new();
    // Until its end; a reset is one, too.
    let ended = client.read_to_end(&mut said);
    let waits = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!waits, "it is not disconnected");
    door.stop();
}

#[test]
fn each_refusal_is_one_line_in_the_log() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(|| Log)
        .init();
    let host = Host {
        name: HOST_NQN,
        secret: HOST_SECRET,
        controllers: OUR_SECRET,
        groups: (&[0, 1, 2, 3, 4, 5], Group::Ffdhe3072),
    };
    // A name that is not on the list.
    let others = Limits { hosts: vec!["nqn.2026-01.org.example:other".to_owned()], ..limits() };
    at_nvme(&others, |socket| {
        let mut link = Link::new(UnixStream::connect(socket).unwrap(), Wishes::default()).unwrap();
        let refused = link.connect(&names(&subsystem()), 0).unwrap();
        assert_eq!(refused.status, Status::CONNECT_INVALID_HOST);
    });
    let line = one_line("a wrong name");
    assert!(line.contains("not on the list") && line.contains(HOST_NQN), "{line}");
    // A wrong secret, and one that the host finds wrong.
    let secrets = HostSecrets {
        host: HOST_SECRET.parse().unwrap(),
        controller: Some(OUR_SECRET.parse().unwrap()),
    };
    let guarded = Limits { secrets: [(HOST_NQN.to_owned(), secrets)].into(), ..limits() };
    let (transaction, failure) = (TRANSACTION, Failure::Failed);
    at_nvme(&guarded, |socket| {
        let mut link = connected(socket);
        let answer = prove(&mut link, &Host { secret: OUR_SECRET, ..host }, None);
        assert_eq!(answer, Message::Failure1 { transaction, failure });
        gone(&mut link);
    });
    let line = one_line("a wrong secret");
    assert!(line.contains("authentication failed") && line.contains(HOST_NQN), "{line}");
    at_nvme(&guarded, |socket| {
        let mut link = connected(socket);
        let answer = prove(&mut link, &host, Some(vec![7; 48]));
        assert!(matches!(answer, Message::Success1 { response: Some(_), .. }));
        send(&mut link, &Message::Failure2 { transaction, failure });
        gone(&mut link);
    });
    let line = one_line("a controller that is not believed");
    assert!(line.contains("does not accept our proof"), "{line}");
    at_nvme(&guarded, |socket| drop(connected(socket)));
    assert!(one_line("a host that leaves").contains("it left before"));
    // Nobody is refused, so nothing is said.
    at_nvme(&guarded, |socket| {
        let answer = prove(&mut connected(socket), &host, None);
        assert!(matches!(answer, Message::Success1 { .. }));
    });
    assert_eq!(*LOG.lock().unwrap(), b"");
    for (adapter, who) in [(&Nbd as &dyn Adapter, "NBD client"), (&Nvme, "NVMe host")] {
        late(adapter);
        let line = one_line("a late client");
        assert!(line.contains(who) && line.contains("within 50ms"), "{line}");
    }
}

//! An export of another server as a member of an array: one life on all shards, with TLS too.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod support;

use std::cell::RefCell;
use std::process::{Child, Command};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use braid_device::{Device, IoError, IoErrorKind, IoSets, Op, Opener, Request, Target};
use braid_export::Export;
use braid_nbd::serve::{Limits, TlsMode};
use braid_nbd::{Address, ExportUri, RemoteMember};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::threads::{Shards, start};
use support::{Certificates, DISK_BYTES, RamTarget, World};

const GONE: IoError = IoError { kind: IoErrorKind::Gone, errno: 0 };

fn uri(world: &World, export: &str) -> ExportUri {
    format!("nbd+unix:///{export}?socket={}", world.socket().display()).parse().unwrap()
}

/// A client's process with two shards, of which the first opens the member first.
struct Host {
    shards: Shards,
    member: Arc<RemoteMember>,
}

/// The device that stays open on a shard.
type Kept = RefCell<Option<Rc<dyn Device>>>;

impl Host {
    fn new(uri: &ExportUri) -> Host {
        let host = Host {
            shards: start(2).unwrap(),
            member: Arc::new(RemoteMember::reach(uri, true).unwrap()),
        };
        for shard in [0, 1] {
            let member = Arc::clone(&host.member);
            host.on(shard, move |shard| async move {
                let device = member.open(&shard).unwrap();
                *shard.local::<Kept>().borrow_mut() = Some(device);
            });
        }
        host
    }

    fn remote(&self, shard: usize) -> &Remote {
        &self.shards.remotes()[shard]
    }

    fn on<T, F>(&self, shard: usize, act: impl FnOnce(Shard) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let ran = self.remote(shard).call_async(|shard, give| {
            let future = act(shard.clone());
            shard.spawn(async move { give(future.await) });
        });
        ran.unwrap()
    }

    /// Has the device of a shard do something; gives what was read.
    fn ask(
        &self,
        shard: usize,
        request: impl FnOnce(&Shard) -> Request + Send + 'static,
    ) -> Result<Vec<u8>, IoError> {
        self.on(shard, move |shard| async move {
            let device = shard.local::<Kept>().borrow().clone().unwrap();
            let outcome = IoSets::new(&shard).one(&*device, request(&shard)).await;
            outcome.result?;
            Ok(match outcome.op {
                Op::Read(bufs) => bufs.iter().flat_map(|buf| buf.to_vec()).collect(),
                _ => Vec::new(),
            })
        })
    }

    fn write(&self, shard: usize, at: u64, byte: u8, len: usize) -> Result<(), IoError> {
        let payload = move |shard: &Shard| shard.pool().copy_of(&vec![byte; len]).freeze();
        self.ask(shard, move |shard| Request::write(at, payload(shard), false)).map(drop)
    }

    fn read(&self, shard: usize, at: u64, len: usize) -> Result<Vec<u8>, IoError> {
        self.ask(shard, move |shard| Request::read(at, shard.pool().get(len)))
    }

    fn flush(&self, shard: usize) -> Result<(), IoError> {
        self.ask(shard, |_| Request::flush()).map(drop)
    }

    fn zero(&self, shard: usize, at: u64, len: u64) -> Result<(), IoError> {
        let op = move || Op::WriteZeroes { len, unmap: false, fua: true };
        self.ask(shard, move |_| Request { offset: at, op: op() }).map(drop)
    }

    fn discard(&self, shard: usize, at: u64, len: u64) -> Result<(), IoError> {
        self.ask(shard, move |_| Request { offset: at, op: Op::Discard { len } }).map(drop)
    }
}

#[test]
fn when_a_connection_is_lost_the_member_is_lost_on_all_shards() {
    let target: Arc<dyn Target> = Arc::new(RamTarget::new("disk", DISK_BYTES));
    let mut world = World::with(vec![Arc::clone(&target)]);
    let host = Host::new(&uri(&world, "disk"));
    // The second shard asks for nothing, so it has no connection yet.
    host.write(0, 0, 7, 4096).unwrap();
    world.stop();
    let after = World::with(vec![target]);
    std::fs::rename(after.socket(), world.socket()).unwrap();
    assert_eq!(host.flush(0), Err(GONE));
    // The server that is there now has not taken what was written: nobody may hear that it is durable.
    assert_eq!(host.flush(1), Err(GONE));
    assert_eq!(host.read(1, 0, 4096).err(), Some(GONE));
    let member = Arc::clone(&host.member);
    let said =
        host.on(1, move |shard| async move { member.open(&shard).err().unwrap().to_string() });
    assert!(said.contains("was lost"), "{said}");
    // Reached anew it is there.
    let again = Host::new(&uri(&world, "disk"));
    assert_eq!(again.read(1, 0, 4096).unwrap(), vec![7; 4096]);
}

#[test]
fn closing_a_member_loses_nothing() {
    let world = World::new();
    let host = Host::new(&uri(&world, "disk"));
    host.write(0, 4096, 3, 8192).unwrap();
    host.write(1, 16384, 4, 4096).unwrap();
    for shard in [0, 1] {
        host.on(shard, |shard| async move { drop(shard.local::<Kept>().take()) });
    }
    // The end of the connections that were closed above may come now.
    std::thread::sleep(Duration::from_millis(100));
    for shard in [1, 0] {
        let member = Arc::clone(&host.member);
        host.on(shard, move |shard| async move {
            *shard.local::<Kept>().borrow_mut() = Some(member.open(&shard).unwrap());
        });
        assert_eq!(host.read(shard, 8192, 4096).unwrap(), vec![3; 4096]);
    }
}

/// qemu-nbd over a file.
struct QemuNbd(Child);

impl QemuNbd {
    fn start(folder: &std::path::Path, words: &[&str]) -> QemuNbd {
        let (socket, disk) = (folder.join("socket"), folder.join("disk"));
        std::fs::File::create_new(&disk).unwrap().set_len(DISK_BYTES).unwrap();
        let child = Command::new("qemu-nbd")
            .args(["--persistent", "--format=raw", "--discard=unmap", "--export-name=disk"])
            .args(words)
            .arg("--socket")
            .args([&socket, &disk])
            .spawn();
        let child = child.expect("qemu-nbd; install it with: apt-get install qemu-utils");
        let mut server = QemuNbd(child);
        while !socket.exists() {
            assert!(server.0.try_wait().unwrap().is_none(), "qemu-nbd ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each kind of request from either shard.
fn exercise(host: &Host) {
    let mut expected = vec![0; 8 << 20];
    for (shard, at, byte) in [(0, 0, 1u8), (1, 1 << 20, 2), (0, 2 << 20, 3), (1, 3 << 20, 4)] {
        host.write(shard, at, byte, 1 << 20).unwrap();
        expected[at as usize..][..1 << 20].fill(byte);
    }
    for (shard, at) in [(1, 512 << 10), (0, (1 << 20) + (512 << 10))] {
        host.zero(shard, at, 8192).unwrap();
        expected[at as usize..][..8192].fill(0);
        host.discard(shard, 7 << 20, 65536).unwrap();
        host.flush(shard).unwrap();
    }
    for shard in [0, 1] {
        assert!(host.read(shard, 0, 8 << 20).unwrap() == expected, "shard {shard}");
    }
    let beyond = host.read(1, DISK_BYTES, 4096).unwrap_err();
    assert_eq!(beyond.kind, IoErrorKind::Invalid);
}

#[test]
fn two_shards_share_the_connection_of_a_server_that_has_one() {
    let folder = tempfile::tempdir().unwrap();
    // More clients than this one are not let in before it has left.
    let server = QemuNbd::start(folder.path(), &["--shared=1"]);
    let socket = folder.path().join("socket");
    let uri = format!("nbd+unix:///disk?socket={}", socket.display()).parse().unwrap();
    let host = Host::new(&uri);
    exercise(&host);
    drop(server);
    assert_eq!(host.read(1, 0, 4096).err(), Some(GONE));
    assert_eq!(host.flush(0), Err(GONE));
}

#[test]
fn each_shard_has_a_connection_to_a_server_that_flushes_for_all() {
    let world = World::new();
    let host = Host::new(&uri(&world, "disk"));
    exercise(&host);
    // The one that asked what is offered has left, or is about to.
    while world.server().clients().len() > 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(world.server().clients().len(), 2);
}

fn secure(certificates: &Certificates, world: &World, unix: bool) -> ExportUri {
    let folder = certificates.path();
    match (unix, world.tcp()) {
        (false, Address::Tcp(place)) => {
            format!("nbds://localhost:{}/disk?tls-certificates={folder}", place.port())
        }
        _ => {
            let socket = world.socket();
            format!("nbds+unix:///disk?socket={}&tls-certificates={folder}", socket.display())
        }
    }
    .parse()
    .unwrap()
}

#[test]
fn a_member_is_used_with_tls_by_clients_that_are_verified_and_servers_that_are() {
    for verify in [true, false] {
        let certificates = Certificates::of(verify);
        let tls = TlsMode::Require(certificates.load(verify));
        let world = World::within(&Limits { tls, ..Limits::default() });
        for unix in [true, false] {
            exercise(&Host::new(&secure(&certificates, &world, unix)));
        }
        // Without TLS, with another authority, or under another name.
        let refused = |uri: &ExportUri| RemoteMember::reach(uri, true).unwrap_err().to_string();
        assert!(refused(&uri(&world, "disk")).contains("TLS"), "{}", refused(&uri(&world, "disk")));
        let said = refused(&secure(&Certificates::new(), &world, verify));
        assert!(said.contains("check the certificates of both"), "{said}");
        let other = format!("{}&tls-hostname=elsewhere", secure(&certificates, &world, true));
        let said = refused(&other.parse().unwrap());
        assert!(said.contains("tls-hostname"), "{said}");
        let other = format!("{}&tls-hostname=127.0.0.1", secure(&certificates, &world, true));
        RemoteMember::reach(&other.parse().unwrap(), true).unwrap();
    }
    let (certificates, world) = (Certificates::new(), World::new());
    let said = RemoteMember::reach(&secure(&certificates, &world, true), true).unwrap_err();
    assert!(said.to_string().contains("has no TLS"), "{said}");
    std::fs::remove_file(certificates.folder.path().join("ca-cert.pem")).unwrap();
    let said = RemoteMember::reach(&secure(&certificates, &world, true), true).unwrap_err();
    assert!(said.to_string().contains("ca-cert.pem"), "{said}");
}

#[test]
fn a_client_without_a_certificate_is_refused_by_a_server_that_verifies() {
    let certificates = Certificates::new();
    let tls = TlsMode::Require(certificates.load(true));
    let world = World::within(&Limits { tls, ..Limits::default() });
    for whose in ["cert", "key"] {
        let own = certificates.folder.path().join(format!("client-{whose}.pem"));
        std::fs::remove_file(own).unwrap();
    }
    for unix in [true, false] {
        assert!(RemoteMember::reach(&secure(&certificates, &world, unix), true).is_err());
    }
}

#[test]
fn qemu_nbd_is_a_member_with_tls() {
    let (folder, certificates) = (tempfile::tempdir().unwrap(), Certificates::new());
    let object = format!(
        "tls-creds-x509,id=tls0,endpoint=server,verify-peer=on,dir={}",
        certificates.path()
    );
    let words = ["--object", &object, "--tls-creds", "tls0"];
    let _server = QemuNbd::start(folder.path(), &words);
    let uri = format!(
        "nbds+unix:///disk?socket={}&tls-certificates={}",
        folder.path().join("socket").display(),
        certificates.path()
    );
    exercise(&Host::new(&uri.parse().unwrap()));
}

//! A served RAM disk, and a plain blocking client that can misbehave.

// Each test binary uses its own part of this module.
#![allow(dead_code)]

use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use braid_device::ram::Ram;
use braid_device::{
    Completion, Device, DeviceInfo, OpenError, Opener, Request as DeviceRequest, Target, TargetInfo,
};
use braid_export::Export;
use braid_export::tls::Tls;
use braid_nbd::Address;
use braid_nbd::protocol::constants::*;
use braid_nbd::protocol::encode_option;
use braid_nbd::protocol::{
    ClientHandshake, ClientHandshakeStep, ClientOptions, Headers, Request, ServerOffer,
};
use braid_nbd::serve::{Limits, Server};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::threads::{Shards, start};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A RAM disk as a target.
pub struct RamTarget {
    ram: Ram,
    info: TargetInfo,
    slow: bool,
}

/// Carries each request out some turns after it was submitted, so that others come in between.
struct Slow {
    inner: Rc<dyn Device>,
    shard: Shard,
}

impl Device for Slow {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: DeviceRequest, done: Completion) {
        let (inner, shard) = (Rc::clone(&self.inner), self.shard.clone());
        self.shard.spawn(async move {
            for _ in 0..1 + request.offset / 512 % 3 {
                shard.next_turn().await;
            }
            inner.submit(request, done);
        });
    }
}

impl RamTarget {
    pub fn new(name: &str, size: u64) -> RamTarget {
        let ram = Ram::new(name, size);
        let info = TargetInfo {
            name: name.into(),
            description: format!("RAM disk {name}"),
            device: ram.device().info().clone(),
            read_only: false,
        };
        RamTarget { ram, info, slow: false }
    }

    /// Requests take some turns.
    pub fn slow(mut self) -> RamTarget {
        self.slow = true;
        self
    }

    /// Bytes that were read stay somewhere, as in a page cache.
    pub fn cached(mut self) -> RamTarget {
        self.info.device.direct = false;
        self
    }

    pub fn read_only(mut self) -> RamTarget {
        self.info.read_only = true;
        self
    }
}

impl Target for RamTarget {
    fn info(&self) -> TargetInfo {
        self.info.clone()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let inner = self.ram.open(shard)?;
        Ok(if self.slow { Rc::new(Slow { inner, shard: shard.clone() }) } else { inner })
    }
}

/// A folder of certificates, as qemu-nbd and nbdkit have it: an authority, a server of it, and clients too.
pub struct Certificates {
    pub folder: tempfile::TempDir,
}

impl Certificates {
    /// With a certificate for a client.
    pub fn new() -> Certificates {
        Certificates::of(true)
    }

    /// With a client's certificate, or without one.
    pub fn of(client: bool) -> Certificates {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: String| {
            std::fs::write(folder.path().join(name), text).expect("a writable folder");
        };
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "braid's authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        write("ca-cert.pem", authority.pem());
        let all = [("server", "localhost", true), ("client", "guest", client)];
        for (whose, name, _) in all.into_iter().filter(|(_, _, wanted)| *wanted) {
            let key = KeyPair::generate().expect("a key");
            let names = vec![name.to_owned(), "127.0.0.1".to_owned()];
            let mut params = CertificateParams::new(names).expect("names that are ones");
            params.distinguished_name.push(DnType::CommonName, name);
            let cert = params.signed_by(&key, &authority).expect("a certificate");
            write(&format!("{whose}-cert.pem"), cert.pem());
            write(&format!("{whose}-key.pem"), key.serialize_pem());
        }
        Certificates { folder }
    }

    pub fn load(&self, verify_peer: bool) -> Tls {
        Tls::load(self.folder.path(), verify_peer).expect("good certificates")
    }

    pub fn path(&self) -> &str {
        self.folder.path().to_str().expect("a plain name")
    }
}

/// A server on a unix socket and a TCP port, with its shards and its folder.
pub struct World {
    server: Option<Server>,
    pub shards: Shards,
    pub folder: tempfile::TempDir,
}

pub const DISK_BYTES: u64 = 64 << 20;

impl World {
    /// Serves "disk" (the default, 64 MiB) and "fixed" (read-only) on two shards.
    pub fn new() -> World {
        World::within(&Limits::default())
    }

    /// The same within limits.
    pub fn within(limits: &Limits) -> World {
        let targets: Vec<Arc<dyn Target>> = vec![
            Arc::new(RamTarget::new("disk", DISK_BYTES)),
            Arc::new(RamTarget::new("fixed", 1 << 20).read_only()),
        ];
        World::build(limits, targets)
    }

    pub fn with(targets: Vec<Arc<dyn Target>>) -> World {
        World::build(&Limits::default(), targets)
    }

    fn build(limits: &Limits, targets: Vec<Arc<dyn Target>>) -> World {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shards = start(2).expect("two shards with io_uring");
        let unix = Address::Unix(folder.path().join("nbd.sock"));
        let tcp = "tcp:127.0.0.1:0".parse().expect("a loopback address");
        let server =
            Server::start_within(limits, shards.remotes(), &[unix, tcp], targets, Some("disk"));
        World { server: Some(server.expect("a server")), shards, folder }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("not stopped yet")
    }

    /// Bytes of buffers in use on all shards.
    pub fn buffers(&self) -> usize {
        let used = |remote: &Remote| remote.call(|shard| shard.pool().outstanding());
        self.shards.remotes().iter().map(|remote| used(remote).expect("a shard")).sum()
    }

    pub fn unix(&self) -> Address {
        self.server().addresses()[0].clone()
    }

    pub fn tcp(&self) -> Address {
        self.server().addresses()[1].clone()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("nbd.sock")
    }

    pub fn stop(&mut self) {
        self.server.take().expect("not stopped yet").stop();
    }

    /// Runs an async function on the second shard, as a client there would.
    pub fn on_shard<T, F>(&self, act: impl FnOnce(Shard) -> F + Send + 'static) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let ran = self.shards.remotes()[1].call_async(|shard, give| {
            let future = act(shard.clone());
            shard.spawn(async move { give(future.await) });
        });
        ran.expect("the shard runs")
    }

    /// A plain client that has entered `export`.
    pub fn plain(&self, export: &str, structured: bool) -> Plain {
        Plain::enter(self.socket(), export, structured)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Before the shards.
        drop(self.server.take());
    }
}

/// A blocking client that sends exactly what it is told.
pub struct Plain {
    pub socket: UnixStream,
    pub offer: ServerOffer,
}

impl Plain {
    pub fn enter(path: PathBuf, export: &str, structured: bool) -> Plain {
        Plain::try_enter_with(path, export, structured).expect("the server speaks")
    }

    /// `None` when the server closes at once.
    pub fn try_enter(path: PathBuf, export: &str) -> Option<Plain> {
        Plain::try_enter_with(path, export, false)
    }

    fn try_enter_with(path: PathBuf, export: &str, structured: bool) -> Option<Plain> {
        let mut socket = UnixStream::connect(path).expect("a listening server");
        let headers = if structured { Headers::Structured } else { Headers::Simple };
        let options = ClientOptions { export: export.into(), headers };
        let mut handshake = ClientHandshake::new(options).expect("a short name");
        let mut input = [0; 1];
        loop {
            let mut out = Vec::new();
            // Byte by byte, so that nothing of the transmission phase is taken.
            socket.read_exact(&mut input).ok()?;
            let step = handshake.step(&mut &input[..], &mut out).expect("the server agrees");
            socket.write_all(&out).expect("the server listens");
            if let ClientHandshakeStep::Transmission(offer) = step {
                return Some(Plain { socket, offer: *offer });
            }
        }
    }

    /// A client that asks for no block sizes, and so may count in bytes: as `nbd-client` of Linux does.
    pub fn in_bytes(path: PathBuf, export: &str) -> Plain {
        let mut plain = Plain::enter(path.clone(), export, false);
        let mut socket = UnixStream::connect(path).expect("a listening server");
        let mut out = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes().to_vec();
        let (name, none) = (export.as_bytes(), 0u16.to_be_bytes());
        let length = (name.len() as u32).to_be_bytes();
        encode_option(&mut out, OPT_GO, &[&length, name, &none]);
        socket.write_all(&out).expect("the server listens");
        // The greeting, the export's size and flags, and the end of the option.
        socket.read_exact(&mut [0; 18 + 20 + 12 + 20]).expect("the server agrees");
        plain.socket = socket;
        plain
    }

    pub fn send(&mut self, request: Request, payload: &[u8]) {
        let message = [&request.encode()[..], payload].concat();
        self.socket.write_all(&message).expect("the server listens");
    }

    pub fn receive<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Everything until the server closes; a reset counts as the end.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.socket.read_to_end(&mut bytes);
        bytes
    }
}

//! A disk behind a door, on two shards.

use crate::client::{Client, PATIENCE};
use crate::{Disk, Shape};
use braid_device::Target;
use braid_export::{Export, Listening};
use braid_shard::mailbox::Remote;
use braid_shard::threads::{Shards, start};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Clients that a door of a rig serves at a time.
pub const CLIENTS_MAX: usize = 300;

/// The one thing that differs from door to door.
pub trait Adapter: Sync {
    /// The protocol's name, as the door gives it.
    fn protocol(&self) -> &'static str;

    /// Opens the door at `socket` for at most [`CLIENTS_MAX`] clients.
    fn start(&self, socket: &Path, shards: &[Remote], target: Arc<dyn Target>) -> Arc<dyn Export>;

    /// Opens it for clients who must have ended their handshake within `handshake`; `None` where there is none.
    fn start_hurried(
        &self,
        _socket: &Path,
        _shards: &[Remote],
        _target: Arc<dyn Target>,
        _handshake: Duration,
    ) -> Option<Arc<dyn Export>> {
        None
    }

    /// The beginning of a client's right words, which are not all in it; none where clients are no sockets.
    fn first_words(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Opens it at sockets that another has handed over.
    fn adopt(
        &self,
        sockets: Vec<Listening>,
        shards: &[Remote],
        target: Arc<dyn Target>,
    ) -> Arc<dyn Export>;

    /// A client of the target; `None` when it is turned away.
    fn connect(&self, socket: &Path) -> Option<Box<dyn Client>>;

    /// Messages that no client may send, for the start of a connection.
    fn garbage(&self) -> Vec<Vec<u8>>;

    /// True if this is where a client finds the door at `socket`.
    fn names(&self, location: &str, socket: &Path) -> bool {
        location.contains(socket.to_str().expect("plain text"))
    }

    /// True if a request that the target cannot take has an error of its own, so that it differs from one of the device.
    fn tells_refusals(&self) -> bool;

    /// True if its connected clients can go to a successor.
    fn passes_clients(&self) -> bool {
        false
    }
}

/// See the module's documentation.
pub struct Rig<'a> {
    /// The door's peculiarities.
    pub adapter: &'a dyn Adapter,
    /// The disk that is served.
    pub disk: Disk,
    /// The door.
    pub door: Arc<dyn Export>,
    shards: Shards,
    folder: tempfile::TempDir,
}

impl<'a> Rig<'a> {
    /// A usual disk.
    #[must_use]
    pub fn new(adapter: &'a dyn Adapter) -> Rig<'a> {
        Rig::of(adapter, Shape::default())
    }

    /// A disk of that shape.
    ///
    /// # Panics
    /// When the machine has no io_uring, or no room for a socket.
    #[must_use]
    pub fn of(adapter: &'a dyn Adapter, shape: Shape) -> Rig<'a> {
        let start =
            |socket: &Path, shards: &[Remote], target| Some(adapter.start(socket, shards, target));
        Rig::behind(adapter, shape, start).expect("a door")
    }

    /// A usual disk behind a door whose clients have so long for their handshakes; `None` where there are none.
    #[must_use]
    pub fn hurried(adapter: &'a dyn Adapter, handshake: Duration) -> Option<Rig<'a>> {
        Rig::behind(adapter, Shape::default(), |socket, shards, target| {
            adapter.start_hurried(socket, shards, target, handshake)
        })
    }

    fn behind(
        adapter: &'a dyn Adapter,
        shape: Shape,
        start_door: impl FnOnce(&Path, &[Remote], Arc<dyn Target>) -> Option<Arc<dyn Export>>,
    ) -> Option<Rig<'a>> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let shards = start(2).expect("two shards with io_uring");
        let disk = Disk::new(shape, 1);
        let target: Arc<dyn Target> = Arc::new(disk.clone());
        let door = start_door(&folder.path().join("socket"), shards.remotes(), target)?;
        Some(Rig { adapter, disk, door, shards, folder })
    }

    /// Where the door listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Another target for the same disk.
    #[must_use]
    pub fn target(&self) -> Arc<dyn Target> {
        Arc::new(self.disk.clone())
    }

    /// The shards.
    #[must_use]
    pub fn shards(&self) -> &[Remote] {
        self.shards.remotes()
    }

    /// A client.
    ///
    /// # Panics
    /// When it is turned away.
    #[must_use]
    pub fn client(&self) -> Box<dyn Client> {
        self.adapter.connect(&self.socket()).expect("the door lets a client in")
    }

    /// A connection without a client that speaks.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn connection(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).expect("a door");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        stream
    }

    /// Tasks that live on all shards.
    ///
    /// # Panics
    /// When a shard has ended.
    #[must_use]
    pub fn tasks(&self) -> usize {
        let tasks = |remote: &Remote| remote.call(|shard| shard.live_tasks()).expect("a shard");
        self.shards().iter().map(tasks).sum()
    }

    /// Bytes of buffers that all shards have given out.
    ///
    /// # Panics
    /// When a shard has ended.
    #[must_use]
    pub fn buffers(&self) -> usize {
        let used = |remote: &Remote| remote.call(|shard| shard.pool().outstanding());
        self.shards().iter().map(|remote| used(remote).expect("a shard")).sum()
    }

    /// A fresh client writes and reads back.
    ///
    /// # Panics
    /// When it cannot.
    pub fn assert_serves(&self) {
        let mut client = self.client();
        let size = client.properties().size;
        client.fill(size - 4096, 4096, 0x5a);
        assert_eq!(client.read(size - 4096, 4096), vec![0x5a; 4096]);
    }
}

/// Waits until `holds`.
///
/// # Panics
/// When it does not hold for long.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Drop for Rig<'_> {
    fn drop(&mut self) {
        self.disk.hold(false);
        // Before the shards.
        self.door.stop();
    }
}

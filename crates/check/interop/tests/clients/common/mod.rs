//! Arrays of members on disk, served over NBD by shards of this process, and fio as their client.
//!
//! Every call blocks: tests say what is to happen, one thing after the other, while shards and fio
//! run beside them. Nothing is left behind: the folder goes with the [`World`].

pub mod fio;
pub mod guest;

use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::error::ControlError;
use braid_array::options::{AssembleOptions, Context, CreateOptions, MemberSelector, SyncSpeed};
use braid_array::status::{ArrayStatus, JobKind, JobOutcome};
use braid_device::file::create_sparse;
use braid_device::spec::MemberSpec;
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_interop::by_braid::context;
use braid_nbd::serve::Server;
use braid_nbd::{Address, NbdUri};
use braid_shard::Shard;
use braid_shard::threads::Shards;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

pub const MIB: u64 = 1 << 20;
/// A limit on jobs in KiB per second and member, at which none comes to an end.
pub const CRAWLING: u64 = 64;

/// Shards, a folder for members and sockets, and no array yet.
pub struct World {
    shards: Shards,
    folder: tempfile::TempDir,
}

impl World {
    /// Two shards, a folder on disk.
    pub fn new() -> World {
        let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
        let shards = braid_shard::threads::start(2).expect("two shards with io_uring");
        World { shards, folder: folder.expect("a folder in /var/tmp") }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a sparse file and opens it as a member.
    pub fn new_member(&self, name: &str, size: u64) -> Arc<dyn Opener> {
        let path = self.folder().join(name);
        create_sparse(&path, size).expect("room for a sparse file");
        open_member(&path)
    }

    /// Creates the array of `members` and starts it, with its first resync [`CRAWLING`].
    pub fn create(&self, members: &[Arc<dyn Opener>], options: CreateOptions) -> Arc<Array> {
        let given = members.to_vec();
        let work = async move |ctx: Context| {
            let slots = given.iter().cloned().map(Some).collect();
            create(&ctx, slots, options).await.expect("create");
            let sync_speed = SyncSpeed { min_kib: 1, max_kib: CRAWLING };
            let options = AssembleOptions { sync_speed, ..AssembleOptions::default() };
            assemble(&ctx, given, options).await.expect("assemble")
        };
        self.at_home(work)
    }

    /// Starts the array of `members`.
    pub fn assemble(&self, members: Vec<Arc<dyn Opener>>) -> Arc<Array> {
        self.at_home(async move |ctx: Context| {
            assemble(&ctx, members, AssembleOptions::default()).await.expect("assemble")
        })
    }

    /// Serves `arrays`, each under its name.
    pub fn serve(&self, arrays: &[&Arc<Array>]) -> Served {
        let targets: Vec<Arc<dyn Target>> =
            arrays.iter().map(|array| Arc::clone(array) as Arc<dyn Target>).collect();
        let address = Address::Unix(self.folder().join("nbd.sock"));
        let addresses = [address.clone()];
        let server = Server::start(self.shards.remotes(), &addresses, targets, None);
        Served { server: server.expect("a server"), address }
    }

    /// Serves an array as a disk of virtual machines; gives its socket too.
    pub fn serve_disk(&self, array: &Arc<Array>) -> (braid_vhost::Server, PathBuf) {
        let path = self.folder().join("disk.sock");
        let limits = braid_vhost::Limits::default();
        let targets = [Arc::clone(array) as Arc<dyn Target>];
        let server =
            braid_vhost::Server::start(&limits, self.shards.remotes(), &path, None, &targets);
        (server.expect("a server"), path)
    }

    /// All bytes of an array.
    pub fn content(&self, array: &Arc<Array>) -> Vec<u8> {
        let array = Arc::clone(array);
        self.at_home(async move |ctx: Context| {
            let device = array.open(&ctx.shard).expect("open");
            let sets = IoSets::new(&ctx.shard);
            let size = device.info().size;
            let mut content = Vec::new();
            while (content.len() as u64) < size {
                let at = content.len() as u64;
                let buf = ctx.shard.pool().get(MIB.min(size - at) as usize);
                let outcome = sets.one(&*device, Request::read(at, buf)).await;
                outcome.result.expect("read");
                let Op::Read(bufs) = outcome.op else { panic!("a read gives its buffers back") };
                bufs.iter().for_each(|buf| content.extend_from_slice(buf));
            }
            content
        })
    }

    fn at_home<T, F>(&self, work: F) -> T
    where
        T: Send + 'static,
        F: AsyncFnOnce(Context) -> T + Send + 'static,
    {
        let remotes = self.shards.remotes().to_vec();
        let ran = self.shards.remotes()[0].call_async(move |shard: &Shard, done| {
            let ctx = context(shard, remotes);
            shard.spawn(async move { done(work(ctx).await) });
        });
        ran.expect("the home shard runs")
    }
}

/// Opens an existing file as a member.
pub fn open_member(path: &Path) -> Arc<dyn Opener> {
    MemberSpec::Path(path.to_path_buf()).prepare().expect("a member that can be opened")
}

/// A running server.
pub struct Served {
    server: Server,
    address: Address,
}

impl Served {
    pub fn uri(&self, array: &Arc<Array>) -> String {
        self.address.uri(array.name())
    }

    pub fn connections(&self) -> usize {
        self.server.connections()
    }
}

/// Blocking forms of what a [`Control`] does.
pub trait Steered {
    fn with<T: Send + 'static, W: Future<Output = T> + 'static>(
        &self,
        job: impl FnOnce(Rc<Control>) -> W + Send + 'static,
    ) -> T;

    fn status(&self) -> ArrayStatus {
        self.with(|control| async move { control.status().await })
    }

    fn wait_idle(&self) {
        self.with(|control| async move { control.jobs().wait_idle().await });
    }

    fn sync_speed(&self, max_kib: u64) {
        let set =
            self.with(move |control| async move { control.jobs().set_sync_speed(1, max_kib) });
        set.expect("a speed");
    }

    fn stop(&self) {
        self.with(|control| async move { control.stop().await });
    }

    /// Fails the member in `slot`.
    fn fail(&self, slot: usize) {
        let status = self.status();
        let nr = status.slots[slot].expect("the slot has a member");
        let failed = self.with(move |control| async move {
            control.membership().fail(&MemberSelector::Nr(nr)).await
        });
        failed.expect("the level can do without this member");
    }

    /// Takes out every faulty member.
    fn remove_faulty(&self) {
        let removed = self.with(|control| async move {
            for member in control.status().await.members {
                if member.fault.is_some() {
                    control.membership().remove(&MemberSelector::Nr(member.nr)).await?;
                }
            }
            Ok::<_, ControlError>(())
        });
        removed.expect("a faulty member can be removed");
    }

    fn add(&self, opener: Arc<dyn Opener>) {
        let added =
            self.with(|control| async move { control.membership().add(opener, false).await });
        added.expect("a member is added");
    }

    /// Compares redundancy with data all over the array; nothing may differ and nothing be missing.
    fn assert_redundant(&self, when: &str) {
        let status = self.with(|control| async move {
            control.jobs().wait_idle().await;
            control.jobs().start_check()?;
            control.jobs().wait_idle().await;
            Ok::<_, ControlError>(control.status().await)
        });
        let status = status.expect("a check starts");
        let last = status.last_job.as_ref().expect("the check was the last job");
        assert_eq!((last.kind, &last.outcome), (JobKind::Check, &JobOutcome::Done), "{when}");
        assert_eq!(status.mismatch_cnt, 0, "sectors of redundancy that do not match, {when}");
        assert_eq!(status.degraded, 0, "{when}: {}", status.state_line());
    }
}

impl Steered for Arc<Array> {
    fn with<T: Send + 'static, W: Future<Output = T> + 'static>(
        &self,
        job: impl FnOnce(Rc<Control>) -> W + Send + 'static,
    ) -> T {
        self.control(job).expect("the array runs")
    }
}

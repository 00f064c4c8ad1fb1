//! What braid does in the matrix: makes arrays, writes them, reads them back.

use crate::cell::Cell;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, Context, CreateBitmap, CreateOptions, MemberSelector};
use braid_device::blocks::Blocks;
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{Device, IoSets, Op, Opener, Request, Target};
use braid_format::superblock::Superblock;
use braid_layout::layout_number;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Most bytes of one request.
const STEP: usize = 1 << 20;

/// What arrays of this process may use of the outside world.
pub fn context(shard: &Shard, remotes: Vec<Remote>) -> Context {
    Context {
        shard: shard.clone(),
        remotes,
        wall_clock: Arc::new(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |since| since.as_secs())
        }),
        new_uuid: Arc::new(|| uuid::Uuid::new_v4().into_bytes()),
        has_ended: Arc::new(|_| false),
    }
}

/// What the engine may use when it runs on one shard, which is also its home.
pub fn own_context(shard: &Shard) -> Context {
    context(shard, vec![shard.remote()])
}

/// The superblock of the member at `path`, which must have one.
///
/// # Panics
/// When it has none, or cannot be read: a test that meets that has failed.
#[expect(clippy::expect_used, reason = "a test that meets an error has failed")]
pub fn superblock_at(shard: &Shard, path: &Path) -> Superblock {
    let member = FileMember::open(path, Mode::ReadOnly).expect("a member opens");
    let (home, shard) = (shard.clone(), shard.clone());
    let found = home
        .block_on(async move { braid_array::metadata::superblock::examine(&shard, &member).await });
    found.expect("a member is examined").superblock.expect("it has a superblock")
}

/// What an array shall hold: a pattern from some byte on.
#[derive(Clone)]
pub struct Content {
    bytes: Rc<Vec<u8>>,
    from: usize,
}

impl Content {
    /// `bytes` from byte `from` on.
    pub fn new(bytes: Rc<Vec<u8>>, from: usize) -> Content {
        Content { bytes, from }
    }

    fn get(&self, range: Range<usize>) -> Outcome<&[u8]> {
        let found = self.bytes.get(self.from + range.start..self.from + range.end);
        found.ok_or_else(|| {
            format!("the array is larger than its pattern, {} bytes", self.bytes.len())
        })
    }
}

/// A shard of this thread, and the folder with the members.
pub struct Braid {
    shard: Shard,
    folder: PathBuf,
    /// Logical blocks of the members, over and over.
    blocks: &'static [u32],
}

pub(crate) type Outcome<T> = Result<T, String>;

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Braid {
    /// With members in `folder`.
    ///
    /// # Errors
    /// When the kernel refuses an io_uring.
    pub fn new(folder: &Path) -> Outcome<Braid> {
        let shard = Shard::with_ring(0).map_err(text)?;
        Ok(Braid { shard, folder: folder.to_path_buf(), blocks: &[512] })
    }

    /// With members of these logical blocks, in bytes, beginning anew when there are more members.
    pub fn with_blocks(self, blocks: &'static [u32]) -> Braid {
        Braid { blocks, ..self }
    }

    /// Where member `nr` of the array with this name is.
    pub fn path(&self, name: &str, nr: usize) -> PathBuf {
        self.folder.join(format!("{name}.{nr}"))
    }

    /// Makes the files of a cell's members, empty.
    ///
    /// # Errors
    /// When there is no room.
    pub fn make_members(&self, cell: &Cell, name: &str) -> Outcome<()> {
        (0..cell.members).try_for_each(|nr| {
            create_sparse(self.path(name, nr), cell.member_size(nr)).map_err(text)
        })
    }

    /// Creates the array and assembles it, writes `content` all over it in requests of odd
    /// sizes, waits for its resync and stops it. Gives its size.
    ///
    /// # Errors
    /// What could not be done.
    pub fn make(&self, cell: &Cell, name: &str, content: &Content) -> Outcome<usize> {
        self.make_with(cell, name, content, CreateBitmap::Default)
    }

    /// As [`Braid::make`], with or without a write-intent bitmap.
    ///
    /// # Errors
    /// What could not be done.
    pub fn make_with(
        &self,
        cell: &Cell,
        name: &str,
        content: &Content,
        bitmap: CreateBitmap,
    ) -> Outcome<usize> {
        let openers = self.openers(name, 0..cell.members)?;
        let layout = cell.layout.map(|layout| layout_number(cell.level, layout)).transpose();
        let options = CreateOptions {
            layout: layout.map_err(text)?,
            chunk_size: cell.chunk_kib.map(|chunk| chunk << 10),
            version: cell.version,
            bitmap,
            ..CreateOptions::new("matrix", cell.level, cell.members)
        };
        let context = self.context();
        let given = openers.iter().cloned().map(Some).collect();
        self.run(async move { create(&context, given, options).await.map(drop).map_err(text) })?;
        let content = content.clone();
        self.with(openers, false, async move |array| {
            array.write_all(&content).await?;
            array.settle().await;
            array.size()
        })
    }

    /// Assembles the array and compares all of it with `content`. With `without` the members of
    /// those slots are left out and nothing is written.
    ///
    /// # Errors
    /// What could not be done, or where the first difference is.
    pub fn compare(
        &self,
        cell: &Cell,
        name: &str,
        content: &Content,
        without: &[usize],
    ) -> Outcome<()> {
        let members = (0..cell.members).filter(|nr| !without.contains(nr));
        let openers = self.openers(name, members)?;
        let content = content.clone();
        self.with(openers, !without.is_empty(), async move |array| array.compare(&content).await)
    }

    /// As [`Braid::compare`]; then writes `new` and counts mismatches, of which there must be none.
    ///
    /// # Errors
    /// What could not be done, or what was wrong.
    pub fn compare_and_write(
        &self,
        cell: &Cell,
        name: &str,
        old: &Content,
        new: &Content,
    ) -> Outcome<()> {
        let openers = self.openers(name, 0..cell.members)?;
        let (old, new, level) = (old.clone(), new.clone(), cell.level);
        self.with(openers, false, async move |array| {
            array.compare(&old).await?;
            let size = array.size()?;
            for at in (0..size).step_by(200 << 10) {
                let end = size.min(at + (200 << 10));
                array.write(at, new.get(at..end)?).await?;
            }
            if level.has_redundancy() { array.no_mismatch().await } else { Ok(()) }
        })
    }

    /// Assembles the array and writes `content` over it, 20 KiB at a time, until the process is killed or
    /// the array is full; tells `acknowledged` after each request how many bytes have been.
    ///
    /// # Errors
    /// What could not be done.
    pub fn write_on_and_on(
        &self,
        cell: &Cell,
        name: &str,
        content: &Content,
        acknowledged: impl Fn(usize) + 'static,
    ) -> Outcome<()> {
        let openers = self.openers(name, 0..cell.members)?;
        let content = content.clone();
        self.with(openers, false, async move |array| {
            let size = array.size()?;
            for at in (0..size).step_by(20 << 10) {
                let end = size.min(at + (20 << 10));
                array.write(at, content.get(at..end)?).await?;
                acknowledged(end);
            }
            Ok(())
        })
    }

    /// Assembles an array that was not stopped cleanly, lets it resync, and checks it: no mismatch is
    /// left, and each block of 4 KiB is that of `new` or of `old`. Gives the bytes that members have
    /// read and written for the resync.
    ///
    /// # Errors
    /// What could not be done, or what was wrong.
    pub fn resync(&self, cell: &Cell, name: &str, old: &Content, new: &Content) -> Outcome<u64> {
        let openers = self.openers(name, 0..cell.members)?;
        let (old, new) = (old.clone(), new.clone());
        self.with(openers, false, async move |array| {
            let before = array.control.status().await;
            if before.job.is_none() && before.last_job.is_none() {
                return Err(
                    "the array was killed while it was written, and is not resynced".to_owned()
                );
            }
            array.settle().await;
            let moved =
                array.control.status().await.members.iter().map(|member| member.io.bytes).sum();
            array.no_mismatch().await?;
            array.each_block_is_one_of(&old, &new).await?;
            Ok(moved)
        })
    }

    /// Each block of 4 KiB is that of `new` or of `old`; the members with the numbers `without` are left
    /// out, and nothing is written.
    ///
    /// # Errors
    /// What could not be done, or what was wrong.
    pub fn each_block(
        &self,
        cell: &Cell,
        name: &str,
        old: &Content,
        new: &Content,
        without: &[usize],
    ) -> Outcome<()> {
        let members = (0..cell.members).filter(|nr| !without.contains(nr));
        let openers = self.openers(name, members)?;
        let (old, new) = (old.clone(), new.clone());
        self.with(openers, true, async move |array| array.each_block_is_one_of(&old, &new).await)
    }

    /// Fails the member of slot `slot`, removes it, and has the member with number `spare` rebuilt in
    /// its place.
    ///
    /// # Errors
    /// What could not be done.
    pub fn replace(&self, cell: &Cell, name: &str, slot: usize, spare: usize) -> Outcome<()> {
        let openers = self.openers(name, 0..cell.members)?;
        let spare = self.openers(name, [spare])?.pop().ok_or("no spare")?;
        let failed = MemberSelector::Name(self.path(name, slot).display().to_string());
        self.with(openers, false, async move |array| {
            array.control.membership().fail(&failed).await.map_err(text)?;
            array.control.membership().remove(&failed).await.map_err(text)?;
            array.control.membership().add(spare, false).await.map_err(text)?;
            array.settle().await;
            match array.control.status().await.degraded {
                0 => array.no_mismatch().await,
                some => Err(format!("{some} slots are still not in sync after the rebuild")),
            }
        })
    }

    pub(crate) fn openers(
        &self,
        name: &str,
        members: impl IntoIterator<Item = usize>,
    ) -> Outcome<Vec<Arc<dyn Opener>>> {
        let open = |nr| {
            let member = FileMember::open(self.path(name, nr), Mode::ReadWrite);
            let member = member.map(|member| Arc::new(member) as Arc<dyn Opener>).map_err(text)?;
            let block = self.blocks.get(nr % self.blocks.len().max(1)).copied().unwrap_or(512);
            Ok(Arc::new(Blocks::new(member, block)) as Arc<dyn Opener>)
        };
        members.into_iter().map(open).collect()
    }

    pub(crate) fn context(&self) -> Context {
        context(&self.shard, vec![self.shard.remote()])
    }

    pub(crate) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.shard.block_on(future)
    }

    /// Assembles, does `work`, stops.
    fn with<T: 'static>(
        &self,
        openers: Vec<Arc<dyn Opener>>,
        read_only: bool,
        work: impl AsyncFnOnce(&Running) -> Outcome<T> + 'static,
    ) -> Outcome<T> {
        let (context, shard) = (self.context(), self.shard.clone());
        self.run(async move {
            let options = AssembleOptions { read_only, ..AssembleOptions::default() };
            let array = assemble(&context, openers, options).await.map_err(text)?;
            let control = Control::find(&shard, array.id()).ok_or("the array has no control")?;
            let device = array.open(&shard).map_err(text)?;
            let running = Running { _array: array, control, device, shard };
            let result = work(&running).await;
            running.control.stop().await;
            result
        })
    }
}

/// An array that runs.
pub(crate) struct Running {
    pub(crate) _array: Arc<Array>,
    pub(crate) control: Rc<Control>,
    pub(crate) device: Rc<dyn Device>,
    pub(crate) shard: Shard,
}

impl Running {
    pub(crate) fn size(&self) -> Outcome<usize> {
        usize::try_from(self.device.info().size).map_err(text)
    }

    pub(crate) async fn settle(&self) {
        self.control.jobs().wait_idle().await;
    }

    /// Writes `content` all over it in requests of odd sizes.
    pub(crate) async fn write_all(&self, content: &Content) -> Outcome<()> {
        let size = self.size()?;
        // So that full stripes, parts of them and spans over several all occur.
        let block = self.device.info().logical_block as usize;
        let steps = [64 << 10, 4096, 768 << 10, 512, 300 << 10, 20 * 512];
        let steps = steps.map(|step: usize| step.next_multiple_of(block));
        let (mut at, mut nr) = (0, 0);
        while at < size {
            let len = steps[nr % steps.len()].min(size - at);
            self.write(at, content.get(at..at + len)?).await?;
            at += len;
            nr += 1;
        }
        Ok(())
    }

    async fn write(&self, at: usize, bytes: &[u8]) -> Outcome<()> {
        let buf = self.shard.pool().copy_of(bytes).freeze();
        let request = Request::write(at as u64, buf, false);
        let outcome = IoSets::new(&self.shard).one(&*self.device, request).await;
        outcome.result.map_err(|error| format!("braid writing at byte {at}: {error}"))
    }

    pub(crate) async fn no_mismatch(&self) -> Outcome<()> {
        self.control.jobs().start_check().map_err(text)?;
        self.settle().await;
        match self.control.status().await.mismatch_cnt {
            0 => Ok(()),
            some => Err(format!("braid's check counts {some} mismatches")),
        }
    }

    async fn each_block_is_one_of(&self, old: &Content, new: &Content) -> Outcome<()> {
        for at in (0..self.size()?).step_by(4096) {
            let read = self.read(at, 4096).await?;
            if read != old.get(at..at + 4096)? && read != new.get(at..at + 4096)? {
                return Err(format!("the block at {at} is neither the old nor the new"));
            }
        }
        Ok(())
    }

    async fn read(&self, at: usize, len: usize) -> Outcome<Vec<u8>> {
        let request = Request::read(at as u64, self.shard.pool().get(len));
        let outcome = IoSets::new(&self.shard).one(&*self.device, request).await;
        outcome.result.map_err(|error| format!("braid reading at byte {at}: {error}"))?;
        let Op::Read(bufs) = outcome.op else { return Err("a read gave no bytes".to_owned()) };
        Ok(bufs.iter().flat_map(|buf| buf.iter().copied()).collect())
    }

    pub(crate) async fn compare(&self, content: &Content) -> Outcome<()> {
        let size = self.size()?;
        for at in (0..size).step_by(STEP) {
            let len = STEP.min(size - at);
            let read = self.read(at, len).await?;
            let expected = content.get(at..at + len)?;
            if let Some(first) = read.iter().zip(expected).position(|(a, b)| a != b) {
                return Err(format!("braid reads another byte at {}", at + first));
            }
        }
        Ok(())
    }
}

//! Shards without threads under one virtual clock, and members that can be made to fail.

use crate::array::Array;
use crate::assemble::assemble;
use crate::control::Control;
use crate::control::resizing::WantedSize;
use crate::create::{Created, create};
use crate::error::AssembleError;
use crate::options::{AssembleOptions, Context, CreateOptions};
use braid_device::blocks::Blocks;
use braid_device::ram::Ram;
use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, IoSets, Op, OpenError, Opener, Outcome,
    Request, Target,
};
use braid_format::superblock::Superblock;
use braid_layout::Level;
use braid_shard::{Nanos, Reactor, Shard};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub(super) struct Clock(Cell<Nanos>);

impl Reactor for Clock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, _: Option<Nanos>, _: &dyn Fn() -> bool) {}
}

/// Shards that take turns on this thread; time passes when none has anything to do.
pub(super) struct World {
    pub(super) shards: Vec<Shard>,
    clock: Rc<Clock>,
    pub(super) ctx: Context,
}

static UUIDS: AtomicU64 = AtomicU64::new(1);

impl Drop for World {
    fn drop(&mut self) {
        // Tasks hold their shards and shards their tasks: what a test leaves running would stay, with all its memory.
        for shard in &self.shards {
            shard.abandon();
        }
    }
}

impl World {
    pub(super) fn new(shards: u16) -> World {
        let clock = Rc::new(Clock(Cell::new(0)));
        let shards: Vec<Shard> = (0..shards)
            .map(|id| Shard::with_reactor(id, Rc::clone(&clock) as Rc<dyn Reactor>))
            .collect();
        let ctx = Context {
            shard: shards[0].clone(),
            remotes: shards.iter().map(Shard::remote).collect(),
            wall_clock: Arc::new(|| 1_700_000_000),
            has_ended: Arc::new(|_| false),
            new_uuid: Arc::new(|| {
                let nr = UUIDS.fetch_add(1, Ordering::Relaxed);
                let mut uuid = [0x5a; 16];
                uuid[..8].copy_from_slice(&nr.to_le_bytes());
                uuid
            }),
        };
        World { shards, clock, ctx }
    }

    /// Everything stops at once; the world after it has one shard.
    pub(super) fn crash(self) -> World {
        drop(self);
        World::new(1)
    }

    /// Runs `future` on the home shard to its end.
    pub(super) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let result: Rc<RefCell<Option<T>>> = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&result);
        self.shards[0].spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            self.step();
        }
    }

    /// Lets every shard have a turn; time passes when none has anything to do.
    pub(super) fn step(&self) {
        let mut progressed = false;
        let mut deadline: Option<Nanos> = None;
        for shard in &self.shards {
            let turn = shard.turn();
            progressed |= turn.progressed;
            deadline = deadline.into_iter().chain(turn.next_deadline).min();
        }
        if !progressed {
            let next = deadline.expect("nothing can happen any more, and the test waits");
            self.clock.0.set(self.clock.0.get().max(next));
        }
    }

    pub(super) fn create(&self, members: &[Arc<TestMember>], options: CreateOptions) -> Created {
        let openers = members.iter().map(|member| Arc::clone(member) as Arc<dyn Opener>);
        self.create_of(openers.collect(), options)
    }

    /// Creates an array of anything that can be opened.
    pub(super) fn create_of(
        &self,
        openers: Vec<Arc<dyn Opener>>,
        options: CreateOptions,
    ) -> Created {
        let (ctx, openers) = (self.ctx.clone(), openers.into_iter().map(Some).collect());
        self.run(async move { create(&ctx, openers, options).await }).unwrap()
    }

    pub(super) fn try_assemble(
        &self,
        members: &[Arc<TestMember>],
        options: AssembleOptions,
    ) -> Result<Arc<Array>, AssembleError> {
        let openers = members.iter().map(|member| Arc::clone(member) as Arc<dyn Opener>);
        self.try_assemble_of(openers.collect(), options)
    }

    /// Assembles an array of anything that can be opened.
    pub(super) fn try_assemble_of(
        &self,
        openers: Vec<Arc<dyn Opener>>,
        options: AssembleOptions,
    ) -> Result<Arc<Array>, AssembleError> {
        let ctx = self.ctx.clone();
        self.run(async move { assemble(&ctx, openers, options).await })
    }

    pub(super) fn assemble(&self, members: &[Arc<TestMember>]) -> (Arc<Array>, Rc<Control>) {
        let array = self.try_assemble(members, AssembleOptions::default()).unwrap();
        let control = Control::find(&self.shards[0], array.id()).unwrap();
        (array, control)
    }

    /// A running array of level 1, 4, 5, 6 or 10 that is full of a pattern, and its members of `size` bytes each, with or
    /// without a bad-block log.
    pub(super) fn full_array(
        &self,
        (level, disks): (Level, usize),
        size: u64,
        bad_block_log: bool,
    ) -> (Vec<Arc<TestMember>>, Arc<Array>, Rc<Control>) {
        let members = members("m", disks, size);
        let options = CreateOptions {
            assume_clean: true,
            bad_block_log,
            chunk_size: (level != Level::Raid1).then_some(64 << 10),
            ..CreateOptions::new("data", level, disks)
        };
        self.create(&members, options);
        let (array, control) = self.assemble(&members);
        let size = array.info().device.size as usize;
        self.write(&array, 0, 0, &pattern(0, size)).unwrap();
        (members, array, control)
    }

    /// A running array of these members that is full of a pattern, its first resync done.
    pub(super) fn filled(
        &self,
        members: &[Arc<TestMember>],
        options: CreateOptions,
    ) -> (Arc<Array>, Rc<Control>) {
        self.create(members, options);
        let (array, control) = self.assemble(members);
        self.wait_idle(&control);
        let size = array.info().device.size as usize;
        self.write(&array, 0, 0, &pattern(0, size)).unwrap();
        (array, control)
    }

    /// Adds a member.
    pub(super) fn add(&self, control: &Rc<Control>, member: &Arc<TestMember>) {
        let (control, opener) = (Rc::clone(control), Arc::clone(member));
        self.run(async move { control.membership().add(opener, false).await }).unwrap();
    }

    /// Shows users so many bytes.
    pub(super) fn show(&self, control: &Rc<Control>, bytes: u64) {
        let control = Rc::clone(control);
        let wanted = WantedSize::Bytes(bytes);
        self.run(async move { control.set_array_size(wanted, false).await }).unwrap();
    }

    pub(super) fn wait_idle(&self, control: &Rc<Control>) {
        let control = Rc::clone(control);
        self.run(async move { control.jobs().wait_idle().await });
    }

    pub(super) fn stop(&self, control: &Rc<Control>) {
        let control = Rc::clone(control);
        self.run(async move { control.stop().await });
    }

    pub(super) fn status(&self, control: &Rc<Control>) -> crate::status::ArrayStatus {
        let control = Rc::clone(control);
        self.run(async move { control.status().await })
    }

    /// Waits for the jobs that are due, compares redundancy with data and gives the sectors that differ.
    pub(super) fn check(&self, control: &Rc<Control>) -> u64 {
        self.wait_idle(control);
        control.jobs().start_check().unwrap();
        self.wait_idle(control);
        self.status(control).mismatch_cnt
    }

    pub(super) fn sleep(&self, nanos: Nanos) {
        let shard = self.shards[0].clone();
        self.run(async move { shard.sleep(nanos).await });
    }

    /// Writes through the array's device on shard `on`.
    pub(super) fn write(
        &self,
        array: &Array,
        on: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), IoError> {
        let shard = self.shards[on].clone();
        let device = array.open(&shard).unwrap();
        let buf = shard.pool().copy_of(bytes).freeze();
        let outcome = self.request(shard, device, Request::write(offset, buf, false));
        outcome.result
    }

    /// Reads through the array's device on shard `on`.
    pub(super) fn read(
        &self,
        array: &Array,
        on: usize,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, IoError> {
        let shard = self.shards[on].clone();
        let device = array.open(&shard).unwrap();
        let buf = shard.pool().get(len);
        let outcome = self.request(shard, device, Request::read(offset, buf));
        outcome.result?;
        match outcome.op {
            Op::Read(bufs) => Ok(bufs.iter().flat_map(|buf| buf.to_vec()).collect()),
            other => panic!("a read came back as {other:?}"),
        }
    }

    /// Begins to read on shard 0; [`end`](World::end) waits for it.
    pub(super) fn begin_read(&self, array: &Array, offset: u64, len: usize) -> UnderWay {
        let shard = self.shards[0].clone();
        let buf = shard.pool().get(len);
        self.begin(&shard, array.open(&shard).unwrap(), Request::read(offset, buf))
    }

    /// Begins to write on shard 0; [`end`](World::end) waits for it.
    pub(super) fn begin_write(&self, array: &Array, offset: u64, bytes: &[u8]) -> UnderWay {
        let shard = self.shards[0].clone();
        let buf = shard.pool().copy_of(bytes).freeze();
        self.begin(&shard, array.open(&shard).unwrap(), Request::write(offset, buf, false))
    }

    /// Waits for a request, and gives what a read has read.
    pub(super) fn end(&self, under_way: UnderWay) -> Result<Vec<u8>, IoError> {
        let outcome = self.outcome(&under_way);
        outcome.result?;
        match outcome.op {
            Op::Read(bufs) => Ok(bufs.iter().flat_map(|buf| buf.to_vec()).collect()),
            _ => Ok(Vec::new()),
        }
    }

    fn begin(&self, shard: &Shard, device: Rc<dyn Device>, request: Request) -> UnderWay {
        let result: UnderWay = Rc::default();
        let slot = Rc::clone(&result);
        let sets = IoSets::new(shard);
        shard.spawn(async move {
            let outcome = sets.one(&*device, request).await;
            *slot.borrow_mut() = Some(outcome);
        });
        result
    }

    fn outcome(&self, under_way: &UnderWay) -> Outcome {
        loop {
            if let Some(outcome) = under_way.borrow_mut().take() {
                return outcome;
            }
            self.step();
        }
    }

    fn request(&self, shard: Shard, device: Rc<dyn Device>, request: Request) -> Outcome {
        self.outcome(&self.begin(&shard, device, request))
    }

    /// The superblock that is on a member now.
    pub(super) fn superblock(&self, member: &Arc<TestMember>) -> Superblock {
        let (shard, member) = (self.shards[0].clone(), Arc::clone(member));
        let examined =
            self.run(async move { crate::metadata::superblock::examine(&shard, &*member).await });
        examined.unwrap().superblock.unwrap()
    }

    /// All bytes of a member.
    pub(super) fn contents(&self, member: &Arc<TestMember>) -> Vec<u8> {
        let shard = self.shards[0].clone();
        let device = member.ram.device();
        let len = device.info().size as usize;
        let buf = shard.pool().get(len);
        match self.request(shard, device, Request::read(0, buf)).op {
            Op::Read(bufs) => bufs.iter().flat_map(|buf| buf.to_vec()).collect(),
            other => panic!("a read came back as {other:?}"),
        }
    }

    /// Writes past the array, straight to a member.
    pub(super) fn scribble(&self, member: &Arc<TestMember>, offset: u64, bytes: &[u8]) {
        let shard = self.shards[0].clone();
        let buf = shard.pool().copy_of(bytes).freeze();
        let device = member.ram.device();
        self.request(shard, device, Request::write(offset, buf, true)).result.unwrap();
    }
}

/// A request that has begun, and how it came back.
pub(super) type UnderWay = Rc<RefCell<Option<Outcome>>>;

/// Where a device holds older bytes once its cache is lost, and which.
type Trap = Arc<Mutex<Option<(u64, Vec<u8>)>>>;

/// A RAM member that can be made to fail.
pub(super) struct TestMember {
    pub(super) ram: Arc<Ram>,
    pub(super) dead: Arc<AtomicBool>,
    /// Its logical block, when that is larger than a sector.
    pub(super) block: AtomicU32,
    /// Bytes of the device that it does not take; it gives what they held before.
    pub(super) defects: Arc<Mutex<Vec<Range<u64>>>>,
    /// It does not give these either.
    pub(super) unreadable: Arc<Mutex<Vec<Range<u64>>>>,
    /// Writes that are carried out before the power goes, all members that were made together counted;
    /// later ones are lost.
    pub(super) power: Arc<AtomicU64>,
    /// Bytes read from it and written to it.
    pub(super) read: Arc<AtomicU64>,
    pub(super) written: Arc<AtomicU64>,
    /// Requests that read from it.
    pub(super) reads: Arc<AtomicU64>,
    /// It has a head that moves.
    pub(super) rotational: AtomicBool,
    /// Nanoseconds that each read takes.
    pub(super) slow: Arc<AtomicU64>,
    /// It does not give these until they are written.
    pub(super) decayed: Arc<Mutex<Vec<Range<u64>>>>,
    /// The next flush fails, and the device then holds these older bytes there: its cache is lost.
    pub(super) trap: Trap,
    /// Nanoseconds that each flush takes.
    pub(super) slow_flush: Arc<AtomicU64>,
    /// Nanoseconds that each write takes.
    pub(super) slow_write: Arc<AtomicU64>,
    /// Flushes that it was asked for.
    pub(super) flushes: Arc<AtomicU64>,
    /// It refuses the next write that meets these bytes, and takes it when it is tried again.
    pub(super) refuses_once: Arc<Mutex<Option<Range<u64>>>>,
    /// Flushes and writes do not complete until this is false again.
    pub(super) hangs: Arc<AtomicBool>,
    /// Nor do reads.
    pub(super) deaf: Arc<AtomicBool>,
    /// The file system that it lies on is full.
    pub(super) full: Arc<AtomicBool>,
}

impl Opener for TestMember {
    fn name(&self) -> &str {
        self.ram.name()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let inner = Blocks::new(Arc::clone(&self.ram) as _, self.block.load(Ordering::Relaxed));
        let inner = inner.open(shard)?;
        let (dead, read, written) =
            (Arc::clone(&self.dead), Arc::clone(&self.read), Arc::clone(&self.written));
        let (defects, unreadable) = (Arc::clone(&self.defects), Arc::clone(&self.unreadable));
        let (power, decayed) = (Arc::clone(&self.power), Arc::clone(&self.decayed));
        let rotational = self.rotational.load(Ordering::Relaxed);
        Ok(Rc::new(TestDevice {
            info: DeviceInfo { rotational, ..inner.info().clone() },
            shard: shard.clone(),
            slow: Arc::clone(&self.slow),
            reads: Arc::clone(&self.reads),
            inner,
            dead,
            defects,
            unreadable,
            decayed,
            power,
            read,
            written,
            trap: Arc::clone(&self.trap),
            slow_flush: Arc::clone(&self.slow_flush),
            slow_write: Arc::clone(&self.slow_write),
            flushes: Arc::clone(&self.flushes),
            refuses_once: Arc::clone(&self.refuses_once),
            hangs: Arc::clone(&self.hangs),
            deaf: Arc::clone(&self.deaf),
            full: Arc::clone(&self.full),
        }))
    }
}

fn meets(list: &Mutex<Vec<Range<u64>>>, request: &Request) -> bool {
    let bytes = request.offset..request.offset + request.len();
    list.lock().unwrap().iter().any(|bad| bad.start < bytes.end && bytes.start < bad.end)
}

impl TestDevice {
    fn refuses_once(&self, request: &Request) -> bool {
        let bytes = request.offset..request.offset + request.len();
        let mut once = self.refuses_once.lock().unwrap();
        let meets = |bad: &mut Range<u64>| bad.start < bytes.end && bytes.start < bad.end;
        once.take_if(meets).is_some()
    }
}

struct TestDevice {
    inner: Rc<dyn Device>,
    info: DeviceInfo,
    shard: Shard,
    slow: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
    decayed: Arc<Mutex<Vec<Range<u64>>>>,
    dead: Arc<AtomicBool>,
    defects: Arc<Mutex<Vec<Range<u64>>>>,
    unreadable: Arc<Mutex<Vec<Range<u64>>>>,
    power: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    trap: Trap,
    slow_flush: Arc<AtomicU64>,
    slow_write: Arc<AtomicU64>,
    flushes: Arc<AtomicU64>,
    refuses_once: Arc<Mutex<Option<Range<u64>>>>,
    hangs: Arc<AtomicBool>,
    deaf: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
}

impl Device for TestDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        if self.dead.load(Ordering::Relaxed) {
            return done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op);
        }
        let data = matches!(request.op, Op::Write { .. } | Op::WriteZeroes { .. });
        if data && self.full.load(Ordering::Relaxed) {
            return done.finish(Err(IoError::new(IoErrorKind::NoSpace)), request.op);
        }
        let (hangs, deaf) = (Arc::clone(&self.hangs), Arc::clone(&self.deaf));
        let writes = !matches!(request.op, Op::Read(_));
        let hung = move || deaf.load(Ordering::Relaxed) || writes && hangs.load(Ordering::Relaxed);
        if hung() {
            let (inner, shard) = (Rc::clone(&self.inner), self.shard.clone());
            return self.shard.spawn(async move {
                while hung() {
                    shard.sleep(100_000_000).await;
                }
                inner.submit(request, done);
            });
        }
        if matches!(request.op, Op::Flush)
            && let Some((at, old)) = self.trap.lock().unwrap().take()
        {
            let buf = self.shard.pool().copy_of(&old).freeze();
            let sink = Rc::new(Nobody) as Rc<dyn braid_device::Sink>;
            self.inner.submit(Request::write(at, buf, true), Completion::new(sink, 0));
            return done.finish(Err(IoError::new(IoErrorKind::Medium)), request.op);
        }
        let refused = match &request.op {
            Op::Read(_) => meets(&self.unreadable, &request) || meets(&self.decayed, &request),
            Op::Write { .. } | Op::WriteZeroes { .. } => {
                meets(&self.defects, &request) || self.refuses_once(&request)
            }
            _ => false,
        };
        if refused {
            return done.finish(Err(IoError::new(IoErrorKind::Medium)), request.op);
        }
        match &request.op {
            Op::Read(_) => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.read.fetch_add(request.len(), Ordering::Relaxed)
            }
            Op::Write { .. } => {
                let bytes = request.offset..request.offset + request.len();
                let mut decayed = self.decayed.lock().unwrap();
                decayed.retain(|bad| bad.start < bytes.start || bytes.end < bad.end);
                self.written.fetch_add(request.len(), Ordering::Relaxed)
            }
            _ => 0,
        };
        if matches!(request.op, Op::Flush) {
            self.flushes.fetch_add(1, Ordering::Relaxed);
        }
        let slow = match request.op {
            Op::Read(_) => self.slow.load(Ordering::Relaxed),
            Op::Flush => self.slow_flush.load(Ordering::Relaxed),
            Op::Write { .. } => self.slow_write.load(Ordering::Relaxed),
            _ => 0,
        };
        if slow > 0 {
            let (inner, shard, nanos) = (Rc::clone(&self.inner), self.shard.clone(), slow);
            return self.shard.spawn(async move {
                shard.sleep(nanos).await;
                inner.submit(request, done);
            });
        }
        let left = self.power.load(Ordering::Relaxed);
        if left != u64::MAX && matches!(request.op, Op::Write { .. } | Op::WriteZeroes { .. }) {
            if left == 0 {
                return done.finish(Ok(()), request.op);
            }
            self.power.store(left - 1, Ordering::Relaxed);
        }
        self.inner.submit(request, done);
    }
}

/// Members `a`, `b`, … of `size` bytes each.
pub(super) fn members(prefix: &str, count: usize, size: u64) -> Vec<Arc<TestMember>> {
    let power = Arc::new(AtomicU64::new(u64::MAX));
    (0..count)
        .map(|nr| {
            Arc::new(TestMember {
                power: Arc::clone(&power),
                ram: Arc::new(Ram::new(format!("{prefix}{nr}"), size)),
                block: AtomicU32::new(512),
                dead: Arc::new(AtomicBool::new(false)),
                defects: Arc::default(),
                unreadable: Arc::default(),
                read: Arc::default(),
                written: Arc::default(),
                reads: Arc::default(),
                rotational: AtomicBool::new(false),
                slow: Arc::default(),
                decayed: Arc::default(),
                trap: Arc::default(),
                slow_flush: Arc::default(),
                slow_write: Arc::default(),
                flushes: Arc::default(),
                refuses_once: Arc::default(),
                hangs: Arc::default(),
                deaf: Arc::default(),
                full: Arc::default(),
            })
        })
        .collect()
}

/// Bytes that differ from place to place.
pub(super) fn pattern(offset: u64, len: usize) -> Vec<u8> {
    let at = |i: usize| (offset + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    (0..len).map(|i| at(i) as u8).collect()
}

/// Takes a completion that nobody waits for.
struct Nobody;

impl braid_device::Sink for Nobody {
    fn complete(&self, _: u64, _: Outcome) {}
}

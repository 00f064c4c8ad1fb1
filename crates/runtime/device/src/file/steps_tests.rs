//! Requests against a kernel that is difficult: it moves little at a time, is interrupted, does
//! not know how to punch holes.

use super::{Context, Flight, Step, Whole};
use crate::Completion;
use crate::error::{IoError, IoErrorKind};
use crate::request::Op;
use crate::testing::Seen;
use braid_shard::Pool;
use braid_shard::ring::RingOp;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

const BLOCK: usize = 512;

struct Kernel {
    pool: Pool,
    content: RefCell<Vec<u8>>,
    /// Bytes that one call moves at most.
    limit: usize,
    /// Every second call is interrupted.
    interrupts: bool,
    /// The errno of fallocate; 0 for success.
    fallocate: i32,
    whole: Cell<bool>,
    calls: RefCell<Vec<&'static str>>,
}

impl Kernel {
    fn new(limit: usize) -> Kernel {
        Kernel {
            pool: Pool::new(0),
            content: RefCell::new(vec![0xee; 1 << 20]),
            limit,
            interrupts: false,
            fallocate: 0,
            whole: Cell::new(true),
            calls: RefCell::default(),
        }
    }

    fn context(&self) -> Context {
        let null = std::fs::File::open("/dev/null").unwrap();
        let file = Whole::new(null.try_clone().unwrap().into(), false, 0);
        Context::new((null.into(), None), self.pool.clone(), BLOCK as u32, &file)
    }

    /// A context whose flushes have a descriptor of their own.
    fn means_for_flushes(&self) -> Context {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let file = Whole::new(null(), false, 0);
        Context::new((null(), Some(null())), self.pool.clone(), BLOCK as u32, &file)
    }

    fn call(&self, op: &mut RingOp) -> i32 {
        let name = match op {
            RingOp::Read { .. } => "read",
            RingOp::Write { durable: false, .. } => "write",
            RingOp::Write { durable: true, .. } => "write durable",
            RingOp::Sync { .. } => "sync",
            RingOp::Fallocate { mode, .. } if *mode & libc::FALLOC_FL_PUNCH_HOLE != 0 => "hole",
            _ => "zero range",
        };
        self.calls.borrow_mut().push(name);
        if self.interrupts && self.calls.borrow().len() % 2 == 1 {
            return -libc::EINTR;
        }
        let mut content = self.content.borrow_mut();
        let mut left = self.limit;
        match op {
            RingOp::Read { offset, bufs, .. } => {
                let mut at = *offset as usize;
                for buf in bufs {
                    let len = buf.len().min(left).min(content.len().saturating_sub(at));
                    buf[..len].copy_from_slice(&content[at..at + len]);
                    (at, left) = (at + len, left - len);
                }
                (at - *offset as usize) as i32
            }
            RingOp::Write { offset, bufs, .. } => {
                let mut at = *offset as usize;
                for buf in bufs {
                    let len = buf.len().min(left);
                    content[at..at + len].copy_from_slice(&buf[..len]);
                    (at, left) = (at + len, left - len);
                }
                (at - *offset as usize) as i32
            }
            RingOp::Fallocate { offset, len, .. } if self.fallocate == 0 => {
                content[*offset as usize..(*offset + *len) as usize].fill(0);
                0
            }
            RingOp::Fallocate { .. } => -self.fallocate,
            _ => 0,
        }
    }

    fn perform(&self, context: &Context, offset: u64, op: Op) -> (Result<(), IoError>, Op) {
        let done = Completion::new(Rc::new(Seen::default()), 0);
        let (mut flight, mut call) = match Flight::start(context, offset, op, done) {
            Ok(started) => started,
            Err((_, error, op)) => return (Err(error), op),
        };
        loop {
            let result = self.call(&mut call);
            match flight.next(context, result, call, &|| self.whole.get()) {
                Step::Call(next) => call = next,
                Step::End(result, op) => return (result, op),
            }
        }
    }

    fn read(&self, offset: u64, sizes: &[usize]) -> Result<Vec<u8>, IoErrorKind> {
        let bufs = sizes.iter().map(|len| self.pool.get(*len)).collect();
        let (result, op) = self.perform(&self.context(), offset, Op::Read(bufs));
        let Op::Read(bufs) = op else { panic!("not the read back") };
        assert_eq!(bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>(), sizes);
        result.map_err(|error| error.kind)?;
        Ok(bufs.iter().flat_map(|buf| buf.to_vec()).collect())
    }

    fn write(&self, offset: u64, bytes: &[u8], sizes: &[usize]) -> Result<(), IoErrorKind> {
        let mut at = 0;
        let cut = |len: &usize| {
            at += len;
            self.pool.copy_of(&bytes[at - len..at]).freeze()
        };
        let bufs = sizes.iter().map(cut).collect();
        let (result, op) = self.perform(&self.context(), offset, Op::Write { bufs, fua: true });
        let Op::Write { bufs, fua: true } = op else { panic!("not the write back") };
        assert_eq!(bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>(), sizes);
        result.map_err(|error| error.kind)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / BLOCK * 7 + at % 13) as u8).collect()
}

#[test]
fn short_reads_and_writes_are_continued_wherever_they_stop() {
    let sizes = [512, 4096, 1024, 8192, 512];
    let total = sizes.iter().sum();
    let bytes = pattern(total);
    for limit in [512, 700, 1024, 1536, 4608, 5000, 9000, total - 1, total] {
        for interrupts in [false, true] {
            let kernel = Kernel { interrupts, ..Kernel::new(limit) };
            kernel.write(4096, &bytes, &sizes).unwrap();
            assert!(kernel.content.borrow()[4096..4096 + total] == bytes, "limit {limit}");
            assert_eq!(kernel.content.borrow()[4095], 0xee);
            assert_eq!(kernel.content.borrow()[4096 + total], 0xee);
            assert!(kernel.read(4096, &sizes).unwrap() == bytes, "limit {limit}");
            // Every handle of the pieces was put back together.
            assert_eq!(kernel.pool.outstanding(), 0);
        }
    }
}

#[test]
fn a_read_that_gets_nowhere_is_gone() {
    let kernel = Kernel::new(1 << 20);
    kernel.content.borrow_mut().truncate(8192);
    assert_eq!(kernel.read(8192, &[512]), Err(IoErrorKind::Gone));
    assert_eq!(kernel.read(4096, &[4096, 4096]), Err(IoErrorKind::Gone));
    kernel.content.borrow_mut().truncate(8000);
    assert_eq!(kernel.read(7680, &[512]), Err(IoErrorKind::Gone));
}

#[test]
fn what_is_read_of_a_file_that_shrank_and_grew_again_is_no_data() {
    let kernel = Kernel::new(1 << 20);
    kernel.read(4096, &[4096]).unwrap();
    kernel.whole.set(false);
    assert_eq!(kernel.read(4096, &[4096]), Err(IoErrorKind::Gone));
}

#[test]
fn a_write_that_gets_nowhere_has_no_space() {
    let kernel = Kernel::new(100);
    assert_eq!(kernel.write(0, &pattern(1024), &[512, 512]), Err(IoErrorKind::NoSpace));
    kernel.whole.set(false);
    assert_eq!(kernel.write(0, &pattern(1024), &[512, 512]), Err(IoErrorKind::Gone));
}

#[test]
fn a_kernel_that_is_always_interrupted_fails_the_request_in_the_end() {
    let kernel = Kernel::new(1 << 20);
    let context = kernel.context();
    let done = Completion::new(Rc::new(Seen::default()), 0);
    let op = Op::Read(std::iter::once(kernel.pool.get(512)).collect());
    let Ok((mut flight, mut call)) = Flight::start(&context, 0, op, done) else {
        panic!("refused")
    };
    let mut calls = 0;
    let result = loop {
        calls += 1;
        match flight.next(&context, -libc::EAGAIN, call, &|| true) {
            Step::Call(next) => call = next,
            Step::End(result, _) => break result,
        }
    };
    assert_eq!(result.unwrap_err().errno, libc::EAGAIN);
    assert_eq!(calls, super::TRIES_MAX + 1);
}

#[test]
fn zeroes_are_written_where_ranges_cannot_be_zeroed_and_that_is_remembered() {
    let len = 600 * 1024;
    let kernel = Kernel { fallocate: libc::EOPNOTSUPP, ..Kernel::new(300 * 1024) };
    let context = kernel.context();
    for fua in [false, true] {
        kernel.content.borrow_mut().fill(0xee);
        let op = Op::WriteZeroes { len, unmap: true, fua };
        let (result, op) = kernel.perform(&context, 1024, op);
        result.unwrap();
        assert!(matches!(op, Op::WriteZeroes { len: back, unmap: true, .. } if back == len));
        let content = kernel.content.borrow();
        assert!(content[1024..1024 + len as usize].iter().all(|byte| *byte == 0));
        assert_eq!((content[1023], content[1024 + len as usize]), (0xee, 0xee));
    }
    let expected = ["hole", "zero range", "write", "write", "write durable", "write durable"];
    assert_eq!(*kernel.calls.borrow(), expected);
}

#[test]
fn zeroing_that_must_last_is_synced_and_keeps_space_unless_it_may_go() {
    let kernel = Kernel::new(1 << 20);
    let context = kernel.context();
    for (unmap, fua) in [(true, true), (false, true), (true, false), (false, false)] {
        let op = Op::WriteZeroes { len: 4096, unmap, fua };
        kernel.perform(&context, 0, op).0.unwrap();
    }
    let expected = ["hole", "sync", "zero range", "sync", "hole", "zero range"];
    assert_eq!(*kernel.calls.borrow(), expected);
}

#[test]
fn discards_that_are_not_supported_are_tried_once() {
    let kernel = Kernel { fallocate: libc::EOPNOTSUPP, ..Kernel::new(1 << 20) };
    let context = kernel.context();
    for _ in 0..3 {
        let (result, op) = kernel.perform(&context, 0, Op::Discard { len: 4096 });
        assert_eq!(result.unwrap_err().kind, IoErrorKind::Unsupported);
        assert!(matches!(op, Op::Discard { len: 4096 }));
    }
    assert_eq!(*kernel.calls.borrow(), ["hole"]);
}

#[test]
fn an_error_of_a_file_that_shrank_is_gone() {
    let kernel = Kernel { fallocate: libc::EIO, ..Kernel::new(1 << 20) };
    let context = kernel.context();
    let kind = || {
        let (result, _) = kernel.perform(&context, 0, Op::Discard { len: 4096 });
        result.unwrap_err().kind
    };
    assert_eq!(kind(), IoErrorKind::Medium);
    kernel.whole.set(false);
    assert_eq!(kind(), IoErrorKind::Gone);
}

#[test]
fn a_flush_has_a_descriptor_that_no_durable_write_uses() {
    let kernel = Kernel::new(usize::MAX);
    let context = kernel.means_for_flushes();
    let call = |op: Op| {
        let done = Completion::new(Rc::new(Seen::default()), 0);
        match Flight::start(&context, 0, op, done) {
            Ok((_, call)) => call,
            Err((_, error, _)) => panic!("{error}"),
        }
    };
    let RingOp::Sync { fd: of_flush } = call(Op::Flush) else { panic!("no sync") };
    let bufs = [kernel.pool.zeroed(BLOCK).freeze()].into_iter().collect();
    let write = call(Op::Write { bufs, fua: true });
    let RingOp::Write { fd: of_write, durable: true, .. } = write else { panic!("no write") };
    assert!(!Rc::ptr_eq(&of_flush, &of_write));
}

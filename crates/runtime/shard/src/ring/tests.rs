//! Operations through the kernel: files and sockets.

use crate::reactor::Reactor;
use crate::ring::{ARGUMENT, Bufs, Command, RingOp, before_submissions};
use crate::shard::Shard;
use rustix::fd::OwnedFd;
use smallvec::smallvec;
use std::cell::Cell;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

fn shard() -> Shard {
    Shard::with_ring(0).unwrap()
}

fn file(len: u64) -> Rc<OwnedFd> {
    let file = tempfile::tempfile().unwrap();
    file.set_len(len).unwrap();
    Rc::new(file.into())
}

fn perform(shard: &Shard, op: RingOp) -> (i32, RingOp) {
    shard.block_on(shard.perform(op)).unwrap()
}

#[test]
fn vectors_are_written_and_read_in_order_at_their_offset() {
    let shard = shard();
    let (pool, fd) = (shard.pool(), file(1 << 20));
    for durable in [false, true] {
        let bufs: Bufs = smallvec![
            pool.copy_of(b"one ").freeze(),
            pool.copy_of(b"two ").freeze(),
            pool.copy_of(b"three").freeze()
        ];
        let write = RingOp::Write { fd: Rc::clone(&fd), offset: 1000, bufs, durable };
        assert_eq!(perform(&shard, write).0, 13);
        let bufs = smallvec![pool.get(1), pool.get(12)];
        let (result, op) = perform(&shard, RingOp::Read { fd: Rc::clone(&fd), offset: 1000, bufs });
        let RingOp::Read { bufs, .. } = op else { panic!("not the read back") };
        assert_eq!((result, &*bufs[0], &*bufs[1]), (13, &b"o"[..], &b"ne two three"[..]));
    }
    assert_eq!(perform(&shard, RingOp::Sync { fd }).0, 0);
}

#[test]
fn results_are_those_of_the_system_calls() {
    let shard = shard();
    let fd = file(100);
    let read = |offset, fd: &Rc<OwnedFd>| {
        let bufs = smallvec![shard.pool().get(64)];
        perform(&shard, RingOp::Read { fd: Rc::clone(fd), offset, bufs }).0
    };
    assert_eq!((read(0, &fd), read(80, &fd), read(100, &fd)), (64, 20, 0));
    let directory: OwnedFd = std::fs::File::open("/").unwrap().into();
    assert_eq!(read(0, &Rc::new(directory)), -libc::EISDIR);
    let mode = libc::FALLOC_FL_PUNCH_HOLE;
    let hole = RingOp::Fallocate { fd, mode, offset: 0, len: 10 };
    assert_eq!(perform(&shard, hole).0, -libc::EOPNOTSUPP, "a hole asks for KEEP_SIZE");
}

#[test]
fn more_operations_than_the_queue_holds_all_complete() {
    let shard = shard();
    let (fd, done) = (file(0), Rc::new(Cell::new(0)));
    for number in 0..3000u64 {
        let bufs = smallvec![shard.pool().copy_of(&number.to_le_bytes()).freeze()];
        let write = shard.perform(RingOp::Write {
            fd: Rc::clone(&fd),
            offset: number * 8,
            bufs,
            durable: false,
        });
        let done = Rc::clone(&done);
        shard.spawn(async move {
            assert_eq!(write.await.unwrap().0, 8);
            done.set(done.get() + 1);
        });
    }
    let read = || {
        let bufs = smallvec![shard.pool().get(24000)];
        RingOp::Read { fd: Rc::clone(&fd), offset: 0, bufs }
    };
    let mut op = perform(&shard, read());
    while done.get() < 3000 {
        op = perform(&shard, read());
    }
    op = (op.0, perform(&shard, read()).1);
    let RingOp::Read { bufs, .. } = op.1 else { panic!("not the read back") };
    let numbers = bufs[0].chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
    assert!(numbers.eq(0..3000));
    assert_eq!(shard.ring().unwrap().in_flight(), 0);
}

/// Fills the submission queue more than twice over with operations that do not end by themselves.
fn many_waits(shard: &Shard) -> OwnedFd {
    let (read, write) = std::io::pipe().unwrap();
    let read: Rc<OwnedFd> = Rc::new(read.into());
    for _ in 0..1500 {
        drop(shard.perform(RingOp::Readable { fd: Rc::clone(&read) }));
    }
    write.into()
}

#[test]
fn a_shard_sleeps_only_when_all_is_handed_over() {
    let shard = shard();
    let write = many_waits(&shard);
    let sync = shard.perform(RingOp::Sync { fd: file(0) });
    let ring = shard.ring().unwrap();
    // If it sleeps too early it would sleep for ever; the deadline makes that a failure.
    ring.park(Some(ring.now() + 1_000_000_000), &|| true);
    assert_eq!((ring.unsubmitted.get(), ring.waiting.borrow().len()), (0, 0));
    assert_eq!(shard.block_on(sync).unwrap().0, 0);
    drop(write);
}

#[test]
fn the_bell_is_armed_though_the_queue_is_full() {
    let shard = shard();
    let write = many_waits(&shard);
    let (ring, remote) = (shard.ring().unwrap(), shard.remote());
    // The message comes after the last check, so only the bell can end the sleep before the deadline.
    ring.park(Some(ring.now() + 1_000_000_000), &|| remote.run(|_| {}));
    assert_eq!(**ring.bell_count.borrow(), 1, "the bell was heard");
    drop(write);
}

#[test]
fn a_connection_is_accepted_and_carries_bytes_both_ways() {
    let shard = shard();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let listener = Rc::new(OwnedFd::from(UnixListener::bind(&path).unwrap()));
    let client = UnixStream::connect(&path).unwrap();
    let (result, _) = perform(&shard, RingOp::Accept { fd: listener });
    assert!(result >= 0);
    drop(client);

    let (near, far) = UnixStream::pair().unwrap();
    let (near, far): (Rc<OwnedFd>, Rc<OwnedFd>) = (Rc::new(near.into()), Rc::new(far.into()));
    let pool = shard.pool();
    let bufs = smallvec![pool.copy_of(b"head").freeze(), pool.copy_of(b"body").freeze()];
    assert_eq!(perform(&shard, RingOp::Send { fd: near, bufs }).0, 8);
    assert!(perform(&shard, RingOp::Readable { fd: Rc::clone(&far) }).0 >= 0);
    let receive = || RingOp::Receive { fd: Rc::clone(&far), buf: pool.get(100) };
    let (result, op) = perform(&shard, receive());
    let RingOp::Receive { buf, .. } = op else { panic!("not the receive back") };
    assert_eq!((result, &buf[..8]), (8, &b"headbody"[..]));
    assert_eq!(perform(&shard, receive()).0, 0, "the other end is closed");
}

#[test]
fn an_abandoned_shard_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
    let fd = Rc::new(OwnedFd::from(listener));
    let shard = shard();
    let accept = shard.perform(RingOp::Accept { fd: Rc::clone(&fd) });
    while shard.turn().progressed {}
    assert_eq!(shard.ring().unwrap().in_flight(), 1);
    let waiting = shard.clone();
    shard.spawn(async move {
        // A task that never ends and holds its own shard.
        let _ = accept.await;
        waiting.yield_now().await;
    });
    shard.abandon();
    assert_eq!((shard.live_tasks(), shard.ring().unwrap().in_flight()), (0, 0));
    let ring = Rc::downgrade(shard.ring().unwrap());
    drop(shard);
    assert!(ring.upgrade().is_none(), "nothing keeps the ring");
    assert_eq!(Rc::strong_count(&fd), 1, "the operation was given back");
}

#[test]
fn a_shard_without_a_ring_says_so() {
    let shard = crate::testing::shard();
    let fd = file(0);
    assert!(shard.block_on(shard.perform(RingOp::Sync { fd })).is_none());
}

#[test]
fn commands_reach_the_driver_and_give_their_memory_back() {
    let shard = shard();
    let memory = shard.pool().copy_of(b"as it was");
    let command = |path: &str, memory| {
        let fd: Rc<OwnedFd> = Rc::new(std::fs::File::open(path).unwrap().into());
        // SAFETY: neither driver has been passed any memory before.
        let command = unsafe { Command::new(fd, 0, [0; ARGUMENT], smallvec![memory], true) };
        let (result, op) = perform(&shard, RingOp::Command(command));
        let RingOp::Command(command) = op else { panic!("not the command back") };
        (result, command.into_memory().pop().unwrap())
    };
    let possible = shard.ring().unwrap().takes_commands();
    // /dev/null accepts any command since Linux 6.0.
    let (result, memory) = command("/dev/null", memory);
    assert_eq!(result, if possible { 0 } else { -libc::EOPNOTSUPP });
    let (result, memory) = command("/dev/zero", memory);
    assert_eq!((result, &*memory), (-libc::EOPNOTSUPP, &b"as it was"[..]));
}

#[test]
fn what_waits_on_one_descriptor_is_cancelled_and_nothing_else() {
    let shard = shard();
    let pair = || UnixStream::pair().unwrap();
    let ((one, _here), (other, mut there)) = (pair(), pair());
    let (one, other): (Rc<OwnedFd>, Rc<OwnedFd>) = (Rc::new(one.into()), Rc::new(other.into()));
    let receive = |fd: &Rc<OwnedFd>| {
        shard.perform(RingOp::Receive { fd: Rc::clone(fd), buf: shard.pool().get(8) })
    };
    let (cancelled, goes_on) = (receive(&one), receive(&other));
    let ring = shard.ring().unwrap();
    ring.cancel_on(&one).unwrap();
    assert_eq!(shard.block_on(cancelled).unwrap().0, -libc::ECANCELED);
    // Nothing is left to be cancelled.
    ring.cancel_on(&one).unwrap();
    std::io::Write::write_all(&mut there, b"here").unwrap();
    assert_eq!(shard.block_on(goes_on).unwrap().0, 4);
}

#[test]
fn whoever_wants_to_is_asked_before_anything_is_handed_to_the_kernel() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let ask = || {
        ASKED.fetch_add(1, Ordering::SeqCst);
    };
    assert!(before_submissions(Box::new(ask)));
    assert!(!before_submissions(Box::new(|| ())), "there is one already");
    let shard = shard();
    let bufs = smallvec![shard.pool().get(64)];
    let before = ASKED.load(Ordering::SeqCst);
    perform(&shard, RingOp::Read { fd: file(100), offset: 0, bufs });
    assert!(ASKED.load(Ordering::SeqCst) > before);
}

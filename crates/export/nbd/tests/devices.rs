//! The server over devices that are slow, out of order, failing, or forgetful.

mod support;

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use braid_device::ram::Ram;
use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, IoSets, Op, OpenError,
    Request as DeviceRequest, Target, TargetInfo,
};
use braid_nbd::protocol::constants::*;
use braid_nbd::protocol::{Command, Request};
use braid_shard::Shard;
use support::World;

/// The MiB in which a request begins decides how the device treats it.
const NORMAL: u64 = 0;
const FAILING: u64 = 1 << 20;
const FORGETFUL: u64 = 2 << 20;
/// Carried out once the test lets it.
const LATE: u64 = 3 << 20;
const UNSUPPORTED: u64 = 4 << 20;
const FULL: u64 = 5 << 20;

type Log = Arc<Mutex<Vec<String>>>;

/// A device of 8 MiB that misbehaves by place and keeps a log.
struct Moody {
    info: DeviceInfo,
    log: Log,
    let_go: Arc<AtomicBool>,
    ram: Arc<Ram>,
}

impl Moody {
    fn new() -> Moody {
        let info = DeviceInfo { writes_zeroes: false, ..DeviceInfo::plain("disk", 8 << 20) };
        Moody {
            info,
            log: Log::default(),
            let_go: Arc::default(),
            ram: Arc::new(Ram::new("disk", 8 << 20)),
        }
    }
}

impl Target for Moody {
    fn info(&self) -> TargetInfo {
        let (device, description) = (self.info.clone(), String::new());
        TargetInfo { name: "disk".into(), description, device, read_only: false }
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Ok(Rc::new(MoodyDevice {
            info: self.info.clone(),
            log: Arc::clone(&self.log),
            ram: self.ram.device(),
            let_go: Arc::clone(&self.let_go),
            shard: shard.clone(),
        }))
    }
}

struct MoodyDevice {
    info: DeviceInfo,
    log: Log,
    ram: Rc<dyn Device>,
    let_go: Arc<AtomicBool>,
    shard: Shard,
}

impl Device for MoodyDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: DeviceRequest, done: Completion) {
        let name = match &request.op {
            Op::Read(_) => "read".to_owned(),
            Op::Write { fua, .. } => format!("write fua={fua}"),
            Op::Flush => "flush".to_owned(),
            Op::Discard { len } => format!("discard {len}"),
            Op::WriteZeroes { len, unmap, fua } => format!("zeroes {len} unmap={unmap} fua={fua}"),
        };
        self.log.lock().expect("no test panics with it").push(name);
        match request.offset >> 20 << 20 {
            FAILING => done.finish(Err(IoError::new(IoErrorKind::Medium)), request.op),
            UNSUPPORTED => {
                done.finish(Err(IoError::new(IoErrorKind::Unsupported)), request.op);
            }
            FULL => done.finish(Err(IoError::new(IoErrorKind::NoSpace)), request.op),
            FORGETFUL => drop(done),
            LATE => {
                let (shard, ram) = (self.shard.clone(), Rc::clone(&self.ram));
                let let_go = Arc::clone(&self.let_go);
                self.shard.spawn(async move {
                    while !let_go.load(Ordering::Relaxed) {
                        shard.sleep(1_000_000).await;
                    }
                    ram.submit(request, done);
                });
            }
            _ => self.ram.submit(request, done),
        }
    }
}

fn world() -> (World, Arc<Moody>) {
    let moody = Arc::new(Moody::new());
    (World::with(vec![Arc::clone(&moody) as Arc<dyn Target>]), moody)
}

impl Moody {
    fn log(&self) -> Vec<String> {
        self.log.lock().expect("no test panics with it").clone()
    }

    fn let_go(&self) {
        self.let_go.store(true, Ordering::Relaxed);
    }
}

fn request(cookie: u64, command: Command, flags: u16, offset: u64, length: u32) -> Request {
    Request { cookie, command, flags, offset, length: length.into() }
}

fn simple_reply(error: u32, cookie: u64) -> Vec<u8> {
    [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

#[test]
fn device_errors_become_protocol_errors_and_the_connection_goes_on() {
    let (world, _moody) = world();
    let mut client = world.plain("disk", false);
    let cases = [
        (Command::Read, FAILING, 5),
        (Command::Write, FAILING, 5),
        (Command::Read, FORGETFUL, 5),
        (Command::Write, FORGETFUL, 5),
        (Command::Write, FULL, 28),
        (Command::WriteZeroes, UNSUPPORTED, 22),
        // Only a hint: nothing is lost when it cannot be done.
        (Command::Trim, UNSUPPORTED, 0),
    ];
    for (cookie, (command, offset, error)) in (0..).zip(cases) {
        let payload: &[u8] = if command == Command::Write { &[1; 4096] } else { &[] };
        client.send(request(cookie, command, 0, offset, 4096), payload);
        assert_eq!(client.receive::<16>()[..], simple_reply(error, cookie), "{command:?}");
    }
    client.send(request(99, Command::Flush, 0, 0, 0), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 99));
}

#[test]
fn replies_come_in_the_order_of_completion() {
    let (world, moody) = world();
    let mut client = world.plain("disk", false);
    client.send(request(1, Command::Write, 0, LATE, 512), &[7; 512]);
    client.send(request(2, Command::Write, 0, NORMAL, 512), &[8; 512]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 2));
    moody.let_go();
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
}

#[test]
fn what_a_client_that_left_had_asked_for_is_carried_out_before_its_connection_goes() {
    let (mut world, moody) = world();
    let mut client = world.plain("disk", false);
    client.send(request(1, Command::Write, 0, LATE, 512), &[7; 512]);
    client.send(request(2, Command::Flush, 0, 0, 0), &[]);
    // The flush is done, so the write before it is with the device.
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 2));
    drop(client);
    assert_eq!(world.server().connections(), 1);
    moody.let_go();
    // Waits for the connection, and that one for its device.
    world.stop();
    let data = world.on_shard(move |shard| async move {
        let read = DeviceRequest::read(LATE, shard.pool().get(512));
        let outcome = IoSets::new(&shard).one(&*moody.ram.device(), read).await;
        match outcome.op {
            Op::Read(bufs) => bufs[0].to_vec(),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(data, [7; 512]);
}

#[test]
fn forced_unit_access_reaches_the_device_and_a_trim_with_it_is_flushed() {
    let (world, moody) = world();
    let mut client = world.plain("disk", false);
    let fua = CMD_FLAG_FUA;
    client.send(request(1, Command::Write, fua, 0, 512), &[1; 512]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    client.send(request(2, Command::Trim, fua, 0, 4096), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 2));
    client.send(request(3, Command::Trim, 0, 0, 4096), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 3));
    client.send(request(4, Command::WriteZeroes, fua | CMD_FLAG_NO_HOLE, 0, 512), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 4));
    client.send(request(5, Command::WriteZeroes, 0, 0, 512), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 5));
    let expected = [
        "write fua=true",
        "discard 4096",
        "flush",
        "discard 4096",
        "zeroes 512 unmap=false fua=true",
        "zeroes 512 unmap=true fua=false",
    ];
    assert_eq!(moody.log(), expected);
}

#[test]
fn fast_zero_fails_fast_where_zeroing_is_no_faster_than_writing() {
    let (world, moody) = world();
    let mut client = world.plain("disk", false);
    assert!(client.offer.export.features.fast_zero);
    client.send(request(1, Command::WriteZeroes, CMD_FLAG_FAST_ZERO, 0, 4096), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(95, 1));
    assert!(moody.log().is_empty());
}

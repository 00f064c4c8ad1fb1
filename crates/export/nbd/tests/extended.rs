//! Clients whose headers are extended: the bytes on the wire are written out here, apart from the server's own encoding.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod support;

use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use braid_device::{
    Completion, Device, DeviceInfo, FindHoles, Holes, IoErrorKind, IoSets, Op, OpenError,
    Request as DeviceRequest, Target, TargetInfo,
};
use braid_nbd::protocol::constants::*;
use braid_nbd::protocol::{ClientOptions, Headers, encode_option};
use braid_shard::Shard;
use support::{DISK_BYTES, World};

const TIB: u64 = 1 << 40;
const VAST_BYTES: u64 = 64 * TIB;
/// All of the vast device from here on is a hole.
const DATA_BYTES: u64 = 1 << 20;

/// The requests that were carried out, and their bytes.
type Log = Vec<(&'static str, Range<u64>)>;

/// A device that is as large as no memory is, and notes what it is asked to do.
#[derive(Clone)]
struct Vast {
    info: DeviceInfo,
    log: Arc<Mutex<Log>>,
    /// Zeroes take a millisecond.
    slow: Arc<AtomicBool>,
}

struct VastDevice {
    vast: Vast,
    shard: Shard,
}

impl Vast {
    fn new() -> Vast {
        let info = DeviceInfo {
            direct: false,
            discards: true,
            writes_zeroes: true,
            ..DeviceInfo::plain("vast", VAST_BYTES)
        };
        Vast { info, log: Arc::default(), slow: Arc::default() }
    }

    fn world(&self) -> World {
        World::with(vec![Arc::new(self.clone())])
    }

    fn log(&self) -> Log {
        self.log.lock().unwrap().clone()
    }

    /// The requests of this name: how many, and their bytes, one piece joined to the next.
    fn done(&self, name: &str, longest: u64) -> (usize, Range<u64>) {
        let log = self.log();
        let mut pieces = log.iter().filter(|(done, _)| *done == name).map(|(_, range)| range);
        let mut all = pieces.next().unwrap().clone();
        let mut count = 1;
        assert!(all.end - all.start <= longest);
        for piece in pieces {
            assert_eq!(piece.start, all.end, "pieces come one after the other");
            assert!(piece.end - piece.start <= longest);
            (all.end, count) = (piece.end, count + 1);
        }
        (count, all)
    }
}

impl Target for Vast {
    fn info(&self) -> TargetInfo {
        let (device, description) = (self.info.clone(), String::new());
        TargetInfo { name: "disk".into(), description, device, read_only: false }
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Ok(Rc::new(VastDevice { vast: self.clone(), shard: shard.clone() }))
    }
}

impl Device for VastDevice {
    fn info(&self) -> &DeviceInfo {
        &self.vast.info
    }

    fn submit(&self, request: DeviceRequest, done: Completion) {
        let DeviceRequest { offset, op } = request;
        let (name, len) = match &op {
            Op::Read(bufs) => ("read", bufs.iter().map(|buf| buf.len() as u64).sum()),
            Op::Write { bufs, .. } => ("write", bufs.iter().map(|buf| buf.len() as u64).sum()),
            Op::Flush => ("flush", 0),
            Op::Discard { len } => ("trim", *len),
            Op::WriteZeroes { len, .. } => ("zeroes", *len),
        };
        self.vast.log.lock().unwrap().push((name, offset..offset + len));
        let slow = self.vast.slow.load(Ordering::Relaxed) && name == "zeroes";
        let shard = self.shard.clone();
        self.shard.spawn(async move {
            match slow {
                true => shard.sleep(1_000_000).await,
                false => shard.next_turn().await,
            }
            done.finish(Ok(()), op);
        });
    }

    fn holes(&self, bytes: Range<u64>) -> FindHoles {
        let hole = DATA_BYTES.clamp(bytes.start, bytes.end)..bytes.end;
        let mut holes = Holes { until: bytes.end, ranges: Vec::new() };
        holes.push(hole);
        Box::pin(std::future::ready(holes))
    }
}

/// A client that has agreed on extended headers and `base:allocation`.
struct Client(UnixStream);

/// A reply: its type, the cookie, the offset, and its payload.
type Reply = (u16, u64, u64, Vec<u8>);

impl Client {
    fn enter(path: PathBuf) -> Client {
        let mut socket = UnixStream::connect(path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut out = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes().to_vec();
        encode_option(&mut out, OPT_EXTENDED_HEADERS, &[]);
        let context = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
        encode_option(&mut out, OPT_SET_META_CONTEXT, &[context]);
        // With block sizes.
        encode_option(&mut out, OPT_GO, &[b"\0\0\0\x04disk\0\x01\0\x03"]);
        socket.write_all(&out).unwrap();
        // The greeting; four acknowledgements or answers with what they tell.
        socket.read_exact(&mut [0; 18]).unwrap();
        for length in [0, 19, 0, 12, 14, 0] {
            let mut reply = vec![0; 20 + length];
            socket.read_exact(&mut reply).unwrap();
            assert_eq!(reply[12] & 0x80, 0, "{reply:?}");
        }
        Client(socket)
    }

    fn send(&mut self, flags: u16, kind: u16, cookie: u64, range: Range<u64>, payload: &[u8]) {
        let length = if kind == CMD_WRITE { payload.len() as u64 } else { range.end - range.start };
        let request = [
            &0x21e4_1c71_u32.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &kind.to_be_bytes(),
            &cookie.to_be_bytes(),
            &range.start.to_be_bytes(),
            &length.to_be_bytes(),
            payload,
        ];
        self.0.write_all(&request.concat()).unwrap();
    }

    fn reply(&mut self) -> Reply {
        let mut head = [0; 32];
        self.0.read_exact(&mut head).unwrap();
        let long = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().unwrap());
        assert_eq!(head[..6], *b"\x6e\x8a\x27\x8c\0\x01");
        let mut payload = vec![0; long(24) as usize];
        self.0.read_exact(&mut payload).unwrap();
        (u16::from_be_bytes([head[6], head[7]]), long(8), long(16), payload)
    }
}

fn within_seconds(seconds: u64, what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn data_and_errors_travel_with_extended_headers() {
    let world = World::new();
    let mut client = Client::enter(world.socket());
    // Small ones, and some that are received in place, of which the next header comes right behind.
    for (at, length) in [(0u64, 512usize), (4096, 4096), (1 << 20, 64 << 10), (2 << 20, 3 << 20)] {
        let data: Vec<u8> = (0..length).map(|nr| (nr as u64 * 31 + at) as u8).collect();
        // QEMU leaves the flag out.
        let flag = if at == 4096 { 0 } else { CMD_FLAG_PAYLOAD_LEN };
        client.send(flag, CMD_WRITE, at, at..at, &data);
        client.send(0, CMD_FLUSH, at + 1, 0..0, &[]);
        let mut kinds = [client.reply(), client.reply()];
        kinds.sort_by_key(|reply| reply.1);
        assert_eq!(kinds[0], (REPLY_TYPE_NONE, at, at, Vec::new()));
        assert_eq!(kinds[1], (REPLY_TYPE_NONE, at + 1, 0, Vec::new()));
        client.send(0, CMD_READ, 7, at..at + length as u64, &[]);
        let (kind, cookie, offset, payload) = client.reply();
        assert_eq!((kind, cookie, offset), (REPLY_TYPE_OFFSET_DATA, 7, at));
        assert_eq!(payload[..8], at.to_be_bytes());
        assert!(payload[8..] == data, "what was written at {at}");
    }
    client.send(0, CMD_READ, 8, DISK_BYTES - 512..DISK_BYTES + 512, &[]);
    let (kind, cookie, offset, payload) = client.reply();
    assert_eq!((kind, cookie, offset), (REPLY_TYPE_ERROR, 8, DISK_BYTES - 512));
    assert_eq!(payload[..4], [0, 0, 0, 22]);
    client.send(CMD_FLAG_PAYLOAD_LEN, CMD_TRIM, 9, 0..600, &[0x21; 600]);
    assert_eq!((client.reply().0, client.reply_after(10)), (REPLY_TYPE_ERROR, 10));
}

impl Client {
    /// The cookie of the reply to a flush with this cookie.
    fn reply_after(&mut self, cookie: u64) -> u64 {
        self.send(0, CMD_FLUSH, cookie, 0..0, &[]);
        self.reply().1
    }
}

#[test]
fn a_trim_of_all_and_zeroes_beyond_4_gib_are_done_in_pieces() {
    let vast = Vast::new();
    let world = vast.world();
    let mut client = Client::enter(world.socket());
    client.send(0, CMD_TRIM, 1, 512..VAST_BYTES, &[]);
    assert_eq!(client.reply(), (REPLY_TYPE_NONE, 1, 512, Vec::new()));
    let (count, all) = vast.done("trim", 1 << 30);
    assert_eq!((count, all), (64 << 10, 512..VAST_BYTES));
    let range = TIB + 4096..TIB + (64 << 30);
    client.send(CMD_FLAG_FUA, CMD_WRITE_ZEROES, 2, range.clone(), &[]);
    assert_eq!(client.reply(), (REPLY_TYPE_NONE, 2, range.start, Vec::new()));
    assert_eq!(vast.done("zeroes", 128 << 20), (512, range));
    // Made durable at the end.
    assert_eq!(vast.log().last(), Some(&("flush", 0..0)));
    assert!(world.buffers() < 1 << 20);
}

#[test]
fn block_status_tells_of_more_than_4_gib_with_and_without_a_payload() {
    let vast = Vast::new();
    let world = vast.world();
    let mut client = Client::enter(world.socket());
    let extent = |length: u64, state: u64| [length.to_be_bytes(), state.to_be_bytes()].concat();
    let hole = u64::from(STATE_HOLE | STATE_ZERO);
    client.send(0, CMD_BLOCK_STATUS, 1, 0..TIB / 8, &[]);
    let expected =
        [&b"\0\0\0\x01\0\0\0\x02"[..], &extent(DATA_BYTES, 0), &extent(TIB / 8 - DATA_BYTES, hole)];
    assert_eq!(client.reply(), (REPLY_TYPE_BLOCK_STATUS_EXT, 1, 0, expected.concat()));
    let payload = [&(TIB / 8).to_be_bytes()[..], b"\0\0\0\x01"].concat();
    client.send(
        CMD_FLAG_PAYLOAD_LEN | CMD_FLAG_REQ_ONE,
        CMD_BLOCK_STATUS,
        2,
        TIB..TIB + 12,
        &payload,
    );
    let expected = [&b"\0\0\0\x01\0\0\0\x01"[..], &extent(TIB / 8, hole)].concat();
    assert_eq!(client.reply(), (REPLY_TYPE_BLOCK_STATUS_EXT, 2, TIB, expected));
}

#[test]
fn what_a_client_that_went_had_begun_ends_and_others_are_served_meanwhile() {
    let vast = Vast::new();
    vast.slow.store(true, Ordering::Relaxed);
    let world = vast.world();
    for kind in [CMD_WRITE_ZEROES, CMD_CACHE, CMD_TRIM] {
        let mut client = Client::enter(world.socket());
        client.send(0, kind, 1, 0..VAST_BYTES, &[]);
        let before = vast.log().len();
        within_seconds(10, "it begins", || vast.log().len() > before + 3);
        let begun = Instant::now();
        let mut other = Client::enter(world.socket());
        for cookie in 0..50 {
            assert_eq!(other.reply_after(cookie), cookie);
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop((client, other));
        within_seconds(10, "the connections end", || world.server().connections() == 0);
        let after = vast.log().len();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(vast.log().len(), after, "nothing further is done: {kind}");
    }
}

#[test]
fn zeroes_that_a_stopping_server_ends_are_no_success() {
    let vast = Vast::new();
    vast.slow.store(true, Ordering::Relaxed);
    let mut world = vast.world();
    let mut client = Client::enter(world.socket());
    client.send(0, CMD_WRITE_ZEROES, 1, 0..VAST_BYTES, &[]);
    within_seconds(10, "it begins", || vast.log().len() > 3);
    world.stop();
    let mut rest = Vec::new();
    let _ = client.0.read_to_end(&mut rest);
    // The answer, if it still came, says that the server shuts down.
    if !rest.is_empty() {
        assert_eq!((&rest[6..8], &rest[32..36]), (&b"\x80\x01"[..], &b"\0\0\0\x6c"[..]));
    }
}

#[test]
fn our_own_client_clears_more_than_four_gibibytes_by_one_request() {
    let vast = Vast::new();
    let world = vast.world();
    let address = world.unix();
    world.on_shard(move |shard| async move {
        let options = ClientOptions { export: "disk".into(), headers: Headers::Extended };
        let client = braid_nbd::client::Client::connect(&shard, &address, options).await.unwrap();
        assert_eq!(client.offer().headers, Headers::Extended);
        let sets = IoSets::new(&shard);
        let trim = DeviceRequest { offset: TIB, op: Op::Discard { len: 16 * TIB } };
        assert_eq!(sets.one(&*client, trim).await.result, Ok(()));
        let op = Op::WriteZeroes { len: 6 << 30, unmap: true, fua: true };
        let zeroes = DeviceRequest { offset: 4096, op };
        assert_eq!(sets.one(&*client, zeroes).await.result, Ok(()));
        let read = DeviceRequest::read(VAST_BYTES - 4096, shard.pool().get(4096));
        assert_eq!(sets.one(&*client, read).await.result, Ok(()));
    });
    assert_eq!(vast.done("trim", 1 << 30), (16 << 10, TIB..17 * TIB));
    assert_eq!(vast.done("zeroes", 128 << 20).1, 4096..4096 + (6 << 30));
    // With compact headers the client itself refuses what is longer than their 32 bits.
    let compact = world.unix();
    world.on_shard(move |shard| async move {
        let options = ClientOptions { export: "disk".into(), headers: Headers::Structured };
        let client = braid_nbd::client::Client::connect(&shard, &compact, options).await.unwrap();
        let trim = DeviceRequest { offset: 0, op: Op::Discard { len: 5 << 30 } };
        let result = IoSets::new(&shard).one(&*client, trim).await.result;
        assert_eq!(result.unwrap_err().kind, IoErrorKind::Invalid);
    });
}

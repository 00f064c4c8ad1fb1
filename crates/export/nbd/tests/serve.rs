//! The server over real sockets: data, bounds, and clients that break the rules.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use braid_device::{Device, IoErrorKind, IoSets, Op, Request as DeviceRequest, Target};
use braid_export::{Allowed, Export};
use braid_nbd::Address;
use braid_nbd::client::{Client, ConnectError};
use braid_nbd::protocol::constants::*;
use braid_nbd::protocol::{ClientOptions, Command, Headers, Request};
use braid_nbd::serve::{Limits, ListenError, ServeError, Server};
use braid_shard::Shard;
use support::{DISK_BYTES, Plain, RamTarget, World};

fn options(export: &str, headers: Headers) -> ClientOptions {
    ClientOptions { export: export.into(), headers }
}

fn request(cookie: u64, command: Command, offset: u64, length: u32) -> Request {
    Request { cookie, command, flags: 0, offset, length: length.into() }
}

fn simple_reply(error: u32, cookie: u64) -> Vec<u8> {
    [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

/// The server still serves: a fresh client writes and reads back.
fn assert_serves(world: &World) {
    let mut client = world.plain("disk", false);
    client.send(request(1, Command::Write, DISK_BYTES - 4096, 4096), &[0x5a; 4096]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    client.send(request(2, Command::Read, DISK_BYTES - 4096, 4096), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 2));
    assert_eq!(client.receive::<4096>(), [0x5a; 4096]);
}

/// A sequence of numbers that looks random and is the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Writes, zeroes and reads of all sizes at random places, many in flight, against a model.
async fn storm(shard: Shard, address: Address, headers: Headers) {
    const BLOCK: u64 = 512;
    let client = Client::connect(&shard, &address, options("", headers)).await.expect("a client");
    assert_eq!(client.info().size, DISK_BYTES);
    assert_eq!(client.offer().headers, headers);
    let sets = IoSets::new(&shard);
    let mut model = vec![0u8; DISK_BYTES as usize];
    let mut numbers = Numbers(headers as u64);
    for round in 0..40u64 {
        let mut set = sets.start();
        // Disjoint ranges, as the order of requests in flight is open.
        let mut ranges: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..60 {
            let length = BLOCK << numbers.below(10);
            let offset = numbers.below(DISK_BYTES / BLOCK) * BLOCK;
            let free = |(start, end): (&u64, &u64)| *end <= offset || *start >= offset + length;
            if offset + length <= DISK_BYTES && ranges.iter().all(free) {
                ranges.insert(offset, offset + length);
            }
        }
        for (number, (start, end)) in ranges.iter().enumerate() {
            let length = (end - start) as usize;
            let place = *start as usize..*end as usize;
            let request = match number % 4 {
                0 | 1 => {
                    let mut buf = shard.pool().get(length);
                    buf.fill((round * 7 + number as u64) as u8);
                    model[place].copy_from_slice(&buf);
                    DeviceRequest::write(*start, buf.freeze(), number % 8 == 0)
                }
                2 => {
                    model[place].fill(0);
                    let op = Op::WriteZeroes { len: length as u64, unmap: true, fua: false };
                    DeviceRequest { offset: *start, op }
                }
                _ => DeviceRequest::read(*start, shard.pool().get(length)),
            };
            set.submit(*start as u32, &*client, request);
        }
        for (start, outcome) in set.finish().await {
            assert_eq!(outcome.result, Ok(()));
            if let Op::Read(bufs) = outcome.op {
                let from = start as usize;
                assert!(bufs[0][..] == model[from..from + bufs[0].len()], "read at {start}");
            }
        }
        assert_eq!(sets.one(&*client, DeviceRequest::flush()).await.result, Ok(()));
    }
    // One read over several buffers of odd sizes sees everything.
    let sizes = [512, 1 << 20, 4096, (4 << 20) - 512 - 4096];
    for start in (0..DISK_BYTES).step_by(5 << 20).take_while(|at| at + (5 << 20) <= DISK_BYTES) {
        let bufs = sizes.iter().map(|size| shard.pool().get(*size)).collect();
        let outcome = sets.one(&*client, DeviceRequest { offset: start, op: Op::Read(bufs) }).await;
        assert_eq!(outcome.result, Ok(()));
        let Op::Read(bufs) = outcome.op else { panic!("{:?}", outcome.op) };
        let mut at = start as usize;
        for buf in bufs {
            assert!(buf[..] == model[at..at + buf.len()], "read at {at}");
            at += buf.len();
        }
    }
}

#[test]
fn data_survives_a_storm_of_requests_over_unix_with_structured_replies() {
    let world = World::new();
    let address = world.unix();
    world.on_shard(move |shard| storm(shard, address, Headers::Structured));
}

#[test]
fn data_survives_a_storm_of_requests_over_tcp_with_extended_headers() {
    let world = World::new();
    let address = world.tcp();
    world.on_shard(move |shard| storm(shard, address, Headers::Extended));
}

#[test]
fn data_survives_a_storm_of_requests_over_tcp_with_simple_replies() {
    let world = World::new();
    let address = world.tcp();
    world.on_shard(move |shard| storm(shard, address, Headers::Simple));
}

#[test]
fn connections_on_different_shards_see_each_others_writes() {
    let world = World::new();
    let mut clients: Vec<Plain> = (0..4).map(|_| world.plain("disk", false)).collect();
    assert!(clients[0].offer.export.features.multi_conn);
    for (number, client) in clients.iter_mut().enumerate() {
        let payload = [number as u8 + 1; 512];
        client.send(request(9, Command::Write, 512 * number as u64, 512), &payload);
        assert_eq!(client.receive::<16>()[..], simple_reply(0, 9));
    }
    for client in &mut clients {
        client.send(request(10, Command::Read, 0, 2048), &[]);
        assert_eq!(client.receive::<16>()[..], simple_reply(0, 10));
        let data = client.receive::<2048>();
        let expected: Vec<u8> = (1..=4).flat_map(|byte| [byte; 512]).collect();
        assert_eq!(data[..], expected);
    }
}

#[test]
fn the_largest_request_goes_through_whole() {
    let world = World::new();
    let mut client = world.plain("disk", true);
    let length = PAYLOAD_BYTES_MAX;
    let payload: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    client.send(request(1, Command::Write, 4096, length), &payload);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    client.send(request(2, Command::Read, 4096, length), &[]);
    client.receive::<28>();
    let mut data = vec![0; length as usize];
    client.socket.read_exact(&mut data).expect("the server answers");
    assert!(data == payload);
}

#[test]
fn hundreds_of_requests_in_one_piece_are_all_answered() {
    let world = World::new();
    let mut client = world.plain("disk", false);
    let mut stream = Vec::new();
    for cookie in 0..600u64 {
        stream.extend_from_slice(&request(cookie, Command::Write, cookie * 512, 512).encode());
        stream.extend_from_slice(&[cookie as u8; 512]);
    }
    client.socket.write_all(&stream).expect("the server listens");
    let mut answered = vec![false; 600];
    for _ in 0..600 {
        let reply = client.receive::<16>();
        let cookie = u64::from_be_bytes(reply[8..].try_into().expect("eight bytes"));
        assert_eq!(reply[..], simple_reply(0, cookie));
        assert!(!std::mem::replace(&mut answered[cookie as usize], true), "answered twice");
    }
}

#[test]
fn a_client_that_never_reads_is_held_back_and_does_not_stop_others() {
    let world = World::new();
    let mut greedy = world.plain("disk", false);
    // 256 MiB of replies asked for: far over what a connection may hold.
    for cookie in 0..256 {
        greedy.send(request(cookie, Command::Read, 0, 1 << 20), &[]);
    }
    assert_serves(&world);
    let mut received = 0u64;
    let mut bytes = vec![0; 1 << 20];
    while received < 256 * ((1 << 20) + 16) {
        let count = greedy.socket.read(&mut bytes).expect("the server answers");
        assert!(count > 0, "the server left");
        received += count as u64;
    }
}

#[test]
fn errors_are_answered_and_the_connection_goes_on() {
    let world = World::new();
    let mut client = world.plain("disk", false);
    client.send(request(1, Command::Read, DISK_BYTES, 512), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(22, 1));
    client.send(request(2, Command::Write, DISK_BYTES, 512), &[1; 512]);
    assert_eq!(client.receive::<16>()[..], simple_reply(28, 2));
    client.send(request(3, Command::Write, 100, 512), &[1; 512]);
    assert_eq!(client.receive::<16>()[..], simple_reply(22, 3));
    client.send(request(4, Command::Cache, 0, 512), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(22, 4));
    client.send(request(5, Command::BlockStatus, 0, 512), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(22, 5));
    let flags = CMD_FLAG_FUA;
    client.send(Request { flags, ..request(6, Command::Trim, 0, 4096) }, &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 6));
    client.send(request(7, Command::Flush, 0, 0), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 7));
}

#[test]
fn a_structured_error_carries_words() {
    let world = World::new();
    let mut client = world.plain("disk", true);
    client.send(request(1, Command::Read, 1, 512), &[]);
    let head = client.receive::<20>();
    assert_eq!(head[..8], *b"\x66\x8e\x33\xef\x00\x01\x80\x01");
    let error = client.receive::<6>();
    assert_eq!(error[..4], 22u32.to_be_bytes());
    assert!(u16::from_be_bytes([error[4], error[5]]) > 0);
}

#[test]
fn a_read_only_export_takes_no_write() {
    let world = World::new();
    let mut client = world.plain("fixed", false);
    assert!(client.offer.export.features.read_only);
    client.send(request(1, Command::Write, 0, 512), &[1; 512]);
    assert_eq!(client.receive::<16>()[..], simple_reply(1, 1));
    client.send(request(2, Command::Read, 0, 512), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 2));
    assert_eq!(client.receive::<512>(), [0; 512]);
}

#[test]
fn a_client_gone_in_the_middle_of_a_write_changes_nothing_and_hurts_nobody() {
    let world = World::new();
    for payload in [0, 1, 4096, 100_000] {
        let mut client = world.plain("disk", false);
        client.send(request(1, Command::Write, 0, 128 << 10), &vec![0xee; payload]);
    }
    let mut client = world.plain("disk", false);
    client.send(request(2, Command::Read, 0, 128 << 10), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 2));
    let mut data = vec![1; 128 << 10];
    client.socket.read_exact(&mut data).expect("the server answers");
    assert!(data.iter().all(|byte| *byte == 0));
    assert_serves(&world);
}

#[test]
fn garbage_at_any_point_ends_that_connection_only() {
    let world = World::new();
    let mut witness = world.plain("disk", false);
    let path = world.socket();
    for garbage in [&[0xff; 64][..], b"GET / HTTP/1.1\r\n\r\n", &[0; 4096]] {
        let mut socket = std::os::unix::net::UnixStream::connect(&path).expect("a server");
        socket.write_all(garbage).expect("the server listens");
        let mut said = Vec::new();
        let _ = socket.read_to_end(&mut said);
        assert!(said.starts_with(b"NBDMAGICIHAVEOPT"));
    }
    let mut client = world.plain("disk", true);
    client.socket.write_all(&[0xaa; 100]).expect("the server listens");
    assert!(client.rest().is_empty());
    witness.send(request(3, Command::Flush, 0, 0), &[]);
    assert_eq!(witness.receive::<16>()[..], simple_reply(0, 3));
    assert_serves(&world);
}

#[test]
fn a_disconnect_is_obeyed_after_everything_outstanding_was_answered() {
    let world = World::new();
    let mut client = world.plain("disk", false);
    let mut stream = Vec::new();
    for cookie in 0..50 {
        stream.extend_from_slice(&request(cookie, Command::Read, 0, 64 << 10).encode());
    }
    stream.extend_from_slice(&Request::encode_disconnect());
    client.socket.write_all(&stream).expect("the server listens");
    assert_eq!(client.rest().len(), 50 * (16 + (64 << 10)));
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let world = World::new();
    let mut client = world.plain("disk", false);
    client.send(request(5, Command::Read, 0, 4096), &[]);
    client.socket.shutdown(Shutdown::Write).expect("connected");
    let rest = client.rest();
    assert_eq!(rest.len(), 16 + 4096);
}

#[test]
fn the_client_says_what_went_wrong() {
    let world = World::new();
    let (good, absent) = (world.unix(), Address::Unix(world.folder.path().join("nobody")));
    world.on_shard(move |shard| async move {
        let refused = Client::connect(&shard, &good, options("nothing", Headers::Structured)).await;
        assert!(matches!(refused, Err(ConnectError::Handshake(_))));
        let nobody = Client::connect(&shard, &absent, options("", Headers::Structured)).await;
        assert!(matches!(nobody, Err(ConnectError::Connect { .. })));
        let fixed = Client::connect(&shard, &good, options("fixed", Headers::Structured))
            .await
            .expect("an export");
        let sets = IoSets::new(&shard);
        let write = DeviceRequest::write(0, shard.pool().zeroed(512).freeze(), false);
        let kind = sets.one(&*fixed, write).await.result.map_err(|error| error.kind);
        assert_eq!(kind, Err(IoErrorKind::Unsupported));
        let beyond = DeviceRequest::read(1 << 20, shard.pool().get(512));
        let kind = sets.one(&*fixed, beyond).await.result.map_err(|error| error.kind);
        assert_eq!(kind, Err(IoErrorKind::Invalid));
    });
}

#[test]
fn requests_of_a_client_whose_server_stops_fail_and_nothing_hangs() {
    let mut world = World::new();
    let address = world.unix();
    let idle = world.plain("disk", false);
    // Kept on its shard for the second call.
    let (send, receive) = std::sync::mpsc::channel();
    world.on_shard(move |shard| async move {
        let client = Client::connect(&shard, &address, options("", Headers::Structured))
            .await
            .expect("a client");
        let (stopped, wait) = braid_shard::sync::promise::<()>(&shard);
        let waiter = shard.clone();
        shard.spawn(async move {
            wait.await;
            let sets = IoSets::new(&waiter);
            let read = DeviceRequest::read(0, waiter.pool().get(512));
            let outcome = sets.one(&*client, read).await;
            let _ = send.send(outcome.result.map_err(|error| error.kind));
        });
        // Leaked on purpose to the shard's next task: dropped there once the server is down.
        STOPPED.with(|place| place.replace(Some(stopped)));
    });
    assert_eq!(world.server().connections(), 2);
    world.stop();
    assert!(!idle.offer.headers.structured());
    world.on_shard(|_| async { drop(STOPPED.with(|place| place.take())) });
    assert_eq!(receive.recv(), Ok(Err(IoErrorKind::Gone)));
    assert!(!world.socket().exists());
}

thread_local! {
    static STOPPED: std::cell::RefCell<Option<braid_shard::sync::Promise<()>>> =
        const { std::cell::RefCell::new(None) };
}

#[test]
fn a_live_socket_is_not_taken_and_a_dead_one_is_replaced() {
    let mut world = World::new();
    let disk: Arc<dyn braid_device::Target> = Arc::new(RamTarget::new("disk", 1 << 20));
    let start = |world: &World, address: Address| {
        Server::start(world.shards.remotes(), &[address], vec![Arc::clone(&disk)], None)
    };
    let taken = start(&world, world.unix()).err();
    assert!(matches!(taken, Some(ServeError::Listen(ListenError::InUse(_)))));
    let taken = start(&world, world.tcp()).err();
    assert!(matches!(taken, Some(ServeError::Listen(ListenError::InUse(_)))));
    assert_serves(&world);

    let file = world.folder.path().join("file");
    std::fs::write(&file, "precious").expect("a writable folder");
    let refused = start(&world, Address::Unix(file.clone())).err();
    assert!(matches!(refused, Some(ServeError::Listen(ListenError::NotASocket(_)))));
    assert_eq!(std::fs::read(&file).expect("still there"), b"precious");

    let nowhere = Address::Unix(world.folder.path().join("no/such/folder"));
    let refused = start(&world, nowhere).err();
    assert!(matches!(refused, Some(ServeError::Listen(ListenError::File(_)))));

    let dead = world.folder.path().join("dead");
    drop(UnixListener::bind(&dead).expect("a writable folder"));
    assert!(dead.exists());
    let server = start(&world, Address::Unix(dead.clone())).expect("a dead socket is replaced");
    let mut client = Plain::enter(dead.clone(), "", false);
    client.send(request(1, Command::Flush, 0, 0), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    server.stop();
    assert!(!dead.exists());
    world.stop();
}

#[test]
fn exports_that_contradict_each_other_are_refused() {
    let world = World::new();
    let disk = || Arc::new(RamTarget::new("twin", 1 << 20)) as Arc<dyn braid_device::Target>;
    let address = Address::Unix(world.folder.path().join("twins"));
    let twins = Server::start(world.shards.remotes(), &[address], vec![disk(), disk()], None);
    assert!(matches!(twins.err(), Some(ServeError::Exports(_))));
}

#[test]
fn what_is_offered_may_change_while_the_server_runs() {
    let world = World::new();
    let late: Arc<dyn braid_device::Target> = Arc::new(RamTarget::new("late", 1 << 20));
    world.server().offer(Arc::clone(&late)).expect("a name of its own");
    assert!(world.server().offer(late).is_err());

    let mut client = world.plain("late", false);
    client.send(request(1, Command::Flush, 0, 0), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    assert_eq!(world.server().withdraw_unused("late"), Err(1));
    client.send(request(2, Command::Flush, 0, 0), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 2));

    let mut other = world.plain("disk", false);
    world.server().withdraw("late");
    assert!(client.rest().is_empty());
    other.send(request(3, Command::Flush, 0, 0), &[]);
    assert_eq!(other.receive::<16>()[..], simple_reply(0, 3));
    let names = world.on_shard({
        let address = world.unix();
        move |shard| async move {
            let options = ClientOptions { export: "late".into(), headers: Headers::Structured };
            Client::connect(&shard, &address, options).await.map(|_| ()).map_err(|e| e.to_string())
        }
    });
    assert!(names.is_err(), "{names:?}");
    assert_eq!(world.server().withdraw_unused("fixed"), Ok(()));
}

/// The bytes `at`, `at + 7`, … of a block and a half, one in `of` of them.
fn strided(number: u64, of: u64) -> impl Iterator<Item = (u64, u32)> {
    (number..109 * 7).step_by(of as usize).map(|at| (at * 7, 7))
}

#[test]
fn clients_that_count_in_bytes_keep_each_others_bytes() {
    const CLIENTS: u64 = 4;
    let world = World::with(vec![Arc::new(RamTarget::new("disk", DISK_BYTES).slow())]);
    let path = world.socket();
    // Beside them one that keeps to blocks, and writes one next to theirs.
    let mut whole = world.plain("disk", false);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let path = path.clone();
            scope.spawn(move || {
                let mut client = Plain::in_bytes(path, "disk");
                for round in 1..=8 {
                    let mut sent = 0;
                    for (at, length) in strided(number, CLIENTS) {
                        let value = [(number * 10 + round) as u8; 7];
                        let command = Command::Write;
                        client.send(request(at, command, 1000 + at, length), &value);
                        sent += 1;
                    }
                    for _ in 0..sent {
                        assert_eq!(client.receive::<16>()[4..8], [0; 4]);
                    }
                }
            });
        }
        for round in 1..=200u64 {
            whole.send(request(round, Command::Write, 512, 512), &[round as u8; 512]);
            assert_eq!(whole.receive::<16>()[..], simple_reply(0, round));
        }
    });
    let mut client = Plain::in_bytes(path, "disk");
    client.send(request(1, Command::Read, 1000, 109 * 49), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    let mut bytes = vec![0; 109 * 49];
    client.socket.read_exact(&mut bytes).unwrap();
    for number in 0..CLIENTS {
        for (at, length) in strided(number, CLIENTS) {
            let (from, to) = (at as usize, at as usize + length as usize);
            // The block that the other client writes as a whole may hold its bytes.
            if from + 1000 >= 1024 {
                assert!(
                    bytes[from..to].iter().all(|byte| *byte == (number * 10 + 8) as u8),
                    "{at}"
                );
            }
        }
    }
}

#[test]
fn bytes_are_written_zeroed_and_read_within_blocks() {
    let world = World::new();
    let mut client = Plain::in_bytes(world.socket(), "disk");
    let mut model: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    client.send(request(1, Command::Write, 0, 3 << 20), &model);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    let mut numbers = Numbers(7);
    for cookie in 2..200 {
        let (offset, length) = (numbers.below(2 << 20), 1 + numbers.below(1 << (cookie % 21)));
        let place = offset as usize..(offset + length) as usize;
        let (command, payload) = match cookie % 4 {
            0 => (Command::WriteZeroes, vec![]),
            1 => (Command::Trim, vec![]),
            2 => (Command::Read, vec![]),
            _ => (Command::Write, vec![cookie as u8; length as usize]),
        };
        client.send(request(cookie, command, offset, length as u32), &payload);
        assert_eq!(client.receive::<16>()[..], simple_reply(0, cookie), "{command:?} {place:?}");
        match command {
            Command::WriteZeroes => model[place].fill(0),
            Command::Write => model[place].fill(cookie as u8),
            Command::Read => {
                let mut bytes = vec![0; length as usize];
                client.socket.read_exact(&mut bytes).unwrap();
                assert!(bytes == model[place.clone()], "{place:?}");
            }
            // Whole blocks may be anything now: made known again.
            _ => {
                client.send(request(1, Command::Write, offset, length as u32), &model[place]);
                assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
            }
        }
    }
    client.send(request(1, Command::Read, 0, 3 << 20), &[]);
    assert_eq!(client.receive::<16>()[..], simple_reply(0, 1));
    let mut bytes = vec![0; 3 << 20];
    client.socket.read_exact(&mut bytes).unwrap();
    assert!(bytes == model);
}

#[test]
fn stalled_clients_neither_starve_others_nor_fill_the_memory() {
    const MEMORY: u64 = 64 << 20;
    const CONNECTIONS: usize = 64;
    let limits = Limits {
        connections: CONNECTIONS,
        memory: MEMORY,
        patience: PATIENCE,
        ..Limits::default()
    };
    // A second for each MiB is for real clients; these requests are small enough for a test.
    const PATIENCE: Duration = Duration::from_millis(200);
    let world = World::within(&limits);
    let mut stalled: Vec<Plain> = (0..60).map(|_| world.plain("disk", false)).collect();
    for (number, client) in stalled.iter_mut().enumerate() {
        if number % 2 == 0 {
            // All of a write but its last byte.
            let head = request(1, Command::Write, 0, 1 << 20).encode();
            client.socket.write_all(&[&head[..], &vec![7; (1 << 20) - 1]].concat()).unwrap();
        } else {
            // Reads whose replies are not taken.
            for cookie in 0..64 {
                client.send(request(cookie, Command::Read, 0, 1 << 20), &[]);
            }
        }
    }
    // Requests within a connection's reserve never wait, large ones until the stalled clients are gone.
    assert_serves(&world);
    let mut client = world.plain("disk", false);
    let large = 32 << 20;
    for cookie in 0..3 {
        client.send(request(cookie, Command::Write, 0, large), &vec![cookie as u8; large as usize]);
        assert_eq!(client.receive::<16>()[..], simple_reply(0, cookie));
        let used: usize = world
            .shards
            .remotes()
            .iter()
            .map(|remote| remote.call(|shard| shard.pool().outstanding()).unwrap())
            .sum();
        // Beside payloads: what each connection receives requests into.
        let other = CONNECTIONS * (128 << 10);
        assert!(used as u64 <= MEMORY + other as u64, "{used}");
    }
    drop(stalled);
    assert_serves(&world);
}

#[test]
fn more_clients_than_the_limit_are_turned_away_until_one_leaves() {
    let world = World::within(&Limits { connections: 2, ..Limits::default() });
    let (first, mut second) = (world.plain("disk", false), world.plain("disk", false));
    let mut third = UnixStream::connect(world.socket()).unwrap();
    assert_eq!(third.read(&mut [0; 8]).unwrap_or(0), 0, "closed at once");
    drop(first);
    // Its place is free when the server has seen it leave.
    let entered = (0..).find_map(|_| Plain::try_enter(world.socket(), "disk")).unwrap();
    second.send(request(1, Command::Flush, 0, 0), &[]);
    assert_eq!(second.receive::<16>()[..], simple_reply(0, 1));
    drop(entered);
    let few = Limits { memory: 1 << 20, ..Limits::default() };
    let address = Address::Unix(world.folder.path().join("few.sock"));
    let disk: Arc<dyn Target> = Arc::new(RamTarget::new("disk", DISK_BYTES));
    let refused =
        Server::start_within(&few, world.shards.remotes(), &[address], vec![disk], None).err();
    assert!(matches!(refused, Some(ServeError::Memory { memory }) if memory == 1 << 20));
}

#[test]
fn clients_of_other_networks_are_disconnected_before_a_word_and_those_of_unix_sockets_are_not() {
    for (network, let_in) in [("10.1.0.0/16", false), ("127.0.0.0/8", true)] {
        let allowed = Allowed::new(vec![network.parse().expect("a network")]);
        let world = World::within(&Limits { allowed, ..Limits::default() });
        let Address::Tcp(place) = world.tcp() else { panic!("not TCP") };
        let mut client = TcpStream::connect(place).expect("the server listens");
        let mut greeting = [0; 18];
        assert_eq!(client.read_exact(&mut greeting).is_ok(), let_in, "{network}");
        assert_serves(&world);
    }
}

#[test]
fn what_a_client_wants_cached_is_read_and_not_sent_where_reading_caches() {
    let world = World::with(vec![
        Arc::new(RamTarget::new("disk", DISK_BYTES).cached()),
        Arc::new(RamTarget::new("direct", DISK_BYTES)),
    ]);
    let mut plain = world.plain("disk", false);
    assert!(plain.offer.export.features.cache);
    // More than is in memory at a time, and the end.
    for (offset, length) in [(512, 3 << 20), (DISK_BYTES - 512, 512)] {
        plain.send(request(7, Command::Cache, offset, length), &[]);
        assert_eq!(plain.receive::<16>()[..], simple_reply(0, 7));
    }
    plain.send(request(8, Command::Cache, DISK_BYTES, 512), &[]);
    assert_eq!(plain.receive::<16>()[..], simple_reply(22, 8));
    // One that counts in bytes.
    let mut bytes = Plain::in_bytes(world.socket(), "disk");
    bytes.send(request(9, Command::Cache, 3, 5000), &[]);
    assert_eq!(bytes.receive::<16>()[..], simple_reply(0, 9));
    let mut direct = world.plain("direct", false);
    assert!(!direct.offer.export.features.cache);
    direct.send(request(10, Command::Cache, 0, 512), &[]);
    assert_eq!(direct.receive::<16>()[..], simple_reply(22, 10));
}

#[test]
fn targets_that_are_offered_to_be_read_only_take_no_write_and_others_do() {
    let limits = Limits { read_only: vec!["disk".into()], ..Limits::default() };
    let world = World::within(&limits);
    let target: Arc<dyn Target> = Arc::new(RamTarget::new("other", 1 << 20));
    world.server().offer(target).expect("another name");
    for (name, read_only) in [("disk", true), ("other", false)] {
        let mut plain = world.plain(name, false);
        assert_eq!(plain.offer.export.features.read_only, read_only, "{name}");
        plain.send(request(1, Command::Write, 0, 512), &[7; 512]);
        let error = if read_only { 1 } else { 0 };
        assert_eq!(plain.receive::<16>()[..], simple_reply(error, 1), "{name}");
        plain.send(request(2, Command::Read, 0, 512), &[]);
        let byte = if read_only { 0 } else { 7 };
        assert_eq!(plain.receive::<{ 16 + 512 }>()[16..], [byte; 512], "{name}");
    }
    let limits = Limits { read_only: vec!["other".into()], ..Limits::default() };
    let world = World::within(&limits);
    world.server().offer(Arc::new(RamTarget::new("other", 1 << 20))).expect("another name");
    assert!(world.plain("other", false).offer.export.features.read_only, "one that came later");
}

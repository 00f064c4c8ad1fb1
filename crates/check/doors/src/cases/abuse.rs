//! Clients that go away, send garbage, say nothing, or are too many.

use crate::client::{Command, PATIENCE};
use crate::rig::{CLIENTS_MAX, wait_until};
use crate::{Adapter, Rig};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The device finishes what it has, whoever asked for it.
pub fn a_client_that_vanishes_with_requests_under_way_harms_nobody(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut witness = rig.client();
    for round in 0..8 {
        rig.disk.hold(true);
        let mut client = rig.client();
        for tag in 0..16 {
            let offset = u64::from(tag) * 4096;
            client.submit(
                tag,
                match tag % 3 {
                    0 => Command::Read { offset, length: 4096 },
                    1 => Command::Write { offset, data: vec![round; 4096], fua: true },
                    _ => Command::Flush,
                },
            );
        }
        wait_until("requests under way", || rig.disk.under_way() >= 16);
        drop(client);
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        rig.disk.hold(false);
        witness.fill(1 << 20, 4096, round);
        assert_eq!(witness.read(1 << 20, 4096), vec![round; 4096]);
    }
    wait_until("one client", || rig.door.clients().len() == 1);
    wait_until("nothing under way", || rig.disk.under_way() == 0);
}

/// Garbage instead of a first message, with and without a pause in it.
pub fn garbage_ends_that_client_only(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut witness = rig.client();
    witness.flush();
    let mut random = fastrand::Rng::with_seed(3);
    let noise = (0..20).map(|_| (0..random.usize(1..5000)).map(|_| random.u8(..)).collect());
    for garbage in adapter.garbage().into_iter().chain(noise.collect::<Vec<Vec<u8>>>()) {
        let mut socket = rig.connection();
        let (first, rest) = garbage.split_at(garbage.len() / 2);
        // The server may have left by the second half.
        let _ = socket.write_all(first).and_then(|()| socket.write_all(rest));
        // Some garbage is the beginning of a message: its end makes it wrong.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        // A reset counts as the end.
        let ended = socket.read_to_end(&mut said);
        let late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!late, "the server goes on listening to garbage");
        witness.fill(0, 512, 1);
    }
    assert_eq!(rig.door.clients().len(), 1);
    rig.assert_serves();
}

/// Connections that send nothing, or one byte.
pub fn silence_costs_nobody_anything(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut silent: Vec<_> = (0..50).map(|_| rig.connection()).collect();
    for (nr, socket) in silent.iter_mut().enumerate().filter(|(nr, _)| nr % 2 == 0) {
        let _ = socket.write_all(&[nr as u8]);
    }
    rig.assert_serves();
    assert_eq!(rig.door.drain(Duration::from_secs(5)), 0);
    rig.door.resume();
    rig.assert_serves();
}

/// Clients that say the right words, a byte now and then. Where there is a handshake they are disconnected when its time is
/// over, however much they still send; elsewhere they cost a buffer each. Nobody else waits for them.
pub fn a_byte_now_and_then_costs_nobody_anything(adapter: &dyn Adapter) {
    const SLOW: usize = 50;
    let hurried = Rig::hurried(adapter, Duration::from_secs(1));
    let ends = hurried.is_some();
    let rig = hurried.unwrap_or_else(|| Rig::new(adapter));
    let words = adapter.first_words();
    let mut witness = rig.client();
    witness.flush();
    let before = rig.buffers();
    let mut slow: Vec<_> = (0..SLOW).map(|_| rig.connection()).collect();
    let mut said = words.iter();
    let mut left = slow.len();
    for round in 0.. {
        // One that has been disconnected takes no more.
        let byte = said.next().copied();
        if let Some(byte) = byte {
            slow.iter_mut().for_each(|socket| drop(socket.write_all(&[byte])));
        }
        witness.fill(1 << 20, 512, round as u8);
        assert_eq!(witness.read(1 << 20, 512), vec![round as u8; 512]);
        let used = rig.buffers() - before;
        assert!(used <= SLOW * SLOW_BYTES_MAX, "{used} bytes of buffers for {SLOW} slow clients");
        std::thread::sleep(Duration::from_millis(4));
        slow.retain_mut(|socket| !(ends && has_ended(socket)));
        left = slow.len();
        match ends {
            true if left == 0 => break,
            true => assert!(byte.is_some(), "{left} clients were not disconnected in time"),
            // Long enough for those that have a handshake.
            false if round == 250 => break,
            false => {}
        }
    }
    assert_eq!(left == 0, ends);
    drop(slow);
    wait_until("one client", || rig.door.clients().len() == 1);
    rig.assert_serves();
}

/// Bytes of buffers that a client which has not said much may cost.
const SLOW_BYTES_MAX: usize = 72 << 10;

/// The server has closed the connection.
fn has_ended(socket: &mut UnixStream) -> bool {
    socket.set_nonblocking(true).expect("a socket");
    let mut answer = [0; 4096];
    let ended = loop {
        match socket.read(&mut answer) {
            Ok(0) => break true,
            // An answer to the first words.
            Ok(_) => {}
            Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    socket.set_nonblocking(false).expect("a socket");
    ended
}

/// Requests that come byte by byte, where requests are bytes: each is carried out once it is whole, and costs others nothing
/// until then.
pub fn requests_that_trickle_in_hold_nobody_up(adapter: &dyn Adapter) {
    const SLOW: usize = 16;
    let rig = Rig::new(adapter);
    let mut witness = rig.client();
    witness.flush();
    let mut slow: Vec<_> = (0..SLOW).map(|_| rig.client()).collect();
    let before = rig.buffers();
    let writes: Vec<_> = slow
        .iter_mut()
        .enumerate()
        .filter_map(|(nr, client)| client.words_of_write(7, nr as u64 * 512, &[nr as u8; 512]))
        .collect();
    let longest = writes.iter().map(Vec::len).max().unwrap_or_default();
    for at in 0..longest {
        for (client, words) in slow.iter_mut().zip(&writes) {
            client.say(&words[at..(at + 1).min(words.len())]);
        }
        if at % 16 == 0 {
            witness.fill(1 << 20, 512, at as u8);
            assert_eq!(witness.read(1 << 20, 512), vec![at as u8; 512]);
            let used = rig.buffers() - before;
            assert!(used <= SLOW * SLOW_BYTES_MAX, "{used} bytes for {SLOW} slow requests");
        }
    }
    for (nr, client) in slow.iter_mut().enumerate().take(writes.len()) {
        let answer = client.answer(PATIENCE);
        assert!(matches!(answer, crate::Answer::Done(7, Ok(_))), "{answer:?}");
        assert_eq!(witness.read(nr as u64 * 512, 512), vec![nr as u8; 512]);
    }
    rig.assert_serves();
}

/// As many as may be, all at once.
pub fn hundreds_of_clients_are_served(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut clients: Vec<_> = (0..250).map(|_| rig.client()).collect();
    for (nr, client) in clients.iter_mut().enumerate() {
        let data = vec![nr as u8; 1024];
        client.submit(nr as u32, Command::Write { offset: nr as u64 * 1024, data, fua: false });
    }
    for client in &mut clients {
        let answer = client.answer(PATIENCE);
        assert!(matches!(answer, crate::Answer::Done(_, Ok(_))), "{answer:?}");
    }
    assert_eq!(rig.door.clients().len(), 250);
    for (nr, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.read(nr as u64 * 1024, 1024), vec![nr as u8; 1024]);
    }
    drop(clients);
    wait_until("no client", || rig.door.clients().is_empty());
}

/// Ten thousand connections, each with one byte: most leave at once, with the server or before it has seen them.
pub fn ten_thousand_connections_cost_nobody_anything(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut witness = rig.client();
    let mut kept = Vec::new();
    for nr in 0..10_000 {
        let mut socket = rig.connection();
        // It may have been turned away already.
        let _ = socket.write_all(&[0]);
        if nr % 50 == 0 {
            kept.push(socket);
            witness.fill(0, 512, nr as u8);
            assert_eq!(witness.read(0, 512), vec![nr as u8; 512]);
        }
    }
    drop(kept);
    wait_until("room", || rig.adapter.connect(&rig.socket()).is_some());
    wait_until("one client", || rig.door.clients().len() == 1);
    rig.assert_serves();
}

/// One more than the limit is closed, and let in when there is room.
pub fn too_many_clients_are_turned_away(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut silent: Vec<_> = (0..CLIENTS_MAX).map(|_| rig.connection()).collect();
    wait_until("the limit", || {
        let turned_away = rig.adapter.connect(&rig.socket()).is_none();
        if !turned_away {
            // It was counted before one of those that came earlier, which was turned away in its place.
            silent.push(rig.connection());
        }
        turned_away
    });
    drop(silent.split_off(CLIENTS_MAX / 2));
    wait_until("room", || rig.adapter.connect(&rig.socket()).is_some());
    rig.assert_serves();
}

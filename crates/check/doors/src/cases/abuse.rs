//! Clients that go away, send garbage, say nothing, or are too many.

use crate::client::{Command, PATIENCE};
use crate::rig::{CLIENTS_MAX, wait_until};
use crate::{Adapter, Rig};
use std::io::{Read, Write};
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

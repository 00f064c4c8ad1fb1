//! Clients that go from one server to its successor, wherever in their requests they are.

// Helpers of the tests: unwrapping says that one has failed.
#![allow(clippy::unwrap_used)]

mod support;

use braid_device::Target;
use braid_export::{Export, PassedError};
use braid_nbd::protocol::constants::*;
use braid_nbd::protocol::{Command, Request};
use braid_nbd::serve::{Limits, Server};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use support::{DISK_BYTES, Plain, RamTarget, World};

const PAYLOAD: [u8; 512] = [7; 512];

fn request(cookie: u64, command: Command, offset: u64, length: u32) -> Request {
    Request { cookie, command, flags: 0, offset, length: length.into() }
}

fn reply(error: u32, cookie: u64) -> Vec<u8> {
    [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

fn disk() -> Arc<dyn Target> {
    Arc::new(RamTarget::new("disk", DISK_BYTES))
}

/// A server that goes on where the first was, with that target.
fn successor(world: &World, target: Arc<dyn Target>) -> Server {
    let sockets = world.server().hand_over().unwrap();
    let limits = Limits::default();
    Server::adopt(&limits, world.shards.remotes(), sockets, vec![target], None).unwrap()
}

/// A write, one that is refused (its payload is skipped), a flush, and a read: cut at every place, the half of it is with the
/// first server and the rest comes to the second.
#[test]
fn a_stream_that_is_cut_anywhere_is_gone_on_with() {
    let write = request(1, Command::Write, 0, 512);
    let beyond = request(2, Command::Write, DISK_BYTES, 512);
    let stream = [
        &write.encode()[..],
        &PAYLOAD,
        &beyond.encode(),
        &PAYLOAD,
        &request(3, Command::Flush, 0, 0).encode(),
        &request(4, Command::Write, 512, 512).encode(),
        &PAYLOAD,
        &request(5, Command::Read, 512, 512).encode(),
    ]
    .concat();
    // Every place within heads and at borders, and some within payloads.
    let places = (0..=stream.len()).filter(|at| at % 37 == 0 || at % 270 < 30);
    for at in places {
        let target = disk();
        let world = World::with(vec![Arc::clone(&target)]);
        let mut client = world.plain("disk", false);
        let (before, after) = stream.split_at(at);
        client.socket.write_all(before).unwrap();
        // Half of the times what came is not taken any more.
        if at % 2 == 0 {
            world.server().drain(Duration::from_millis(20));
        }
        let passed = world.server().pass_clients();
        assert_eq!(passed.len(), 1, "{at}");
        let second = successor(&world, target);
        world.server().stop();
        for client in passed {
            second.take_client(client).unwrap();
        }
        client.socket.write_all(after).unwrap();
        let mut replies: Vec<[u8; 16]> = (0..4).map(|_| client.receive()).collect();
        replies.sort();
        let no_space = 28;
        let mut wanted = [reply(0, 1), reply(no_space, 2), reply(0, 3), reply(0, 4)];
        wanted.sort();
        assert!(replies.iter().map(|one| one.to_vec()).eq(wanted), "{at}: {replies:?}");
        assert_eq!(client.receive::<16>()[..], reply(0, 5), "{at}");
        assert_eq!(client.receive::<512>(), PAYLOAD, "{at}");
        drop(second);
    }
}

#[test]
fn a_client_of_an_export_that_is_not_there_any_more_is_disconnected() {
    let world = World::new();
    let mut client = world.plain("fixed", false);
    let passed = world.server().pass_clients();
    let second = successor(&world, disk());
    for client in passed {
        assert_eq!(client.target, "fixed");
        second.take_client(client).unwrap();
    }
    assert!(client.rest().is_empty());
}

#[test]
fn what_is_no_state_of_a_client_is_refused() {
    let world = World::new();
    let _client = world.plain("disk", false);
    let mut passed = world.server().pass_clients().remove(0);
    passed.state.truncate(3);
    let refused = world.server().take_client(passed);
    assert!(matches!(refused, Err(PassedError::State(_))), "{refused:?}");
}

#[test]
fn a_server_can_take_its_own_clients_back_and_what_was_agreed_on_holds() {
    let world = World::new();
    let mut client: Plain = world.plain("disk", true);
    world.server().drain(Duration::from_secs(1));
    for client in world.server().pass_clients() {
        world.server().take_client(client).unwrap();
    }
    world.server().resume();
    client.send(request(1, Command::Read, 0, 512), &[]);
    assert_eq!(client.receive::<4>(), STRUCTURED_REPLY_MAGIC.to_be_bytes());
}

//! The vhost-user door, and a guest with a driver of its own behind rust-vmm's front end.

pub mod guest;

use crate::{Adapter, Client};
use braid_device::Target;
use braid_export::{Export, Listening};
use braid_shard::mailbox::Remote;
use braid_vhost::{Limits, Server};
use guest::Guest;
use std::path::Path;
use std::sync::Arc;

/// Clients that the suite wants to be served at a time.
const CLIENTS_MAX: usize = 300;

/// See the module's documentation.
pub struct VhostUser;

fn limits() -> Limits {
    Limits { connections: CLIENTS_MAX, ..Limits::default() }
}

impl Adapter for VhostUser {
    fn protocol(&self) -> &'static str {
        "vhost-user"
    }

    fn start(&self, socket: &Path, shards: &[Remote], target: Arc<dyn Target>) -> Arc<dyn Export> {
        let server = Server::start(&limits(), shards, socket, Some("disk"), &[target]);
        Arc::new(server.expect("a vhost-user server"))
    }

    fn first_words(&self) -> Vec<u8> {
        // It asks for features, a thousand times, and again but for the last byte.
        let mut words = [1u32, 1, 0].map(u32::to_ne_bytes).concat().repeat(1000);
        words.pop();
        words
    }

    fn adopt(
        &self,
        sockets: Vec<Listening>,
        shards: &[Remote],
        target: Arc<dyn Target>,
    ) -> Arc<dyn Export> {
        let server = Server::adopt(&limits(), shards, sockets, None, &[target]);
        Arc::new(server.expect("a vhost-user server"))
    }

    fn connect(&self, socket: &Path) -> Option<Box<dyn Client>> {
        Some(Box::new(Guest::connect(socket)?))
    }

    fn garbage(&self) -> Vec<Vec<u8>> {
        let message = |code: u32, flags: u32, size: u32, body: &[u8]| {
            let head = [code, flags, size].map(u32::to_ne_bytes).concat();
            [&head[..], body].concat()
        };
        vec![
            vec![0xff; 64],
            vec![0; 4096],
            message(1, 2, 0, &[]),
            message(999, 1, 0, &[]),
            message(2, 1, u32::MAX, &[]),
            // A table of memory without any file.
            message(5, 1, 40, &[1; 40]),
            message(12, 1, 8, &[0xee; 8]),
            message(24, 1, 12, &[0xff; 12]),
            message(31, 1, 20, &[0xff; 20]),
        ]
    }

    fn tells_refusals(&self) -> bool {
        false
    }
}

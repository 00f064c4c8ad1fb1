//! The way over NBD: a server for the array on a unix socket, and generators behind clients.
//!
//! Server and clients are in one process, on shards of their own, and talk through the kernel: what
//! is measured is the protocol, the sockets and the array together.

use crate::error::LoadError;
use crate::generator::Traffic;
use crate::on_shards::OnShards;
use braid_array::array::Array;
use braid_device::{Device, Target};
use braid_nbd::Address;
use braid_nbd::client::Client;
use braid_nbd::protocol::{ClientOptions, Headers};
use braid_nbd::serve::Server;
use braid_shard::mailbox::Remote;
use braid_shard::threads::Shards;
use std::rc::Rc;
use std::sync::Arc;

/// A server and the shards of its clients. Fields are dropped in order: clients' shards, server,
/// socket.
pub struct Served {
    clients: Shards,
    server: Server,
    _folder: tempfile::TempDir,
}

impl Served {
    /// Serves `array` from `remotes`, for as many clients as `shards` says, one on each shard.
    pub fn start(array: &Arc<Array>, remotes: &[Remote], shards: u16) -> Result<Served, LoadError> {
        let folder = tempfile::tempdir().map_err(LoadError::Socket)?;
        let address = Address::Unix(folder.path().join("load.sock"));
        let target = Arc::clone(array) as Arc<dyn Target>;
        let server = Server::start(remotes, &[address], vec![target], None)?;
        let clients = braid_shard::threads::start(shards.into())?;
        Ok(Served { clients, server, _folder: folder })
    }

    /// A generator behind a connection on each of the clients' shards.
    pub fn generators(&self, traffic: &Traffic) -> Result<OnShards, LoadError> {
        // One address was given to the server, so one is there.
        let Some(address) = self.server.addresses().first().cloned() else {
            return Err(LoadError::ShardGone("NBD server".to_owned()));
        };
        let name = "array over NBD";
        OnShards::generators(name, self.clients.remotes(), traffic, move |shard, done| {
            let (own, address) = (shard.clone(), address.clone());
            shard.spawn(async move {
                let options = ClientOptions { export: String::new(), headers: Headers::Structured };
                let connected = Client::connect(&own, &address, options).await;
                done(connected.map_err(LoadError::from).map(|client| {
                    let device = client as Rc<dyn Device>;
                    let size = device.info().size;
                    vec![(device, 0..size)]
                }));
            });
        })
    }
}

//! Sockets that a service manager has made and passed to this process.

use crate::cli::nbd::NbdPlace;
use crate::take_over::Given;
use anyhow::{Context, Result, bail};
use braid_export::Listening;
use braid_nbd::Address;
use listenfd::ListenFd;
use std::os::fd::OwnedFd;

/// The name of the protocol.
const NBD: &str = "nbd";
/// The beginning of each error.
const NOT_PASSED: &str = "--nbd systemd takes the sockets that a service manager passes";

/// Where NBD clients connect.
pub(super) struct Found {
    /// To be bound.
    pub addresses: Vec<Address>,
    /// Passed by a service manager.
    pub sockets: Vec<OwnedFd>,
    /// Handed over by another server.
    pub handed_over: Vec<Listening>,
}

/// The addresses to be bound, and the sockets that were passed or are `given` by another server.
///
/// # Errors
/// None was passed, or one that is no stream socket.
pub(super) fn places(all: &[NbdPlace], mut given: Option<&mut Given>) -> Result<Found> {
    let mut found = Found { addresses: Vec::new(), sockets: Vec::new(), handed_over: Vec::new() };
    let mut by_the_manager = false;
    for place in all {
        let NbdPlace::Address(address) = place else {
            by_the_manager = true;
            continue;
        };
        let text = address.to_string();
        match given.as_deref_mut().and_then(|given| given.take_listening(NBD, &text)) {
            Some(socket) => found.handed_over.push(socket),
            None => found.addresses.push(address.clone()),
        }
    }
    match given {
        // Those of the manager, and of ports that the system has chosen.
        Some(given) => {
            let others = given.listening.extract_if(.., |(protocol, _)| protocol == NBD);
            let others: Vec<Listening> = others.map(|(_, socket)| socket).collect();
            let any_port = |address: &Address| address.to_string().ends_with(":0");
            if by_the_manager || found.addresses.iter().any(any_port) {
                found.addresses.retain(|address| !any_port(address));
                found.handed_over.extend(others);
            }
        }
        None if by_the_manager => found.sockets = passed()?,
        None => {}
    }
    Ok(found)
}

/// The sockets that a service manager has passed, of which there must be one.
fn passed() -> Result<Vec<OwnedFd>> {
    let mut passed = ListenFd::from_env();
    let mut sockets = Vec::new();
    for index in 0..passed.len() {
        // Of either family; the error is about the one that is more.
        let socket = match passed.take_unix_listener(index) {
            Ok(socket) => socket.map(OwnedFd::from),
            Err(_) => passed.take_tcp_listener(index).context(NOT_PASSED)?.map(OwnedFd::from),
        };
        sockets.extend(socket);
    }
    if sockets.is_empty() {
        bail!("{NOT_PASSED}: LISTEN_FDS is not set, or LISTEN_PID is not this process");
    }
    Ok(sockets)
}

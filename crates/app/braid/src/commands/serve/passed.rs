//! Sockets that a service manager has made and passed to this process.

use crate::cli::nbd::NbdPlace;
use anyhow::{Context, Result, bail};
use braid_nbd::Address;
use listenfd::ListenFd;
use std::os::fd::OwnedFd;

/// What is said before the reason.
const NOT_PASSED: &str = "--nbd systemd takes the sockets that a service manager passes";

/// The addresses to be bound, and the sockets that were passed.
///
/// # Errors
/// None was passed, or one that is no stream socket.
pub(super) fn places(all: &[NbdPlace]) -> Result<(Vec<Address>, Vec<OwnedFd>)> {
    let mut addresses = Vec::new();
    let mut sockets = Vec::new();
    for place in all {
        match place {
            NbdPlace::Address(address) => addresses.push(address.clone()),
            NbdPlace::Activated => sockets.extend(passed()?),
        }
    }
    Ok((addresses, sockets))
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

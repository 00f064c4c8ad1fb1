//! Sockets that a service manager has made and passed to this process.

use crate::cli::nbd::NbdPlace;
use crate::take_over::Given;
use anyhow::{Context, Result, bail};
use braid_export::Listening;
use braid_nbd::Address;
use listenfd::ListenFd;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::{LazyLock, Mutex, PoisonError};

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

/// The name by which the control socket is passed: systemd's FileDescriptorName=.
const CONTROL: &str = "control";

/// A socket that was passed, and its name.
struct Passed {
    name: String,
    socket: io::Result<OwnedFd>,
}

/// All that were passed and that nobody has taken: the environment tells of them once.
static PASSED: LazyLock<Mutex<Vec<Passed>>> = LazyLock::new(|| {
    // Before `from_env`, which clears them.
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut passed = ListenFd::from_env();
    let mut all = Vec::new();
    for index in 0..passed.len() {
        let name = names.next().unwrap_or_default().to_string();
        // Of either family; the error is about the one that is more.
        let socket = match passed.take_unix_listener(index) {
            Ok(socket) => Ok(socket.map(OwnedFd::from)),
            Err(_) => passed.take_tcp_listener(index).map(|socket| socket.map(OwnedFd::from)),
        };
        all.extend(socket.transpose().map(|socket| Passed { name, socket }));
    }
    Mutex::new(all)
});

/// Takes those that are the control socket, or all others.
fn take(control: bool) -> Vec<Passed> {
    let mut all = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    all.extract_if(.., |passed| (passed.name == CONTROL) == control).collect()
}

/// The control socket, where a service manager has made it.
///
/// # Errors
/// A descriptor was passed by that name that is no stream socket, or more than one.
pub(super) fn control() -> Result<Option<UnixListener>> {
    let mut all = take(true).into_iter();
    let Some(first) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        bail!(
            "the service manager passes several sockets named {CONTROL}: FileDescriptorName={CONTROL} is for the control socket alone"
        );
    }
    let socket = first.socket.with_context(|| format!("taking the socket named {CONTROL}"))?;
    Ok(Some(UnixListener::from(socket)))
}

/// The sockets that a service manager has passed, of which there must be one.
fn passed() -> Result<Vec<OwnedFd>> {
    let sockets = take(false).into_iter().map(|passed| passed.socket);
    let sockets = sockets.collect::<io::Result<Vec<OwnedFd>>>().context(NOT_PASSED)?;
    if sockets.is_empty() {
        bail!("{NOT_PASSED}: LISTEN_FDS is not set, or LISTEN_PID is not this process");
    }
    Ok(sockets)
}

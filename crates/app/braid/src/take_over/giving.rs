//! The old process: it lets go of everything, and takes it back when the new one does not come up.

use super::Given;
use super::channel::{Channel, Message, VERSION};
use crate::daemon::control_socket::Door;
use crate::daemon::running::Running;
use crate::service;
use anyhow::{Context, Result, bail};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The time that the new process gets to start its threads, and then to start the arrays.
const PREPARE_WAIT: Duration = Duration::from_secs(30);
const READY_WAIT: Duration = Duration::from_secs(30);
/// The time that requests of clients get to be answered: their pause begins with it.
const DRAIN_WAIT: Duration = Duration::from_millis(400);

/// A hand-over that has been agreed on.
pub struct Giving {
    channel: Channel,
    given: Given,
    members: Vec<String>,
}

/// The new process has not come up: everything is this one's again.
pub struct NotTaken {
    /// The reason.
    pub error: anyhow::Error,
    /// All that was let go of.
    pub given: Given,
    /// The members of the arrays that were stopped.
    pub members: Vec<String>,
}

/// Tells a new process that waits at `place` that this server will not be taken over.
pub fn refuse(place: &Path, why: &str) {
    if let Ok(stream) = UnixStream::connect(place) {
        // It may be gone.
        let _ = Channel::new(stream).say(&Message::Refused { error: why.to_string() });
    }
}

/// Lets go of the clients and the sockets, after a new process that waits at `place` was found able to take them. The arrays
/// are for the caller to stop; then [`Giving::finish`]. Nothing has changed when it fails, and the new process was told why.
///
/// # Errors
/// The reason why this server cannot be taken over; a new process that does not answer.
pub fn begin(
    running: &Running,
    control: &Door,
    (arguments, place): (&[String], &Path),
) -> Result<Giving> {
    let mut channel = Channel::new(UnixStream::connect(place).with_context(|| {
        format!("connecting to the server that is to take over, at {}", place.display())
    })?);
    let members = running.members_to_serve();
    let begun = let_go(running, control, (arguments, &members), &mut channel);
    if let Err(error) = &begun {
        // It may be gone.
        let _ = channel.say(&Message::Refused { error: crate::output::said(error) });
    }
    Ok(Giving { given: begun?, channel, members })
}

fn let_go(
    running: &Running,
    control: &Door,
    (arguments, members): (&[String], &[String]),
    channel: &mut Channel,
) -> Result<Given> {
    nothing_stays(running)?;
    if arguments.is_empty() {
        bail!("an argument of the running server is no text, so it cannot be passed on");
    }
    let (arguments, members) = (arguments.to_vec(), members.to_vec());
    channel.say(&Message::Hello { version: VERSION, arguments, members })?;
    match channel.hear(PREPARE_WAIT)? {
        Message::Prepared => {}
        _ => bail!("the new server says something that is not understood"),
    }
    let doors = running.doors();
    let left = doors.drain(DRAIN_WAIT);
    if left > 0 {
        doors.resume();
        bail!(
            "{left} requests of clients are not answered by their devices within {} ms; try again",
            DRAIN_WAIT.as_millis()
        );
    }
    let listening = doors.hand_over().inspect_err(|_| doors.resume())?;
    let managed = control.is_managed();
    let control =
        control.give().context("passing the control socket").inspect_err(|_| doors.resume())?;
    let text = |(protocol, one): (&str, _)| (protocol.to_string(), one);
    let listening = listening.into_iter().map(text).collect();
    let clients =
        doors.pass_clients().into_iter().map(|(protocol, one)| (protocol.to_string(), one));
    Ok(Given { control, managed, listening, clients: clients.collect() })
}

/// Refuses what would end with this process.
fn nothing_stays(running: &Running) -> Result<()> {
    if let Some(lease) = &running.lease {
        bail!(
            "its arrays are run under a lease of {}, which cannot be handed over: stop this server, and start it again or let a \
             standby go on",
            lease.place()
        );
    }
    let mounted: Vec<String> = running.volumes_here();
    if !mounted.is_empty() {
        bail!(
            "volumes are mounted by this server: {}; unmount them first, or let them have a server of their own \
             (braid volume mount)",
            mounted.join(", ")
        );
    }
    if let Some(why) = running.doors().stays() {
        bail!(why);
    }
    for (array, member) in running.names_of_members() {
        if member.starts_with("ram:") || member.starts_with("model:") {
            bail!(
                "array {array} has {member}, which is in the memory of this server and ends with it"
            );
        }
    }
    Ok(())
}

impl Giving {
    /// Passes everything. The arrays must have been stopped.
    ///
    /// # Errors
    /// The new process has not come up.
    pub fn finish(self) -> Result<(), Box<NotTaken>> {
        let Giving { mut channel, given, members } = self;
        let mut pass = || {
            channel.give(&given)?;
            match channel.hear(READY_WAIT)? {
                Message::Ready => {
                    // Before this one ends: a service manager would take that for the end of the service.
                    if let Some(process) = channel.other_process() {
                        service::main_process(process);
                    }
                    channel.say(&Message::Go)
                }
                _ => bail!("the new server says something that is not understood"),
            }
        };
        pass().map_err(|error| Box::new(NotTaken { error, given, members }))
    }
}

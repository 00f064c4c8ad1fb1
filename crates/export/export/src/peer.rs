//! The other ends of connections, in words.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{getpeername, sockopt};

/// The other end of `socket`; `None` when it is gone, whether or not the connection here has ended yet.
#[must_use]
pub fn peer(socket: &OwnedFd) -> Option<String> {
    let mut waited = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    if poll(&mut waited, Some(&now)).is_ok() && waited[0].revents().intersects(gone) {
        return None;
    }
    let peer = getpeername(socket).ok()??;
    std::net::SocketAddr::try_from(peer).map(|address| address.to_string()).ok().or_else(|| {
        let process = sockopt::socket_peercred(socket).ok()?;
        Some(format!("process {}", process.pid.as_raw_nonzero()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn clients_are_named_until_they_are_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = OwnedFd::from(listener.accept().unwrap().0);
        assert_eq!(peer(&server), Some(client.local_addr().unwrap().to_string()));
        let (client, server) = UnixStream::pair().unwrap();
        let server = OwnedFd::from(server);
        assert_eq!(peer(&server), Some(format!("process {}", std::process::id())));
        drop(client);
        assert_eq!(peer(&server), None);
    }
}

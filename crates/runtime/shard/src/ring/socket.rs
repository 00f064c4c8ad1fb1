//! Two options of TCP sockets that no safe crate has: how much may wait to be sent, and how much must have come before a
//! receive that waits is woken.

use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

/// TCP_NOTSENT_LOWAT: a send waits while more than `bytes` are in the socket that the kernel has not sent yet. What is under
/// way on the network does not count, so a long way is used as before.
///
/// # Errors
/// The socket is none of TCP.
pub fn limit_unsent(socket: &OwnedFd, bytes: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// SO_RCVLOWAT: a receive that finds nothing waits until `bytes` have come, or the peer has ended. At least one byte; the kernel
/// takes less than half of the socket's buffer for more.
///
/// # Errors
/// None of an open socket.
pub fn wake_with(socket: &OwnedFd, bytes: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

fn set(socket: &OwnedFd, level: i32, option: i32, value: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: `value` outlives the call, which reads as many bytes of it as it has, and the descriptor is open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(&value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_is_readable_once_so_much_has_come_or_its_peer_has_left() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        peer.set_nodelay(true).unwrap();
        let socket = OwnedFd::from(listener.accept().unwrap().0);
        let readable = |nanos| {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let mut fds = [PollFd::new(&socket, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: nanos })).unwrap() == 1
        };
        limit_unsent(&socket, 4096).unwrap();
        wake_with(&socket, 1000).unwrap();
        peer.write_all(&[0; 999]).unwrap();
        assert!(!readable(1_000_000));
        peer.write_all(&[0; 1]).unwrap();
        assert!(readable(999_999_999));
        wake_with(&socket, 2000).unwrap();
        assert!(!readable(1_000_000));
        drop(peer);
        assert!(readable(999_999_999));
        let unix = OwnedFd::from(UnixStream::pair().unwrap().0);
        assert!(limit_unsent(&unix, 4096).is_err());
    }
}

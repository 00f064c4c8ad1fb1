//! The features that a new mount asks of the kernel, and the exchange in which it agrees.

use crate::abi::init::{self, Offer, Wanted};
use crate::abi::request::{Header, opcode};
use crate::abi::{BEFORE_PAYLOAD, READ_MIN};
use crate::channel::{Channel, Received, body};
use crate::options::MountOptions;
use crate::reply::Reply;
use rustix::io::Errno;
use std::sync::Arc;

/// Requests that the kernel may have under way for readers ahead, writers behind and asynchronous direct I/O.
const BACKGROUND: u16 = 256;

/// The features and limits that the kernel has agreed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// Files that bypass the page cache can be mapped.
    pub direct_mmap: bool,
    /// Requests come over io_uring.
    pub over_io_uring: bool,
}

/// `takes_commands`: of the shard's ring.
fn wanted(options: &MountOptions, takes_commands: bool) -> Wanted {
    let mut flags = init::ASYNC_READ
        | init::ASYNC_DIO
        | init::ATOMIC_O_TRUNC
        | init::BIG_WRITES
        | init::CACHE_SYMLINKS
        | init::DIRECT_IO_ALLOW_MMAP
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::EXPORT_SUPPORT
        // Without it every write asks for the attribute security.capability first.
        | init::HANDLE_KILLPRIV_V2
        | init::MAX_PAGES
        | init::PARALLEL_DIROPS
        | init::SETXATTR_EXT;
    if options.access_lists {
        // The umask is ours to apply: a default list takes its place.
        flags |= init::POSIX_ACL | init::DONT_MASK;
    }
    if options.writeback_cache && !options.read_only {
        flags |= init::WRITEBACK_CACHE;
    }
    if options.io_uring && takes_commands {
        flags |= init::OVER_IO_URING;
    }
    Wanted {
        flags,
        read_ahead: u32::try_from(options.read_ahead).unwrap_or(u32::MAX),
        background: BACKGROUND,
        congested: BACKGROUND / 4 * 3,
        max_write: options.max_write,
    }
}

/// Leaves out what does not go together with this offer.
///
/// Over io_uring there is no asynchronous direct I/O: processes wait for theirs in the kernel, one thread for each. The
/// reply to an asynchronous call ends it, and whoever sends that may have to close the file for the kernel and to wait
/// until it is written out. On the shard nobody would be left to answer those writes. A worker thread of the io_uring
/// takes the next reply before it closes the file (io_uring/io-wq.c: `io_assign_current_work`), and that reply is never
/// sent: such a mount was seen to wait for ever.
fn suited(wanted: Wanted, offer: &Offer) -> Wanted {
    if wanted.flags & offer.flags & init::OVER_IO_URING == 0 {
        return wanted;
    }
    Wanted { flags: wanted.flags & !init::ASYNC_DIO, ..wanted }
}

/// Waits for the kernel's offer and answers it. `takes_commands`: the ring of the shard that will serve does.
///
/// # Errors
/// When the kernel is too old, or the device fails.
pub(crate) fn agree(
    channel: &Arc<Channel>,
    options: &MountOptions,
    takes_commands: bool,
) -> std::io::Result<Agreed> {
    let unexpected = |why: &str| std::io::Error::other(why.to_owned());
    let (mut head, mut rest) = ([0; BEFORE_PAYLOAD], vec![0; READ_MIN]);
    loop {
        let len = match channel.receive(&mut head, &mut rest)? {
            Received::Request(len) => len,
            Received::Nothing => continue,
            Received::End => return Err(unexpected("the device was closed")),
        };
        let Some(header) = Header::parse(&head).filter(|header| header.opcode == opcode::INIT)
        else {
            return Err(unexpected("the first request was not the offer"));
        };
        let reply = Reply::new(channel, header.unique);
        let mut scratch = Vec::new();
        let Some(offer) = Offer::parse(body(&head, &rest, len, &mut scratch)) else {
            reply.error(Errno::PROTO);
            return Err(unexpected("the offer was too short"));
        };
        if offer.is_too_new() {
            reply.with(&init::our_version());
            continue;
        }
        if !offer.is_spoken() {
            reply.error(Errno::PROTO);
            let (major, minor) = offer.version;
            return Err(unexpected(&format!("the kernel's protocol is {major}.{minor}")));
        }
        let wanted = suited(wanted(options, takes_commands), &offer);
        reply.with(&init::agreed(&offer, &wanted));
        let missing = wanted.flags & !offer.flags;
        if missing != 0 {
            tracing::debug!(
                "capabilities of FUSE that the kernel has not: {missing:#x}; done without"
            );
        }
        let agreed = |flag| wanted.flags & offer.flags & flag != 0;
        return Ok(Agreed {
            direct_mmap: agreed(init::DIRECT_IO_ALLOW_MMAP),
            over_io_uring: agreed(init::OVER_IO_URING),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_io_uring_direct_io_is_not_asynchronous() {
        let options = MountOptions::new("dir", "volume");
        let all = wanted(&options, true).flags;
        let is_asynchronous = |takes_commands, flags| {
            let offer = Offer { version: (7, 42), read_ahead: 0, flags };
            let agreed = suited(wanted(&options, takes_commands), &offer).flags & flags;
            agreed & init::ASYNC_DIO != 0
        };
        assert!(!is_asynchronous(true, all));
        assert!(is_asynchronous(true, all & !init::OVER_IO_URING), "the kernel does not offer it");
        assert!(is_asynchronous(false, all), "the shard's ring cannot");
    }
}

//! The work that a request asks for, however it came.

use crate::abi::request::{self, Header, opcode};
use crate::serve::Server;
use crate::work::Work;
use braid_filesystem::FileSystem;
use rustix::io::Errno;

/// A request after decoding.
pub(crate) enum Asked {
    /// Something for the file system.
    Work(Work),
    /// Nothing more; an error is the answer.
    Nothing(Result<(), Errno>),
}

/// The request that `header` and the `body` after it make, unless it is a write. Forget requests are carried out here.
pub(crate) fn asked<F: FileSystem + 'static>(
    server: &Server<F>,
    header: &Header,
    body: &[u8],
) -> Asked {
    match header.opcode {
        opcode::FORGET => server.forget(header.ino, request::forgotten(body)),
        opcode::BATCH_FORGET => {
            for (ino, count) in request::forgets(body) {
                server.forget(ino, count);
            }
        }
        // The end, which the device tells too.
        opcode::DESTROY => {}
        _ => match request::parse(header, body) {
            Ok(work) => return Asked::Work(work),
            Err(error) => return Asked::Nothing(Err(error)),
        },
    }
    Asked::Nothing(Ok(()))
}

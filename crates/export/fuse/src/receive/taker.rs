//! Whoever takes the requests that were read from a device.

use super::asked::{Asked, asked};
use super::taking::Taking;
use crate::abi::request::{Header, WriteHead};
use crate::reply::Way;
use crate::serve::{self, Server};
use crate::work::Held;
use braid_filesystem::FileSystem;
use braid_shard::BufMut;
use std::rc::Rc;

/// Takes requests of one mount, on one shard.
pub(crate) trait Taker: Taking {
    /// Starts a request that is no write; `body` is what comes after its header.
    fn take(self: &Rc<Self>, header: &Header, body: &[u8], way: &Way);

    /// Starts a write, when there is room for it.
    async fn take_write(self: &Rc<Self>, header: &Header, head: WriteHead, data: BufMut, way: &Way);

    /// So many requests wait in the kernel, by guess.
    fn crowd(&self, _waiting: usize) {}

    /// Waits until requests are to be looked for. False: not any more.
    async fn until_wanted(&self) -> bool {
        true
    }
}

impl<F: FileSystem + 'static> Taker for Server<F> {
    fn crowd(&self, waiting: usize) {
        self.depth.waits(waiting);
    }

    fn take(self: &Rc<Self>, header: &Header, body: &[u8], way: &Way) {
        match asked(self, header, body) {
            Asked::Work(work) => {
                let reply = way.reply(header.unique, work.ends_a_users_call());
                serve::begin(self, work, reply);
            }
            // Nobody waits for a reply about what was forgotten.
            Asked::Nothing(Ok(())) => {}
            Asked::Nothing(Err(error)) => way.reply(header.unique, false).error(error),
        }
    }

    async fn take_write(
        self: &Rc<Self>,
        header: &Header,
        head: WriteHead,
        data: BufMut,
        way: &Way,
    ) {
        let share = self.writes.take(data.len() as u64).await;
        let work = head.of(header.ino, data, Some(Held::Share(share)));
        let reply = way.reply(header.unique, work.ends_a_users_call());
        serve::begin(self, work, reply);
    }
}

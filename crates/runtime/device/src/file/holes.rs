//! The holes of a file, as its file system knows them.
//!
//! The call that asks (`lseek` with `SEEK_HOLE`) reads what the file system has on its disk, or asks a server, and the ring
//! cannot do it: it is made on a thread of its own, one at a time for each device. A file system that does not answer costs
//! that thread, and whoever asks is told that there are no holes.

use crate::holes::Holes;
use braid_shard::sync::{Notify, promise};
use braid_shard::{Nanos, Shard};
use rustix::fs::{SeekFrom, seek};
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

/// Holes that are looked for at a time; whoever wants more asks again.
const RANGES_MAX: usize = 1024;
/// The time that an answer may take, with the wait for earlier ones, in nanoseconds.
const PATIENCE: Nanos = 5_000_000_000;

/// The searches of one device.
pub(super) struct Searches {
    busy: Cell<bool>,
    free: Notify,
}

impl Searches {
    pub(super) fn new(shard: &Shard) -> Rc<Searches> {
        Rc::new(Searches { busy: Cell::new(false), free: Notify::new(shard) })
    }

    /// The holes of the file at `fd` within `bytes`.
    pub(super) async fn search(
        self: &Rc<Self>,
        shard: &Shard,
        fd: OwnedFd,
        bytes: Range<u64>,
    ) -> Holes {
        let none = Holes::none(&bytes);
        let mut late = pin!(shard.sleep(PATIENCE));
        let turn = self.free.wait_for(|| (!self.busy.get()).then_some(()));
        if unless(late.as_mut(), pin!(turn)).await.is_none() {
            return none;
        }
        self.busy.set(true);
        let (give, found) = promise(shard);
        let (own, work) = (Rc::clone(self), shard.on_thread(move || search(&fd, &bytes)));
        // Busy until the thread has ended, whether or not somebody still waits for it.
        shard.spawn(async move {
            let found = work.await;
            own.busy.set(false);
            own.free.notify_all();
            if let Some(found) = found {
                give.fulfil(found);
            }
        });
        unless(late, pin!(found)).await.flatten().unwrap_or(none)
    }
}

/// The outcome of `work`; `None` when it is `late` before that.
async fn unless<T>(
    mut late: Pin<&mut impl Future<Output = ()>>,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => late.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// Looks for holes. May block. What the file system cannot tell is none.
pub(super) fn search(fd: &OwnedFd, bytes: &Range<u64>) -> Holes {
    let mut holes = Holes::none(bytes);
    let mut at = bytes.start;
    while at < bytes.end {
        if holes.ranges.len() >= RANGES_MAX {
            holes.until = at;
            break;
        }
        let Ok(hole) = seek(fd, SeekFrom::Hole(at)) else { break };
        if hole < at || hole >= bytes.end {
            break;
        }
        let data = match seek(fd, SeekFrom::Data(hole)) {
            Ok(data) => data.min(bytes.end),
            // Up to the end of the file there is none.
            Err(rustix::io::Errno::NXIO) => bytes.end,
            Err(_) => break,
        };
        if data <= hole {
            break;
        }
        holes.push(hole..data);
        at = data;
    }
    holes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_are_found_between_data_and_up_to_the_end() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        for at in [1u64 << 20, 4 << 20] {
            file.write_all_at(&[7; 64 << 10], at).unwrap();
        }
        let fd = OwnedFd::from(file.try_clone().unwrap());
        let found = search(&fd, &(0..8 << 20));
        let data = [1 << 20..(1 << 20) + (64 << 10), 4 << 20..(4 << 20) + (64 << 10)];
        assert_eq!(found.until, 8 << 20);
        assert_eq!(
            found.ranges,
            [0..data[0].start, data[0].end..data[1].start, data[1].end..8 << 20]
        );
        assert_eq!(search(&fd, &(data[0].clone())).ranges, []);
        assert_eq!(
            search(&fd, &(5 << 20..6 << 20)).ranges,
            std::slice::from_ref(&(5 << 20..6 << 20))
        );
        // Very many: the first of them, and how far that is.
        for at in 0..2048 {
            file.write_all_at(&[7; 512], at * 4096 * 16).unwrap();
        }
        let fd = OwnedFd::from(file);
        let many = search(&fd, &(0..2048 * 4096 * 16));
        assert_eq!(many.ranges.len(), RANGES_MAX);
        assert!(many.ranges.iter().all(|hole| hole.end <= many.until));
        let rest = search(&fd, &(many.until..2048 * 4096 * 16));
        // The bytes that were written first lie in the way of two.
        assert_eq!(many.ranges.len() + rest.ranges.len(), 2048 - 2);
        // Without a file system, or a file, there are none.
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert_eq!(search(&null, &(0..4096)).ranges, []);
    }
}

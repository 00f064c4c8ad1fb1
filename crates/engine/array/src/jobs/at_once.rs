//! Parts of a window that are under way at the same time, as one task.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Carries out all of `parts` and gives what they have come to, in their order.
///
/// Each goes as far as it can before the next one is begun. On members that answer at once a part has therefore ended, and
/// its buffers are free, before the next takes some: they are used again while the processor's caches have them. On members that
/// answer later the requests of all parts are there before any has ended, for plugs to merge.
pub(crate) async fn all<F: Future>(parts: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut under_way: Vec<Option<Pin<Box<F>>>> =
        parts.into_iter().map(|part| Some(Box::pin(part))).collect();
    let mut ended: Vec<Option<F::Output>> = under_way.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut rest = false;
        for (part, outcome) in under_way.iter_mut().zip(&mut ended) {
            let Some(future) = part else { continue };
            match future.as_mut().poll(context) {
                Poll::Ready(output) => {
                    *part = None;
                    *outcome = Some(output);
                }
                Poll::Pending => rest = true,
            }
        }
        if rest { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    ended.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_shard::Shard;
    use std::cell::RefCell;

    #[test]
    fn parts_are_begun_in_order_and_end_in_any() {
        let shard = Shard::with_ring(0).unwrap();
        let own = shard.clone();
        let log = shard.block_on(async move {
            let log = RefCell::new(Vec::new());
            let part = async |nr: u32, turns: u32| {
                log.borrow_mut().push(format!("begin {nr}"));
                for _ in 0..turns {
                    own.yield_now().await;
                }
                log.borrow_mut().push(format!("end {nr}"));
                nr
            };
            let ended = all([part(0, 2), part(1, 0), part(2, 1)]).await;
            assert_eq!(ended, [0, 1, 2]);
            log.into_inner()
        });
        assert_eq!(log, ["begin 0", "begin 1", "end 1", "begin 2", "end 2", "end 0"]);
    }
}

//! A deadline for what a connection does first: whoever connects and says nothing does not stay.

use crate::stream::Stream;
use braid_shard::sync::{Promise, promise};
use braid_shard::{Nanos, Shard};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Shuts a stream down when it is over; dropping it ends that.
pub struct Deadline {
    _running: Promise<()>,
}

impl Deadline {
    /// One that is over after `limit`; the log says `late` then, and how long it was.
    #[must_use]
    pub fn start(
        shard: &Shard,
        stream: &Rc<Stream>,
        limit: Duration,
        late: &'static str,
    ) -> Deadline {
        let (running, mut stopped) = promise(shard);
        let stream = Rc::downgrade(stream);
        let mut sleep = shard.sleep(Nanos::try_from(limit.as_nanos()).unwrap_or(Nanos::MAX));
        shard.spawn(async move {
            let over = poll_fn(|cx| match Pin::new(&mut stopped).poll(cx) {
                Poll::Ready(_) => Poll::Ready(false),
                Poll::Pending => Pin::new(&mut sleep).poll(cx).map(|()| true),
            })
            .await;
            if let (true, Some(stream)) = (over, stream.upgrade()) {
                tracing::warn!("{late} within {limit:?}: disconnecting it");
                stream.shutdown();
            }
        });
        Deadline { _running: running }
    }
}

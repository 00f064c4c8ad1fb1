//! Flush as a shard sees it: the home shard has every member make durable what it has completed.
//!
//! No shard flushes members by itself: of two flushes of a member that has lost its cache one may fail and the
//! other succeed, so all of them go through control, one after the other. A loss that no redundancy makes
//! good is told to every connection, by its next flush.

use crate::engine::Engine;
use braid_device::{Completion, IoError, IoErrorKind, Op};
use braid_shard::plant::planted;
use std::cell::Cell;
use std::rc::Rc;

/// Flushes all members for a connection that has been told of `told` losses.
pub(crate) async fn flush(engine: Rc<Engine>, told: Rc<Cell<u64>>, done: Completion) {
    let _request = engine.begin_request();
    let result = flush_members(&engine, &told).await;
    done.finish(result, Op::Flush);
}

async fn flush_members(engine: &Rc<Engine>, told: &Cell<u64>) -> Result<(), IoError> {
    let Some(flushed) = engine.home.flush_members().await else {
        return Err(IoError::new(IoErrorKind::Refused));
    };
    let news = told.replace(flushed.losses) != flushed.losses;
    match flushed.error {
        Some(error) => Err(error),
        // It was another connection's flush that failed, and what was lost may be this one's.
        None if news && !planted("loss-told-to-one") => Err(IoError::new(IoErrorKind::Medium)),
        None => Ok(()),
    }
}

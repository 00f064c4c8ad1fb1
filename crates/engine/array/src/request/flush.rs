//! Flush as a shard sees it: the home shard has every member make durable what it has completed.
//!
//! No shard flushes members by itself: of two flushes of a member that has lost its cache one may fail and the
//! other succeed, so all of them go through [`Control`], one after the other. A loss that no redundancy makes
//! good is told to every connection, by its next flush.

use crate::control::Control;
use crate::engine::Engine;
use braid_device::{Completion, IoError, IoErrorKind, Op};
use braid_shard::Shard;
use braid_shard::plant::planted;
use braid_shard::sync::{Promise, promise};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The outcome of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// Why it does not count.
    pub(crate) error: Option<IoError>,
    /// Times that acknowledged writes of this array have been lost so far.
    pub(crate) losses: u64,
}

/// Calls back with what became of a flush, from the home shard.
pub(crate) type Answer = Box<dyn FnOnce(Flushed) + Send>;

/// Flushes of an engine that wait for their answer.
#[derive(Default)]
pub(crate) struct Asked(RefCell<Slab<Promise<Flushed>>>);

/// Flushes all members for a connection that has been told of `told` losses.
pub(crate) async fn flush(engine: Rc<Engine>, told: Rc<Cell<u64>>, done: Completion) {
    let _request = engine.begin_request();
    let result = flush_members(&engine, &told).await;
    done.finish(result, Op::Flush);
}

impl Engine {
    /// A durable write has failed, perhaps for what its member had taken before: that is told once, and
    /// no flush would say it again. Where there is redundancy settling has seen to it.
    pub(crate) fn durable_write_failed(&self, error: IoError) {
        let of_the_array = matches!(error.kind, IoErrorKind::Refused | IoErrorKind::Invalid);
        if !of_the_array && !self.geometry.level.has_redundancy() {
            self.reports.count_loss();
        }
    }
}

async fn flush_members(engine: &Rc<Engine>, told: &Cell<u64>) -> Result<(), IoError> {
    let Some(flushed) = ask(engine).await else {
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

/// Has the home shard flush all members. `None`: the array was stopped meanwhile.
pub(crate) async fn ask(engine: &Rc<Engine>) -> Option<Flushed> {
    let (give, wait) = promise(&engine.shard);
    let key = engine.flushes.0.borrow_mut().insert(give);
    let (own, id) = (engine.shard.remote(), engine.id);
    engine.home.run(move |shard: &Shard| {
        let answer: Answer = Box::new(move |flushed| {
            own.run(move |shard| {
                if let Some(engine) = Engine::find(shard, id) {
                    let promise = engine.flushes.0.borrow_mut().try_remove(key);
                    if let Some(promise) = promise {
                        promise.fulfil(flushed);
                    }
                }
            });
        });
        Control::flush_for_engine(shard, id, answer);
    });
    wait.await
}

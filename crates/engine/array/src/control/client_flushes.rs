//! Flushes that clients of all shards ask for: those that come while one is under way share the next.
//!
//! Invariant: a flush is answered with success only when no failure that was met before its end is unrecorded.

use crate::control::record::Record;
use crate::control::record::members::{Member, Standing};
use crate::engine::home::{FlushAnswer, Flushed};
use braid_device::{IoError, IoErrorKind};
use braid_shard::plant::planted;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// See the module's documentation.
pub(crate) struct ClientFlushes {
    record: Rc<Record>,
    /// Clients that wait for the next flush.
    waiting: RefCell<Vec<FlushAnswer>>,
    /// A task flushes for clients.
    busy: Cell<bool>,
}

impl ClientFlushes {
    pub(super) fn new(record: &Rc<Record>) -> Rc<ClientFlushes> {
        let (waiting, busy) = (RefCell::default(), Cell::new(false));
        Rc::new(ClientFlushes { record: Rc::clone(record), waiting, busy })
    }

    /// A client of some shard wants the array to be flushed; `answer` is called when that has been tried and what failed
    /// is recorded.
    pub(crate) fn flush(self: Rc<Self>, answer: FlushAnswer) {
        self.waiting.borrow_mut().push(answer);
        if !self.busy.replace(true) {
            self.record.shard.clone().spawn(async move { self.flush_together().await });
        }
    }

    async fn flush_together(self: Rc<Self>) {
        loop {
            let alone = self.record.flushes.alone.take(1).await;
            // Whoever comes from here on may have had writes completed that this flush does not cover.
            let waiting = self.waiting.take();
            if waiting.is_empty() {
                self.busy.set(false);
                return;
            }
            let which = |member: &Member| {
                let rebuilt = matches!(member.standing, Standing::Rebuilding { .. });
                member.holds_data() && !(rebuilt && planted("flush-leaves-out-rebuilt"))
            };
            let first = self.record.flush_alone(alone, which).await;
            if self.record.suspects.any_unrecorded() && !planted("flushed-before-record") {
                let turn = self.record.turn().await;
                self.record.record_suspects(&turn).await;
            }
            let broken = self.record.roster.borrow().broken;
            let redundant = self.record.geometry().level.has_redundancy();
            let error = match first {
                Some(error) if broken => Some(error),
                Some(error) if !redundant && !planted("loss-told-to-none") => Some(error),
                // With too many members lost, the unflushed writes of this one exist nowhere else.
                None if broken && !planted("flush-of-too-degraded") => {
                    Some(IoError::new(IoErrorKind::Lost))
                }
                // The redundancy of the others still holds what the failed member lost, or it is counted as a loss.
                _ => None,
            };
            let losses = self.record.engine.home.reports.losses();
            for answer in waiting {
                answer(Flushed { error, losses });
            }
        }
    }
}

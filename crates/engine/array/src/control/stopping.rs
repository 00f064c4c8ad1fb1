//! The end of an array: writes drained, the job at its checkpoint, members marked clean, read back and closed.
//!
//! Invariant: an array is called clean only where its superblocks were read back and say so.

use crate::control::Control;
use crate::control::record::members::Standing;
use crate::engine::Engine;
use crate::metadata::superblock::read_superblock;
use crate::state::view::MemberNr;
use crate::status::{Ended, Left};
use std::rc::Rc;

/// Interval at which engines are asked whether their writes have ended, in nanoseconds.
const ASK_EVERY: u64 = 1_000_000;

impl Control {
    /// The stop that follows is for another process of this host, which starts the array at once
    /// ([`AssembleOptions::handed_over`](crate::options::AssembleOptions::handed_over)): other hosts are kept off meanwhile, by
    /// the beat that still stands and by the reservations.
    pub fn hand_over(&self) {
        self.heart.hand_over();
    }

    /// Stops the array. New requests are refused at once, writes under way are completed, the job
    /// is interrupted at a checkpoint, members are flushed and marked clean (unless too many have
    /// failed: then they stay as they are) and closed on all shards. A second call waits for the
    /// first, and gives the same: how the members were left, as they say themselves.
    pub async fn stop(self: &Rc<Self>) -> Left {
        if self.record.end.begin() {
            return self.record.changed.wait_for(|| self.record.end.left()).await;
        }
        let faulty_before: Vec<MemberNr> = {
            let roster = self.record.roster.borrow();
            roster.members.iter().filter(|member| member.is_faulty()).map(|m| m.nr).collect()
        };
        let watch = Rc::clone(&self.unanswered);
        self.record.shard.spawn(async move { watch.watch_the_end().await });
        self.unanswered.limit_the_end().await;
        self.unanswered.end_waiting_for_space().await;
        self.jobs.schedule.cancel();
        self.record.changed.notify_all();
        self.record
            .changed
            .wait_for(|| (!self.jobs.schedule.work.borrow().busy).then_some(()))
            .await;

        self.record.engines.ask(|engine: &Engine| engine.refuse_requests()).await;
        self.heart.hold(false).await;
        // Not under the turn: a write that finds a failed member ends only when that is recorded.
        loop {
            let ended = |engine: &Engine| {
                engine.requests_in_flight() == 0 && engine.consistency.try_deactivate(false)
            };
            let agreed = self.record.engines.ask(ended).await;
            if !agreed.contains(&Some(false)) {
                break;
            }
            self.record.shard.sleep(ASK_EVERY).await;
        }
        self.journal.drain().await;
        // Without a clean mark the next start resyncs the ranges that may differ.
        let whole = |control: &Control| !control.record.engine.home.reports.any_unfinished();
        if whole(self) {
            self.bitmap.clear_idle_bits(true).await;
        }
        if !whole(self) {
            tracing::error!(
                "array {}: writes that found no space were ended by the stop; it is left as after an unclean stop, and \
                 is resynced when it starts",
                self.record.name
            );
        }
        let turn = self.record.turn().await;
        let (broken, was_dirty, events) = {
            let roster = self.record.roster.borrow();
            (roster.broken, roster.dirty, roster.shared.events)
        };
        let mut not_durable = None;
        if !self.record.read_only && !broken && whole(self) {
            let before = self.record.engine.home.reports.losses();
            self.mark_clean(&turn).await;
            if self.record.roster.borrow().broken
                || self.record.engine.home.reports.losses() != before
            {
                not_durable = self.record.flushes.last_failure();
            }
        }
        let mut left = self.read_back(&faulty_before).await;
        left.not_durable = not_durable;
        let untouched = self.record.roster.borrow().shared.events == events;
        if self.record.roster.borrow().broken && !was_dirty && untouched {
            // They say "clean", as they did before.
            left.ended = Ended::Untouched;
        }
        if !whole(self) {
            left.problems.push("writes that found no space were ended".to_string());
        }
        if let Some(why) = self.record.lost() {
            left.problems.push(why);
        }
        self.heart.end().await;
        self.unanswered.no_questions_any_more().await;
        self.record.engines.stop().await;
        self.journal.close();
        self.record.roster.borrow_mut().members.clear();
        self.unregister();
        self.record.end.finish(left.clone());
        self.record.changed.notify_all();
        left
    }

    /// Reads the superblocks back and reports their state.
    async fn read_back(&self, faulty_before: &[MemberNr]) -> Left {
        let mut left = Left {
            name: self.record.name.clone(),
            ended: Ended::Untouched,
            written: 0,
            problems: Vec::new(),
            not_durable: None,
            scrub: self.jobs.scrub_now(),
        };
        if self.record.read_only {
            return left;
        }
        left.ended = Ended::Active;
        let (mut wanted, dirty) = (Vec::new(), self.record.roster.borrow().dirty);
        for member in &self.record.roster.borrow().members {
            match &member.standing {
                Standing::Faulty(why) if !faulty_before.contains(&member.nr) => {
                    left.problems.push(format!("{} failed: {why}", member.name));
                }
                Standing::Faulty(_) => {}
                _ if member.given_up.is_some() => {
                    let why = member.given_up.as_deref().unwrap_or_default();
                    left.problems.push(format!(
                        "{} was not waited for: {why}; what it had not completed may not be on it",
                        member.name
                    ));
                }
                _ => wanted.push((
                    member.name.clone(),
                    member.device.as_device(),
                    (member.superblock.events, member.superblock.resync_offset),
                )),
            }
        }
        if self.record.roster.borrow().broken {
            left.problems.push(
                "too many members have failed, or one that alone holds some block; the others were left as they were"
                    .into(),
            );
        }
        for (name, device, expected) in wanted {
            match read_superblock(&self.record.shard, &device, &name).await {
                Ok(Some(found)) if (found.events, found.resync_offset) == expected => {
                    left.written += 1;
                }
                Ok(_) => {
                    left.problems.push(format!("the superblock of {name} is not what was written"))
                }
                Err(error) => left.problems.push(error.to_string()),
            }
        }
        if !dirty && !self.record.roster.borrow().broken && left.written > 0 {
            left.ended = Ended::Clean;
        }
        left
    }
}

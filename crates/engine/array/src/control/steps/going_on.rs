//! The steps after the first: each begins when the one before has ended and the array is whole.

use super::route::{Leg, goal_of, route};
use super::wanted::WantedArray;
use crate::control::Control;
use crate::control::following::Goal;
use crate::status::{Following, NextStep};
use braid_layout::layout_name;
use std::rc::Rc;

/// The moment for which a task waits.
enum Moment {
    Now,
    /// The array has been stopped, or is to become something else.
    Never,
}

impl Control {
    /// Makes the steps that are left to `goal`, each in its time.
    pub(super) fn follow(self: &Rc<Self>, goal: Goal) {
        let nr = self.following.set(goal);
        self.jobs.schedule.more_follows.set(true);
        let control = Rc::clone(self);
        self.record.shard.spawn(async move { control.go_on(nr).await });
    }

    async fn go_on(self: Rc<Self>, nr: u64) {
        loop {
            let moment = || {
                if self.record.end.has_begun() || !self.following.is(nr) {
                    return Some(Moment::Never);
                }
                self.jobs.is_settled().then_some(Moment::Now)
            };
            let Moment::Now = self.record.changed.wait_for(moment).await else { return };
            let name = &self.record.name;
            let Some(leg) = self.next_legs().first().cloned() else {
                tracing::info!("array {name}: all steps to another level are done");
                self.following.clear();
                break;
            };
            match &leg {
                Leg::Level(shape) => tracing::info!("array {name}: next it gets {}", shape.level),
                Leg::Reshape(_) => tracing::info!("array {name}: next its data is moved"),
            }
            if let Err(error) = self.make(&leg).await {
                // Somebody else may have been faster.
                if self.following.is(nr) && self.jobs.is_settled() {
                    tracing::error!("array {name}: the next step is not made: {error}");
                    self.following.refused(error.to_string());
                    break;
                }
            }
        }
        self.jobs.schedule.more_follows.set(false);
        self.record.changed.notify_all();
    }

    /// The steps from here to the goal, beside the one that is under way.
    fn next_legs(&self) -> Vec<Leg> {
        let Some((goal, _)) = self.following.goal() else { return Vec::new() };
        let Ok((basis, under_way)) = self.basis() else { return Vec::new() };
        let wanted = WantedArray::of(&goal);
        let legs = route(&basis.geometry, &wanted, basis.holders.spares().len());
        let legs = legs.unwrap_or_default();
        legs.into_iter().skip(usize::from(under_way.is_some())).collect()
    }

    /// The steps that are left, for status: `None` also where the last has ended, and a member is lacking all the same.
    pub(crate) fn steps_left(&self) -> Option<Following> {
        let (_, refused) = self.following.goal()?;
        let (basis, under_way) = self.basis().ok()?;
        let mut at = goal_of(&basis.geometry, &[]);
        let mut steps = Vec::new();
        for leg in self.next_legs() {
            at = leg.leads_to(at);
            steps.push(NextStep {
                moves: matches!(leg, Leg::Reshape(_)),
                level: at.level,
                layout_name: layout_name(at.level, at.layout),
                chunk_size: at.chunk_size,
                raid_disks: at.raid_disks,
            });
        }
        if steps.is_empty() && under_way.is_none() && refused.is_none() {
            return None;
        }
        let waits_for = match refused {
            None => self.in_the_way().map(|(what, _)| what),
            Some(_) => None,
        };
        Some(Following { steps, waits_for, refused })
    }
}

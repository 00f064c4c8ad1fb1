//! Another level where data has to be moved, by one command: the level, and reshapes before or after it (`route`). Each step
//! is what it is when it is asked for alone (`levels`, `reshaping`); the next begins when the last has ended and the array is
//! whole (`going_on`).
//!
//! ```text
//!  everything is checked for all steps ─► the first begins ─► answer
//!    ─► reshape, or rebuild of slots that are new ─► whole ─► the next begins ─► …
//! ```
//!
//! The steps that are left are not in the superblocks. After a crash the array goes on with the step that was under way, and
//! the same command goes on with the others.

mod going_on;
pub(crate) mod route;
pub mod wanted;

use crate::control::following::Goal;
use crate::control::holders::Holders;
use crate::control::levels::{Relevelled, WantedLevel};
use crate::control::reshaping::{Basis, Reshaped, WantedShape};
use crate::control::{Control, commands};
use crate::error::ControlError;
use braid_format::SECTOR;
use braid_layout::{Level, layout_name};
use route::{Leg, goal_of, reshaped, route, shape_of};
use std::rc::Rc;
use std::sync::Arc;
use wanted::WantedArray;

const DOING: &str = "changing the level or shape";

/// One step, as it is or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Another level, without anything being moved.
    Level(Relevelled),
    /// Data is moved at one level.
    Reshape(Reshaped),
}

/// The steps of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The array when all are done.
    pub goal: Goal,
    /// The change that was begun before, or the reason for which the first step waits, in words.
    pub under_way: Option<String>,
    /// Those that are still to be made; the first of them has begun, unless something is under way.
    pub steps: Vec<Step>,
}

/// Steps that can be made, as far as can be known now.
struct Plan {
    goal: Goal,
    legs: Vec<Leg>,
    steps: Vec<Step>,
    /// A reshape that is one of the steps.
    reshapes: bool,
}

impl Control {
    /// Becomes what is wanted, in as many steps as it takes. The first begins at once; the others follow when the one before
    /// has ended and the array is whole. A command for what the array is already gives up what others have left to be done.
    /// `dry_run`: only says what it would be.
    ///
    /// # Errors
    /// One of the steps cannot be made, or the array is not in a state for the first. Nothing has changed then.
    pub async fn change_to(
        self: &Rc<Self>,
        wanted: WantedArray,
        dry_run: bool,
    ) -> Result<Steps, ControlError> {
        commands::needs_working(&self.record, DOING)?;
        let (basis, under_way) = self.basis()?;
        if let (Level::Raid1, Level::Raid1, None, Some(copies)) =
            (basis.geometry.level, wanted.level, wanted.chunk_size, wanted.raid_disks)
        {
            let goal = Goal { raid_disks: copies, ..goal_of(&basis.geometry, &[]) };
            let steps = vec![Step::Level(self.alone(Level::Raid1, &wanted, &goal, dry_run).await?)];
            return Ok(Steps { goal, under_way: None, steps });
        }
        let spares = basis.holders.spares().len();
        let legs = match route(&basis.geometry, &wanted, spares) {
            Ok(legs) => legs,
            Err(_) if under_way.is_none() && !dry_run && self.is_already(&basis, &wanted) => {
                return Ok(self.give_up(&basis));
            }
            Err(why) => return Err(self.no_shape(DOING, why)),
        };
        if let ([Leg::Level(shape)], None) = (&legs[..], &under_way) {
            let goal = goal_of(&basis.geometry, &legs);
            let steps = vec![Step::Level(self.alone(shape.level, &wanted, &goal, dry_run).await?)];
            return Ok(Steps { goal, under_way: None, steps });
        }
        let plan = self.plan_steps(&basis, under_way, legs)?;
        let goes_on = plan.reshapes || basis.geometry.level == wanted.level;
        let waits = self.in_the_way();
        if let Some((_, why)) = waits.as_ref().filter(|_| !goes_on) {
            return Err(self.no_shape(DOING, why.clone()));
        }
        let Plan { goal, legs, steps, .. } = plan;
        let under_way = waits.map(|(what, _)| what);
        if dry_run {
            return Ok(Steps { goal, under_way, steps });
        }
        if under_way.is_none()
            && let Some(first) = legs.first()
        {
            self.make(first).await?;
        }
        self.follow(goal);
        Ok(Steps { goal, under_way, steps })
    }

    /// A change of the level that is all that is to be done.
    async fn alone(
        self: &Rc<Self>,
        level: Level,
        wanted: &WantedArray,
        goal: &Goal,
        dry_run: bool,
    ) -> Result<Relevelled, ControlError> {
        let wanted = WantedLevel {
            level,
            chunk_size: wanted.chunk_size,
            layout: Some(goal.layout),
            raid_disks: Some(goal.raid_disks),
        };
        if dry_run {
            return self.change_level(wanted, true).await;
        }
        let before = self.following.under_way();
        self.forget_goal();
        let done = self.change_level(wanted, false).await;
        if let (Err(_), Some(goal)) = (&done, before) {
            self.follow(goal);
        }
        done
    }

    /// There is nothing that it is to become.
    fn forget_goal(&self) {
        self.following.clear();
        self.jobs.schedule.more_follows.set(false);
        self.record.changed.notify_all();
    }

    fn is_already(&self, basis: &Basis, wanted: &WantedArray) -> bool {
        self.following.goal().is_some() && basis.geometry.level == wanted.level
    }

    /// It stays what it is.
    fn give_up(&self, basis: &Basis) -> Steps {
        self.forget_goal();
        tracing::info!("array {}: stays {}", self.record.name, basis.geometry.level);
        Steps { goal: goal_of(&basis.geometry, &[]), under_way: None, steps: Vec::new() }
    }

    /// The array as it is, or was before the reshape that is under way, and the shape to which that leads.
    fn basis(&self) -> Result<(Basis, Option<WantedShape>), ControlError> {
        let refuse = |why| self.no_shape(DOING, why);
        let view = self.record.engine.view();
        let geometries = view.geometries();
        let roster = self.record.roster.borrow();
        let reshapes = roster.shared.reshape.is_some();
        if !reshapes {
            let geometry = Arc::clone(geometries.whole());
            let holders = Holders::now(&roster, geometry.slots());
            return Ok((Basis { geometry, holders, moved_by: 0 }, None));
        }
        let (before, whole) = (geometries.before(), geometries.whole());
        // Counted from the first byte of its data, as when it began.
        let plain = reshaped(before, &shape_of(before, None, None, None)).map_err(refuse)?;
        let holders = Holders::now(&roster, plain.slots());
        let basis = Basis { geometry: Arc::new(plain), holders, moved_by: 0 };
        Ok((basis, Some(shape_of(whole, None, None, None))))
    }

    /// All steps one after the other, of which none is made.
    fn plan_steps(
        &self,
        basis: &Basis,
        under_way: Option<WantedShape>,
        legs: Vec<Leg>,
    ) -> Result<Plan, ControlError> {
        let goal = goal_of(&basis.geometry, &legs);
        let (mut basis, mut legs, mut steps) = (basis.clone(), legs, Vec::new());
        let reshapes = under_way.is_some();
        if let Some(shape) = under_way {
            if !matches!(legs.first(), Some(Leg::Reshape(first)) if *first == shape) {
                let why = commands::not_done_yet(&self.record, "a reshape to something else");
                return Err(self.no_shape(DOING, why));
            }
            legs.remove(0);
            let whole = reshaped(&basis.geometry, &shape);
            basis.geometry = Arc::new(whole.map_err(|why| self.no_shape(DOING, why))?);
            basis.holders.have_slots(basis.geometry.slots());
            basis.holders.fill();
            let sectors = i64::from(self.record.roster.borrow().shared.new_offset);
            basis.moved_by = sectors * SECTOR as i64;
        }
        for leg in &legs {
            let (step, after) = match leg {
                Leg::Level(shape) => {
                    let (is, after) = self.level_after(&basis, shape)?;
                    (Step::Level(is), after)
                }
                Leg::Reshape(shape) => {
                    self.is_ever_reshaped(&basis.geometry)?;
                    self.has_members_for(&basis, shape)?;
                    let (is, after) = self.shape_after(&basis, *shape)?;
                    (Step::Reshape(is), after)
                }
            };
            steps.push(step);
            basis = after;
        }
        Ok(Plan { goal, legs, steps, reshapes })
    }

    /// Data is moved only where every slot has a member.
    fn has_members_for(&self, basis: &Basis, shape: &WantedShape) -> Result<(), ControlError> {
        let (geometry, name) = (&basis.geometry, &self.record.name);
        let lacking = basis.holders.empty();
        if lacking == 0 {
            return Ok(());
        }
        let (level, slots) = (geometry.level, geometry.slots());
        let layout = shape.layout.filter(|layout| *layout != geometry.layout_number);
        let layout = layout.and_then(|layout| layout_name(level, layout));
        let what = layout.map_or_else(String::new, |layout| format!(" to --layout {layout}"));
        let more = match lacking {
            1 => "one more member is".to_string(),
            _ => format!("{lacking} more members are"),
        };
        let why = format!(
            "{more} needed for the {slots} slots of {level} before data can be moved{what}: braid add \
             {name} MEMBER, and then the same command; by itself the level is changed with --layout preserve"
        );
        Err(self.no_shape(DOING, why))
    }

    /// The reason for which the next step has to wait: what it waits for, and a sentence for whoever wanted it at once.
    fn in_the_way(&self) -> Option<(String, String)> {
        let record = &self.record;
        let roster = record.roster.borrow();
        let slots = record.geometry().slots();
        let named = |what: &str| Some((what.to_string(), commands::not_done_yet(record, what)));
        if roster.shared.reshape.is_some() {
            return named("a reshape");
        }
        if roster.members.iter().any(|member| member.standing.is_filled()) {
            return named("a rebuild");
        }
        if roster.degraded(slots) > 0 {
            let spare = Holders::now(&roster, slots).spares().is_empty();
            let helps = format!("braid add {} MEMBER", record.name);
            return match spare {
                true => {
                    let what = format!("a member for a slot that has none: {helps}");
                    Some((what, format!("a member is missing: {helps}")))
                }
                false => named("a rebuild"),
            };
        }
        if roster.resynced != u64::MAX {
            return named("a resync");
        }
        if let Some(name) = roster.being_replaced() {
            return named(&format!("the replacement of {name}"));
        }
        drop(roster);
        let job = self.jobs.job_kind_now()?;
        Some((format!("a {job}"), commands::running(record, job)))
    }

    /// Makes a step, or begins it.
    async fn make(self: &Rc<Self>, leg: &Leg) -> Result<(), ControlError> {
        self.following.acts(true);
        let done = match leg {
            Leg::Level(shape) => {
                let now = self.record.geometry().layout.chunk_size();
                let chunk = shape.layout.chunk_size();
                let wanted = WantedLevel {
                    level: shape.level,
                    chunk_size: Some(chunk).filter(|_| now == 0 && chunk > 0),
                    layout: Some(shape.number),
                    raid_disks: Some(shape.layout.slots()),
                };
                self.change_level(wanted, false).await.map(|_| ())
            }
            Leg::Reshape(shape) => self.reshape(*shape, false).await.map(|_| ()),
        };
        self.following.acts(false);
        done
    }
}

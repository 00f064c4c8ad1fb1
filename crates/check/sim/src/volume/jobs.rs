//! What befalls a volume beside its requests: bricks that are added, removed and given other weights, jobs that start,
//! pause, go on and are cancelled, and what its own check says.
//!
//! Commands may be refused: another job is under way, what is to be moved does not fit, a brick is the last. They may
//! not fail, as no brick does.

use super::run::{VolumeRun, uuid_of};
use super::verify::wait;
use crate::device::SimOpener;
use crate::run::Over;
use braid_filesystem::Errno;
use braid_format::volume::brick_record::BrickState;
use braid_volume::{BrickToAdd, CheckReport, JobState, NewJob, Volume, VolumeError};
use std::cell::RefCell;
use std::rc::Rc;

/// What became of commands: of a check what it found.
pub(super) type Outcomes = Rc<RefCell<Vec<Result<Option<CheckReport>, VolumeError>>>>;

/// How often a job is resumed at the end of a run before it must have come to its own.
const RESUMES: u32 = 8;

impl VolumeRun {
    /// Gives a random command; what comes of it is seen when it ends.
    pub(super) fn command(&mut self) -> Result<(), Over> {
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_ref()) else {
            return Err(Over);
        };
        self.faults += 1;
        let (rng, volume) = (&self.commands_rng, Rc::clone(&life.volume));
        let ids: Vec<u16> = volume.bricks().iter().map(|brick| brick.id).collect();
        let brick = *rng.pick(&ids);
        let inos: Vec<u64> = model.numbers.values().map(|(ino, _)| *ino).collect();
        let ino = *rng.pick(&inos);
        let (shard, outcomes) = (life.machine.home().clone(), Rc::clone(&self.outcomes));
        let world = &self.world;
        let history = &mut life.client.history;
        let mut say = |text: String| {
            world.trace(|| text.clone());
            history.note(&[], text);
        };
        let job = match rng.range(0..20) {
            0..3 => Some(NewJob::Balance),
            3..6 => Some(NewJob::Remove { brick }),
            6..8 => Some(NewJob::Flush),
            8..10 => Some(NewJob::Migrate { ino, brick }),
            10..12 => Some(NewJob::Defrag),
            _ => None,
        };
        if let Some(job) = job {
            say(format!("{job:?}"));
            shard.spawn(async move {
                let result = volume.start_job(job).await;
                outcomes.borrow_mut().push(result.map(|()| None));
            });
            return Ok(());
        }
        match rng.range(0..14) {
            0..4 => {
                let known = |index: &usize| {
                    volume.bricks().iter().any(|brick| brick.uuid == uuid_of(*index))
                };
                let all: Vec<usize> = (0..self.plan.all_bricks().count()).collect();
                let mut spare: Vec<usize> =
                    all.iter().copied().filter(|index| !known(index)).collect();
                if spare.is_empty() || rng.percent(5) {
                    spare = all;
                }
                let index = *rng.pick(&spare);
                let Some(plan) = self.plan.all_bricks().nth(index) else { return Ok(()) };
                let Ok(device) = SimOpener::of(&self.world, index).open(&shard) else {
                    return Ok(());
                };
                let new = BrickToAdd {
                    uuid: uuid_of(index),
                    device,
                    data_offset: plan.data_offset,
                    weight: plan.weight,
                    blocks: plan.blocks(),
                    proxy: rng.percent(30),
                };
                let proxy = if new.proxy { " as proxy" } else { "" };
                say(format!("add {}{proxy}", plan.kind.info.name));
                shard.spawn(async move {
                    let result = volume.add_brick(new).await;
                    outcomes.borrow_mut().push(result.map(|_| None));
                });
            }
            4..6 => {
                let weight = rng.log_range(1..1000);
                say(format!("weight of brick {brick}: {weight}"));
                shard.spawn(async move {
                    let result = volume.set_weight(brick, weight).await;
                    outcomes.borrow_mut().push(result.map(|()| None));
                });
            }
            6..8 => {
                let proxy = rng.percent(50).then_some(brick);
                say(format!("proxy: {proxy:?}"));
                shard.spawn(async move {
                    let result = volume.set_proxy(proxy).await;
                    outcomes.borrow_mut().push(result.map(|()| None));
                });
            }
            8..10 => {
                let pinned = rng.percent(50);
                say(format!("file {ino} pinned: {pinned}"));
                shard.spawn(async move {
                    let result = volume.set_pinned(ino, pinned).await;
                    outcomes.borrow_mut().push(result.map(|()| None));
                });
            }
            10 => {
                say("pause".to_string());
                volume.pause_job();
            }
            11 => {
                say("resume".to_string());
                volume.resume_job();
            }
            12 => {
                say("cancel".to_string());
                volume.cancel_job();
            }
            _ => {
                say("check".to_string());
                shard.spawn(async move {
                    let result = volume.check(false).await;
                    outcomes.borrow_mut().push(result.map(Some));
                });
            }
        }
        Ok(())
    }

    /// How fast the jobs of a life are: as fast as they can, or so that much happens meanwhile.
    pub(super) fn set_job_speed(&self, volume: &Volume) {
        if self.plan.commands && self.commands_rng.percent(60) {
            volume.set_job_speed(Some(self.commands_rng.log_range(16 << 10..16 << 20)));
        }
    }

    /// Looks at what became of commands.
    pub(super) fn look_at_commands(&self) -> Result<(), Over> {
        let outcomes: Vec<_> = self.outcomes.borrow_mut().drain(..).collect();
        for outcome in outcomes {
            let error = match outcome {
                Ok(Some(report)) => {
                    self.found_nothing(&report)?;
                    continue;
                }
                Ok(None) => continue,
                Err(error) => error,
            };
            let refused = match &error {
                VolumeError::Refused(_)
                | VolumeError::Busy { .. }
                | VolumeError::Buckets(_)
                | VolumeError::NoSuchBrick(_) => true,
                // The file was removed meanwhile, or is none.
                VolumeError::File { errno, .. } => {
                    matches!(errno, Errno::Stale | Errno::IsDirectory | Errno::Invalid)
                }
                _ => false,
            };
            self.world.trace(|| format!("command: {error}"));
            if !refused {
                return self.told("commands_succeed", &error.to_string());
            }
        }
        Ok(())
    }

    /// Fails with the history of the life.
    fn told<T>(&self, checker: &'static str, text: &str) -> Result<T, Over> {
        if let Some(life) = &self.life {
            life.client.fail(checker, text, &[]);
        }
        Err(Over)
    }

    fn found_nothing(&self, report: &CheckReport) -> Result<(), Over> {
        if report.is_clean() && report.problems.is_empty() {
            return Ok(());
        }
        let text = format!("{:?}, lost: {:?}", report.problems, report.lost);
        self.told("check_finds_nothing", &text)
    }

    /// The volume's own check finds nothing.
    pub(super) fn check(&mut self) -> Result<(), Over> {
        if !self.plan.commands {
            return Ok(());
        }
        let life = self.life()?;
        let volume = Rc::clone(&life.volume);
        let later = life.machine.begin(async move { volume.check(false).await });
        match wait(&life.machine, "the check", &later)? {
            Ok(report) => self.found_nothing(&report),
            Err(error) => self.told("check_finds_nothing", &error.to_string()),
        }
    }

    /// The job under way comes to its end, and everything is as it was.
    pub(super) fn finish_jobs(&mut self) -> Result<(), Over> {
        if !self.plan.commands {
            return Ok(());
        }
        self.life()?.volume.set_job_speed(None);
        for _ in 0..RESUMES {
            let life = self.life()?;
            let volume = Rc::clone(&life.volume);
            let waiting = Rc::clone(&volume);
            let later = life.machine.begin(async move { waiting.wait_job().await });
            let ended = wait(&life.machine, "the job", &later)?;
            self.look_at_commands()?;
            let Some(job) = volume.job() else { break };
            match job.state {
                JobState::Running => {}
                JobState::Paused => volume.resume_job(),
                JobState::Failed(why) => {
                    let roomy = |brick: &Rc<braid_volume::Brick>| {
                        brick.state() != BrickState::Data
                            || brick.space.used() * 2 < brick.space.blocks()
                    };
                    if ended.is_err() && volume.bricks().iter().all(roomy) {
                        let text = format!("{:?}, with room on all bricks: {why}", job.kind);
                        return self.told("jobs_end_well", &text);
                    }
                    volume.cancel_job();
                }
            }
        }
        if let Some(job) = self.life()?.volume.job() {
            return self.told("jobs_end_well", &format!("{job:?} does not end"));
        }
        self.compare()
    }
}

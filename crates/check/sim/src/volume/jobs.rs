//! What befalls a volume beside its requests: bricks that are added, removed and given other weights, jobs and checks that
//! start, pause, go on and are cancelled, and what checks say.
//!
//! Commands may be refused: another job is under way, what is to be moved does not fit, a brick is the last. They may
//! not fail while no brick does.

use super::over_arrays::open_brick;
use super::run::{VolumeRun, uuid_of};
use crate::waiting::{Over, wait};
use braid_filesystem::Errno;
use braid_format::volume::brick_record::BrickState;
use braid_volume::{BrickToAdd, CheckEnd, CheckReport, JobState, NewJob, Volume, VolumeError};
use std::rc::Rc;

/// How often a job is resumed at the end of a run before it must have come to its own.
const RESUMES: u32 = 8;
/// How often a check is repeated when something happens meanwhile.
const CHECKS: u32 = 5;

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
            8..10 if self.faults.is_multiple_of(3) => Some(NewJob::MigrateTold { brick }),
            8..10 => Some(NewJob::Migrate { ino, brick }),
            10..12 => Some(NewJob::Defrag),
            _ => None,
        };
        if let Some(job) = job {
            say(format!("{job:?}"));
            let (world, has_copies) = (Rc::clone(&self.world), self.plan.copies.is_some());
            shard.spawn(async move {
                let lost = match job {
                    NewJob::Remove { brick } => volume.brick(brick),
                    _ => None,
                };
                // With copies it may have nothing that others have not: the bytes of files tell.
                let lost = lost.filter(|_| !has_copies);
                let lost = lost.is_some_and(|brick| !brick.is_there() && brick.space.used() > 0);
                let result = volume.start_job(job).await;
                if lost && result.is_ok() {
                    let text = format!("{job:?} of a brick that is not there, with files on it");
                    world.fail("what_is_lost_is_not_removed", text);
                }
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
                let Some(device) = open_brick(index, &life.machine, &life.arrays) else {
                    return Ok(());
                };
                let replaces = self.plan.replaces && self.replaces_rng.percent(30);
                let new = BrickToAdd {
                    in_place_of: replaces.then_some(brick),
                    domain: String::new(),
                    uuid: uuid_of(index),
                    device,
                    data_offset: plan.data_offset,
                    weight: plan.weight,
                    blocks: plan.blocks(),
                    proxy: rng.percent(30),
                };
                let proxy = if new.proxy { " as proxy" } else { "" };
                let place =
                    new.in_place_of.map_or(String::new(), |old| format!(" in the place of {old}"));
                say(format!("add {}{proxy}{place}", plan.kind.info.name));
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
                volume.pause_check();
            }
            11 => {
                say("resume".to_string());
                volume.resume_job();
                volume.resume_check();
            }
            12 => {
                say("cancel".to_string());
                volume.cancel_job();
                volume.cancel_check();
            }
            _ => {
                let repair = self.faults.is_multiple_of(2);
                say(format!("check, repair: {repair}"));
                shard.spawn(async move {
                    let result = volume.check(repair).await;
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
                VolumeError::File { errno, .. } => match errno {
                    Errno::Io => self.is_faulty(),
                    errno => matches!(errno, Errno::Stale | Errno::IsDirectory | Errno::Invalid),
                },
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
    pub(super) fn told<T>(&self, checker: &'static str, text: &str) -> Result<T, Over> {
        if let Some(life) = &self.life {
            life.client.fail(checker, text, &[]);
        }
        Err(Over)
    }

    fn found_nothing(&self, report: &CheckReport) -> Result<(), Over> {
        // Data that was lost with a brick stays lost when the brick is removed, and a check may have ended only then.
        let may_be_lost = self.is_faulty() && (!self.dead().is_empty() || self.lost_some.get());
        if report.problems.is_empty() && (report.lost.is_empty() || may_be_lost) {
            return Ok(());
        }
        let text = format!("{:?}, lost: {:?}", report.problems, report.lost);
        self.told("check_finds_nothing", &text)
    }

    /// The volume's own check finds nothing, but for what bricks have taken with them.
    pub(super) fn check(&mut self) -> Result<(), Over> {
        if !self.plan.commands && self.plan.faults == 0 {
            return Ok(());
        }
        self.finish_check()?;
        // A brick may fail meanwhile, and files that are lost may just be on their way out.
        for _ in 0..CHECKS {
            let life = self.life()?;
            let volume = Rc::clone(&life.volume);
            let later = life.machine.begin(async move { volume.check(false).await });
            match wait(&life.machine, "the check", &later)? {
                Ok(report) => {
                    self.found_nothing(&report)?;
                    if self.plan.faults == 0 {
                        return Ok(());
                    }
                    if self.names_what_is_lost(&report)? {
                        return self.judge_unread(Some(&report));
                    }
                }
                Err(VolumeError::File { errno: Errno::Io, .. }) if self.is_faulty() => {}
                Err(error) => return self.told("check_finds_nothing", &error.to_string()),
            }
        }
        self.told("check_names_what_is_lost", "it names something else, again and again")
    }

    /// The check under way, if there is one, comes to its end and finds nothing: one that was begun before, perhaps in an
    /// earlier life.
    fn finish_check(&mut self) -> Result<(), Over> {
        let life = self.life()?;
        let volume = Rc::clone(&life.volume);
        if volume.check_job().is_none() {
            return Ok(());
        }
        let waiting = Rc::clone(&volume);
        let later = life.machine.begin(async move {
            while waiting.check_job().is_some() {
                waiting.resume_check();
                waiting.wait_check().await;
            }
        });
        wait(&life.machine, "the check under way", &later)?;
        match volume.last_check() {
            Some(CheckEnd::Done(report)) => self.found_nothing(&report),
            Some(CheckEnd::Failed(errno)) if !self.is_faulty() => {
                self.told("check_finds_nothing", &format!("it failed: {errno}"))
            }
            _ => Ok(()),
        }
    }

    /// The job under way comes to its end, and everything is as it was.
    pub(super) fn finish_jobs(&mut self) -> Result<(), Over> {
        if !self.plan.commands {
            return Ok(());
        }
        self.life()?.volume.set_job_speed(None);
        // A job that began earlier may have met bricks that were full then, and are not any more.
        let mut begun_here = false;
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
                JobState::Paused => {
                    begun_here = true;
                    volume.resume_job();
                }
                JobState::Failed(_) if !begun_here => {
                    begun_here = true;
                    volume.resume_job();
                }
                JobState::Failed(why) => {
                    // Files may also be told to go to a brick that is for something else, such as a full proxy.
                    let roomy = |brick: &Rc<braid_volume::Brick>| {
                        (brick.state() != BrickState::Data && Some(brick.id) != job.brick)
                            || brick.space.used() * 2 < brick.space.blocks()
                    };
                    let well = !self.is_faulty()
                        && volume.bricks().iter().all(roomy)
                        && self.has_bricks_for_copies(job.brick);
                    if ended.is_err() && well {
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

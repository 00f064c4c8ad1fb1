//! Recovery onto a spare and resync after an unclean stop: what their progress means for views and
//! superblocks.
//!
//! Progress reaches the engines soon (they read what is rebuilt), and the superblocks at checkpoints,
//! after a flush: what a superblock says is valid has been durable before.

use crate::control::jobs::Jobs;
use crate::control::jobs::plan;
use crate::control::jobs::stuck::MayStick;
use crate::control::record::members::{Member, Standing};
use crate::engine::window::WindowKind;
use crate::jobs::{Job, JobEnd, Plan};
use crate::metadata::bitmap::ranges::Ranges;
use crate::state::view::MemberNr;
use crate::status::JobKind;
use braid_device::{IoError, IoErrorKind};
use braid_layout::{Layout, Level, Parity, Slot};
use braid_shard::Nanos;
use braid_shard::plant::planted;
use braid_shard::sync::Share;
use std::cell::Cell;
use std::rc::Rc;

/// Views that only move a cursor are sent this often at most, in nanoseconds.
const POST_EVERY: Nanos = 20_000_000;

/// Component bytes by which members may be apart to be filled in one pass: an eighth.
fn near(parity: &Parity) -> u64 {
    parity.used_component_size() / 8
}

/// The member that a recovery fills, and the range.
#[derive(Clone, Copy)]
struct Target {
    slot: Slot,
    /// Component bytes that are valid already.
    recovered: u64,
    /// Above that, all is valid but what bits are set for.
    by_bitmap: bool,
}

impl Jobs {
    /// Fills member `nr`, and with it another that is about as far where there are two parities; gives spares a slot first.
    pub(crate) async fn recover(self: &Rc<Self>, nr: MemberNr) {
        let Some(target) = self.assign(nr).await else { return };
        let with = self.with(nr, target).await;
        let Target { slot, recovered, by_bitmap } = target;
        let recovered = with.map_or(recovered, |(_, with)| recovered.min(with.recovered));
        // Level 10 is gone through in the order of the array, so nothing of the component counts as
        // recovered before the end; what was copied before a stop is copied again.
        let along_component = self.record.geometry().level != Level::Raid10;
        let from = if along_component { recovered } else { 0 };
        let window = WindowKind::Rebuild { slot, with: with.map(|(_, with)| with.slot) };
        let only = self.record.bitmap().filter(|_| by_bitmap).map(|bitmap| {
            // Every write from here on goes to the member; those before have their bits set.
            let keeper = bitmap.keeper.borrow();
            Ranges::of(keeper.bits(), keeper.shape(), from)
        });
        let plan = Plan {
            only,
            ..plan(&self.record.geometry(), JobKind::Recover, window, Some(nr), from)
        };
        let job = self.new_job(plan);
        tracing::info!(
            "array {}: recovery of slot {slot} onto {}",
            self.record.name,
            self.record.member_name(nr)
        );
        if let Some((nr, with)) = with {
            let (array, slot, name) = (&self.record.name, with.slot, self.record.member_name(nr));
            tracing::info!("array {array}: and of slot {slot} onto {name}, in the same pass");
        }
        let filled = (nr, with.map(|(nr, _)| nr));
        let end = match self.fill(&job, filled, along_component).await {
            JobEnd::Done => {
                if let Some((nr, with)) = with {
                    // One that has failed meanwhile is faulty.
                    let _ = self.finish_recovery(nr, with.slot).await;
                }
                self.finish_recovery(nr, slot).await
            }
            end => end,
        };
        let still_there = self.rebuilding(nr).is_some();
        // A target that failed is faulty by now, and the next spare has its turn; anything else
        // would fail again at once.
        let failed = matches!(end, JobEnd::Failed(_)) && still_there;
        self.end_job_or_wait(&job, end, (MayStick::Recovery, failed));
    }

    /// Another member that may be filled in the same pass as `nr`, with its slot if it is a spare.
    async fn with(&self, nr: MemberNr, target: Target) -> Option<(MemberNr, Target)> {
        let geometry = self.record.geometry();
        let parity = geometry.parity().filter(|parity| parity.parity_count() == 2)?;
        let other = self.record.roster.borrow().other_to_fill(nr, geometry.slots())?;
        // A spare has nothing yet.
        let begun = self.rebuilding(other).map_or(0, |with| with.recovered);
        if target.by_bitmap || target.recovered > begun + near(parity) {
            return None;
        }
        let with = self.assign(other).await?;
        // The array may have changed while it was given a slot.
        let same = self.rebuilding(nr).is_some_and(|now| now.slot == target.slot);
        let about_as_far = !with.by_bitmap && with.recovered <= target.recovered + near(parity);
        (same && about_as_far).then_some((other, with))
    }

    /// There are a spare and a slot for it beside the rebuild that runs, which has hardly begun: it gives way to one of both.
    pub(super) fn is_better_together(&self, job: &Job) -> bool {
        let geometry = self.record.geometry();
        let alone = matches!(job.window(), Some(WindowKind::Rebuild { with: None, .. }));
        let two = geometry.parity().filter(|parity| parity.parity_count() == 2);
        let Some((parity, nr)) = two.filter(|_| alone).zip(job.member()) else { return false };
        let first = self.rebuilding(nr).filter(|target| !target.by_bitmap);
        first.is_some_and(|target| target.recovered <= near(parity))
            && self.record.roster.borrow().other_to_fill(nr, geometry.slots()).is_some()
    }

    /// Runs a job that fills members: one, and another where two are filled in one pass. `along_component`: from the start of
    /// the component on, so that how far it has come says which bytes are there.
    pub(super) async fn fill(
        self: &Rc<Self>,
        job: &Rc<Job>,
        (nr, with): (MemberNr, Option<MemberNr>),
        along_component: bool,
    ) -> JobEnd {
        let posted = Cell::new(self.record.shard.now());
        let filled = || [Some(nr), with].into_iter().flatten();
        let advanced = |units| {
            if along_component {
                filled().for_each(|nr| self.set_recovered(nr, job.bytes(units)));
                self.post_now_and_then(&posted);
            }
        };
        let checkpoint = async |units| {
            if along_component {
                self.checkpoint_recovery((nr, with), job.bytes(units)).await;
            }
        };
        let end = job.run(&self.record.engine, self.is_busy(), advanced, &checkpoint).await;
        if end != JobEnd::Done {
            checkpoint(job.done()).await;
        }
        end
    }

    /// The slot that member `nr` is to fill, and what it has already.
    async fn assign(&self, nr: MemberNr) -> Option<Target> {
        let turn = self.record.turn().await;
        if let Some(known) = self.rebuilding(nr) {
            return Some(known);
        }
        let pen = self.prepare_spare(&turn, nr).await?;
        let slot = {
            let mut roster = self.record.roster.borrow_mut();
            let slot = roster.empty_slot(self.record.geometry().slots())?;
            let member = roster.member_mut(nr)?;
            member.standing =
                Standing::Rebuilding { slot, recovered: 0, checkpoint: 0, by_bitmap: false };
            slot
        };
        drop(pen);
        self.record.write_superblocks(&turn).await;
        // Before the first window: from here on all writes go to the new member too.
        self.record.send_view().await;
        self.rebuilding(nr).filter(|target| target.slot == slot)
    }

    /// Gives a spare that is about to be filled the array's log and bitmap. No bit changes until what comes back is dropped.
    /// `None` when it is no spare, or has failed for it.
    pub(super) async fn prepare_spare(&self, turn: &Share, nr: MemberNr) -> Option<Option<Share>> {
        let (device, superblock) = {
            let roster = self.record.roster.borrow();
            let member = roster.member(nr).filter(|member| member.standing == Standing::Spare)?;
            (member.device.as_device(), member.superblock.clone())
        };
        let log = self.ppl.give_area(&device, &superblock).await;
        let given = match log {
            Err(error) => Err(format!("its partial parity log could not be written: {error}")),
            // It was away when the bitmap was added.
            Ok(()) if !self.record.current_bitmap.has_room(&device, &superblock) => {
                Err("it has no room for the array's bitmap".to_string())
            }
            Ok(()) => {
                let given = self.bitmap.give_bitmap(&device, &superblock).await;
                given.map_err(|error| format!("its bitmap could not be written: {error}"))
            }
        };
        match given {
            Ok(pen) => Some(pen),
            Err(why) => {
                self.record.drop_member(nr, &why);
                self.record.write_superblocks(turn).await;
                self.record.send_view().await;
                None
            }
        }
    }

    fn rebuilding(&self, nr: MemberNr) -> Option<Target> {
        match self.record.roster.borrow().member(nr)?.standing {
            Standing::Rebuilding { slot, recovered, by_bitmap, .. } => {
                Some(Target { slot, recovered, by_bitmap })
            }
            _ => None,
        }
    }

    fn set_recovered(&self, nr: MemberNr, bytes: u64) {
        if let Some(member) = self.record.roster.borrow_mut().member_mut(nr)
            && let Some((recovered, _)) = member.standing.progress_mut()
        {
            // One of two that are filled in one pass may have been further.
            *recovered = bytes.max(*recovered);
        }
    }

    fn post_now_and_then(&self, posted: &Cell<Nanos>) {
        let now = self.record.shard.now();
        if now.saturating_sub(posted.get()) >= POST_EVERY {
            posted.set(now);
            self.record.post_view();
        }
    }

    /// The members from which one is filled have to be durable before it counts. With a partial parity log no resync comes after a
    /// crash, and nothing is logged of writes to stripes whose parity was missing.
    fn makes_sources_durable(&self) -> bool {
        self.record.roster.borrow().shared.ppl.is_some()
    }

    async fn checkpoint_recovery(&self, (nr, with): (MemberNr, Option<MemberNr>), bytes: u64) {
        self.journal.drain().await;
        let turn = self.record.turn().await;
        let sources = self.makes_sources_durable();
        let filled = |one: &Member| one.nr == nr || Some(one.nr) == with;
        self.record.flush_members(&turn, |one| sources || filled(one)).await;
        for nr in [Some(nr), with].into_iter().flatten() {
            if let Some(member) = self.record.roster.borrow_mut().member_mut(nr)
                && let Some((recovered, checkpoint)) = member.standing.progress_mut()
            {
                *recovered = bytes.max(*recovered);
                *checkpoint = bytes.max(*checkpoint);
            }
        }
        self.record.write_superblocks(&turn).await;
        self.record.send_view().await;
    }

    /// All of the member is valid: says so durably, then to the engines.
    ///
    /// From the end of the last window on the array has it to rely on, so members that have failed by then are dropped after
    /// it counts: one that it was filled from may have been the last. Where more have failed than that makes up for, the
    /// superblocks stay as they are, and it is what they say.
    async fn finish_recovery(&self, nr: MemberNr, slot: Slot) -> JobEnd {
        let gone = JobEnd::Failed(IoError::new(IoErrorKind::Gone));
        self.journal.drain().await;
        let turn = self.record.turn().await;
        if !planted("rebuilt-unflushed") {
            let sources = self.makes_sources_durable();
            let holds = |member: &Member| sources && member.holds_data();
            self.record.flush_some(|member| member.nr == nr || holds(member)).await;
        }
        self.record.suspects.all_heard().await;
        if self.record.suspects.contains(nr) {
            self.record.record_suspects(&turn).await;
            return gone;
        }
        let before = {
            let mut roster = self.record.roster.borrow_mut();
            let broken = roster.broken;
            let Some(member) = roster.member_mut(nr) else { return gone };
            if broken || !matches!(member.standing, Standing::Rebuilding { .. }) {
                return if broken { JobEnd::TOO_FEW } else { gone };
            }
            std::mem::replace(&mut member.standing, Standing::InSync(slot))
        };
        let dropped = self.record.drop_suspects().await;
        self.record.write_superblocks(&turn).await;
        let end = {
            let mut roster = self.record.roster.borrow_mut();
            let broken = roster.broken;
            match roster.member_mut(nr).filter(|member| member.standing == Standing::InSync(slot)) {
                Some(member) if broken => {
                    member.standing = before;
                    JobEnd::TOO_FEW
                }
                Some(_) => JobEnd::Done,
                None => gone,
            }
        };
        self.record.send_view().await;
        if dropped {
            self.record.members_changed();
        }
        end
    }

    /// Makes redundancy match data from the checkpoint on.
    pub(crate) async fn resync(self: &Rc<Self>) {
        let from = self.record.roster.borrow().resynced;
        let until = self.redundant_below();
        let from = if until == 0 { u64::MAX } else { from };
        let only = self.record.bitmap().map(|bitmap| {
            let keeper = bitmap.keeper.borrow();
            Ranges::of(keeper.needed(), keeper.shape(), from)
        });
        let plan = plan(&self.record.geometry(), JobKind::Resync, WindowKind::Resync, None, from);
        let end = plan.end.min(until.div_ceil(plan.bytes_per_unit)).max(plan.first);
        let job = self.new_job(Plan { only, end, ..plan });
        tracing::info!("array {}: resync from byte {}", self.record.name, job.bytes(job.done()));
        let posted = Cell::new(self.record.shard.now());
        let advanced = |units| {
            self.record.roster.borrow_mut().resynced = job.bytes(units);
            self.post_now_and_then(&posted);
        };
        let checkpoint = async |units| {
            self.checkpoint_resync(job.bytes(units)).await;
        };
        let end = job.run(&self.record.engine, self.is_busy(), advanced, checkpoint).await;
        self.log_findings(job.kind(), &job.take_findings());
        if until != u64::MAX {
            // Nothing was compared there, so what was being written when the array ended may differ on replacements.
            self.record.roster.borrow_mut().restart_replacements();
        }
        let done = if end == JobEnd::Done { u64::MAX } else { job.bytes(job.done()) };
        let recorded = self.checkpoint_resync(done).await;
        let end = if recorded { end } else { JobEnd::TOO_FEW };
        self.ppl.open().await;
        let failed = matches!(end, JobEnd::Failed(_));
        self.end_job_or_wait(&job, end, (MayStick::Resync, failed));
    }

    /// Where there is redundancy that could be wrong: below this byte, as progress is counted. Where
    /// so many members are missing that there is none, as in md nothing has to be made to match: members
    /// that come later are recovered as a whole. A member that is being rebuilt is not missing in what it has.
    fn redundant_below(&self) -> u64 {
        let (geometry, roster) = (&self.record.geometry(), self.record.roster.borrow());
        let degraded = roster.degraded(geometry.slots());
        let none_left = match &geometry.layout {
            Layout::Parity(parity) => degraded >= parity.parity_count(),
            Layout::Mirror(mirror) => degraded + 1 >= mirror.slots(),
            _ => false,
        };
        if none_left { roster.rebuilt_below() } else { u64::MAX }
    }

    /// False when too many members have failed, so that nothing is recorded any more.
    async fn checkpoint_resync(&self, bytes: u64) -> bool {
        self.journal.drain().await;
        let turn = self.record.turn().await;
        self.record.flush_members(&turn, |_| true).await;
        if self.record.roster.borrow().broken {
            return false;
        }
        let dirty = {
            let mut roster = self.record.roster.borrow_mut();
            roster.resynced = bytes;
            roster.resync_checkpoint = bytes;
            roster.dirty && roster.journal().is_none()
        };
        self.bitmap.synced_below(bytes);
        // While the superblocks say "active" they cannot say how far the resync is; the transition
        // to "clean" records it.
        if !dirty {
            self.record.write_superblocks(&turn).await;
        }
        self.record.send_view().await;
        true
    }
}

//! The status report of an array.

use crate::cache::CacheStats;
use crate::control::Control;
use crate::control::record::members::{Member, Roster, Standing};
use crate::engine::Engine;
use crate::figures::ArrayFigures;
use crate::state::flags::MemberFlags;
use crate::state::view::MemberNr;
use crate::status::{ArrayState, ArrayStatus, Counters, JobKind, MemberState, MemberStatus};
use braid_device::Device;
use braid_device::plug::PlugStats;
use braid_format::SECTOR;
use braid_format::superblock::{Version, time_seconds};
use braid_layout::layout_name;

const SECTOR_BYTES: u64 = SECTOR as u64;

impl Control {
    /// Everything there is to know, with the counters of all shards.
    pub async fn status(&self) -> ArrayStatus {
        let mut counters = Counters::default();
        let mut plugs: Vec<(MemberNr, PlugStats)> = Vec::new();
        let mut cache = CacheStats::default();
        let figures = |engine: &Engine| {
            (engine.measured.counters(), engine.members.plug_stats(), engine.cache.stats())
        };
        for (more, stats, cached) in self.record.engines.ask(figures).await.into_iter().flatten() {
            add_counters(&mut counters, &more);
            cache.add(&cached);
            plugs.extend(stats);
        }
        let held = self.unanswered.held().await;
        let job = self.jobs.schedule.status(self.record.shard.now());
        let following = self.steps_left();
        let roster = self.record.roster.borrow();
        let work = self.jobs.schedule.work.borrow();
        let (geometry, shared) = (&self.record.geometry(), &roster.shared);
        let view = self.record.engine.view();
        // As md shows it, the shape of before until a reshape has ended, but for the number of slots.
        let geometries = view.geometries();
        let shape = if shared.reshape.is_some() { geometries.before() } else { geometries.whole() };
        let slots = self.record.widest().slots();
        ArrayStatus {
            id: self.record.id,
            name: self.record.name.clone(),
            full_name: shared.set_name.escaped(),
            uuid: shared.set_uuid,
            version: shared.version,
            md_minor: (shared.version == Version::V0_90).then_some(shared.v0.md_minor),
            created: time_seconds(shared.ctime),
            updated: time_seconds(shared.utime),
            events: shared.events,
            level: shape.level,
            layout: shape.layout_number,
            layout_name: layout_name(shape.level, shape.layout_number),
            chunk_size: shape.layout.chunk_size(),
            array_size: self.record.engine.size.get(),
            component_size: geometry.component_size,
            raid_disks: geometry.slots(),
            degraded: roster.degraded(slots),
            state: self.state_words(job.as_ref().map(|job| job.kind)),
            slots: (0..slots).map(|slot| roster.recorded_holder(slot)).collect(),
            members: roster
                .members
                .iter()
                .map(|member| {
                    let waits = held.iter().find(|(nr, _)| *nr == member.nr);
                    let waiting_for_space = waits.map_or(0, |(_, writes)| *writes as u64);
                    MemberStatus { waiting_for_space, ..member_status(&roster, member, &plugs) }
                })
                .collect(),
            left_out: self.given.left_out.clone(),
            taken_by_force: self.given.taken_by_force.clone(),
            in_doubt: self.given.in_doubt.clone(),
            job,
            last_job: work.last.clone(),
            stuck_jobs: work.stuck.waiting(self.record.shard.now()),
            mismatch_cnt: work.mismatch_cnt,
            scrubbed: work.scrubbed.clone(),
            resynced: (roster.resynced != u64::MAX).then_some(roster.resynced),
            has_bitmap: shared.bitmap_offset != 0,
            has_ppl: shared.ppl.is_some(),
            has_journal: shared.journal,
            heartbeat: self.heart.status(),
            reshape: shared.reshape,
            following,
            bitmap: self.record.bitmap().map(|bitmap| bitmap.status()),
            counters,
            settings: self.in_effect.settings.get(),
            shards: geometry.owners(),
            cache,
            sync_speed: self.jobs.schedule.speed.get(),
            sync_range: self.jobs.schedule.range.get(),
        }
    }

    fn state_words(&self, job: Option<JobKind>) -> Vec<ArrayState> {
        let roster = self.record.roster.borrow();
        let mut words = vec![if roster.dirty { ArrayState::Active } else { ArrayState::Clean }];
        if self.record.read_only || roster.lacks_journal() {
            words.push(ArrayState::ReadOnly);
        }
        if roster.broken {
            words.push(ArrayState::Failed);
        } else if roster.degraded(self.record.widest().slots()) > 0 {
            words.push(ArrayState::Degraded);
        }
        if self.record.engine.home.reports.any_waits_for_space() {
            words.push(ArrayState::NoSpace);
        }
        if roster.shared.reshape.is_some() {
            words.push(ArrayState::Reshaping);
        }
        words.extend(job.and_then(|kind| match kind {
            JobKind::Resync => Some(ArrayState::Resyncing),
            JobKind::Recover => Some(ArrayState::Recovering),
            JobKind::Check => Some(ArrayState::Checking),
            JobKind::Repair => Some(ArrayState::Repairing),
            // Said above, also when the job does not run.
            JobKind::Reshape => None,
        }));
        words
    }

    /// The statistics since the start, summed over all shards.
    pub async fn figures(&self) -> ArrayFigures {
        let mut sum = ArrayFigures::default();
        let ask = |engine: &Engine| (engine.measured.figures(), engine.members.figures());
        for (requests, members) in self.record.engines.ask(ask).await.into_iter().flatten() {
            sum.requests.join(&requests);
            for (nr, figures) in &members {
                sum.add(*nr, figures);
            }
        }
        sum
    }
}

fn member_status(
    roster: &Roster,
    member: &Member,
    plugs: &[(MemberNr, PlugStats)],
) -> MemberStatus {
    let superblock = &member.superblock;
    let mut io = PlugStats::default();
    for (_, stats) in plugs.iter().filter(|(nr, _)| *nr == member.nr) {
        io.requests_in += stats.requests_in;
        io.requests_out += stats.requests_out;
        io.bytes += stats.bytes;
    }
    let standing = roster.recorded_standing(member);
    let (state, fault) = match &standing {
        Standing::InSync(_) => (MemberState::InSync, None),
        Standing::Rebuilding { recovered, .. } => {
            (MemberState::Rebuilding { recovered: *recovered }, None)
        }
        Standing::Replacing { recovered, .. } => {
            (MemberState::Replacing { recovered: *recovered }, None)
        }
        Standing::Spare => (MemberState::Spare, None),
        Standing::Journal => (MemberState::Journal, None),
        Standing::Faulty(why) => (MemberState::Faulty, Some(why.clone())),
    };
    MemberStatus {
        nr: member.nr,
        name: member.name.clone(),
        dev_number: superblock.dev_number,
        slot: standing.slot_on_it(),
        want_replacement: member.want_replacement,
        state,
        fault,
        away: member.away && state == MemberState::Faulty,
        device_uuid: superblock.device_uuid,
        size: member.device.info().size,
        data_offset: superblock.data_offset.saturating_mul(SECTOR_BYTES),
        data_size: superblock.data_size.saturating_mul(SECTOR_BYTES),
        events: superblock.events,
        flags: MemberFlags::of(superblock),
        errors: superblock.cnt_corrected_read,
        waiting_for_space: 0,
        wrong: member.wrong,
        io,
    }
}

fn add_counters(sum: &mut Counters, more: &Counters) {
    sum.reads += more.reads;
    sum.read_bytes += more.read_bytes;
    sum.writes += more.writes;
    sum.written_bytes += more.written_bytes;
    sum.pieces += more.pieces;
    sum.batches += more.batches;
    sum.lookups += more.lookups;
    sum.member_reads += more.member_reads;
    sum.member_writes += more.member_writes;
    sum.full_stripes += more.full_stripes;
    sum.rmw += more.rmw;
    sum.reconstruct += more.reconstruct;
    sum.recovered_reads += more.recovered_reads;
    sum.corrected_reads += more.corrected_reads;
}

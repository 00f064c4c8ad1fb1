//! What running arrays say of their state, as it is sent over the control socket.

use super::figures;
use super::jobs::job_of;
use super::scrubs::Known;
use crate::output::words;
use crate::settings::group::SpareGroup;
use crate::settings::{ArraySettings, Beside};
use braid_array::status::{
    self, ArrayState, ArrayStatus, JobOutcome, LastJob as EngineLastJob, MemberState, MemberStatus,
};
use braid_control::protocol::{
    Bitmap, ClientDetail, Detail, Following, Heartbeat, LastJob, Member, NextStep, Reshape,
    StuckJob,
};
use braid_export::{Client, Doors, Traffic};
use braid_format::{SECTOR, uuid_text};
use rustix::fs::{major, minor};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

const SECTOR_BYTES: u64 = SECTOR as u64;

/// An array as its clients see it.
pub struct Outside {
    /// Where they find it.
    pub exports: Vec<String>,
    /// Those that are connected.
    pub clients: Vec<ClientDetail>,
}

impl Outside {
    /// The array of that name behind these doors.
    pub fn of(doors: &Doors, name: &str) -> Outside {
        let clients = doors.clients_of(name).into_iter().map(client_of).collect();
        Outside { exports: doors.locations(name), clients }
    }
}

fn client_of(client: Client) -> ClientDetail {
    let Traffic { requests, read_bytes, written_bytes, errors, in_flight } = client.traffic;
    ClientDetail {
        address: client.address,
        protocol: client.protocol.to_string(),
        requests,
        read_bytes,
        written_bytes,
        errors,
        in_flight,
    }
}

/// The state of an array that clients reach so, and of whose checks this is known; that of its members that are
/// arrays is for the caller, and what disks warn of.
/// `moves`: spares that came or went.
pub(super) fn detail(
    status: ArrayStatus,
    outside: Outside,
    known: Known,
    (spare_group, moves): (Option<SpareGroup>, Vec<String>),
) -> Detail {
    let state = status.state_line();
    let has = |word: ArrayState| status.state.contains(&word);
    let chosen = ArraySettings::of(&status, Beside { hours: known.hours, spare_group });
    let max = status.sync_speed.max_kib;
    Detail {
        state,
        full_name: status.full_name,
        uuid: uuid_text::format(&status.uuid),
        version: status.version.to_string(),
        preferred_minor: status.md_minor,
        created: status.created,
        updated: status.updated,
        events: status.events,
        level: status.level.to_string(),
        layout: status.layout_name,
        layout_number: status.layout,
        chunk_size: status.chunk_size,
        array_size: status.array_size,
        component_size: status.component_size,
        redundant: status.level.has_redundancy(),
        raid_devices: status.raid_disks,
        degraded: status.degraded,
        failed: has(ArrayState::Failed),
        read_only: has(ArrayState::ReadOnly),
        slots: status.slots,
        members: status.members.iter().map(member_of).collect(),
        spare_group: spare_group.map(|group| group.to_string()),
        spare_moves: moves,
        left_out: status.left_out,
        taken_by_force: status.taken_by_force,
        job: status.job.as_ref().map(job_of),
        reshape: status.reshape.map(|reshape| Reshape {
            position: reshape.position.saturating_mul(SECTOR_BYTES),
            backwards: reshape.backwards,
            old_devices: status.raid_disks as i64 - i64::from(reshape.delta_disks),
            new_devices: status.raid_disks as i64,
            // A running array keeps it.
            new_level: None,
            new_layout: (reshape.new_layout != status.layout)
                .then(|| words::layout(reshape.new_level, reshape.new_layout))
                .flatten(),
            new_layout_number: reshape.new_layout,
            new_chunk_size: Some(u64::from(reshape.new_chunk_sectors) * SECTOR_BYTES)
                .filter(|chunk| *chunk != status.chunk_size),
        }),
        following: status.following.map(|following| Following {
            steps: following.steps.into_iter().map(next_step).collect(),
            waits_for: following.waits_for,
            refused: following.refused,
        }),
        last_job: status.last_job.map(last_job_of),
        stuck_jobs: status
            .stuck_jobs
            .into_iter()
            .map(|job| StuckJob {
                kind: job.kind.to_string(),
                why: job.why,
                again_in: job.again_in.div_ceil(1_000_000_000),
            })
            .collect(),
        mismatch_count: known.last.as_ref().map_or(0, |last| last.mismatches),
        scrubbed: known.last.map(|last| last.found),
        in_doubt: known.in_doubt,
        scrub: known.under_way.map(Box::new),
        resynced: status.resynced,
        has_bitmap: status.has_bitmap,
        has_ppl: status.has_ppl,
        has_journal: status.has_journal,
        heartbeat: status.heartbeat.map(|beats| Heartbeat {
            interval_ms: beats.interval,
            members: beats.members,
            lost: beats.lost,
        }),
        lease: None,
        bitmap: status.bitmap.map(|bitmap| Bitmap {
            offset: bitmap.offset,
            chunk: bitmap.chunk,
            bits: bitmap.bits,
            dirty: bitmap.dirty,
            events_cleared: bitmap.events_cleared,
            batches: bitmap.batches,
        }),
        sync_speed_min: status.sync_speed.min_kib,
        sync_speed_max: (max != u64::MAX).then_some(max),
        settings: chosen.chosen().into_iter().map(|one| (one.name, one.value)).collect(),
        counters: figures::counters(&status.counters),
        exports: outside.exports,
        clients: outside.clients,
        name: status.name,
    }
}

/// Major and minor number of a block device.
pub(super) fn device_numbers(path: &str) -> Option<(u32, u32)> {
    // Nowhere else: to look at a file of a file system that does not answer would wait for it.
    let found = path.starts_with("/dev/").then(|| std::fs::metadata(path).ok())??;
    found.file_type().is_block_device().then(|| (major(found.rdev()), minor(found.rdev())))
}

fn next_step(step: status::NextStep) -> NextStep {
    NextStep {
        moves: step.moves,
        level: step.level.to_string(),
        layout: step.layout_name,
        chunk_size: step.chunk_size,
        raid_devices: step.raid_disks,
    }
}

fn member_of(member: &MemberStatus) -> Member {
    let device = device_numbers(&member.name);
    let state = figures::member_state(member.state);
    Member {
        number: member.nr,
        device_number: member.dev_number,
        name: member.name.clone(),
        device,
        slot: member.slot,
        state,
        want_replacement: member.want_replacement,
        fault: member.fault.clone(),
        smart: Vec::new(),
        write_mostly: member.flags.write_mostly,
        failfast: member.flags.failfast,
        errors: member.errors,
        waiting_for_space: member.waiting_for_space,
        wrong: member.wrong,
        uuid: uuid_text::format(&member.device_uuid),
        size: member.size,
        data_offset: member.data_offset,
        data_size: member.data_size,
        recovered: match member.state {
            MemberState::Rebuilding { recovered } | MemberState::Replacing { recovered } => {
                Some(recovered)
            }
            _ => None,
        },
        requests: member.io.requests_out,
        bytes: member.io.bytes,
        array: None,
    }
}

fn last_job_of(job: EngineLastJob) -> LastJob {
    let (outcome, error) = match job.outcome {
        JobOutcome::Done => ("done", None),
        JobOutcome::Interrupted => ("interrupted", None),
        JobOutcome::Failed(why) => ("failed", Some(why)),
    };
    LastJob {
        kind: job.kind.to_string(),
        outcome: outcome.to_string(),
        error,
        mismatches: job.mismatches,
    }
}

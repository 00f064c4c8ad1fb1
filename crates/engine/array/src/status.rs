//! The status of an array: plain data that may be sent anywhere.
//!
//! Sizes and positions are in bytes, times of day in seconds since 1970.

use crate::cache::CacheStats;
use crate::options::{SyncRange, SyncSpeed};
use crate::settings::Settings;
use crate::state::ArrayId;
use crate::state::findings::Findings;
use crate::state::flags::MemberFlags;
use crate::state::in_doubt::InDoubt;
use crate::state::view::MemberNr;
use braid_device::plug::PlugStats;
use braid_format::superblock::Version;
use braid_layout::Level;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Events counted by an engine; see the field names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests read, and their bytes.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Requests written.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Pieces that writes were cut into, one for each stripe (parity levels).
    pub pieces: u64,
    /// Times that pieces of a stripe were carried out, one or several together.
    pub batches: u64,
    /// Look-ups of stripes, among those that are being written and in the cache.
    pub lookups: u64,
    /// Requests to members for writes: reads of what was missing.
    pub member_reads: u64,
    /// Requests to members for writes: data and parity, before plugs merge them.
    pub member_writes: u64,
    /// Segments written as full stripes.
    pub full_stripes: u64,
    /// Segments written by read-modify-write.
    pub rmw: u64,
    /// Segments written by reconstruct-write.
    pub reconstruct: u64,
    /// Pieces of reads that were recovered from redundancy.
    pub recovered_reads: u64,
    /// Read errors mended by writing the recovered data back.
    pub corrected_reads: u64,
}

/// One word of an array's state, as md and mdadm say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayState {
    /// The superblocks say that all writes have ended.
    Clean,
    /// The superblocks say that writes may be under way.
    Active,
    /// A slot has no member that is wholly in sync.
    Degraded,
    /// Redundancy is being made to match data after an unclean stop, or for the first time.
    Resyncing,
    /// A spare is being filled.
    Recovering,
    /// Redundancy is being compared with data.
    Checking,
    /// Redundancy is being compared with data and corrected.
    Repairing,
    /// The data is being moved to another shape.
    Reshaping,
    /// Too many members have failed: writes are refused, reads give what is left.
    Failed,
    /// Nothing may be written.
    ReadOnly,
    /// Writes wait, because the file system that a member lies on is full.
    NoSpace,
}

impl fmt::Display for ArrayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ArrayState::Clean => "clean",
            ArrayState::Active => "active",
            ArrayState::Degraded => "degraded",
            ArrayState::Resyncing => "resyncing",
            ArrayState::Recovering => "recovering",
            ArrayState::Checking => "checking",
            ArrayState::Repairing => "repairing",
            ArrayState::Reshaping => "reshaping",
            ArrayState::Failed => "FAILED",
            ArrayState::ReadOnly => "read-only",
            ArrayState::NoSpace => "waiting for space",
        })
    }
}

/// The heartbeat of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatStatus {
    /// Milliseconds between two beats.
    pub interval: u32,
    /// Members that have taken one of the last three beats.
    pub members: usize,
    /// Why the array takes no more writes here, when another host has it or may have.
    pub lost: Option<String>,
}

/// The current state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Holds its slot, everything on it is valid.
    InSync,
    /// Is being filled.
    Rebuilding {
        /// Component bytes from 0 that are valid (0 until the end at level 10, whose recovery does not
        /// go along the component).
        recovered: u64,
    },
    /// Is filled to take its slot from a member that serves meanwhile.
    Replacing {
        /// As for [`MemberState::Rebuilding`].
        recovered: u64,
    },
    /// Waits to be needed.
    Spare,
    /// Keeps the write journal.
    Journal,
    /// Has failed; is not read and not written any more.
    Faulty,
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MemberState::InSync => "active sync",
            MemberState::Rebuilding { .. } => "rebuilding",
            MemberState::Replacing { .. } => "replacing",
            MemberState::Spare => "spare",
            MemberState::Journal => "journal",
            MemberState::Faulty => "faulty",
        })
    }
}

/// A kind of background job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Makes redundancy match data.
    Resync,
    /// Fills a spare.
    Recover,
    /// Counts where redundancy does not match data.
    Check,
    /// As check, and corrects it.
    Repair,
    /// Moves the data to another shape.
    Reshape,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            JobKind::Resync => "resync",
            JobKind::Recover => "recover",
            JobKind::Check => "check",
            JobKind::Repair => "repair",
            JobKind::Reshape => "reshape",
        })
    }
}

/// A job that is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The kind of job.
    pub kind: JobKind,
    /// Bytes done: of each component, at level 10 of the array.
    pub done: u64,
    /// Bytes to do in all.
    pub total: u64,
    /// Bytes per second over the last seconds.
    pub rate: u64,
    /// Seconds until the end at that rate; `None` while there is no rate yet.
    pub eta_seconds: Option<u64>,
    /// The member that is filled, for a recovery.
    pub member: Option<MemberNr>,
    /// Mismatches found so far, in sectors of 512 bytes.
    pub mismatches: u64,
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// It came to the end.
    Done,
    /// It was cancelled, or gave way to a more urgent one, and goes on from its checkpoint if it must.
    Interrupted,
    /// It could not go on; the text says why.
    Failed(String),
}

/// The job that ended last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastJob {
    /// The kind of job.
    pub kind: JobKind,
    /// The outcome.
    pub outcome: JobOutcome,
    /// Mismatches found, in sectors of 512 bytes.
    pub mismatches: u64,
}

/// A job that could not go on, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckJob {
    /// The kind of job.
    pub kind: JobKind,
    /// The reason that it ended, for people.
    pub why: String,
    /// Nanoseconds until it is tried again.
    pub again_in: u64,
}

/// A check or repair: one that runs, or the one that ended last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// Its number among those of the array since it was assembled, from 1.
    pub nr: u64,
    /// Which of the two it is.
    pub kind: JobKind,
    /// Where it began and will end: bytes of each component, of the array at levels 1 and 10.
    pub range: Range<u64>,
    /// All of the range below has been gone through, and the findings are those of it. From here another goes on.
    pub position: u64,
    /// Sectors of 512 bytes that did not match, with those that it was told of when it began.
    pub mismatches: u64,
    /// The findings.
    pub findings: Findings,
    /// Its end; `None` while it runs.
    pub outcome: Option<JobOutcome>,
}

/// The content of the superblocks when they were read back after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing was written: the array was only read.
    Untouched,
    /// All writes have ended.
    Clean,
    /// Writes may be under way: the array could not be marked clean.
    Active,
}

/// The state in which a stop has left an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The name that it ran under.
    pub name: String,
    /// The superblocks as read back.
    pub ended: Ended,
    /// Members whose superblocks say so now.
    pub written: usize,
    /// Members that were to say so and do not, and what else went wrong, each with the reason.
    pub problems: Vec<String>,
    /// Some of what was acknowledged may be lost, and no redundancy has it: a sentence that says why.
    pub not_durable: Option<String>,
    /// The last check or repair, which the stop may have interrupted.
    pub scrub: Option<Scrubbed>,
}

impl Left {
    /// Everything is as a stop should leave it.
    pub fn is_well(&self) -> bool {
        self.ended != Ended::Active && self.problems.is_empty() && self.not_durable.is_none()
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its number within this run of the array.
    pub nr: MemberNr,
    /// Its name, as it was opened.
    pub name: String,
    /// Its index in the superblock's role table.
    pub dev_number: u32,
    /// Its slot, when it holds one or is to replace the member that does.
    pub slot: Option<usize>,
    /// Its current state.
    pub state: MemberState,
    /// It is to be replaced as soon as there is a spare.
    pub want_replacement: bool,
    /// Why it is faulty.
    pub fault: Option<String>,
    /// It is faulty because its device had gone or did not answer, and can be
    /// [taken back](crate::control::membership::Membership::come_back) when that is there again.
    pub away: bool,
    /// Identifies it.
    pub device_uuid: [u8; 16],
    /// Its size.
    pub size: u64,
    /// Where its component starts.
    pub data_offset: u64,
    /// Size of its component.
    pub data_size: u64,
    /// Updates that its superblock has seen.
    pub events: u64,
    /// The flags in its superblock.
    pub flags: MemberFlags,
    /// Sectors that could not be read and were corrected from redundancy, since it became a member; 0.90
    /// keeps them while the array runs (md's `errors`).
    pub errors: u32,
    /// Writes that wait because the file system that it lies on is full.
    pub waiting_for_space: u64,
    /// Bytes in which checks and repairs have found it wrong, since it became a member here.
    pub wrong: u64,
    /// Requests and bytes, in and out of the plugs of all shards; zero for members without one.
    pub io: PlugStats,
}

/// A write-intent bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapStatus {
    /// Where it begins, in sectors from the superblock.
    pub offset: i32,
    /// Bytes for each bit.
    pub chunk: u64,
    /// Number of bits.
    pub bits: u64,
    /// Bits set now.
    pub dirty: u64,
    /// Updates that the superblocks had seen when bits were last cleared.
    pub events_cleared: u64,
    /// Writes of pages since the start, each to all members and for all bits asked for meanwhile.
    pub batches: u64,
}

/// The change that an array makes after the one under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// In order; none: it has what it was to have, when what is under way has ended.
    pub steps: Vec<NextStep>,
    /// The event that the next step waits for, in words.
    pub waits_for: Option<String>,
    /// The next step was refused, for this reason: nobody makes it by itself.
    pub refused: Option<String>,
}

/// A step to another level or shape, by what the array is then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextStep {
    /// Data is moved.
    pub moves: bool,
    /// The level.
    pub level: Level,
    /// The layout, where the level has several.
    pub layout_name: Option<String>,
    /// Bytes of a chunk; 0 where there are none.
    pub chunk_size: u64,
    /// Slots.
    pub raid_disks: usize,
}

/// One array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayStatus {
    /// Its number within the process.
    pub id: ArrayId,
    /// The name that it runs under.
    pub name: String,
    /// The name in the superblocks, with its host name, printable.
    pub full_name: String,
    /// Identifies it.
    pub uuid: [u8; 16],
    /// Version of the superblocks.
    pub version: Version,
    /// Number of the md device that it had last, where superblocks record it (0.90).
    pub md_minor: Option<u32>,
    /// When it was created.
    pub created: u64,
    /// When its superblocks were last written.
    pub updated: u64,
    /// Updates that its superblocks have seen.
    pub events: u64,
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// mdadm's name of the layout, where the level has layouts.
    pub layout_name: Option<String>,
    /// Chunk; 0 where the level has none.
    pub chunk_size: u64,
    /// Size of the array.
    pub array_size: u64,
    /// Bytes used of each component; 0 for levels 0 and linear.
    pub component_size: u64,
    /// Number of slots.
    pub raid_disks: usize,
    /// Slots without a member that is wholly in sync.
    pub degraded: usize,
    /// The state in words.
    pub state: Vec<ArrayState>,
    /// By slot, the member that holds it; `None` is mdadm's "removed".
    pub slots: Vec<Option<MemberNr>>,
    /// All members, also spares and faulty ones, by number.
    pub members: Vec<MemberStatus>,
    /// Members that were given to `assemble` and not used, each with the reason.
    pub left_out: Vec<String>,
    /// Members that were taken although the array had gone on without them, each with what it lacks.
    pub taken_by_force: Vec<String>,
    /// The places that may be wrong, since it was started by force without all members after an unclean stop.
    pub in_doubt: Option<Arc<InDoubt>>,
    /// The job that is running.
    pub job: Option<JobStatus>,
    /// The job that ended last.
    pub last_job: Option<LastJob>,
    /// Jobs that could not go on, and are tried again.
    pub stuck_jobs: Vec<StuckJob>,
    /// Mismatches that the last check or repair found, in sectors of 512 bytes.
    pub mismatch_cnt: u64,
    /// The check or repair that ended last, with what it found.
    pub scrubbed: Option<Scrubbed>,
    /// Redundancy holds below this (component bytes; array bytes at levels 1 and 10); `None`: everywhere.
    pub resynced: Option<u64>,
    /// The reshape that it is in the middle of.
    pub reshape: Option<braid_format::superblock::Reshape>,
    /// The steps that follow, where it becomes something else in several.
    pub following: Option<Following>,
    /// Its members have a write-intent bitmap.
    pub has_bitmap: bool,
    /// Its members have a partial parity log.
    pub has_ppl: bool,
    /// It has a write journal, or has lost it.
    pub has_journal: bool,
    /// The heartbeat, by which other hosts see that the array is in use; `None` without one.
    pub heartbeat: Option<HeartbeatStatus>,
    /// The write-intent bitmap, when the array has one and keeps it up to date.
    pub bitmap: Option<BitmapStatus>,
    /// Events counted by the engines of all shards.
    pub counters: Counters,
    /// The settings in effect.
    pub settings: Settings,
    /// Shards that own stripes now.
    pub shards: u16,
    /// The stripe caches of all shards; zeroes where the level has no parity.
    pub cache: CacheStats,
    /// Limits of background jobs.
    pub sync_speed: SyncSpeed,
    /// The part of the array that checks and repairs go through.
    pub sync_range: SyncRange,
}

impl ArrayStatus {
    /// The state as one line: `clean, degraded, recovering`.
    pub fn state_line(&self) -> String {
        let words: Vec<String> = self.state.iter().map(ArrayState::to_string).collect();
        words.join(", ")
    }
}

//! The state of an array.

use super::counters::Counters;
use super::job::Job;
use super::scrubbed::{InDoubt, ScrubReport, Scrubbed};
use super::steps::Following;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The job that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastJob {
    /// resync, recover, check or repair.
    pub kind: String,
    /// done, interrupted or failed.
    pub outcome: String,
    /// Why it failed.
    pub error: Option<String>,
    /// Sectors that did not match.
    pub mismatches: u64,
}

/// The state of an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Detail {
    /// The name that it is exported under.
    pub name: String,
    /// The name in its superblocks, with the host's.
    pub full_name: String,
    /// As mdadm writes it.
    pub uuid: String,
    /// Version of the superblocks.
    pub version: String,
    /// Number of the md device that it had last, with version 0.90.
    pub preferred_minor: Option<u32>,
    /// When it was created.
    pub created: u64,
    /// When its superblocks were last written.
    pub updated: u64,
    /// Updates of its superblocks.
    pub events: u64,
    /// The level's name.
    pub level: String,
    /// The layout's name, where the level has layouts.
    pub layout: Option<String>,
    /// md's number of the layout.
    pub layout_number: u32,
    /// Chunk; 0 where the level has none.
    pub chunk_size: u64,
    /// Size of the array.
    pub array_size: u64,
    /// Bytes used of each component; 0 for levels 0 and linear.
    pub component_size: u64,
    /// The level can lose a member.
    pub redundant: bool,
    /// Number of slots.
    pub raid_devices: usize,
    /// Slots without a member in sync.
    pub degraded: usize,
    /// Too many members are lost.
    pub failed: bool,
    /// Nothing is written.
    pub read_only: bool,
    /// Its state in words.
    pub state: String,
    /// For each slot the number of its member.
    pub slots: Vec<Option<u32>>,
    /// All members.
    pub members: Vec<Member>,
    /// The group of arrays with which it shares its spares.
    pub spare_group: Option<String>,
    /// Sentences on the last spares that came from another array, or went to one.
    pub spare_moves: Vec<String>,
    /// Devices that were given and not used, with the reason.
    pub left_out: Vec<String>,
    /// Members that were taken although the array had gone on without them, each with what it lacks.
    pub taken_by_force: Vec<String>,
    /// The job that is running.
    pub job: Option<Job>,
    /// The change of shape that the array is in the middle of.
    pub reshape: Option<Reshape>,
    /// The steps that follow, where it becomes something else in several.
    pub following: Option<Following>,
    /// The job that ended last.
    pub last_job: Option<LastJob>,
    /// Jobs that could not go on, and are tried again.
    pub stuck_jobs: Vec<StuckJob>,
    /// Sectors that the last check found not to match.
    pub mismatch_count: u64,
    /// What the last check or repair found, place by place, also before a restart.
    pub scrubbed: Option<Scrubbed>,
    /// Places that may hold something wrong since the array was started by force.
    pub in_doubt: Option<InDoubt>,
    /// The check or repair that is under way: it runs, waits or is paused.
    pub scrub: Option<Box<ScrubReport>>,
    /// Redundancy holds below this; `None`: everywhere.
    pub resynced: Option<u64>,
    /// Its members have a write-intent bitmap, also when nobody keeps it up to date here.
    pub has_bitmap: bool,
    /// Its members have a partial parity log.
    pub has_ppl: bool,
    /// It has a write journal, or has lost it.
    pub has_journal: bool,
    /// Its heartbeat, by which other hosts see that it is in use.
    pub heartbeat: Option<Heartbeat>,
    /// The lease under which it runs here.
    #[serde(default)]
    pub lease: Option<Lease>,
    /// The write-intent bitmap that is kept up to date.
    pub bitmap: Option<Bitmap>,
    /// Least speed of jobs while clients are busy.
    pub sync_speed_min: u64,
    /// Greatest speed of jobs; `None`: no limit.
    pub sync_speed_max: Option<u64>,
    /// The settings that are not auto.
    pub settings: BTreeMap<String, String>,
    /// What clients and members have done.
    pub counters: Counters,
    /// Where clients find it: a URI or a path for each door.
    pub exports: Vec<String>,
    /// Those that are connected.
    pub clients: Vec<ClientDetail>,
}

/// A client of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientDetail {
    /// Address and port, or the process at the other end of a unix socket.
    pub address: String,
    /// The protocol that it speaks: nbd.
    pub protocol: String,
    /// Requests that were taken from it.
    pub requests: u64,
    /// Bytes that were read for it.
    pub read_bytes: u64,
    /// Bytes that it wrote.
    pub written_bytes: u64,
    /// Requests that failed or were refused.
    pub errors: u64,
    /// Requests that are under way.
    pub in_flight: u64,
}

/// A job that could not go on, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StuckJob {
    /// `recover`, `resync` or `reshape`.
    pub kind: String,
    /// The reason that it ended.
    pub why: String,
    /// Seconds until it is tried again.
    pub again_in: u64,
}

/// The heartbeat of an array, by which other hosts see that it is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Heartbeat {
    /// Milliseconds between two beats.
    pub interval_ms: u32,
    /// Members that take them.
    pub members: usize,
    /// Why the array takes no more writes here, when another host has it.
    pub lost: Option<String>,
}

/// The lease of an array: only its holder may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lease {
    /// Who gives it.
    pub place: String,
    /// Its number, as etcdctl writes it.
    pub number: String,
    /// The token: each later holder of the array has a greater one.
    pub token: i64,
    /// Milliseconds until this server ends unless it is renewed.
    pub left_ms: u64,
}

/// A write-intent bitmap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bitmap {
    /// Where it begins, in sectors from the superblock.
    pub offset: i32,
    /// Bytes for each bit.
    pub chunk: u64,
    /// Bits.
    pub bits: u64,
    /// Bits that are set now.
    pub dirty: u64,
    /// Updates of the superblocks when bits were last cleared.
    pub events_cleared: u64,
    /// Writes of its pages since the start.
    pub batches: u64,
}

/// A change of shape that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reshape {
    /// Array byte that it has reached.
    pub position: u64,
    /// The bytes from there on have the new shape, not those before.
    pub backwards: bool,
    /// Slots before it.
    pub old_devices: i64,
    /// Slots after it.
    pub new_devices: i64,
    /// The new level, if it changes.
    pub new_level: Option<String>,
    /// The new layout, if it changes and has a name.
    pub new_layout: Option<String>,
    /// md's number of the new layout.
    pub new_layout_number: u32,
    /// The new chunk, if it changes.
    pub new_chunk_size: Option<u64>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Member {
    /// Its number while the array runs.
    pub number: u32,
    /// Its index in the superblocks' table of roles: the number that md gives it.
    pub device_number: u32,
    /// Its name.
    pub name: String,
    /// Major and minor number, of a block device.
    pub device: Option<(u32, u32)>,
    /// Its slot.
    pub slot: Option<usize>,
    /// active sync, rebuilding, replacing (another member of its slot), spare or faulty.
    pub state: String,
    /// It is to be replaced as soon as there is a spare.
    #[serde(default)]
    pub want_replacement: bool,
    /// The warnings of its disk (SMART), in sentences.
    pub smart: Vec<String>,
    /// Why it is faulty.
    pub fault: Option<String>,
    /// Level 1: it is read only where there is no other.
    pub write_mostly: bool,
    /// Levels 1 and 10: the first error fails it, unless it is the last that has the data.
    pub failfast: bool,
    /// Sectors that could not be read and were corrected from redundancy (md's `errors`).
    pub errors: u32,
    /// Writes that wait because the file system that it lies on is full.
    pub waiting_for_space: u64,
    /// Bytes in which checks and repairs have found it wrong while the array runs.
    pub wrong: u64,
    /// As mdadm writes it.
    pub uuid: String,
    /// Its size.
    pub size: u64,
    /// Where its component begins, in bytes.
    pub data_offset: u64,
    /// Size of its component.
    pub data_size: u64,
    /// Bytes of its component, from its beginning, that are valid while it is filled; `None` when all are, or nobody fills
    /// it.
    pub recovered: Option<u64>,
    /// Requests that it got.
    pub requests: u64,
    /// Bytes that it got or gave.
    pub bytes: u64,
    /// The array that it is.
    pub array: Option<Box<Detail>>,
}

impl Detail {
    /// The exit code of `--test`: 0 fine, 1 degraded, 2 not usable.
    pub fn exit_code(&self) -> u8 {
        match (self.failed, self.degraded) {
            (true, _) => 2,
            (false, 0) => 0,
            (false, _) => 1,
        }
    }
}

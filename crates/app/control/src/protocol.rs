//! What a command and a running server say to each other over the control socket.
//!
//! Owns the shape of requests and answers, from which the document of the API is made; `detail --json` and the like print
//! the answers as they are. Does not know sockets, nor the paths of HTTP (`api`). Sizes and positions are in bytes, times in seconds since 1970, speeds in KiB per second.
//!
//! Invariant: a request is answered by any number of [`Answer::Progress`] and then one other answer.

// The sentence of a variant tells its fields.
#![allow(missing_docs)]

mod counters;
mod event;
mod job;
mod priority;
mod refusal;
pub mod samples;
mod scrubbed;
mod stat;
mod steps;
pub mod volume;

pub use counters::Counters;
pub use event::{Event, Numbered};
pub use job::Job;
pub use priority::Priority;
pub use refusal::{Code, Refusal};
pub use scrubbed::{Found, FoundPlace, InDoubt, ScrubReport, ScrubState, Scrubbed};
pub use stat::{Cache, Flow, Io, Latency, MemberIo, Sizes, Stat};
pub use steps::{Following, LevelStep, LevelSteps, NextStep, Relevelling, Reshaping};

use crate::wanted::array::Shape;
use crate::wanted::as_text;
use braid_array::state::flags::MemberFlags;
use braid_layout::Level;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use volume::{VolumeAnswer, VolumeRequest};

/// The longest request, in bytes.
pub const REQUEST_MAX: usize = 4 << 20;

/// What a command asks. `array` is a name or UUID; without it the server must have just one array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// A question that is answered at once: is anybody there?
    Ping,
    /// Which arrays there are.
    List,
    /// The state of one array.
    Detail { array: Option<String> },
    /// Make an array, run it and export it; `members` as they would be given to `serve`, or `array:NAME`, or
    /// `missing`. `dry_run`: only say what it would be.
    Create {
        name: String,
        shape: Box<Shape>,
        members: Vec<String>,
        #[serde(default)]
        flags: Vec<Flags>,
        #[serde(default)]
        settings: Vec<(String, String)>,
        #[serde(default)]
        dry_run: bool,
    },
    /// Mark members as faulty; each may be `detached`.
    Fail { array: String, members: Vec<String> },
    /// Let go of members; each may be `failed` or `detached`. `keep`: their superblocks stay as they are.
    Remove {
        array: String,
        members: Vec<String>,
        #[serde(default)]
        keep: bool,
    },
    /// Replace members, each by the one at the same place of `with`, and those beyond by any spare.
    Replace {
        array: String,
        members: Vec<String>,
        #[serde(default)]
        with: Vec<String>,
        #[serde(default)]
        force: bool,
    },
    /// Add a device as the write journal.
    AddJournal {
        array: String,
        member: String,
        #[serde(default)]
        force: bool,
    },
    /// Add members, as they would be given to `serve`.
    Add {
        array: String,
        members: Vec<String>,
        #[serde(default)]
        force: bool,
        #[serde(default)]
        flags: Flags,
    },
    /// Set or clear flags of a member; `None` leaves a flag as it is.
    Member { array: String, member: String, write_mostly: Option<bool>, failfast: Option<bool> },
    /// Take back members that were away; each may be `missing`.
    ReAdd { array: String, members: Vec<String> },
    /// Give an array an internal bitmap, of `chunk` bytes for each bit, or take its bitmap away.
    Bitmap { array: String, internal: bool, chunk: Option<u64> },
    /// Change a size; `size`: `None` is all that there is. `dry_run`: only say what it would be.
    Resize {
        array: String,
        what: SizeOf,
        size: Option<u64>,
        #[serde(default)]
        dry_run: bool,
    },
    /// Give an array a partial parity log.
    Ppl { array: String },
    /// Take an array's bitmap or partial parity log away.
    Resync { array: String },
    /// Give it another shape. `dry_run`: only say what it would be.
    Reshape {
        array: String,
        #[serde(default)]
        shape: NewShape,
        #[serde(default)]
        dry_run: bool,
    },
    /// Give it another level; `shape` is what else was said. `dry_run`: only say what it would be.
    Level {
        array: String,
        #[serde(with = "as_text")]
        #[schemars(with = "String")]
        level: Level,
        #[serde(default)]
        shape: NewShape,
        #[serde(default)]
        dry_run: bool,
    },
    /// Try writes again that wait for space.
    Resume { array: Option<String> },
    /// Start a check, or a repair.
    Scrub {
        array: Option<String>,
        #[serde(default)]
        repair: bool,
        #[serde(default)]
        parity_only: bool,
    },
    /// Pause the check or repair that is under way, or go on with it.
    PauseScrub { array: Option<String>, paused: bool },
    /// The check or repair that is under way, and the last one that has ended.
    Scrubs { array: Option<String> },
    /// The places in doubt since a start by force are right.
    AcceptDoubt { array: Option<String> },
    /// Cancel a check or repair.
    Cancel { array: Option<String> },
    /// Answer when no job is running, with progress meanwhile.
    Wait { array: Option<String> },
    /// Limit the speed of jobs; `None` leaves a limit as it is.
    Speed { array: Option<String>, min_kib: Option<u64>, max_kib: Option<u64> },
    /// Change settings, given as names and values; `once`: not what is kept.
    Set {
        array: String,
        settings: Vec<(String, String)>,
        #[serde(default)]
        once: bool,
    },
    /// The settings of one array.
    Get { array: Option<String> },
    /// What one array has done.
    Stat { array: Option<String> },
    /// The events of arrays that the server keeps; `after`: only events with greater numbers.
    Events { after: Option<u64> },
    /// Start arrays: of `members`, as they would be given to `serve`; those called by one of `arrays`; with `scan` all that
    /// the server's configuration wants. `run`: without members that are missing; `force`: also where that may bring wrong
    /// blocks back.
    Start {
        #[serde(default)]
        members: Vec<String>,
        #[serde(default)]
        arrays: Vec<String>,
        #[serde(default)]
        scan: bool,
        #[serde(default)]
        run: bool,
        #[serde(default)]
        force: bool,
    },
    /// Stop an array; without a name all of them. `force`: also while clients use them.
    Stop {
        array: Option<String>,
        #[serde(default)]
        force: bool,
    },
    /// Let another process have everything, which waits at this socket to be told more.
    TakeOver { at: PathBuf },
    /// Something about volumes.
    Volume { request: Box<VolumeRequest> },
}

/// Flags that a member is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Flags {
    /// Level 1: read it only where there is no other.
    pub write_mostly: bool,
    /// Levels 1 and 10: its first error fails it, unless it is the last that has the data.
    pub failfast: bool,
}

impl From<MemberFlags> for Flags {
    fn from(MemberFlags { write_mostly, failfast }: MemberFlags) -> Flags {
        Flags { write_mostly, failfast }
    }
}

impl From<Flags> for MemberFlags {
    fn from(Flags { write_mostly, failfast }: Flags) -> MemberFlags {
        MemberFlags { write_mostly, failfast }
    }
}

/// What a size is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SizeOf {
    /// What is used of each component.
    Component,
    /// What users see of the array.
    Array,
}

/// A change of sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resized {
    /// The array.
    pub array: String,
    /// Nothing was changed: these are the numbers as they would be.
    pub dry_run: bool,
    /// Bytes used of each component before.
    pub component_size: u64,
    /// Bytes used of each component now.
    pub new_component_size: u64,
    /// Bytes that users saw.
    pub array_size: u64,
    /// Bytes that users see, once they connect again.
    pub new_array_size: u64,
    /// Bytes that are resynced: of each component at levels with parity, else of the array.
    pub resync: u64,
    /// Bytes for each bit of the bitmap, where there is one.
    pub new_bitmap_chunk: Option<u64>,
}

/// The shape that an array is to have; what is not given stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewShape {
    /// Slots.
    pub raid_disks: Option<usize>,
    /// Bytes of a chunk.
    pub chunk: Option<u64>,
    /// The layout by its name.
    pub layout: Option<String>,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// It was done; what, in a sentence.
    Done { text: String },
    /// It was done to these members, and then refused for one, if there is an error.
    Members { done: Vec<MemberDone>, error: Option<String> },
    /// The arrays.
    List { arrays: Vec<Listed> },
    /// The state of an array.
    Detail { detail: Box<Detail> },
    /// The settings of an array.
    Settings { array: String, settings: Vec<Setting> },
    /// What an array has done.
    Stat { stat: Box<Stat> },
    /// An array was made, or would be: what was found on its members as a table, what the user should know
    /// first, and what it is, as text and as JSON.
    Created { found: Option<String>, warnings: Vec<String>, text: String, report: Value },
    /// A size was changed, or would be: in sentences, and in numbers.
    Resized { text: String, report: Resized },
    /// A reshape was begun, or would be: in sentences, and in numbers.
    Reshaping { text: String, report: Reshaping },
    /// It has another level, or would have.
    Relevelling { text: String, report: Relevelling },
    /// The same in several steps, or the rest of them: in sentences, and in numbers.
    LevelSteps { text: String, report: LevelSteps },
    /// About volumes.
    Volume { volume: VolumeAnswer },
    /// The check or repair that is under way, and the last one that has ended.
    Scrubs {
        array: String,
        under_way: Option<Box<ScrubReport>>,
        last: Option<Box<ScrubReport>>,
        in_doubt: Option<InDoubt>,
    },
    /// Events, oldest first. `since`: which server counts, by the microseconds since 1970 of its start; another
    /// counts anew.
    Events { since: u64, events: Vec<Numbered> },
    /// Arrays were started, or members taken by those that run: in sentences; and what is waited for, with the reason.
    Started { done: Vec<String>, waiting: Vec<String> },
    /// A job is running.
    Progress { job: Job },
    /// No job is running any more.
    Idle { last: Option<LastJob>, detail: Box<Detail> },
    /// It was refused.
    Refused(Refusal),
}

/// The outcome of a command for one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberDone {
    /// Its name.
    pub member: String,
    /// A sentence on what was done.
    pub done: String,
}

/// An array in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The name that it is exported under.
    pub name: String,
    /// As mdadm writes it.
    pub uuid: String,
    /// Its state in words.
    pub state: String,
    /// Where clients find it: a URI or a path for each door.
    pub exports: Vec<String>,
}

/// A setting of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// `auto`, or what is set.
    pub value: String,
    /// What a later `serve` will set.
    pub kept: String,
    /// What auto means at the moment, in words.
    pub meaning: Option<String>,
    /// The same in numbers, each with a name of its own.
    pub now: BTreeMap<String, u64>,
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_from_their_line() {
        for request in [
            Request::Ping,
            Request::List,
            Request::Wait { array: None },
            Request::Add {
                array: "a".into(),
                members: vec!["/dev/\u{e9}".into(), "disk1".into()],
                force: true,
                flags: Flags { write_mostly: true, failfast: false },
            },
            Request::Member {
                array: "a".into(),
                member: "b".into(),
                write_mostly: None,
                failfast: Some(false),
            },
            Request::Speed { array: Some("a".into()), min_kib: None, max_kib: Some(u64::MAX) },
            Request::Set {
                array: "a".into(),
                settings: vec![("stripe_size".into(), "16K".into())],
                once: true,
            },
        ] {
            let line = serde_json::to_string(&request).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        }
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        for line in ["", "{}", "[]", "{\"verb\":\"format\"}", "{\"verb\":\"fail\",\"array\":\"a\"}"]
        {
            assert!(serde_json::from_str::<Request>(line).is_err(), "{line}");
        }
    }
}

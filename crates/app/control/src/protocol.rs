//! What a command and a running server say to each other over the control socket.
//!
//! Owns the shape of requests and answers, from which the document of the API is made; `detail --json` and the like print
//! the answers as they are. Does not know sockets, nor the paths of HTTP (`api`). Sizes and positions are in bytes, times in seconds since 1970, speeds in KiB per second.
//!
//! Invariant: a request is answered by any number of [`Answer::Progress`] and then one other answer.

// The sentence of a variant tells its fields.
#![allow(missing_docs)]

mod counters;
mod detail;
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
pub use detail::{
    Bitmap, ClientDetail, Detail, Heartbeat, LastJob, Lease, Member, Reshape, StuckJob,
};
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

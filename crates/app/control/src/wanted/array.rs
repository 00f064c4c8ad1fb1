//! What a new array is to be like.

use crate::array_name::ArrayName;
use crate::wanted::as_text;
use crate::wanted::size::kib_or_size;
use braid_format::superblock::Version;
use braid_layout::Level;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The shape of a new array.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// linear, 0, 1, 4, 5, 6 or 10.
    #[arg(short, long)]
    #[serde(default, with = "as_text::optional")]
    #[schemars(with = "Option<String>")]
    pub level: Option<Level>,
    /// Number of slots: the first so many members.
    #[arg(short = 'n', long, value_name = "N")]
    pub raid_devices: Option<usize>,
    /// Number of spares: the members after those.
    #[arg(short = 'x', long, value_name = "N", default_value_t = 0)]
    #[serde(default)]
    pub spare_devices: usize,
    /// Chunk; a bare number is in KiB [default: 512K].
    #[arg(short, long, value_name = "SIZE", value_parser = kib_or_size)]
    pub chunk: Option<u64>,
    /// Layout: left-symmetric, ls, … (5, 6), n2, f2, o2, … (10), original, alternate (0).
    #[arg(short = 'p', long, value_name = "NAME")]
    pub layout: Option<String>,
    /// Version of the superblocks: 0.90, 1.0, 1.1 or 1.2.
    #[arg(short = 'e', long, value_name = "VERSION", default_value = "1.2")]
    #[serde(default = "newest", with = "as_text")]
    #[schemars(with = "String")]
    pub metadata: Version,
    /// The name to record, when it is not the name of the array here.
    #[arg(short = 'N', long = "name", value_name = "NAME")]
    #[serde(default, with = "as_text::optional")]
    #[schemars(with = "Option<String>")]
    pub recorded_name: Option<ArrayName>,
    /// The host to record before the name [default: this machine's name; "any" for none].
    #[arg(long, value_name = "HOST")]
    pub homehost: Option<String>,
    /// Use only this much of each member; a bare number is in KiB.
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = kib_or_size)]
    pub size: Option<u64>,
    /// Start the data at this offset of each member; a bare number is in KiB.
    #[arg(long, value_name = "OFFSET", value_parser = kib_or_size)]
    pub data_offset: Option<u64>,
    /// Skip the first resync: the members hold matching data, or it does not matter yet.
    #[arg(long)]
    #[serde(default)]
    pub assume_clean: bool,
    /// A write-intent bitmap, so that an unclean stop or a member's absence costs only what was being
    /// written [default: internal where a level with redundancy uses more than 100G of each member].
    #[arg(short, long, value_enum, value_name = "WHERE")]
    pub bitmap: Option<BitmapPlace>,
    /// Bytes for each bit of the bitmap; a bare number is in KiB [default: 64M, or what fits].
    #[arg(long, value_name = "SIZE", value_parser = kib_or_size)]
    pub bitmap_chunk: Option<u64>,
    /// What keeps redundancy right after an unclean stop; bitmap is --bitmap internal, ppl is for level 5.
    #[arg(short = 'k', long, value_enum, value_name = "POLICY")]
    pub consistency_policy: Option<ConsistencyPolicy>,
    /// A device that all writes, with their parity, go to before the members get them, so that a crash while members are
    /// missing loses nothing either: levels 4, 5 and 6. It takes the place of a bitmap or a partial parity log.
    #[arg(long, value_name = "DEVICE")]
    #[serde(default)]
    pub write_journal: Option<String>,
    /// Overwrite what is on the members.
    #[arg(short, long)]
    #[serde(default)]
    pub force: bool,
}

fn newest() -> Version {
    Version::V1_2
}

/// Where a bitmap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
pub enum BitmapPlace {
    /// On the members.
    Internal,
    /// Nowhere.
    None,
}

/// What keeps redundancy right after an unclean stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
pub enum ConsistencyPolicy {
    /// Everything is resynced.
    Resync,
    /// What a bitmap says is resynced.
    Bitmap,
    /// Nothing: a partial parity log on the members has what the parity of a write that was cut short is made anew from,
    /// also while a member is missing.
    Ppl,
}

//! What a new volume is to be like.

use crate::wanted::size::kib_or_size;
use crate::wanted::weight::BrickWeight;
use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a new volume is like.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewVolume {
    /// Bytes of a stripe, what goes to one brick before the next one's turn: a power of two, 16K to 16M; a bare
    /// number is in KiB [default: 128K].
    #[arg(long, value_name = "SIZE", value_parser = kib_or_size)]
    pub stripe: Option<u64>,
    /// The weight of a brick, as BRICK=N; may be given several times. A brick's share is its size times its weight
    /// [default: 1].
    #[arg(long = "weight", value_name = "BRICK=N", value_parser = brick_weight)]
    pub weights: Vec<(String, BrickWeight)>,
    /// The domain of a brick, as BRICK=LABEL: what it may be lost with, a host, a shelf or a controller; may be given several
    /// times. Copies are in distinct domains as far as there are some [default: each brick its own].
    #[arg(long = "domain", value_name = "BRICK=LABEL", value_parser = brick_domain)]
    pub domains: Vec<(String, String)>,
    /// Room for metadata on each of the first two bricks; a bare number is in KiB [default: by size].
    #[arg(long, visible_alias = "metadata-size", value_name = "SIZE", value_parser = kib_or_size)]
    pub metadata: Option<u64>,
    /// Give blocks of files checksums, against which they are read, or not: what a disk garbled is an error then, and never
    /// taken for the file's content [default: on].
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub checksums: Option<bool>,
    /// Copies of each file, 1 to 4, each on another brick; folders and files may have others (braid volume copies). More than
    /// one take checksums [default: 1].
    #[arg(long, value_name = "N")]
    pub copies: Option<u8>,
    /// Overwrite what is on the bricks.
    #[arg(short, long)]
    pub force: bool,
}

/// Takes `on` or `off`.
fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{text:?}: say on or off")),
    }
}

/// Takes `BRICK=LABEL` apart.
fn brick_domain(text: &str) -> Result<(String, String), String> {
    let form =
        || format!("{text:?}: give BRICK=LABEL, with the brick as it is given to the command");
    let (brick, label) = text.rsplit_once('=').ok_or_else(form)?;
    if brick.is_empty() || label.is_empty() {
        return Err(form());
    }
    Ok((brick.to_string(), label.to_string()))
}

/// Takes `BRICK=N` apart: the last `=` counts, since a path may have some.
fn brick_weight(text: &str) -> Result<(String, BrickWeight), String> {
    let form = || format!("{text:?}: give BRICK=N, with the brick as it is given to the command");
    let (brick, number) = text.rsplit_once('=').ok_or_else(form)?;
    if brick.is_empty() {
        return Err(form());
    }
    Ok((brick.to_string(), number.parse()?))
}

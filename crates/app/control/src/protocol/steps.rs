//! Other levels and shapes of an array: single steps, several by one command, and those that are left.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reshape. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reshaping {
    /// The array.
    pub array: String,
    /// Nothing was changed: these are the numbers as they would be.
    pub dry_run: bool,
    /// Slots before.
    pub raid_devices: usize,
    /// Slots from now on.
    pub new_raid_devices: usize,
    /// A chunk.
    pub chunk_size: u64,
    /// A chunk of the new shape.
    pub new_chunk_size: u64,
    /// The layout, where the level has several.
    pub layout: Option<String>,
    /// The layout of the new shape.
    pub new_layout: Option<String>,
    /// Bytes that users see now.
    pub array_size: u64,
    /// Bytes that they see, once they connect again, when the reshape has ended.
    pub new_array_size: u64,
    /// Data that is read and written again.
    pub moved: u64,
    /// Bytes that are written to each member.
    pub on_each: u64,
    /// The place of the data on each member moves so far towards its start, or towards its end.
    pub data_moves_by: u64,
    /// It moves towards the end, from the end of the array to its start.
    pub backwards: bool,
    /// Seconds that it takes at 100 MiB per second and member, or at the greatest speed of jobs when that is less.
    pub seconds: u64,
    /// The spares that get slots.
    pub spares: Vec<String>,
    /// The members that are spares when it is done.
    pub freed: Vec<String>,
}

/// A change of the level. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Relevelling {
    /// The array.
    pub array: String,
    /// Nothing was changed: these are the numbers as they would be.
    pub dry_run: bool,
    /// The level before.
    pub level: String,
    /// The level from now on.
    pub new_level: String,
    /// The layout, where the level has several.
    pub layout: Option<String>,
    /// The layout at the new level.
    pub new_layout: Option<String>,
    /// Slots before.
    pub raid_devices: usize,
    /// Slots from now on.
    pub new_raid_devices: usize,
    /// A chunk; 0 where there are none.
    pub chunk_size: u64,
    /// A chunk at the new level.
    pub new_chunk_size: u64,
    /// Bytes that users see, now as before.
    pub array_size: u64,
    /// Bytes that are written to each member that is rebuilt.
    pub copied: u64,
    /// Seconds that this takes at 100 MiB per second and member, or at the greatest speed of jobs when that is less.
    pub seconds: u64,
    /// The spares that are rebuilt.
    pub rebuilt: Vec<String>,
    /// The members that are spares from now on.
    pub freed: Vec<String>,
    /// The members that leave the array, since others have what they hold.
    pub leaving: Vec<String>,
    /// Slots without a member.
    pub missing: usize,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum LevelStep {
    /// Another level, without anything being moved.
    Level(Relevelling),
    /// Data is moved.
    Reshape(Reshaping),
}

/// The steps of a command. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LevelSteps {
    /// The array.
    pub array: String,
    /// Nothing was changed: this is what would be done.
    pub dry_run: bool,
    /// The level in the end.
    pub new_level: String,
    /// The layout in the end, where the level has several.
    pub new_layout: Option<String>,
    /// A chunk in the end; 0 where there are none.
    pub new_chunk_size: u64,
    /// Slots in the end.
    pub new_raid_devices: usize,
    /// A change that was under way already, for which the first step waits.
    pub under_way: Option<String>,
    /// Those that are still to be made; the first has begun, unless something was under way.
    pub steps: Vec<LevelStep>,
    /// Seconds that all of them take at 100 MiB per second and member, or at the greatest speed of jobs when that is less.
    pub seconds: u64,
}

/// The change that an array makes after the one under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Following {
    /// In order.
    pub steps: Vec<NextStep>,
    /// The event that the next step waits for.
    pub waits_for: Option<String>,
    /// Why the next step was refused: nobody makes it by itself.
    pub refused: Option<String>,
}

/// A step, by what the array is after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextStep {
    /// Data is moved.
    pub moves: bool,
    /// The level.
    pub level: String,
    /// The layout, where the level has several.
    pub layout: Option<String>,
    /// A chunk; 0 where there are none.
    pub chunk_size: u64,
    /// Slots.
    pub raid_devices: usize,
}

//! The reasons why a description of an array's geometry is refused.
//!
//! Invariant: every message names the number at fault and a remedy.

use crate::Level;

/// A level, a layout or a geometry was refused. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// No level has this name.
    #[error(
        "there is no level {name:?}; use linear, 0, 1, 4, 5, 6 or 10 (with or without \"raid\" in front)"
    )]
    UnknownLevel {
        /// The name that was given.
        name: String,
    },
    /// The level has layouts, but none of this name.
    #[error("{level} has no layout {name:?}; use one of: {known}")]
    UnknownLayoutName {
        /// The level asked for.
        level: Level,
        /// The name that was given.
        name: String,
        /// The names that exist, for the message.
        known: String,
    },
    /// The level has only one layout and takes no name.
    #[error("{level} has no layouts to choose from; leave {name:?} out")]
    NoLayouts {
        /// The level asked for.
        level: Level,
        /// The name that was given.
        name: String,
    },
    /// The layout number means nothing at this level.
    #[error(
        "{level} has no layout number {layout:#x}; the superblock is damaged or from a newer md, so examine the other members"
    )]
    UnknownLayout {
        /// The level.
        level: Level,
        /// md's layout number.
        layout: u32,
    },
    /// Fewer slots than the level needs.
    #[error(
        "a {level} array with {slots} slots is impossible: it needs at least {min}; give more members or choose another level"
    )]
    TooFewSlots {
        /// The level.
        level: Level,
        /// The slots asked for.
        slots: usize,
        /// The least that works.
        min: usize,
    },
    /// More slots than the format or the arithmetic of Q can hold.
    #[error(
        "a {level} array with {slots} slots is impossible: it can have at most {max}; give fewer members"
    )]
    TooManySlots {
        /// The level.
        level: Level,
        /// The slots asked for.
        slots: usize,
        /// The most that works.
        max: usize,
    },
    /// The chunk size is impossible at this level.
    #[error("a {level} array cannot have a chunk of {chunk_size} bytes; it must be {rule}")]
    ChunkSize {
        /// The level.
        level: Level,
        /// The chunk size asked for.
        chunk_size: u64,
        /// The rule for chunk sizes of this level.
        rule: &'static str,
    },
    /// The components are too small to hold anything.
    #[error(
        "a {level} array cannot have components of {component_size} bytes: at least {min} are needed; use larger members or a smaller chunk"
    )]
    ComponentTooSmall {
        /// The level.
        level: Level,
        /// The component size asked for.
        component_size: u64,
        /// The least that works.
        min: u64,
    },
    /// One member is too small to hold a single chunk.
    #[error(
        "a {level} array cannot use the {size} bytes of the member in slot {slot}: at least {min} are needed; use a larger member or a smaller chunk"
    )]
    MemberTooSmall {
        /// The level.
        level: Level,
        /// The slot of the member.
        slot: usize,
        /// Its size.
        size: u64,
        /// The least that works.
        min: u64,
    },
    /// Not exactly one member size per slot.
    #[error(
        "a {level} array of {slots} slots needs the size of every member, but {found} sizes were given; all its members must be present"
    )]
    MemberSizes {
        /// The level.
        level: Level,
        /// The number of slots.
        slots: usize,
        /// The number of sizes given.
        found: usize,
    },
    /// The array would be larger than md can address.
    #[error(
        "a {level} array of this shape would exceed 2^63 - 1 bytes; the sizes in the superblock cannot be right, so examine the other members"
    )]
    TooLarge {
        /// The level.
        level: Level,
    },
    /// A level 0 array with zones whose layout is not recorded.
    #[error(
        "the raid0 array has {zones} zones (members of different sizes) but does not say which layout wrote them, and a wrong guess scrambles the data; record it with --update=layout-original (written by a kernel before 3.14) or --update=layout-alternate"
    )]
    Raid0NoLayout {
        /// The number of zones.
        zones: usize,
    },
    /// Near and far copies at the same time: copies would collide.
    #[error(
        "the raid10 layout has {near} near and {far} far copies at once, which can put two copies on one place; only n, f and o layouts are supported"
    )]
    Raid10NearAndFar {
        /// Near copies.
        near: usize,
        /// Far or offset copies.
        far: usize,
    },
    /// Fewer than two copies, or more copies than slots.
    #[error("a raid10 array of {slots} slots cannot keep {copies} copies; it needs 2 to {slots}")]
    Raid10Copies {
        /// The copies asked for.
        copies: usize,
        /// The number of slots.
        slots: usize,
    },
    /// The far-set mode does not divide the slots into sets that can hold all copies.
    #[error(
        "the raid10 layout {layout:#x} cannot split {slots} slots into sets that hold its {far} copies on different members; the array cannot be used"
    )]
    Raid10Sets {
        /// md's layout number.
        layout: u32,
        /// The number of slots.
        slots: usize,
        /// Far or offset copies.
        far: usize,
    },
}

//! The real md, in User Mode Linux: arrays of each in the hands of the other.
//!
//! One program for all of them: a guest has one processor, and tests of several files run side by side.

#![forbid(unsafe_code)]

mod bad_blocks_across;
mod bitmaps_across;
mod copies_across;
mod detail_as_mdadm;
mod flags_across;
mod journals_across;
mod levels_across;
mod levels_in_steps;
mod matrix;
mod mixed_sectors;
mod other_shapes_across;
mod replacement_across;
mod reshapes_across;
mod sizes_across;
mod stacks;
mod stale_members;
mod states;
mod two_rebuilt_across;
mod two_ways;
mod write_hole_across;

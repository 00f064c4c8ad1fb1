//! Whether arrays of arrays are run.

use clap::ValueEnum;

/// Whether arrays are run whose members are other arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StackPolicy {
    /// Those that belong here, as far as one can tell.
    Auto,
    /// All.
    Always,
    /// None.
    Never,
}

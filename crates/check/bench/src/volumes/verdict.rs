//! The judgement of a figure in a table of volumes, and the ratio that it rests on.

use braid_load::{Ratio, Spread};

/// A demand in words: met or not.
pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "**not met**" }
}

/// A ratio of two figures that a report names.
pub fn ratio(of: &str, by: &str, ratio: Spread) -> Ratio {
    Ratio { of: of.to_owned(), by: by.to_owned(), ratio }
}

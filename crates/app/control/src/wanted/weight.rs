//! The weight of a brick, as people write it: 1 is the share that its size is due, 2 twice that.
//!
//! On disk a weight is in blocks, so that bricks share in proportion to their sizes by themselves.

use braid_volume::assemble::weight_of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The largest weight.
const MAX: u64 = 1000;

/// A weight that was typed, in thousandths: 0.001 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct BrickWeight(u64);

impl BrickWeight {
    /// In thousandths.
    pub fn thousandths(self) -> u64 {
        self.0
    }

    /// That of a brick with `blocks` blocks of data whose recorded weight is `weight`; the nearest that can be typed.
    pub fn recorded(weight: u64, blocks: u64) -> BrickWeight {
        let thousandths = u128::from(weight) * 1000 / u128::from(blocks.max(1));
        // At most a million.
        BrickWeight(thousandths.clamp(1, u128::from(MAX * 1000)) as u64)
    }

    /// As the volume has it, for a brick with `blocks` blocks of data.
    pub fn of_blocks(self, blocks: u64) -> u64 {
        weight_of(blocks, self.0)
    }
}

impl FromStr for BrickWeight {
    type Err = String;

    fn from_str(text: &str) -> Result<BrickWeight, String> {
        let wrong = || {
            format!(
                "{text:?} is no weight: give a number from 0.001 to {MAX}; 1 is the share that the brick's size is due, 2 \
                 twice that"
            )
        };
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let weight: f64 = text.parse().ok().filter(|_| plain(text)).ok_or_else(wrong)?;
        if weight == 0.0 {
            return Err(
                "a weight of 0 would leave the brick empty: `braid volume remove` takes it away"
                    .to_string(),
            );
        }
        // At most a million.
        let thousandths = (weight.min(MAX as f64 + 1.0) * 1000.0).round() as u64;
        if !(1..=MAX * 1000).contains(&thousandths) {
            return Err(wrong());
        }
        Ok(BrickWeight(thousandths))
    }
}

impl fmt::Display for BrickWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0 as f64 / 1000.0)
    }
}

/// A recorded weight of a brick with `blocks` blocks of data, as people write it.
pub fn shown(weight: u64, blocks: u64) -> f64 {
    let exact = weight as f64 / blocks.max(1) as f64;
    let rounded = (exact * 1000.0).round() / 1000.0;
    // Volumes of earlier versions may have weights that have nothing to do with sizes.
    if rounded > 0.0 { rounded } else { (exact * 1e9).round() / 1e9 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weight_of_a_brick_is_that_for_another_of_any_size() {
        let half: BrickWeight = "0.5".parse().unwrap();
        for blocks in [1000, 4_000_000_000] {
            assert_eq!(BrickWeight::recorded(half.of_blocks(blocks), blocks), half);
        }
        assert_eq!(BrickWeight::recorded(1, u64::MAX).thousandths(), 1);
        assert_eq!(BrickWeight::recorded(u64::MAX, 0).thousandths(), MAX * 1000);
    }

    #[test]
    fn a_weight_is_shown_as_it_was_written() {
        for text in ["1", "2", "0.5", "1.25", "0.001", "1000"] {
            let weight: BrickWeight = text.parse().unwrap();
            assert_eq!(weight.to_string(), text);
            assert_eq!(shown(weight.of_blocks(262_144), 262_144).to_string(), text);
        }
        for text in ["", "-1", "1e3", "inf", "nan", "0.0001", "1000.1", "x", "1.5.2"] {
            assert!(text.parse::<BrickWeight>().unwrap_err().contains("is no weight"), "{text}");
        }
        assert!("0.0".parse::<BrickWeight>().unwrap_err().contains("braid volume remove"));
        assert_eq!(shown(2, 1 << 20).to_string(), "0.000001907");
    }
}

//! Settings that people change while the array runs: height and number of lines, plans, shards.
//!
//! Drawn from a stream of their own, so that a seed's other choices are what they were before there
//! were settings.

use crate::rng::Rng;
use braid_array::settings::{RmwLevel, Settings, StripeCacheSize, StripeSize};
use braid_layout::Level;

/// Draws settings for an array of `level` with chunks of `chunk` bytes and logical blocks of `block`.
pub fn draw(rng: &Rng, level: Level, chunk: u64, block: u64, shards: usize) -> Settings {
    let mut settings = Settings::default();
    if rng.percent(40) {
        // There are few shards.
        settings.shards = Some(1 + rng.below(shards) as u16);
    }
    if !matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6) {
        return settings;
    }
    if rng.percent(50) {
        let bytes = 4096_u64 << rng.range(0..5);
        settings.stripe_size = StripeSize::Bytes(bytes.max(block).min(chunk));
    }
    settings.stripe_cache_size = match rng.range(0..4) {
        0 => StripeCacheSize::Auto,
        1 => StripeCacheSize::Lines(0),
        2 => StripeCacheSize::Lines(rng.log_range(1..40) as u32),
        _ => StripeCacheSize::Bytes(rng.log_range(1..4 << 20)),
    };
    settings.rmw_level =
        *rng.pick(&[RmwLevel::Auto, RmwLevel::Disable, RmwLevel::Enable, RmwLevel::Prefer]);
    settings.preread_bypass_threshold = *rng.pick(&[None, Some(0), Some(3)]);
    settings
}

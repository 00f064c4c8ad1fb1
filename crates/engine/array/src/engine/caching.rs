//! The stripe cache of an engine: made when settings are taken over, told of changes, asked for
//! figures.

use crate::cache::{AUTO_BYTES_MAX, CacheStats, StripeCache};
use crate::engine::Engine;
use crate::settings::{Settings, StripeCacheSize, StripeSize};
use std::ops::Range;

impl Engine {
    /// Takes over new settings, which suit the array. What the cache holds is forgotten when its
    /// lines, their number or their owners change.
    pub(crate) fn set(&self, settings: Settings) {
        let old = self.settings.replace(settings);
        if old.member_timeout != settings.member_timeout {
            self.limit_members();
        }
        let made = self.cache.borrow().is_some();
        let same = old.stripe_size == settings.stripe_size
            && old.stripe_cache_size == settings.stripe_cache_size
            && old.shards == settings.shards;
        let view = self.view();
        let geometry = view.geometries().whole();
        if (made && same) || !geometry.has_parity() {
            return;
        }
        let (members, line) = (geometry.slots(), settings.granule(geometry));
        // This shard's part of what all shards may hold; a size that is set is never rounded to none.
        let part = |lines: u64| {
            u32::try_from(lines.div_ceil(u64::from(geometry.owners()))).unwrap_or(u32::MAX)
        };
        let per_line = line * members as u64;
        let fixed = match settings.stripe_cache_size {
            StripeCacheSize::Auto => None,
            StripeCacheSize::Lines(lines) => Some(part(lines.into())),
            StripeCacheSize::Bytes(bytes) => Some(part(bytes / per_line)),
        };
        let bound = part(AUTO_BYTES_MAX.min(self.memory_max) / per_line);
        let chunk = geometry.layout.chunk_size();
        let pool = self.shard.pool();
        let cache = StripeCache::new(pool, members, chunk, line, fixed, bound);
        *self.cache.borrow_mut() = Some(cache);
    }

    /// Height of a line in bytes, when it is set.
    #[inline]
    pub(crate) fn line(&self) -> Option<u64> {
        match self.settings.get().stripe_size {
            StripeSize::Auto => None,
            StripeSize::Bytes(bytes) => Some(bytes),
        }
    }

    /// The members may hold something else at `rows` of `stripe` than the cache knows.
    #[inline]
    pub(crate) fn cache_forget(&self, stripe: u64, rows: Range<u64>) {
        if let Some(cache) = self.cache.borrow_mut().as_mut() {
            cache.forget(stripe, rows);
        }
    }

    /// Contents and counters of the cache.
    pub(crate) fn cache_stats(&self) -> CacheStats {
        self.cache.borrow().as_ref().map(StripeCache::stats).unwrap_or_default()
    }

    /// Gives back half of a cache that sizes itself. True when there is more to give.
    pub(crate) fn shrink_cache(&self) -> bool {
        self.cache.borrow_mut().as_mut().is_some_and(StripeCache::shrink)
    }
}

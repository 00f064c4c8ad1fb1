//! The stripe cache of an engine: made when settings are taken over, told of changes, asked for
//! figures.

use crate::cache::{AUTO_BYTES_MAX, CacheStats, StripeCache};
use crate::settings::{Settings, StripeCacheSize};
use crate::state::geometries::Geometries;
use crate::state::geometry::Geometry;
use braid_shard::Pool;
use std::cell::{RefCell, RefMut};
use std::ops::Range;

/// See the module's documentation.
pub(crate) struct Caching {
    /// `None` where the level has no parity.
    cache: RefCell<Option<StripeCache>>,
    /// Bytes that it may take at most on all shards together.
    memory_max: u64,
}

impl Caching {
    /// Without a cache until settings ask for one.
    pub(super) fn new(memory_max: u64) -> Caching {
        Caching { cache: RefCell::new(None), memory_max }
    }

    /// New settings suit an array of these geometries and go before `old`. What the cache holds is forgotten when its lines,
    /// their number or their owners change.
    pub(super) fn suit(
        &self,
        pool: &Pool,
        geometries: &Geometries,
        old: &Settings,
        new: &Settings,
    ) {
        let geometry = geometries.whole();
        let made = self.cache.borrow().is_some();
        let same = old.stripe_size == new.stripe_size
            && old.stripe_cache_size == new.stripe_cache_size
            && old.shards == new.shards;
        if (made && same) || !geometry.has_parity() {
            return;
        }
        let members = geometries.widest().slots();
        let line = new.line_size(geometry).min(new.line_size(geometries.before()));
        // This shard's part of what all shards may hold; a size that is set is never rounded to none.
        let part = |lines: u64| {
            u32::try_from(lines.div_ceil(u64::from(geometry.owners()))).unwrap_or(u32::MAX)
        };
        let per_line = line * members as u64;
        let fixed = match new.stripe_cache_size {
            StripeCacheSize::Auto => None,
            StripeCacheSize::Lines(lines) => Some(part(lines.into())),
            StripeCacheSize::Bytes(bytes) => Some(part(bytes / per_line)),
        };
        let bound = part(AUTO_BYTES_MAX.min(self.memory_max) / per_line);
        let chunk_of = |geometry: &Geometry| geometry.layout.chunk_size();
        let chunk = chunk_of(geometry).max(chunk_of(geometries.before()));
        let cache = StripeCache::new(pool, members, chunk, line, fixed, bound);
        *self.cache.borrow_mut() = Some(cache);
    }

    /// Forgets everything; lines are those of these geometries from now on.
    pub(super) fn renew(&self, pool: &Pool, geometries: &Geometries, settings: &Settings) {
        *self.cache.borrow_mut() = None;
        self.suit(pool, geometries, settings, settings);
    }

    /// The cache, for a look and for changes that do not wait.
    #[inline]
    pub(crate) fn borrow_mut(&self) -> RefMut<'_, Option<StripeCache>> {
        self.cache.borrow_mut()
    }

    /// The members may hold something else at `rows` of `stripe` than the cache knows.
    #[inline]
    pub(crate) fn forget(&self, stripe: u64, rows: Range<u64>) {
        if let Some(cache) = self.cache.borrow_mut().as_mut() {
            cache.forget(stripe, rows);
        }
    }

    /// Contents and counters of the cache.
    pub(crate) fn stats(&self) -> CacheStats {
        self.cache.borrow().as_ref().map(StripeCache::stats).unwrap_or_default()
    }

    /// Gives back half of a cache that sizes itself. True when there is more to give.
    pub(crate) fn shrink(&self) -> bool {
        self.cache.borrow_mut().as_mut().is_some_and(StripeCache::shrink)
    }
}

//! The choice between stores into the caches and stores past them.

use std::sync::OnceLock;

/// The kind of stores for a kernel's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Ordinary stores, which leave the outputs in the caches. Best when they are read again soon.
    Cached,
    /// Non-temporal stores, which bypass the caches, if the CPU has them and every output is aligned to 64 bytes; else
    /// as `Cached`. Best when the outputs are large and not in the caches, or go to a device next: the CPU
    /// need not read their cache lines first, and nothing else is evicted.
    Streaming,
}

impl Stores {
    /// The default for a call that accesses `blocks` blocks of `len` bytes. If that is more than
    /// the second-level cache holds, cached outputs would evict the sources of the same call.
    pub fn for_size(blocks: usize, len: usize) -> Self {
        if blocks.saturating_mul(len) > second_level_cache() {
            Self::Streaming
        } else {
            Self::Cached
        }
    }
}

/// Size in bytes of the second-level cache of this CPU, or a common size if it is unknown.
fn second_level_cache() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        if let Some(size) = x86_second_level_cache() {
            return size;
        }
        512 << 10
    })
}

/// The size by the deterministic cache parameters: leaf 4 of CPUID (Intel SDM volume 2A), or leaf 0x8000001d with
/// the same fields (AMD APM volume 3, appendix E).
#[cfg(target_arch = "x86_64")]
fn x86_second_level_cache() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let (basic, extended) = (__cpuid(0).eax, __cpuid(0x8000_0000).eax);
    let leaves = [(4, basic), (0x8000_001d, extended)];
    leaves.into_iter().filter(|(leaf, highest)| leaf <= highest).find_map(|(leaf, _)| {
        // Each index is a cache, and an entry of type 0 ends the list.
        let caches =
            (0..16).map(|index| __cpuid_count(leaf, index)).take_while(|c| c.eax & 0x1f != 0);
        let second = caches.filter(|cache| cache.eax >> 5 & 7 == 2).map(|cache| {
            let field = |low: u32, bits: u32| (cache.ebx >> low & ((1 << bits) - 1)) as usize + 1;
            field(22, 10) * field(12, 10) * field(0, 12) * (cache.ecx as usize + 1)
        });
        second.max()
    })
}

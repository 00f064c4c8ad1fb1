//! The kernels for each kind of CPU, and the choice among them.
//!
//! Owns [`KernelSet`], the table of function pointers that makes up one implementation, and with it all
//! `unsafe` of this crate. Does not know which algorithm a caller follows (see `recover`). Invariant: a
//! `&KernelSet` is handed out only if this CPU has its instructions, and its methods call a kernel only
//! after checking that all blocks have one length; so the methods are safe.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod generic;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use std::sync::OnceLock;

/// The kind of stores for a kernel's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Ordinary stores: the outputs end up in the caches. Right when they are read again soon.
    Cached,
    /// Stores past the caches where the CPU has them and every output is aligned to 64 bytes, else as
    /// `Cached`. Right when the outputs are large and cold, or go to a device next: it saves reading
    /// them first, and the caches keep what they hold.
    Streaming,
}

impl Stores {
    /// The choice for a call that touches `blocks` blocks of `len` bytes, if nothing else is known: more than
    /// the second-level cache holds, what it writes would drive its own sources out of that.
    pub fn for_size(blocks: usize, len: usize) -> Self {
        if blocks.saturating_mul(len) > second_level_cache() {
            Self::Streaming
        } else {
            Self::Cached
        }
    }
}

/// Bytes of the second-level cache of this CPU; a common size where it does not say.
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

/// From the deterministic cache parameters: leaf 4 of CPUID (Intel SDM volume 2A) or 0x8000001d, which
/// has the same fields (AMD APM volume 3, appendix E).
#[cfg(target_arch = "x86_64")]
fn x86_second_level_cache() -> Option<usize> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    let (basic, extended) = (__cpuid(0).eax, __cpuid(0x8000_0000).eax);
    let leaves = [(4, basic), (0x8000_001d, extended)];
    leaves.into_iter().filter(|(leaf, highest)| leaf <= highest).find_map(|(leaf, _)| {
        // Each index names a cache; the first of type 0 comes after the last.
        let caches =
            (0..16).map(|index| __cpuid_count(leaf, index)).take_while(|c| c.eax & 0x1f != 0);
        let second = caches.filter(|cache| cache.eax >> 5 & 7 == 2).map(|cache| {
            let field = |low: u32, bits: u32| (cache.ebx >> low & ((1 << bits) - 1)) as usize + 1;
            field(22, 10) * field(12, 10) * field(0, 12) * (cache.ecx as usize + 1)
        });
        second.max()
    })
}

/// One implementation of all kernels. The functions are those of the crate root; these are for tests and
/// benchmarks that compare implementations.
#[expect(clippy::type_complexity, reason = "each kernel's type is written here and nowhere else")]
pub struct KernelSet {
    name: &'static str,
    xor: unsafe fn(&mut [u8], &[&[u8]], Stores),
    xor_into: unsafe fn(&mut [u8], &[&[u8]]),
    pq: unsafe fn(&[Option<&[u8]>], &mut [u8], &mut [u8], Stores),
    q: unsafe fn(&[Option<&[u8]>], &mut [u8]),
    delta_q: unsafe fn(u8, &[u8], &[u8], &mut [u8]),
    delta_pq: unsafe fn(u8, &[u8], &[u8], &mut [u8], &mut [u8]),
    update_p: unsafe fn(&mut [u8], &[u8], &mut [u8]),
    update_pq: unsafe fn(u8, &mut [u8], &[u8], &mut [u8], &mut [u8]),
    copy_xor: unsafe fn(&mut [&mut [u8]], &[&[u8]], &mut [u8], Stores),
    copy_pq: unsafe fn(&mut [Option<&mut [u8]>], &[Option<&[u8]>], &mut [u8], &mut [u8], Stores),
    recover_from_q: unsafe fn(&[Option<&[u8]>], u8, &[u8], &mut [u8]),
    recover_two: unsafe fn(&[Option<&[u8]>], (u8, u8), &[u8], &[u8], (&mut [u8], &mut [u8])),
    is_zero: unsafe fn(&[u8]) -> bool,
}

/// Defines the kernels of one vector type: vectors per step, vectors in a cache line, and the features to
/// compile them for.
macro_rules! kernels {
    ($vector:ty, $unroll:literal, $line:literal $(, $features:literal)?) => {
        $crate::arch::kernels! { @each $vector, $unroll, ($(#[target_feature(enable = $features)])?)
            xor = generic::xor::<$vector, $unroll>(
                dst: &mut [u8], srcs: &[&[u8]], stores: $crate::arch::Stores);
            xor_into = generic::xor_into::<$vector, $unroll>(dst: &mut [u8], srcs: &[&[u8]]);
            pq = generic::pq::<$vector, $unroll, $line>(
                data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8],
                stores: $crate::arch::Stores);
            q = generic::q::<$vector, $unroll>(data: &[Option<&[u8]>], q: &mut [u8]);
            delta_q = generic::delta_q::<$vector, $unroll>(
                constant: u8, old: &[u8], new: &[u8], q: &mut [u8]);
            delta_pq = generic::delta_pq::<$vector, $unroll>(
                constant: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]);
            update_p = generic::update_p::<$vector, $unroll>(
                data: &mut [u8], new: &[u8], p: &mut [u8]);
            update_pq = generic::update_pq::<$vector, $unroll>(
                constant: u8, data: &mut [u8], new: &[u8], p: &mut [u8], q: &mut [u8]);
            copy_xor = generic::copy_xor::<$vector, $unroll>(
                dsts: &mut [&mut [u8]], srcs: &[&[u8]], p: &mut [u8], stores: $crate::arch::Stores);
            copy_pq = generic::copy_pq::<$vector, $unroll>(
                dsts: &mut [Option<&mut [u8]>], data: &[Option<&[u8]>],
                p: &mut [u8], q: &mut [u8], stores: $crate::arch::Stores);
            recover_from_q = generic::recover_from_q::<$vector, $unroll>(
                data: &[Option<&[u8]>], constant: u8, q: &[u8], out: &mut [u8]);
            recover_two = generic::recover_two::<$vector, $unroll>(
                data: &[Option<&[u8]>], constants: (u8, u8), p: &[u8], q: &[u8],
                outs: (&mut [u8], &mut [u8]));
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn is_zero(block: &[u8]) -> bool {
            // SAFETY: this function is reached only where the vector's instructions are.
            unsafe { $crate::arch::generic::is_zero::<$vector, $unroll>(block) }
        }
    };
    (@each $vector:ty, $unroll:literal, $attributes:tt
        $($name:ident = generic::$kernel:ident::<$($generic:tt),*>($($argument:ident: $type:ty),*);)*
    ) => {
        $($crate::arch::kernels! { @one $attributes
            unsafe fn $name($($argument: $type),*) {
                // SAFETY: this function is reached only where the vector's instructions are, with
                // blocks of one length.
                unsafe { $crate::arch::generic::$kernel::<$($generic),*>($($argument),*) }
            }
        })*
    };
    (@one ($($attribute:tt)*) $function:item) => {
        $($attribute)*
        $function
    };
}

/// Defines the table of the kernels that [`kernels`] made in the same module.
macro_rules! kernel_set {
    ($name:literal) => {
        pub(in crate::arch) static SET: $crate::arch::KernelSet = $crate::arch::KernelSet {
            name: $name,
            xor,
            xor_into,
            pq,
            q,
            delta_q,
            delta_pq,
            update_p,
            update_pq,
            copy_xor,
            copy_pq,
            recover_from_q,
            recover_two,
            is_zero,
        };
    };
}

use {kernel_set, kernels};

/// The values of `BRAID_SIMD`, in words for a message.
const NAMES: &str = "scalar, avx2, gfni, avx512, avx512-gfni or neon";

/// Every implementation that this CPU can run, the preferred one first; `scalar` is always there, last.
pub fn available() -> Vec<&'static KernelSet> {
    let mut sets = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let gfni = is_x86_feature_detected!("gfni");
        if avx512 && gfni {
            sets.push(&gfni::wide::SET);
        }
        if avx512 {
            sets.push(&avx512::SET);
        }
        if avx2 && gfni {
            sets.push(&gfni::SET);
        }
        if avx2 {
            sets.push(&avx2::SET);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        sets.push(&neon::SET);
    }
    sets.push(&scalar::SET);
    sets
}

/// The implementation in use, and what was wrong with the environment's wish for another.
struct Selection {
    set: &'static KernelSet,
    warning: Option<String>,
}

fn selection() -> &'static Selection {
    static SELECTION: OnceLock<Selection> = OnceLock::new();
    SELECTION.get_or_init(|| {
        let wish = std::env::var_os("BRAID_SIMD");
        select(wish.as_deref().map(|wish| wish.to_string_lossy()).as_deref(), &available())
    })
}

fn select(wish: Option<&str>, available: &[&'static KernelSet]) -> Selection {
    let best = available.first().copied().unwrap_or(&scalar::SET);
    let Some(wish) = wish.filter(|wish| !wish.is_empty()) else {
        return Selection { set: best, warning: None };
    };
    if let Some(set) = available.iter().find(|set| set.name == wish) {
        return Selection { set, warning: None };
    }
    let problem = if NAMES.split([',', ' ']).any(|name| name == wish) {
        "this CPU does not have these instructions"
    } else {
        "there is no such implementation"
    };
    let warning = format!(
        "choosing parity kernels: BRAID_SIMD={wish}: {problem}; using {}; \
         set BRAID_SIMD to {NAMES}, or unset it for the best the CPU has",
        best.name
    );
    Selection { set: best, warning: Some(warning) }
}

/// The implementation in use: chosen on the first call, the same ever after.
#[inline]
pub(crate) fn selected() -> &'static KernelSet {
    selection().set
}

/// Why the wish in `BRAID_SIMD` was not granted: a message for the user. `None` if it was, or there was none.
pub fn override_warning() -> Option<&'static str> {
    selection().warning.as_deref()
}

fn check_lengths<'a>(len: usize, blocks: impl IntoIterator<Item = &'a [u8]>) {
    for block in blocks {
        assert_eq!(block.len(), len, "blocks of one parity operation differ in length");
    }
}

fn check_data(len: usize, data: &[Option<&[u8]>]) {
    assert!(data.len() <= 255, "the field has 255 powers of its generator");
    check_lengths(len, data.iter().copied().flatten());
}

// SAFETY of every call below: a reference to a set exists only if the CPU has its instructions
// (`available`), and the lengths have been compared just before.
impl KernelSet {
    /// The name by which `BRAID_SIMD` asks for it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// See [`crate::xor_with`].
    #[inline]
    pub fn xor(&self, dst: &mut [u8], srcs: &[&[u8]], stores: Stores) {
        assert!(!srcs.is_empty(), "XOR of no blocks");
        check_lengths(dst.len(), srcs.iter().copied());
        // SAFETY: instructions by `available`, one length by the check, at least one source.
        unsafe { (self.xor)(dst, srcs, stores) }
    }

    /// See [`crate::xor_into`].
    #[inline]
    pub fn xor_into(&self, dst: &mut [u8], srcs: &[&[u8]]) {
        check_lengths(dst.len(), srcs.iter().copied());
        // SAFETY: instructions by `available`, one length by the check.
        unsafe { (self.xor_into)(dst, srcs) }
    }

    /// See [`crate::pq_with`].
    #[inline]
    pub fn pq(&self, data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8], stores: Stores) {
        check_lengths(p.len(), [&*q]);
        check_data(p.len(), data);
        // SAFETY: instructions by `available`, one length by the checks.
        unsafe { (self.pq)(data, p, q, stores) }
    }

    /// See [`crate::q`].
    #[inline]
    pub fn q(&self, data: &[Option<&[u8]>], q: &mut [u8]) {
        check_data(q.len(), data);
        // SAFETY: instructions by `available`, one length by the check.
        unsafe { (self.q)(data, q) }
    }

    /// `q ^= constant * (old ^ new)`; see [`crate::delta_q`].
    #[inline]
    pub fn delta_q(&self, constant: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
        check_lengths(q.len(), [old, new]);
        // SAFETY: instructions by `available`, one length by the check.
        unsafe { (self.delta_q)(constant, old, new, q) }
    }

    /// `p ^= old ^ new`, `q ^= constant * (old ^ new)`; see [`crate::delta_pq`].
    #[inline]
    pub fn delta_pq(&self, constant: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
        check_lengths(q.len(), [old, new, &*p]);
        // SAFETY: instructions by `available`, one length by the check.
        unsafe { (self.delta_pq)(constant, old, new, p, q) }
    }

    /// See [`crate::update_p`].
    #[inline]
    pub fn update_p(&self, data: &mut [u8], new: &[u8], p: &mut [u8]) {
        check_lengths(p.len(), [&*data, new]);
        // SAFETY: instructions by `available`, one length by the check.
        unsafe { (self.update_p)(data, new, p) }
    }

    /// As [`crate::update_pq`], with a constant in place of an exponent.
    #[inline]
    pub fn update_pq(&self, constant: u8, data: &mut [u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
        check_lengths(q.len(), [&*data, new, &*p]);
        // SAFETY: instructions by `available`, one length by the check.
        unsafe { (self.update_pq)(constant, data, new, p, q) }
    }

    /// See [`crate::copy_xor`].
    #[inline]
    pub fn copy_xor(&self, dsts: &mut [&mut [u8]], srcs: &[&[u8]], p: &mut [u8], stores: Stores) {
        assert!(!srcs.is_empty(), "XOR of no blocks");
        assert_eq!(dsts.len(), srcs.len(), "as many destinations as sources");
        check_lengths(p.len(), srcs.iter().copied());
        check_lengths(p.len(), dsts.iter().map(|dst| &**dst));
        // SAFETY: instructions by `available`, one length and one count by the checks.
        unsafe { (self.copy_xor)(dsts, srcs, p, stores) }
    }

    /// See [`crate::copy_pq`].
    #[inline]
    pub fn copy_pq(
        &self,
        dsts: &mut [Option<&mut [u8]>],
        data: &[Option<&[u8]>],
        p: &mut [u8],
        q: &mut [u8],
        stores: Stores,
    ) {
        assert_eq!(dsts.len(), data.len(), "as many destinations as sources");
        check_lengths(p.len(), [&*q]);
        check_data(p.len(), data);
        for (dst, block) in dsts.iter().zip(data) {
            if let Some(dst) = dst {
                assert!(block.is_some(), "a destination without its data");
                check_lengths(p.len(), [&**dst]);
            }
        }
        // SAFETY: instructions by `available`, one length and one count by the checks.
        unsafe { (self.copy_pq)(dsts, data, p, q, stores) }
    }

    /// `out = constant * (q ^ Q of data)`; see [`crate::recover_data_with_q`].
    #[inline]
    pub fn recover_from_q(&self, data: &[Option<&[u8]>], constant: u8, q: &[u8], out: &mut [u8]) {
        check_lengths(out.len(), [q]);
        check_data(out.len(), data);
        // SAFETY: instructions by `available`, one length by the checks.
        unsafe { (self.recover_from_q)(data, constant, q, out) }
    }

    /// With `s = p ^ P of data` and `t = q ^ Q of data`: `outs.0 = constants.0 * s ^ constants.1 * t`,
    /// `outs.1 = s ^ outs.0`; see [`crate::recover_two_data`].
    #[inline]
    pub fn recover_two(
        &self,
        data: &[Option<&[u8]>],
        constants: (u8, u8),
        p: &[u8],
        q: &[u8],
        outs: (&mut [u8], &mut [u8]),
    ) {
        check_lengths(p.len(), [q, &*outs.0, &*outs.1]);
        check_data(p.len(), data);
        // SAFETY: instructions by `available`, one length by the checks.
        unsafe { (self.recover_two)(data, constants, p, q, outs) }
    }

    /// See [`crate::is_zero`].
    #[inline]
    pub fn is_zero(&self, block: &[u8]) -> bool {
        // SAFETY: instructions by `available`.
        unsafe { (self.is_zero)(block) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_implementation_can_be_asked_for() {
        let sets = available();
        for set in &sets {
            let selection = select(Some(set.name()), &sets);
            assert_eq!((selection.set.name(), selection.warning), (set.name(), None));
        }
    }

    #[test]
    fn no_wish_means_the_best_without_a_warning() {
        let sets = available();
        for wish in [None, Some("")] {
            let selection = select(wish, &sets);
            assert_eq!((selection.set.name(), selection.warning), (sets[0].name(), None));
        }
    }

    #[test]
    fn a_wish_that_cannot_be_granted_is_reported() {
        let selection = select(Some("mmx"), &available());
        assert_eq!(selection.set.name(), available()[0].name());
        assert!(selection.warning.is_some_and(|text| text.contains("no such implementation")));

        let selection = select(Some("avx512-gfni"), &[&scalar::SET]);
        assert_eq!(selection.set.name(), "scalar");
        assert!(selection.warning.is_some_and(|text| text.contains("does not have")));
    }
}

//! The table of kernels that makes up one implementation, and the macros that define it for a vector type.
//!
//! Its methods are the safe interface of the kernels: they check the lengths of the blocks.

use super::stores::Stores;

/// One implementation of all kernels. Users call the functions of the crate root; this type is for tests and
/// benchmarks that compare implementations.
#[expect(clippy::type_complexity, reason = "each kernel's type is written here and nowhere else")]
pub struct KernelSet {
    pub(super) name: &'static str,
    pub(super) xor: unsafe fn(&mut [u8], &[&[u8]], Stores),
    pub(super) xor_into: unsafe fn(&mut [u8], &[&[u8]]),
    pub(super) pq: unsafe fn(&[Option<&[u8]>], &mut [u8], &mut [u8], Stores),
    pub(super) q: unsafe fn(&[Option<&[u8]>], &mut [u8]),
    pub(super) delta_q: unsafe fn(u8, &[u8], &[u8], &mut [u8]),
    pub(super) delta_pq: unsafe fn(u8, &[u8], &[u8], &mut [u8], &mut [u8]),
    pub(super) update_p: unsafe fn(&mut [u8], &[u8], &mut [u8]),
    pub(super) update_pq: unsafe fn(u8, &mut [u8], &[u8], &mut [u8], &mut [u8]),
    pub(super) copy_xor: unsafe fn(&mut [&mut [u8]], &[&[u8]], &mut [u8], Stores),
    pub(super) copy_pq:
        unsafe fn(&mut [Option<&mut [u8]>], &[Option<&[u8]>], &mut [u8], &mut [u8], Stores),
    pub(super) recover_from_q: unsafe fn(&[Option<&[u8]>], u8, &[u8], &mut [u8]),
    pub(super) recover_two:
        unsafe fn(&[Option<&[u8]>], (u8, u8), &[u8], &[u8], (&mut [u8], &mut [u8])),
    pub(super) is_zero: unsafe fn(&[u8]) -> bool,
}

/// Defines the kernels of one vector type: vectors per step, vectors in a cache line, and the features to
/// compile them for.
macro_rules! kernels {
    ($vector:ty, $unroll:literal, $line:literal $(, $features:literal)?) => {
        $crate::arch::set::kernels! { @each $vector, $unroll, ($(#[target_feature(enable = $features)])?)
            xor = generic::xor::<$vector, $unroll>(
                dst: &mut [u8], srcs: &[&[u8]], stores: $crate::arch::stores::Stores);
            xor_into = generic::xor_into::<$vector, $unroll>(dst: &mut [u8], srcs: &[&[u8]]);
            pq = generic::pq::<$vector, $unroll, $line>(
                data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8],
                stores: $crate::arch::stores::Stores);
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
                dsts: &mut [&mut [u8]], srcs: &[&[u8]], p: &mut [u8], stores: $crate::arch::stores::Stores);
            copy_pq = generic::copy_pq::<$vector, $unroll>(
                dsts: &mut [Option<&mut [u8]>], data: &[Option<&[u8]>],
                p: &mut [u8], q: &mut [u8], stores: $crate::arch::stores::Stores);
            recover_from_q = generic::recover_from_q::<$vector, $unroll>(
                data: &[Option<&[u8]>], constant: u8, q: &[u8], out: &mut [u8]);
            recover_two = generic::recover_two::<$vector, $unroll>(
                data: &[Option<&[u8]>], constants: (u8, u8), p: &[u8], q: &[u8],
                outs: (&mut [u8], &mut [u8]));
        }
        $(#[target_feature(enable = $features)])?
        unsafe fn is_zero(block: &[u8]) -> bool {
            // SAFETY: this function is called only on a CPU with the vector's instructions.
            unsafe { $crate::arch::generic::is_zero::<$vector, $unroll>(block) }
        }
    };
    (@each $vector:ty, $unroll:literal, $attributes:tt
        $($name:ident = generic::$kernel:ident::<$($generic:tt),*>($($argument:ident: $type:ty),*);)*
    ) => {
        $($crate::arch::set::kernels! { @one $attributes
            unsafe fn $name($($argument: $type),*) {
                // SAFETY: this function is called only on a CPU with the vector's instructions, and with
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
        pub(crate) static SET: $crate::arch::set::KernelSet = $crate::arch::set::KernelSet {
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

pub(super) use {kernel_set, kernels};

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

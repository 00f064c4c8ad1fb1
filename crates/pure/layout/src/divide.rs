//! Division by a number that is fixed when the array is assembled.
//!
//! The request path divides by the number of data chunks and by the rotation
//! period, neither of which is a power of two in general, and a 64-bit division costs more than the
//! rest of the mapping. Invariant: the answer is exact for every dividend up to the stated maximum.

/// A divisor with its fast way to divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    divisor: u64,
    method: Method,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Shift(u32),
    Multiply(u64),
    Divide,
}

impl Divisor {
    /// Prepares division by `divisor` of dividends `0..=max`. A divisor of 0 counts as 1: callers
    /// have refused such geometries before.
    pub(crate) fn new(divisor: u64, max: u64) -> Self {
        let divisor = divisor.max(1);
        // With r = floor(2^64 / d) + 1 and e = r*d - 2^64, where 0 < e < d because d is no power of
        // two: floor(n*r / 2^64) = floor((n + n*e / 2^64) / d), which is floor(n/d) as long as
        // n*e < 2^64.
        let method = if divisor.is_power_of_two() {
            Method::Shift(divisor.trailing_zeros())
        } else if max.checked_mul(divisor).is_some() {
            Method::Multiply(u64::MAX / divisor + 1)
        } else {
            Method::Divide
        };
        Divisor { divisor, method }
    }

    /// Quotient and remainder of `n`, which must not exceed the maximum given to `new`.
    #[inline]
    pub(crate) fn div_rem(&self, n: u64) -> (u64, u64) {
        let quotient = match self.method {
            Method::Shift(shift) => n >> shift,
            Method::Multiply(reciprocal) => ((u128::from(n) * u128::from(reciprocal)) >> 64) as u64,
            Method::Divide => n / self.divisor,
        };
        (quotient, n.wrapping_sub(quotient.wrapping_mul(self.divisor)))
    }
}

/// `value` modulo `n`, for values below `2 * n`.
#[inline]
pub(crate) fn wrapped(value: usize, n: usize) -> usize {
    if value >= n { value - n } else { value }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_answer_is_that_of_the_machine_division(
            divisor in prop_oneof![1u64..3000, 1u64..=u64::MAX],
            max in any::<u64>(),
            n in any::<u64>(),
            near in 0u64..4,
        ) {
            let max = max >> (n % 64);
            let by = Divisor::new(divisor, max);
            let multiple = (max - max % divisor).saturating_sub(near);
            for n in [n.min(max), max, max.saturating_sub(near), multiple] {
                prop_assert_eq!(by.div_rem(n), (n / divisor, n % divisor));
            }
        }
    }

    #[test]
    fn every_method_is_reached() {
        assert!(matches!(Divisor::new(8, u64::MAX).method, Method::Shift(3)));
        assert!(matches!(Divisor::new(7, 1 << 52).method, Method::Multiply(_)));
        assert!(matches!(Divisor::new(7, u64::MAX).method, Method::Divide));
    }
}

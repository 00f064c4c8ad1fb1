//! One count for another.

/// `None` when nothing was counted that it could follow from.
pub(super) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

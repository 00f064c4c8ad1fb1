//! Sizes as mdadm takes them.

/// Bytes of a size whose bare form is in KiB, as mdadm takes it.
pub fn kib_or_size(text: &str) -> Result<u64, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let kib: u64 = text.parse().map_err(|_| format!("{text} KiB is too much"))?;
        return kib.checked_mul(1024).ok_or_else(|| format!("{text} KiB is too much"));
    }
    braid_device::spec::parse_size(text).map_err(|error| error.to_string())
}

/// A size that may be all that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedSize {
    /// All.
    Max,
    /// So many bytes.
    Bytes(u64),
}

impl WantedSize {
    /// The bytes; `None`: all.
    pub fn bytes(self) -> Option<u64> {
        match self {
            WantedSize::Max => None,
            WantedSize::Bytes(bytes) => Some(bytes),
        }
    }
}

/// `max`, or [`kib_or_size`].
pub fn wanted_size(text: &str) -> Result<WantedSize, String> {
    match text {
        "max" => Ok(WantedSize::Max),
        _ => kib_or_size(text).map(WantedSize::Bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_size_is_in_kib_and_a_unit_is_taken_at_its_word() {
        assert_eq!(kib_or_size("64"), Ok(64 << 10));
        assert_eq!(kib_or_size("64K"), Ok(64 << 10));
        assert_eq!(kib_or_size("1M"), Ok(1 << 20));
        assert_eq!(wanted_size("max"), Ok(WantedSize::Max));
        assert_eq!(wanted_size("8"), Ok(WantedSize::Bytes(8 << 10)));
        for bad in ["", "K", "-1", "99999999999999999999", "18446744073709551615", "1Q"] {
            assert!(kib_or_size(bad).is_err(), "{bad}");
        }
    }
}

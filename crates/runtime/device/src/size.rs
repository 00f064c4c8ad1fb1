//! Sizes as the user writes them: `4096`, `64K`, `1GiB`.

/// A size was not understood; it holds the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "size {0:?} was not understood; give a number with K, M, G, T or P, such as 256M (1M is 1024 × 1024 bytes; MiB says the same)"
)]
pub struct SizeError(pub String);

/// Bytes in a size such as `4096`, `64K`, `256M`, `1GiB`. All units are powers of 1024.
///
/// # Errors
/// When it is not a whole number with such a unit, or does not fit 63 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let refused = || SizeError(text.to_string());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refused())?;
    let unit = unit.strip_suffix("iB").unwrap_or(unit);
    let shift = match unit {
        "" if text.len() == digits => 0,
        "B" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        "p" | "P" => 50,
        _ => return Err(refused()),
    };
    number.checked_mul(1 << shift).filter(|size| *size <= i64::MAX as u64).ok_or_else(refused)
}

/// A size as [`parse_size`] reads it, in the largest unit that loses nothing.
pub fn show_size(size: u64) -> String {
    for (shift, unit) in [(50, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
        if size != 0 && size.trailing_zeros() >= shift {
            return format!("{}{unit}", size >> shift);
        }
    }
    size.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_however_they_are_written() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("1k", 1024),
            ("3MiB", 3 << 20),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in
            ["", "G", "1.5G", "1GB", "1iB", "-1", "1 G", "99999999P", "18446744073709551616"]
        {
            assert_eq!(parse_size(text), Err(SizeError(text.to_string())), "{text}");
        }
    }
}

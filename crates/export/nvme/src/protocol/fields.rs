//! Little-endian fields at fixed offsets.
//!
//! Invariant: what lies outside reads as zero and is not written, never a panic.

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().unwrap_or([0; N])
}

/// The byte at `at`.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// Two bytes at `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// Four bytes at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// Eight bytes at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Copies `value` to `at`, as far as it fits.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let room = bytes.len().saturating_sub(at).min(value.len());
    if let (Some(to), Some(from)) = (bytes.get_mut(at..at + room), value.get(..room)) {
        to.copy_from_slice(from);
    }
}

/// Copies a text to the field of `width` bytes at `at`, and fills it up with `pad`. Bytes that are no printable ASCII
/// become question marks.
pub(crate) fn put_text(bytes: &mut [u8], at: usize, width: usize, text: &str, pad: u8) {
    let printable = |byte: u8| if (0x20..0x7f).contains(&byte) { byte } else { b'?' };
    let padded = text.bytes().map(printable).chain(std::iter::repeat(pad)).take(width);
    put(bytes, at, &padded.collect::<Vec<u8>>());
}

/// The text of a field that ends with its first zero byte; `None` when it is not UTF-8, or has no end.
pub(crate) fn text_at(bytes: &[u8], at: usize, width: usize) -> Option<&str> {
    let field = bytes.get(at..at.checked_add(width)?)?;
    let end = field.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(field.get(..end)?).ok()
}

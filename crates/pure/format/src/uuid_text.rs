//! The text form that md users know for a uuid: four groups of eight hexadecimal digits with colons.
//!
//! Knows no other text form of its own; [`parse`] also takes the usual 8-4-4-4-12 form and 32 bare
//! digits, since users paste both. Invariant: `parse(format(u)) == u` for every `u`.

use std::fmt::Write;

/// The text is not a uuid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "reading {text:?} as a uuid: {digits} hexadecimal digits found where 32 are needed, or another character; \
     write it as aaaaaaaa:bbbbbbbb:cccccccc:dddddddd"
)]
pub struct UuidTextError {
    /// The name given.
    pub text: String,
    /// Number of hexadecimal digits.
    pub digits: usize,
}

/// The form `aaaaaaaa:bbbbbbbb:cccccccc:dddddddd`, digits in the order of the bytes.
pub fn format(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(35);
    for (i, byte) in uuid.iter().enumerate() {
        if i > 0 && i % 4 == 0 {
            text.push(':');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads a uuid from text: 32 hexadecimal digits of either case; the separators `:` and `-` may stand
/// between bytes and are ignored.
///
/// # Errors
/// Any other character, or a number of digits other than 32.
pub fn parse(text: &str) -> Result<[u8; 16], UuidTextError> {
    let digits = text.chars().filter(char::is_ascii_hexdigit).count();
    let fail = || UuidTextError { text: text.to_owned(), digits };
    if digits != 32 {
        return Err(fail());
    }
    let mut uuid = [0u8; 16];
    let mut seen = 0usize;
    for c in text.trim().chars() {
        match c.to_digit(16) {
            Some(value) => {
                if let Some(byte) = uuid.get_mut(seen / 2) {
                    *byte = *byte << 4 | value as u8;
                }
                seen += 1;
            }
            None if (c == ':' || c == '-') && seen.is_multiple_of(2) => {}
            None => return Err(fail()),
        }
    }
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn digits_follow_the_order_of_the_bytes() {
        let uuid: [u8; 16] = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(format(&uuid), "00112233:44556677:8899aabb:ccddeeff");
    }

    #[test]
    fn other_usual_forms_are_read() {
        let want = parse("00112233:44556677:8899aabb:ccddeeff").unwrap();
        assert_eq!(parse("00112233-4455-6677-8899-AABBCCDDEEFF").unwrap(), want);
        assert_eq!(parse("00112233445566778899aabbccddeeff").unwrap(), want);
    }

    #[test]
    fn what_is_no_uuid_is_refused() {
        for bad in [
            "",
            "0011",
            "00112233:44556677:8899aabb:ccddeeff0",
            "0011223g:44556677:8899aabb:ccddeeff0",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse("0:0112233445566778899aabbccddeeff").is_err());
        assert!(parse("00112233 445566778899aabbccddeeff").is_err());
    }

    proptest! {
        #[test]
        fn any_uuid_comes_back_from_its_text(uuid: [u8; 16]) {
            prop_assert_eq!(parse(&format(&uuid)).unwrap(), uuid);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}

//! Parts of a URL, and the bytes that may not stand in one.

/// A name as one segment of a path, or a value of a query.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    // As whole segments these mean folders.
    let dots = text == "." || text == "..";
    for byte in text.bytes() {
        match byte {
            b'.' if dots => encoded.push_str("%2E"),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The name that [`encode`] was given; `None` where it is no such text.
pub fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// The names and values of a query.
pub fn query(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_name_comes_back_from_a_segment(name in ".*") {
            let segment = encode(&name);
            prop_assert!(segment.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#&=+".contains(&byte)));
            prop_assert_eq!(decode(&segment), Some(name));
        }
    }

    #[test]
    fn what_is_no_encoded_text_is_refused() {
        for text in ["%", "%4", "%zz", "%ff", "a%+1"] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(encode(".."), "%2E%2E");
        assert_eq!(
            query("a=1&b=x%20y&&c").unwrap(),
            [("a".into(), "1".into()), ("b".into(), "x y".into()), ("c".into(), String::new())]
        );
    }
}

//! Levels, layouts and names in the words that mdadm prints, which differ from those that it takes.

use braid_format::uuid_text;
use braid_layout::{Level, layout_name};

/// The level: `raid5`, `linear`, or `-unknown-`.
pub fn level(number: i32) -> String {
    Level::from_md(number).map_or_else(|| UNKNOWN.to_string(), |level| level.to_string())
}

/// The layout of levels 0 (where one is recorded), 5, 6 and 10; `None` for the levels that have none.
pub fn layout(level: i32, number: u32) -> Option<String> {
    match Level::from_md(level)? {
        Level::Raid10 => Some(raid10_layout(number)),
        Level::Raid0 if number == 0 => None,
        level @ (Level::Raid0 | Level::Raid5 | Level::Raid6) => {
            Some(layout_name(level, number).unwrap_or_else(|| UNKNOWN.to_string()))
        }
        _ => None,
    }
}

const UNKNOWN: &str = "-unknown-";

/// `near=2`, `far=2`, `offset=2`, or `near=2, far=2`.
pub fn raid10_layout(number: u32) -> String {
    let (near, far) = (number & 0xff, number >> 8 & 0xff);
    let mut parts = Vec::new();
    if near != 1 {
        parts.push(format!("near={near}"));
    }
    if far != 1 {
        let kind = if number & 0x1_0000 != 0 { "offset" } else { "far" };
        parts.push(format!("{kind}={far}"));
    }
    if parts.is_empty() { "NO REDUNDANCY".to_string() } else { parts.join(", ") }
}

/// The name in a superblock, with the remark that mdadm makes where it begins with this machine's name.
pub fn name(recorded: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match recorded.strip_prefix(host.as_str()) {
        Some(rest) if rest.starts_with(':') => format!("{recorded}  (local to host {host})"),
        _ => recorded.to_string(),
    }
}

/// The uuid of an array of version 0.90, with the remark that mdadm makes where it has this machine's name:
/// mdadm makes the second half of such a uuid of the SHA-1 of the host's name.
pub fn v0_uuid(uuid: &str) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    match uuid_text::parse(uuid) {
        Ok(bytes) if is_local(bytes, &host) => format!("{uuid} (local to host {host})"),
        _ => uuid.to_string(),
    }
}

/// `uuid` is shown with the most significant byte of each word first; in the superblock it is last.
fn is_local(uuid: [u8; 16], host: &str) -> bool {
    let hash = sha1_smol::Sha1::from(host).digest().bytes();
    let stored = uuid.chunks_exact(4).flat_map(|word| word.iter().rev());
    stored.skip(8).eq(hash.iter().take(8))
}

/// A word of `mdadm.conf`: in quotes when it has blanks, in the kind of quotes that it does not have itself.
pub fn quoted(word: &str) -> String {
    if !word.contains([' ', '\t', '\'', '"']) && !word.is_empty() {
        return word.to_string();
    }
    let quote = if word.contains('"') { '\'' } else { '"' };
    format!("{quote}{word}{quote}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_blanks_are_quoted() {
        assert_eq!(quoted("host:data"), "host:data");
        assert_eq!(quoted("host:my data"), "\"host:my data\"");
        assert_eq!(quoted("a\"b"), "'a\"b'");
    }

    #[test]
    fn an_old_array_is_known_by_the_second_half_of_its_uuid() {
        let uuid = uuid_text::parse("00112233:44556677:363e99a9:6a810647").unwrap();
        assert!(is_local(uuid, "abc") && !is_local(uuid, "abd"));
    }

    #[test]
    fn layouts_of_level_10_are_spelled_out() {
        for (number, text) in [
            (0x102, "near=2"),
            (0x201, "far=2"),
            (0x1_0301, "offset=3"),
            (0x202, "near=2, far=2"),
            (0x101, "NO REDUNDANCY"),
        ] {
            assert_eq!(layout(10, number).as_deref(), Some(text));
        }
    }

    #[test]
    fn levels_without_layouts_have_none() {
        assert_eq!(layout(0, 0), None);
        assert_eq!(layout(0, 2).as_deref(), Some("alternate"));
        assert_eq!(layout(1, 0), None);
        assert_eq!(layout(4, 0), None);
        assert_eq!(layout(77, 2), None);
        assert_eq!((level(-1).as_str(), level(77).as_str()), ("linear", "-unknown-"));
    }
}

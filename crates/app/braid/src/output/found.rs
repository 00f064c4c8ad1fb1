//! What a check or repair found, in words: one line for each place.

use braid_control::protocol::{Found, FoundPlace, InDoubt, Scrubbed};

/// The places that were listed, and how many more there are.
pub fn lines(scrubbed: &Scrubbed) -> Vec<String> {
    let mut lines: Vec<String> =
        scrubbed.places.iter().map(|place| line(place, &scrubbed.kind)).collect();
    if scrubbed.more > 0 {
        lines.push(format!("and {} places more", scrubbed.more));
    }
    lines
}

/// The places that are in doubt since an array was started by force.
pub fn in_doubt(doubt: &InDoubt) -> Vec<String> {
    let mut lines: Vec<String> = doubt.places.iter().map(|place| line(place, "check")).collect();
    if doubt.more > 0 {
        lines.push(format!("and {} places more that are in doubt", doubt.more));
    }
    lines
}

/// [`lines`] with the bytes of the members' components.
pub fn lines_with_components(scrubbed: &Scrubbed) -> Vec<String> {
    let with = |(line, place): (String, Option<&FoundPlace>)| match place {
        Some(place) => {
            let start = place.component_offset;
            let end = start.saturating_add(place.component_length);
            format!("{line} (component bytes {start} to {end})")
        }
        None => line,
    };
    let places = scrubbed.places.iter().map(Some).chain(std::iter::repeat(None));
    lines(scrubbed).into_iter().zip(places).map(with).collect()
}

fn line(place: &FoundPlace, kind: &str) -> String {
    let FoundPlace { offset, length, verdict, mended, .. } = place;
    let end = offset.saturating_add(*length);
    let members = match place.members.as_slice() {
        [] => "members".to_string(),
        members => members.join(", "),
    };
    let what = match verdict {
        Found::Wrong => format!("{members} is wrong, the others agree"),
        Found::Unknown => "does not match; which member is wrong cannot be known".to_string(),
        Found::Several => "does not match; more than one member is wrong".to_string(),
        Found::Unreadable => format!("{members} could not be read, the others have it"),
        Found::Lost => format!("{members} could not be read, and nothing else has it"),
        Found::InDoubt => format!(
            "in doubt: the array was started by force without {members}, and power had failed during a write (the write hole)"
        ),
    };
    let then = match (verdict, mended, kind) {
        (Found::Lost | Found::InDoubt, ..) => "",
        (Found::Unknown | Found::Several, true, _) => {
            "; redundancy was made to match what the data, or the first copy, says"
        }
        (_, true, _) => "; mended",
        (Found::Unreadable, false, _) | (_, false, "repair") => "; NOT mended",
        (_, false, _) => "",
    };
    format!("bytes {offset} to {end}: {what}{then}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_who_and_what_became_of_it() {
        let place = |verdict, members: &[&str], mended| FoundPlace {
            offset: 4096,
            length: 512,
            component_offset: 0,
            component_length: 512,
            verdict,
            members: members.iter().map(|name| name.to_string()).collect(),
            mended,
        };
        let scrubbed = |kind: &str, place| Scrubbed {
            kind: kind.to_string(),
            places: vec![place],
            more: 0,
            unmended: 0,
            lost: 0,
        };
        for (kind, place, expected) in [
            (
                "check",
                place(Found::Wrong, &["b"], false),
                "bytes 4096 to 4608: b is wrong, the others agree",
            ),
            (
                "repair",
                place(Found::Wrong, &["b"], true),
                "bytes 4096 to 4608: b is wrong, the others agree; mended",
            ),
            (
                "repair",
                place(Found::Wrong, &["b"], false),
                "bytes 4096 to 4608: b is wrong, the others agree; NOT mended",
            ),
            (
                "repair",
                place(Found::Lost, &["a", "b"], false),
                "bytes 4096 to 4608: a, b could not be read, and nothing else has it",
            ),
        ] {
            assert_eq!(lines(&scrubbed(kind, place)), [expected]);
        }
        let all = Scrubbed { more: 3, ..scrubbed("check", place(Found::Unknown, &[], false)) };
        assert_eq!(lines(&all).last().map(String::as_str), Some("and 3 places more"));
    }
}

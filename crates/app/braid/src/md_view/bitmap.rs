//! The attributes of the write-intent bitmap, /sys/block/mdN/md/bitmap.

use super::entry::text;
use braid_control::protocol::{Detail, Request};
use braid_view::{Listed, Rights};

/// Those that there are.
pub(super) fn list() -> Vec<Listed> {
    let rights = |name| if name == "location" { Rights::Both } else { Rights::Read };
    ["location", "chunksize", "metadata", "can_clear"].map(|name| text(name, rights(name))).into()
}

/// The value of one; `None` when there is none.
pub(super) fn read(detail: &Detail, name: &str) -> Option<String> {
    let bitmap = detail.bitmap.as_ref();
    Some(match name {
        // Sectors from the superblock.
        "location" => match bitmap {
            Some(bitmap) => format!("{:+}", bitmap.offset),
            None => "none".to_string(),
        },
        "chunksize" => bitmap.map_or(0, |bitmap| bitmap.chunk).to_string(),
        "metadata" => "internal".to_string(),
        "can_clear" => match bitmap {
            // Bits are kept while a member is missing that may come back.
            Some(_) => (detail.degraded == 0).to_string(),
            None => String::new(),
        },
        _ => return None,
    })
}

/// The request that a value means.
pub(super) fn order(detail: &Detail, name: &str, value: &str) -> Option<Request> {
    let internal = match (name, value) {
        ("location", "none") => false,
        // braid finds the place by itself, as mdadm does.
        ("location", "internal") => true,
        ("location", place) if place.parse::<i64>().is_ok() => true,
        _ => return None,
    };
    Some(Request::Bitmap { array: detail.name.clone(), internal, chunk: None })
}

//! The attributes of an array, /sys/block/mdN/md. Beside md's stand the settings that only braid has, under their names.

use super::entry::text;
use super::known::{Known, has_word};
use super::member;
use crate::settings::NAMES;
use braid_control::protocol::{Detail, NewShape, Request, SizeOf};
use braid_layout::{Level, layout_name};
use braid_view::{Listed, Rights};

const SECTOR: u64 = braid_format::SECTOR as u64;
const KIB: u64 = 1024;

/// The arrays that have an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    /// Levels that can lose a member.
    Redundant,
    /// Levels with parity.
    Parity,
    /// Those with a write journal.
    Journal,
}

use Of::{All, Journal, Parity, Redundant};
use Rights::{Both, Read, Write};

const ATTRIBUTES: &[(&str, Of, Rights)] = &[
    ("level", All, Both),
    ("layout", All, Both),
    ("raid_disks", All, Both),
    ("chunk_size", All, Both),
    ("component_size", All, Both),
    ("array_size", All, Both),
    ("array_state", All, Both),
    ("metadata_version", All, Read),
    ("uuid", All, Read),
    ("resync_start", All, Read),
    ("reshape_position", All, Read),
    ("reshape_direction", All, Read),
    ("consistency_policy", All, Both),
    ("new_dev", All, Write),
    ("degraded", Redundant, Read),
    ("mismatch_cnt", Redundant, Read),
    ("sync_action", Redundant, Both),
    ("last_sync_action", Redundant, Read),
    ("sync_completed", Redundant, Read),
    ("sync_speed", Redundant, Read),
    ("stripe_cache_active", Parity, Read),
    ("journal_mode", Journal, Read),
];

/// The settings that only levels with parity use.
const OF_PARITY: [&str; 4] =
    ["stripe_size", "stripe_cache_size", "rmw_level", "preread_bypass_threshold"];
/// The settings that only levels with redundancy use.
const OF_REDUNDANT: [&str; 6] = [
    "sync_speed_min",
    "sync_speed_max",
    "sync_min",
    "sync_max",
    "max_read_errors",
    "check_between",
];
/// The greatest speed that md can be told, which stands for no limit.
const SPEED_WITHOUT_LIMIT: u64 = i32::MAX as u64;

fn level_of(detail: &Detail) -> Option<Level> {
    detail.level.parse().ok()
}

fn has(detail: &Detail, of: Of) -> bool {
    match of {
        All => true,
        Redundant => detail.redundant,
        Parity => level_of(detail).is_some_and(Level::is_parity),
        Journal => detail.has_journal,
    }
}

/// The settings that an array has, all of which can be written.
fn settings(detail: &Detail) -> impl Iterator<Item = &'static str> {
    let of = |name: &&str| match name {
        name if OF_PARITY.contains(name) => has(detail, Parity),
        name if OF_REDUNDANT.contains(name) => has(detail, Redundant),
        _ => true,
    };
    // An array that is only read has none.
    NAMES.into_iter().filter(of).collect::<Vec<_>>().into_iter()
}

/// Those that an array has.
pub(super) fn list(detail: &Detail) -> Vec<Listed> {
    let own = ATTRIBUTES.iter().filter(|(_, of, _)| has(detail, *of));
    let own = own.map(|(name, _, rights)| text(*name, *rights));
    own.chain(settings(detail).map(|name| text(name, Both))).collect()
}

/// The value of one; `None` when there is none.
pub(super) fn read(known: &Known, name: &str) -> Option<String> {
    let detail = &known.detail;
    let reshape = detail.reshape.as_ref();
    let job = detail.job.as_ref();
    // As md writes what changes: the value to come, and the present one.
    let both = |new: String, old: String| if new == old { old } else { format!("{new} ({old})") };
    Some(match name {
        "level" => detail.level.clone(),
        "layout" => {
            let old = detail.layout_number;
            both(reshape.map_or(old, |r| r.new_layout_number).to_string(), old.to_string())
        }
        "raid_disks" => {
            let now = detail.raid_devices.to_string();
            both(now.clone(), reshape.map_or(now, |reshape| reshape.old_devices.to_string()))
        }
        "chunk_size" => {
            let old = detail.chunk_size;
            let new = reshape.and_then(|reshape| reshape.new_chunk_size).unwrap_or(old);
            both(new.to_string(), old.to_string())
        }
        "component_size" => (detail.component_size / KIB).to_string(),
        "array_size" => array_size(detail),
        "array_state" => state(detail).to_string(),
        "metadata_version" => detail.version.clone(),
        "uuid" => uuid(&detail.uuid),
        "resync_start" => sectors(detail.resynced),
        "reshape_position" => sectors(reshape.map(|reshape| reshape.position)),
        "reshape_direction" => match reshape {
            Some(reshape) if reshape.backwards => "backwards".to_string(),
            _ => "forwards".to_string(),
        },
        "consistency_policy" => policy(detail).to_string(),
        "degraded" => detail.degraded.to_string(),
        "mismatch_cnt" => detail.mismatch_count.to_string(),
        "sync_action" => match (job, &detail.scrub) {
            (Some(job), _) => job.kind.clone(),
            // A check or repair that is paused.
            (None, Some(_)) => "frozen".to_string(),
            (None, None) => "idle".to_string(),
        },
        "last_sync_action" => {
            detail.last_job.as_ref().map_or("none", |job| job.kind.as_str()).to_string()
        }
        "sync_completed" => match job {
            Some(job) => format!("{} / {}", job.done / SECTOR, job.total / SECTOR),
            None if detail.stuck_jobs.is_empty() => "none".to_string(),
            None => "delayed".to_string(),
        },
        "sync_speed" => job.map_or("none".to_string(), |job| (job.rate / KIB).to_string()),
        "stripe_cache_active" => known.cache_lines.to_string(),
        // The other of md's modes, write-back, is none of braid's.
        "journal_mode" => "[write-through] write-back".to_string(),
        _ => return setting(known, name),
    })
}

fn setting(known: &Known, name: &str) -> Option<String> {
    let value = known.value(name)?;
    let is_auto = value == crate::settings::AUTO;
    let whose = if is_auto { "system" } else { "local" };
    Some(match name {
        "sync_speed_min" => format!("{} ({whose})", known.detail.sync_speed_min),
        "sync_speed_max" => {
            let most = known.detail.sync_speed_max.unwrap_or(SPEED_WITHOUT_LIMIT);
            format!("{most} ({whose})")
        }
        "sync_min" if is_auto => "0".to_string(),
        "sync_max" if is_auto => "max".to_string(),
        "stripe_size" => known.number(name, "line_bytes")?,
        "stripe_cache_size" => known.number(name, "lines")?,
        "preread_bypass_threshold" => known.number(name, "times")?,
        "max_read_errors" => known.number(name, "read_errors").unwrap_or(value),
        // Where it reads less: md's default, too.
        "rmw_level" if is_auto => "1".to_string(),
        _ => value,
    })
}

fn sectors(bytes: Option<u64>) -> String {
    bytes.map_or("none".to_string(), |bytes| (bytes / SECTOR).to_string())
}

/// `default`, or KiB where it was made smaller than what its components hold.
fn array_size(detail: &Detail) -> String {
    let slots = detail.raid_devices as u64;
    let holders = match level_of(detail) {
        Some(level) if level.is_parity() => slots.saturating_sub(level.parity_count() as u64),
        Some(Level::Raid1) => 1,
        _ => return "default".to_string(),
    };
    let whole = detail.component_size.saturating_mul(holders);
    if detail.reshape.is_some() || detail.array_size >= whole {
        return "default".to_string();
    }
    (detail.array_size / KIB).to_string()
}

fn state(detail: &Detail) -> &'static str {
    match () {
        () if detail.failed => "broken",
        () if detail.read_only => "readonly",
        () if has_word(detail, "clean") => "clean",
        () => "active",
    }
}

fn policy(detail: &Detail) -> &'static str {
    match () {
        () if !detail.redundant => "none",
        () if detail.has_journal => "journal",
        () if detail.has_ppl => "ppl",
        () if detail.has_bitmap => "bitmap",
        () => "resync",
    }
}

/// mdadm's four words as the kernel's groups of 8, 4, 4, 4 and 12 digits.
fn uuid(words: &str) -> String {
    let digits: String = words.chars().filter(char::is_ascii_hexdigit).collect();
    let part = |range| digits.get(range).unwrap_or_default();
    [part(0..8), part(8..12), part(12..16), part(16..20), part(20..32)].join("-")
}

/// True for `idle` where nothing is under way that it ends: a check or a repair. md takes it then, too, and whatever else is
/// under way goes on by itself.
pub(super) fn is_idle_order(detail: &Detail, name: &str, value: &str) -> bool {
    name == "sync_action" && value == "idle" && detail.scrub.is_none()
}

/// The request that a value means; `None` when it means nothing.
pub(super) fn order(detail: &Detail, name: &str, value: &str) -> Option<Request> {
    let array = || detail.name.clone();
    let reshape = |shape| Some(Request::Reshape { array: array(), shape, dry_run: false });
    let resize = |what, size| Some(Request::Resize { array: array(), what, size, dry_run: false });
    let kib = || value.parse::<u64>().ok()?.checked_mul(KIB);
    match name {
        "level" => {
            let (level, shape) = (value.parse().ok()?, NewShape::default());
            Some(Request::Level { array: array(), level, shape, dry_run: false })
        }
        "layout" => {
            let layout = layout_name(level_of(detail)?, value.parse().ok()?)?;
            reshape(NewShape { layout: Some(layout), ..NewShape::default() })
        }
        "raid_disks" => {
            reshape(NewShape { raid_disks: Some(value.parse().ok()?), ..NewShape::default() })
        }
        "chunk_size" => {
            reshape(NewShape { chunk: Some(value.parse().ok()?), ..NewShape::default() })
        }
        "component_size" => resize(SizeOf::Component, Some(kib()?)),
        "array_size" if value == "default" => resize(SizeOf::Array, None),
        "array_size" => resize(SizeOf::Array, Some(kib()?)),
        "array_state" => match value {
            "clear" | "inactive" => Some(Request::Stop { array: Some(array()), force: false }),
            _ => None,
        },
        "consistency_policy" => match value {
            "ppl" => Some(Request::Ppl { array: array() }),
            "resync" => Some(Request::Resync { array: array() }),
            _ => None,
        },
        "new_dev" => member::add(detail, value),
        "sync_action" => sync_action(detail, value),
        _ if settings(detail).any(|known| known == name) => {
            let value = if value == "system" { crate::settings::AUTO } else { value };
            let settings = vec![(name.to_string(), value.to_string())];
            Some(Request::Set { array: array(), settings, once: false })
        }
        _ => None,
    }
}

fn sync_action(detail: &Detail, value: &str) -> Option<Request> {
    let array = || Some(detail.name.clone());
    let scrub = |repair| Some(Request::Scrub { array: array(), repair, parity_only: false });
    let pause = |paused| Some(Request::PauseScrub { array: array(), paused });
    match value {
        "check" | "repair" if detail.scrub.is_some() && detail.job.is_none() => pause(false),
        "check" => scrub(false),
        "repair" => scrub(true),
        "idle" => Some(Request::Cancel { array: array() }),
        "frozen" => pause(true),
        // These begin by themselves; one that could not go on is tried again.
        "resync" | "recover" | "reshape" => Some(Request::Resume { array: array() }),
        _ => None,
    }
}

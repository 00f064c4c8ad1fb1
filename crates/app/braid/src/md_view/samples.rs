//! Arrays to be shown.

use braid_control::protocol::samples;
use braid_control::protocol::{Bitmap, Detail, Job, Member, ScrubReport, ScrubState, Scrubbed};
use std::collections::BTreeMap;

/// A member that holds `slot`.
pub(super) fn member(number: u32, name: &str, slot: Option<usize>, state: &str) -> Member {
    Member {
        uuid: "00000000:00000000:00000000:00000000".to_string(),
        data_size: (1 << 30) - (1 << 20),
        ..samples::disk(number, name, slot, state)
    }
}

/// An array of members that are all in sync.
pub(super) fn array(name: &str, level: &str, disks: &[&str]) -> Detail {
    let members = (0..).zip(disks);
    let members = members.map(|(nr, disk)| member(nr, disk, Some(nr as usize), "active sync"));
    Detail {
        uuid: "01234567:89abcdef:00112233:44556677".to_string(),
        level: level.to_string(),
        chunk_size: 512 << 10,
        array_size: 2_093_056 << 10,
        component_size: 1_046_528 << 10,
        ..samples::array(name, members.collect())
    }
}

/// A job at that point.
pub(super) fn job(kind: &str, done_kib: u64, total_kib: u64) -> Job {
    Job {
        kind: kind.to_string(),
        done: done_kib << 10,
        total: total_kib << 10,
        rate: 33_440 << 10,
        eta_seconds: Some(7650),
        mismatches: 0,
    }
}

/// A bitmap with that many bits, some set.
pub(super) fn bitmap(bits: u64, dirty: u64) -> Bitmap {
    Bitmap { offset: 8, chunk: 64 << 20, bits, dirty, events_cleared: 0, batches: 0 }
}

/// A check that is under way.
pub(super) fn scrub() -> ScrubReport {
    let found =
        Scrubbed { kind: "check".into(), places: Vec::new(), more: 0, unmended: 0, lost: 0 };
    ScrubReport {
        state: ScrubState::Running,
        why: None,
        parity_only: false,
        started: 0,
        updated: 0,
        ended: None,
        from: 0,
        position: 1 << 20,
        until: 1 << 30,
        mismatches: 0,
        wrong: BTreeMap::new(),
        found,
    }
}

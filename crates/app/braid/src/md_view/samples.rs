//! Arrays to be shown.

use crate::protocol::{Bitmap, Counters, Detail, Job, Member, ScrubReport, ScrubState, Scrubbed};
use std::collections::BTreeMap;

/// A member that holds `slot`.
pub(super) fn member(number: u32, name: &str, slot: Option<usize>, state: &str) -> Member {
    Member {
        number,
        device_number: number,
        name: name.to_string(),
        device: None,
        slot,
        state: state.to_string(),
        want_replacement: false,
        smart: Vec::new(),
        fault: None,
        write_mostly: false,
        failfast: false,
        errors: 0,
        waiting_for_space: 0,
        wrong: 0,
        uuid: "00000000:00000000:00000000:00000000".to_string(),
        size: 1 << 30,
        data_offset: 1 << 20,
        data_size: (1 << 30) - (1 << 20),
        recovered: None,
        requests: 0,
        bytes: 0,
        array: None,
    }
}

/// An array of members that are all in sync.
pub(super) fn array(name: &str, level: &str, disks: &[&str]) -> Detail {
    let members: Vec<Member> = (0..)
        .zip(disks)
        .map(|(nr, disk)| member(nr, disk, Some(nr as usize), "active sync"))
        .collect();
    Detail {
        name: name.to_string(),
        full_name: format!("host:{name}"),
        uuid: "01234567:89abcdef:00112233:44556677".to_string(),
        version: "1.2".to_string(),
        preferred_minor: None,
        created: 0,
        updated: 0,
        events: 1,
        level: level.to_string(),
        layout: None,
        layout_number: 2,
        chunk_size: 512 << 10,
        array_size: 2_093_056 << 10,
        component_size: 1_046_528 << 10,
        redundant: true,
        raid_devices: members.len(),
        degraded: 0,
        failed: false,
        read_only: false,
        state: "clean".to_string(),
        slots: members.iter().map(|member| Some(member.number)).collect(),
        members,
        spare_group: None,
        spare_moves: Vec::new(),
        left_out: Vec::new(),
        taken_by_force: Vec::new(),
        job: None,
        reshape: None,
        following: None,
        last_job: None,
        stuck_jobs: Vec::new(),
        mismatch_count: 0,
        scrubbed: None,
        in_doubt: None,
        scrub: None,
        resynced: None,
        has_bitmap: false,
        has_ppl: false,
        has_journal: false,
        heartbeat: None,
        bitmap: None,
        sync_speed_min: 1000,
        sync_speed_max: None,
        settings: Default::default(),
        counters: Counters::default(),
        exports: Vec::new(),
        clients: Vec::new(),
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

//! A stack for the tests of what is printed.

use super::{Cache, Counters, Detail, Flow, Io, Latency, Member, MemberIo, Stat};
use std::collections::BTreeMap;

pub fn flow(requests: u64, merged: u64, bytes: u64, each_ns: u64) -> Flow {
    let latency = Latency {
        requests,
        total_ns: requests * each_ns,
        mean_ns: each_ns,
        p50_ns: each_ns,
        p90_ns: each_ns,
        p99_ns: 2 * each_ns,
        p999_ns: 3 * each_ns,
        max_ns: 3 * each_ns,
        buckets: vec![(3 * each_ns, requests)],
    };
    Flow {
        requests,
        merged,
        bytes,
        sizes: vec![(bytes.checked_div(requests), requests)],
        sizes_in: vec![(bytes.checked_div(requests + merged), requests + merged)],
        latency: (requests > 0).then_some(latency),
    }
}

pub fn io(read: Flow, write: Flow) -> Io {
    Io { read, write, timed: true, busy_ns: 500_000_000, ..Io::default() }
}

pub fn member(name: &str, slot: usize, io: Option<Io>, array: Option<Stat>) -> MemberIo {
    let sum = |of: fn(&Flow) -> u64| {
        io.as_ref().map_or(0, |io| io.flows().into_iter().map(|(_, flow)| of(flow)).sum())
    };
    MemberIo {
        number: slot as u32,
        name: name.to_string(),
        slot: Some(slot),
        state: "active sync".to_string(),
        requests_in: sum(Flow::requests_in),
        requests_out: sum(|flow| flow.requests),
        bytes: sum(|flow| flow.bytes),
        io,
        array: array.map(Box::new),
    }
}

pub fn stat(name: &str, level: &str, io: Io, members: Vec<MemberIo>) -> Stat {
    Stat {
        name: name.to_string(),
        uuid: format!("uuid-of-{name}"),
        level: level.to_string(),
        state: "clean".to_string(),
        degraded: 0,
        waiting_for_space: 0,
        mismatch_count: 0,
        job: None,
        seconds: 1.0,
        shards: 1,
        io,
        counters: Counters::default(),
        cache: Cache::default(),
        members,
    }
}

/// raid0 over one raid1 of two disks and one disk in memory.
pub fn stack() -> Stat {
    let reads = |requests, merged| io(flow(requests, merged, 1 << 20, 1_000_000), Flow::default());
    let disks =
        vec![member("a", 0, Some(reads(4, 12)), None), member("b", 1, Some(reads(8, 8)), None)];
    let mirror = stat("m0", "raid1", reads(16, 0), disks);
    let members = vec![
        member("array:m0", 0, Some(reads(16, 16)), Some(mirror)),
        member("ram:1M", 1, None, None),
    ];
    stat("top", "raid0", io(flow(64, 0, 2 << 20, 2_000_000), flow(10, 0, 40960, 0)), members)
}

/// A member in that state, with `slot` or without one.
pub fn disk(number: u32, name: &str, slot: Option<usize>, state: &str) -> Member {
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
        uuid: String::new(),
        size: 1 << 30,
        data_offset: 1 << 20,
        data_size: 1 << 30,
        recovered: None,
        requests: 0,
        bytes: 0,
        array: None,
    }
}

/// An array in sync, of members in these states.
pub fn detail(name: &str, states: &[&str]) -> Detail {
    let member = |(number, state): (u32, &&str)| {
        let slot = (*state == "active sync").then_some(number as usize);
        disk(number, &format!("/dev/{number}"), slot, state)
    };
    array(name, (0..).zip(states).map(member).collect())
}

/// An array of these members.
pub fn array(name: &str, members: Vec<Member>) -> Detail {
    Detail {
        name: name.to_string(),
        full_name: format!("host:{name}"),
        uuid: format!("uuid-of-{name}"),
        version: "1.2".to_string(),
        preferred_minor: None,
        created: 0,
        updated: 0,
        events: 1,
        level: "raid5".to_string(),
        layout: None,
        layout_number: 2,
        chunk_size: 65536,
        array_size: 1 << 30,
        component_size: 1 << 30,
        redundant: true,
        raid_devices: members.len(),
        degraded: 0,
        failed: false,
        read_only: false,
        state: "clean".to_string(),
        slots: members.iter().map(|member| member.slot.map(|slot| slot as u32)).collect(),
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
        lease: None,
        bitmap: None,
        sync_speed_min: 1000,
        sync_speed_max: None,
        settings: BTreeMap::new(),
        counters: Counters::default(),
        exports: Vec::new(),
        clients: Vec::new(),
    }
}

//! What `detail` says of an array that is only read, as its members hold it.

use super::details::Outside;
use crate::output::words;
use braid_array::salvage::{Salvage, SalvagedMember};
use braid_control::protocol::{Counters, Detail, Member, Reshape};
use braid_device::Target;
use braid_format::superblock::{self as format, Superblock, Version, time_seconds};
use braid_format::{SECTOR, uuid_text};
use braid_layout::{Level, layout_name};

/// Its state in words.
pub fn state(array: &Salvage) -> String {
    let superblock = array.superblock();
    let mut words = vec![if superblock.is_clean() { "clean" } else { "active" }];
    if array.degraded() > 0 {
        words.push("degraded");
    }
    if superblock.reshape.is_some() {
        words.push("reshaping");
    }
    words.push("read-only");
    words.join(", ")
}

/// All that is known of it.
pub fn detail(array: &Salvage, outside: Outside) -> Detail {
    let superblock = array.superblock();
    let info = array.info();
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR as u64);
    let level = Level::from_md(superblock.level);
    let members: Vec<Member> = array.members().iter().zip(0..).map(member_of).collect();
    let holder = |slot: usize| {
        let whole = members.iter().find(|m| m.slot == Some(slot) && m.state == "active sync");
        whole.or_else(|| members.iter().find(|m| m.slot == Some(slot))).map(|m| m.number)
    };
    Detail {
        full_name: superblock.set_name.escaped(),
        uuid: uuid_text::format(&superblock.set_uuid),
        version: superblock.version.to_string(),
        preferred_minor: (superblock.version == Version::V0_90).then_some(superblock.v0.md_minor),
        created: time_seconds(superblock.ctime),
        updated: time_seconds(superblock.utime),
        events: superblock.events,
        level: level.map_or_else(|| superblock.level.to_string(), |level| level.to_string()),
        layout: level.and_then(|level| layout_name(level, superblock.layout)),
        layout_number: superblock.layout,
        chunk_size: bytes(u64::from(superblock.chunk_sectors)),
        array_size: info.device.size,
        component_size: bytes(superblock.size),
        redundant: level.is_some_and(Level::has_redundancy),
        raid_devices: superblock.raid_disks as usize,
        degraded: array.degraded(),
        failed: false,
        read_only: true,
        state: state(array),
        slots: (0..superblock.slots() as usize).map(holder).collect(),
        members,
        left_out: array.left_out().to_vec(),
        taken_by_force: Vec::new(),
        job: None,
        reshape: superblock.reshape.as_ref().map(|reshape| reshape_of(superblock, reshape)),
        following: None,
        spare_group: None,
        spare_moves: Vec::new(),
        last_job: None,
        stuck_jobs: Vec::new(),
        mismatch_count: 0,
        scrubbed: None,
        in_doubt: None,
        scrub: None,
        resynced: (!superblock.is_clean()).then(|| bytes(superblock.resync_offset)),
        sync_speed_min: 0,
        sync_speed_max: None,
        has_bitmap: superblock.bitmap_offset != 0,
        has_ppl: superblock.ppl.is_some(),
        has_journal: superblock.journal,
        heartbeat: None,
        lease: None,
        bitmap: None,
        settings: std::collections::BTreeMap::new(),
        counters: Counters::default(),
        exports: outside.exports,
        clients: outside.clients,
        name: info.name,
    }
}

fn reshape_of(superblock: &Superblock, reshape: &format::Reshape) -> Reshape {
    let new_devices = i64::from(superblock.raid_disks);
    let level = words::level(reshape.new_level);
    let bytes = |sectors: u64| sectors.saturating_mul(SECTOR as u64);
    Reshape {
        position: bytes(reshape.position),
        backwards: reshape.backwards,
        old_devices: new_devices - i64::from(reshape.delta_disks),
        new_devices,
        new_level: (reshape.new_level != superblock.level).then_some(level),
        new_layout: (reshape.new_layout != superblock.layout)
            .then(|| words::layout(reshape.new_level, reshape.new_layout))
            .flatten(),
        new_layout_number: reshape.new_layout,
        new_chunk_size: (reshape.new_chunk_sectors != superblock.chunk_sectors)
            .then(|| bytes(reshape.new_chunk_sectors.into())),
    }
}

fn member_of((member, number): (&SalvagedMember, u32)) -> Member {
    let state = match (member.slot, member.whole) {
        (None, _) => "spare",
        (Some(_), true) => "active sync",
        (Some(_), false) => "rebuilding",
    };
    Member {
        want_replacement: false,
        number,
        device_number: member.superblock.dev_number,
        name: member.name.clone(),
        device: super::details::device_numbers(&member.name),
        slot: member.slot,
        state: state.to_string(),
        fault: None,
        smart: Vec::new(),
        write_mostly: member.superblock.write_mostly(),
        failfast: member.superblock.failfast(),
        waiting_for_space: 0,
        errors: member.superblock.cnt_corrected_read,
        wrong: 0,
        uuid: uuid_text::format(&member.superblock.device_uuid),
        size: member.superblock.data_size.saturating_mul(SECTOR as u64),
        data_offset: member.superblock.data_offset.saturating_mul(SECTOR as u64),
        data_size: member.superblock.data_size.saturating_mul(SECTOR as u64),
        recovered: None,
        requests: 0,
        bytes: 0,
        array: None,
    }
}

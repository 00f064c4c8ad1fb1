//! Superblocks, bitmaps and bad-block logs that Linux md wrote are understood, and written back with the
//! same bytes. The images are described in `fixtures/README.md`.

// Helpers of tests too: unwrapping says that the test has failed.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use braid_format::bitmap::{BitmapSuperblock, Bits, HEADER, area_len};
use braid_format::superblock::{
    Features, Ppl, Reshape, Role, Superblock, SuperblockError, Use, Version, candidates, choose,
};
use braid_format::{SECTOR, badblocks, journal, ppl};

const STATES: &[u8] = include_bytes!("fixtures/states.tar.xz");
/// Kept by the crate `layout`, which uses the data in it.
const GEOMETRY: &[u8] = include_bytes!("../../layout/tests/fixtures/geometry.tar.xz");

static MEMBERS: LazyLock<BTreeMap<String, Member>> = LazyLock::new(|| {
    let mut members = BTreeMap::new();
    for archive in [STATES, GEOMETRY] {
        let mut tar = tar::Archive::new(lzma_rust2::XzReader::new(archive, false));
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            if name.contains(".d") {
                let mut bytes = Vec::with_capacity(entry.size() as usize);
                entry.read_to_end(&mut bytes).unwrap();
                members.insert(name, Member::new(&bytes));
            }
        }
    }
    members
});

/// The metadata of a member, all that is kept of it.
struct Member {
    /// Sector, bytes and result at each candidate place.
    tried: Vec<(u64, Vec<u8>, Result<Superblock, SuperblockError>)>,
    chosen: Option<Superblock>,
    /// The sectors from the superblock's bitmap offset to the data or the superblock.
    bitmap: Vec<u8>,
    bblog: Vec<u8>,
    ppl: Vec<u8>,
    /// The ring of a journal device.
    journal: Vec<u8>,
    blank: bool,
}

impl Member {
    fn new(bytes: &[u8]) -> Member {
        let sectors = (bytes.len() / SECTOR) as u64;
        let tried: Vec<_> = candidates(sectors)
            .into_iter()
            .map(|(version, sector)| {
                let at = sector as usize * SECTOR;
                let block = bytes[at..(at + 4096).min(bytes.len())].to_vec();
                let parsed = Superblock::parse(&block, version, sector, sectors);
                (sector, block, parsed)
            })
            .collect();
        let chosen = choose(tried.iter().map(|(_, _, parsed)| parsed.clone())).unwrap();
        let slice = |sector: Option<u64>, len: usize| {
            sector.map_or(Vec::new(), |s| bytes[s as usize * SECTOR..][..len].to_vec())
        };
        let (bitmap, bblog) = match &chosen {
            Some(sb) => (slice(sb.bitmap_sector(), 4096), slice(sb.bblog_sector(), 4096)),
            None => Default::default(),
        };
        let cut = |start: u64, len: u64| {
            bytes[start as usize * SECTOR..][..len as usize * SECTOR].to_vec()
        };
        let ppl = chosen.as_ref().and_then(|sb| sb.ppl_sectors());
        let ppl = ppl.map_or(Vec::new(), |(start, len)| cut(start, len));
        let journal = chosen.as_ref().filter(|sb| sb.own_role() == Role::Journal);
        let journal = journal
            .map_or(Vec::new(), |sb| cut(sb.data_offset, journal::ring_sectors(sb.data_size)));
        Member { tried, chosen, bitmap, bblog, ppl, journal, blank: bytes.iter().all(|&b| b == 0) }
    }
}

fn member(name: &str) -> &'static Member {
    MEMBERS.get(name).unwrap_or_else(|| panic!("no {name}"))
}

fn superblock(name: &str) -> &'static Superblock {
    member(name).chosen.as_ref().unwrap_or_else(|| panic!("{name} has no superblock"))
}

fn superblocks(array: &str) -> Vec<&'static Superblock> {
    let prefix = format!("{array}.d");
    MEMBERS
        .iter()
        .filter(|(name, _)| name.starts_with(&prefix))
        .filter_map(|(_, m)| m.chosen.as_ref())
        .collect()
}

/// The superblocks of an array, after checking that what all members share is equal.
fn assert_one_array(array: &str, members: usize) -> Vec<&'static Superblock> {
    let all = superblocks(array);
    assert_eq!(all.len(), members, "{array}");
    for sb in &all {
        let first = all[0];
        assert_eq!((sb.set_uuid, sb.set_name), (first.set_uuid, first.set_name), "{array}");
        assert_eq!(
            (sb.level, sb.layout, sb.raid_disks),
            (first.level, first.layout, first.raid_disks)
        );
        assert_eq!(
            (sb.size, sb.chunk_sectors, sb.ctime),
            (first.size, first.chunk_sectors, first.ctime)
        );
        assert_eq!(
            (sb.events, sb.resync_offset, sb.utime),
            (first.events, first.resync_offset, first.utime)
        );
        assert_eq!((&sb.roles, sb.reshape), (&first.roles, first.reshape));
    }
    all
}

#[test]
fn every_superblock_is_written_back_with_the_same_bytes() {
    let (mut found, mut blank) = (0, 0);
    for (name, member) in MEMBERS.iter() {
        for (sector, block, parsed) in &member.tried {
            match parsed {
                Ok(sb) => {
                    let written = sb.to_bytes();
                    assert_eq!(written, block[..written.len()], "{name} at {sector}");
                    assert_eq!(sb.super_offset, *sector);
                    found += 1;
                }
                Err(SuperblockError::NoMagic { .. }) => {}
                Err(error) => panic!("{name} at {sector}: {error}"),
            }
        }
        if member.chosen.is_none() {
            assert!(member.blank, "{name}");
            blank += 1;
        }
    }
    // 3 blank members; every other one has exactly one superblock.
    assert_eq!((found, blank), (MEMBERS.len() - 3, 3));
}

#[test]
fn the_place_tells_the_minor_version() {
    for (array, version) in
        [("r5-v10", Version::V1_0), ("r5-v11", Version::V1_1), ("r5-v12-bitmap", Version::V1_2)]
    {
        assert!(assert_one_array(array, 3).iter().all(|sb| sb.version == version));
    }
    let sb = superblock("r5-v10.d0");
    assert_eq!((sb.data_offset, sb.data_size, sb.super_offset, sb.size), (0, 8160, 8176, 8064));
}

#[test]
fn identity_and_shape_of_an_array() {
    let all = assert_one_array("r5-v12-bitmap", 3);
    for (slot, sb) in (0u16..).zip(&all) {
        assert_eq!(sb.set_name.as_text(), Some("umlhost:0"));
        assert_eq!((sb.level, sb.layout, sb.chunk_sectors, sb.raid_disks), (5, 2, 128, 3));
        assert_eq!((sb.size, sb.data_offset, sb.data_size), (6144, 2048, 6144));
        assert_eq!(sb.own_role(), Role::Slot(slot));
        assert_eq!(sb.roles.len(), 128);
        assert_eq!(sb.role_of(3), Role::Spare);
        assert_eq!(sb.role_of(u32::MAX), Role::Spare);
        assert!(sb.is_clean());
        assert_eq!(sb.features(), Features::BITMAP_OFFSET);
        assert_eq!((sb.bblog_offset, sb.bblog_size, sb.bblog_shift), (16, 8, 0));
    }
    assert_ne!(all[0].device_uuid, all[1].device_uuid);
}

#[test]
fn a_degraded_array_has_no_role_for_the_missing() {
    for (array, missing) in [("r5-degraded", vec![1]), ("r6-degraded2", vec![1, 3])] {
        let sb = superblock(&format!("{array}.d0"));
        for dev in 0..sb.raid_disks {
            let want = if missing.contains(&dev) { Role::Spare } else { Role::Slot(dev as u16) };
            assert_eq!(sb.role_of(dev), want, "{array}");
        }
    }
}

#[test]
fn a_recovering_member_is_valid_up_to_its_offset() {
    for (array, offset) in [("r5-recovering", 0xff8), ("r5-recovery-stopped", 4096)] {
        let all = assert_one_array(array, 3);
        assert_eq!(all[1].recovery_offset, Some(offset));
        // Its dev number is the first free one, its slot that of the lost member.
        assert_eq!((all[1].dev_number, all[1].own_role()), (3, Role::Slot(1)));
        assert_eq!(all[0].recovery_offset, None);
        assert!(!all[1].replacement && !all[1].recovery_by_bitmap);
    }
}

#[test]
fn a_replacement_holds_the_slot_of_another_member() {
    let all = assert_one_array("r5-replacing", 4);
    assert_eq!((all[1].own_role(), all[3].own_role()), (Role::Slot(1), Role::Slot(1)));
    assert!(all[3].replacement && !all[1].replacement);
    assert_eq!(all[3].recovery_offset, Some(4096));
    assert_eq!(all[3].features(), Features::REPLACEMENT | Features::RECOVERY_OFFSET);
}

#[test]
fn a_stopped_resync_goes_on_where_it_was() {
    let sb = assert_one_array("r5-resync-stopped", 3)[0];
    assert_eq!(sb.resync_offset, 4096);
    assert!(!sb.is_clean());
}

#[test]
fn reshapes_that_were_stopped() {
    for (array, level, disks) in [("r5-grow34-mid", 5, 4), ("r6-grow45-mid", 6, 5)] {
        let sb = assert_one_array(array, disks)[0];
        let reshape = Reshape {
            new_level: level,
            position: 13056,
            delta_disks: 1,
            new_layout: 2,
            new_chunk_sectors: 128,
            backwards: false,
        };
        assert_eq!(sb.reshape, Some(reshape));
        assert_eq!((sb.raid_disks, sb.slots(), sb.new_offset), (disks as u32, disks as u32, -384));
    }
    let sb = assert_one_array("r5-shrink43-mid", 4)[0];
    let reshape = sb.reshape.unwrap();
    assert_eq!((reshape.position, reshape.delta_disks, reshape.backwards), (13824, -1, true));
    assert_eq!((sb.raid_disks, sb.slots(), sb.new_offset), (3, 4, 0));
    // The slot that goes away is still one.
    assert_eq!(sb.role_of(3), Role::Slot(3));
}

#[test]
fn a_bad_block_log_names_member_sectors() {
    let all = assert_one_array("r5-badblocks", 3);
    assert!(all[1].bad_blocks && !all[0].bad_blocks);
    let log = &member("r5-badblocks.d1").bblog;
    let ranges = badblocks::parse(log, all[1].bblog_shift).unwrap();
    assert_eq!(ranges, [2348..2356, 4000..4512]);
    assert_eq!(&badblocks::encode(&ranges, all[1].bblog_shift, all[1].bblog_size).unwrap(), log);
}

#[test]
fn a_partial_parity_log_shares_the_bitmaps_bytes() {
    let sb = assert_one_array("r5-ppl-dirty", 4)[0];
    assert_eq!(sb.ppl, Some(Ppl { offset: 8, size: 2048, multiple: true }));
    assert_eq!((sb.bitmap_offset, sb.resync_offset), (0, 0));
}

#[test]
fn a_journal_device_keeps_the_tail() {
    let all = assert_one_array("r5-journal-wb-dirty", 5);
    assert!(all.iter().all(|sb| sb.journal && sb.is_clean()));
    assert_eq!(
        (all[4].own_role(), all[4].journal_tail, all[4].recovery_offset),
        (Role::Journal, 0x538, None)
    );
    assert_eq!((all[0].own_role(), all[0].dev_number), (Role::Slot(0), 1));
}

#[test]
fn every_bitmap_is_written_back_with_the_same_bytes() {
    let mut seen = 0;
    for (name, member) in MEMBERS.iter().filter(|(_, m)| !m.bitmap.is_empty()) {
        let sb = member.chosen.as_ref().unwrap();
        let bitmap = BitmapSuperblock::parse(&member.bitmap).unwrap();
        assert_eq!(bitmap.to_bytes(), member.bitmap[..HEADER], "{name}");
        assert_eq!((bitmap.uuid, bitmap.sync_size), (sb.set_uuid, sb.size), "{name}");
        assert!(!bitmap.must_resync_all(sb.events), "{name}");
        assert_eq!(area_len(bitmap.bits()), 4096);
        seen += 1;
    }
    assert_eq!(seen, 8);
}

#[test]
fn set_bits_are_the_ranges_that_were_written() {
    let bits = |name: &str| {
        let area = &member(name).bitmap;
        let bitmap = BitmapSuperblock::parse(area).unwrap();
        Bits::from_area(area, bitmap.bits()).iter_set().collect::<Vec<_>>()
    };
    for dev in 0..3 {
        assert_eq!(bits(&format!("r5-bitmap-dirty.d{dev}")), [0, 61, 128, 129]);
    }
    assert_eq!(bits("r1.d0"), []);
    // The array was active.
    assert_eq!(superblock("r5-bitmap-dirty.d0").resync_offset, 0);
}

/// The last 64 KiB of members of 8 MiB, with metadata 0.90.
const V090: &[u8] = include_bytes!("fixtures/v090.tar.xz");
const V090_AT: u64 = 16_256;

/// Superblock, and what follows it in its 64 KiB.
static V090_MEMBERS: LazyLock<BTreeMap<String, (Superblock, Vec<u8>)>> = LazyLock::new(|| {
    let mut tar = tar::Archive::new(lzma_rust2::XzReader::new(V090, false));
    let members = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, (Superblock::parse(&bytes, Version::V0_90, V090_AT, 16_384).unwrap(), bytes))
    });
    members.collect()
});

fn v090(name: &str) -> &'static Superblock {
    &V090_MEMBERS[name].0
}

#[test]
fn superblocks_of_0_90_are_written_back_with_the_same_words() {
    let mut same = 0;
    for (name, (sb, bytes)) in V090_MEMBERS.iter() {
        let mut written = sb.to_bytes();
        assert_eq!(Superblock::parse(&written, Version::V0_90, V090_AT, 16_384).unwrap(), *sb);
        let mut bytes = bytes[..4096].to_vec();
        if sb.events == 1 {
            // mdadm wrote it, not yet the kernel: it counts and lists other things as missing, and sets no
            // checkpoint.
            for words in [9..10, 36..37, 38..39, 41..44, 192..224] {
                for block in [&mut written, &mut bytes] {
                    block[4 * words.start..4 * words.end].fill(0);
                }
            }
        } else {
            same += 1;
        }
        assert!(written == bytes, "{name}");
    }
    assert_eq!((V090_MEMBERS.len(), same), (32, 21));
}

#[test]
fn shapes_and_states_of_0_90() {
    let shape = |sb: &Superblock| {
        (sb.level, sb.layout, sb.raid_disks, sb.chunk_sectors, sb.size, sb.resync_offset)
    };
    assert_eq!(shape(v090("r10.d0")), (10, 0x201, 4, 128, 16_256, u64::MAX));
    assert_eq!(shape(v090("r1.d0")), (1, 0, 3, 0, 16_256, u64::MAX));
    assert_eq!(shape(v090("r4.d0")), (4, 0, 3, 128, 16_256, u64::MAX));
    assert_eq!(shape(v090("linear.d1")), (-1, 0, 2, 0, 0, u64::MAX));
    assert_eq!(shape(v090("r6-resync-stopped.d3")), (6, 2, 4, 128, 16_256, 4352));
    for (name, (sb, _)) in V090_MEMBERS.iter() {
        assert_eq!(
            (sb.data_offset, sb.data_size, sb.super_offset),
            (0, V090_AT, V090_AT),
            "{name}"
        );
        assert_eq!((sb.set_name.escaped().as_str(), sb.roles.len()), ("", 27), "{name}");
    }
}

#[test]
fn the_table_of_disks_is_the_role_table() {
    let sb = v090("r5-bitmap.d3");
    assert_eq!((sb.own_role(), sb.dev_number, sb.v0.present), (Role::Spare, 3, 0b1111));
    // The spare took the slot of number 1 and with it the number; what failed is number 3 now.
    let sb = v090("r5-failed.d3");
    assert_eq!((sb.own_role(), sb.dev_number), (Role::Slot(1), 1));
    assert_eq!((sb.role_of(3), sb.v0.devices[3].minor), (Role::Faulty, 1));
    // After its removal it is in no table, and its own superblock is as it was, older.
    let (new, old) = (v090("r5-replaced.d3"), v090("r5-replaced.d1"));
    assert_eq!((new.dev_number, new.role_of(3)), (1, Role::Spare));
    assert_eq!((old.dev_number, old.own_role()), (1, Role::Slot(1)));
    assert!(old.events + 1 < new.events && !old.is_twin_of(new) && new.is_twin_of(new));
    // While it recovers a member is a spare.
    for (name, role) in [("d0", Role::Slot(0)), ("d3", Role::Spare)] {
        let sb = v090(&format!("r5-recovering.{name}"));
        assert_eq!((sb.own_role(), sb.role_of(1), sb.role_of(3)), (role, Role::Spare, Role::Spare));
    }
}

#[test]
fn a_reshape_of_0_90_that_was_stopped() {
    let reshape = Reshape {
        new_level: 5,
        position: 13_056,
        delta_disks: 1,
        new_layout: 2,
        new_chunk_sectors: 128,
        backwards: false,
    };
    for dev in 0..4 {
        let sb = v090(&format!("r5-grow.d{dev}"));
        assert_eq!((sb.reshape, sb.raid_disks, sb.own_role()), (Some(reshape), 4, Role::Slot(dev)));
    }
}

#[test]
fn the_bitmap_of_0_90_stands_behind_the_superblock() {
    let mut seen = 0;
    for (name, (sb, bytes)) in V090_MEMBERS.iter().filter(|(_, (sb, _))| sb.bitmap_offset != 0) {
        let at = (sb.bitmap_sector().unwrap() - V090_AT) as usize * SECTOR;
        let bitmap = BitmapSuperblock::parse(&bytes[at..]).unwrap();
        assert_eq!(bitmap.uuid, sb.bitmap_uuid(), "{name}");
        assert_eq!(bitmap.to_bytes(), bytes[at..at + HEADER], "{name}");
        seen += 1;
    }
    assert_eq!((seen, v090("r1.d0").bitmap_sector()), (8, None));
}

#[test]
fn parts_of_a_member_lie_inside_it_and_do_not_overlap() {
    let members = MEMBERS.iter().filter_map(|(name, m)| Some((name, m.chosen.as_ref()?)));
    for (name, sb) in members.chain(V090_MEMBERS.iter().map(|(name, (sb, _))| (name, sb))) {
        let areas = sb.areas();
        // The new data of a reshape overlaps the old.
        let fixed: Vec<_> = areas.iter().filter(|area| area.what != Use::NewData).collect();
        for pair in fixed.windows(2) {
            assert!(pair[0].sectors.end <= pair[1].sectors.start, "{name}: {areas:?}");
        }
        assert!(areas.iter().any(|area| area.what == Use::Superblock), "{name}");
        assert!(areas.iter().all(|area| area.sectors.end <= 16_384), "{name}: {areas:?}");
        let moved = areas.iter().any(|area| area.what == Use::NewData);
        assert_eq!(moved, name.contains("grow") && sb.new_offset != 0, "{name}");
        if sb.bitmap_offset != 0 {
            assert!(sb.bitmap_room() >= 8, "{name}: {areas:?}");
        }
    }
    let uses = |name: &str| superblock(name).areas().iter().map(|a| a.what).collect::<Vec<_>>();
    use braid_format::superblock::Use::{
        BadBlockLog, Bitmap, Data, Journal, Ppl, Superblock as Sb,
    };
    assert_eq!(uses("r5-bitmap-dirty.d0"), [Sb, Bitmap, BadBlockLog, Data]);
    assert_eq!(uses("r5-ppl-dirty.d0"), [Sb, Ppl, BadBlockLog, Data]);
    assert_eq!(uses("r5-journal-wb-dirty.d4"), [Sb, BadBlockLog, Journal]);
    assert_eq!(v090("r5-bitmap.d0").bitmap_room(), 120);
}

#[test]
fn only_a_reshape_that_moves_data_between_the_same_slots_is_doubtful() {
    let stopped = ["r5-grow34-mid.d0", "r6-grow45-mid.d0", "r5-shrink43-mid.d0"];
    for name in stopped {
        let sb = superblock(name);
        assert!(!sb.reshape_position_is_doubtful(), "{name}");
        let reshape = sb.reshape.map(|reshape| Reshape { delta_disks: 0, ..reshape });
        let chunks = Superblock { reshape, new_offset: -384, ..sb.clone() };
        assert!(chunks.reshape_position_is_doubtful());
        assert!(!Superblock { new_offset: 0, ..chunks.clone() }.reshape_position_is_doubtful());
        // As Linux was seen to leave it at level 10, too; nothing else has such reshapes.
        assert!(Superblock { level: 10, ..chunks.clone() }.reshape_position_is_doubtful());
        assert!(!Superblock { level: 1, ..chunks }.reshape_position_is_doubtful());
    }
}

#[test]
fn a_log_of_partial_parity_is_replayed_only_as_the_array_allows() {
    let mut seen = (0, 0);
    for slot in 0..4 {
        let (sb, area) = (
            superblock(&format!("r5-ppl-dirty.d{slot}")),
            &member(&format!("r5-ppl-dirty.d{slot}")).ppl,
        );
        let unit = ppl::newest(area, &sb.set_uuid).unwrap();
        let at = unit.sector as usize * SECTOR;
        assert_eq!(unit.header.to_bytes(&sb.set_uuid), area[at..at + ppl::HEADER]);
        let shape = ppl::Shape { chunk_sectors: sb.chunk_sectors, raid_disks: 4, size: sb.size };
        // Left-symmetric.
        let parity_slot = |stripe: u64| 3 - (stripe % 4) as u32;
        let recovered = ppl::recover(area, &sb.set_uuid, &shape, slot, parity_slot);
        assert_eq!(recovered.mismatches, [], "{slot}");
        assert_eq!(recovered.replays.len(), unit.header.entries.len());
        seen = (seen.0 + recovered.replays.len(), seen.1 + area.len());
        // Under another slot's name nothing of it is taken.
        let other = ppl::recover(area, &sb.set_uuid, &shape, (slot + 1) % 4, parity_slot);
        assert_eq!((other.replays.len(), other.mismatches.len()), (0, recovered.replays.len()));
    }
    assert_eq!(seen, (2, 4 << 20));
}

#[test]
fn a_journal_is_walked_to_its_end() {
    let (sb, ring) =
        (superblock("r5-journal-wb-dirty.d4"), &member("r5-journal-wb-dirty.d4").journal);
    assert_eq!(journal::ring_sectors(sb.data_size) as usize * SECTOR, ring.len());
    let mut walk = journal::Walk::new(&sb.set_uuid, sb.data_size, sb.journal_tail).unwrap();
    // Left-symmetric RAID5 of 4: a row's data is three chunks.
    let chunk = u64::from(sb.chunk_sectors);
    let row_of = |sector: u64| Some(sector / (3 * chunk) * chunk + sector % chunk);
    let mut recovery = journal::Recovery::new(sb.size, row_of);
    let block = |sector: u64| &ring[sector as usize * SECTOR..][..journal::BLOCK];
    let mut metas = 0;
    let end = loop {
        let at = walk.position();
        match walk.step(block(at)) {
            Ok(found) => {
                assert_eq!(found.meta.to_bytes(walk.seed()).unwrap(), block(at));
                let sums = found.blocks.iter().map(|at| walk.seed().checksum(block(*at)));
                assert!(sums.eq(found.meta.checksums()), "{at}");
                recovery.take(&found);
                metas += 1;
            }
            Err(end) => break end,
        }
    };
    assert_eq!(recovery.refused(), 0);
    let (complete, cached) = recovery.finish();
    assert_eq!((metas, complete.len(), cached.len()), (4, 1, 3));
    assert_eq!(end, journal::End::Meta(journal::MetaError::NoMagic { found: 0 }));
    assert!(complete.iter().all(|row| row.p.is_some()) && cached.iter().all(|row| row.p.is_none()));
}

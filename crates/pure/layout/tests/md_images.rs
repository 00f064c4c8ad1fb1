//! Arrays that Linux md wrote hold every data block, P and Q where this crate says.
//!
//! The images and their pattern are described in `fixtures/README.md`. Superblocks are read by a few
//! lines of this file, so that a mistake in another crate cannot hide one here.

use std::collections::BTreeMap;
use std::io::Read;

use braid_layout::{Layout, Level, Parity, Place, Role, SECTOR, Spec, layout_name};

const BLOCK: usize = 4096;
const IMAGES: &[u8] = include_bytes!("fixtures/geometry.tar.xz");

/// The superblocks of an array, and its components by slot.
struct Array {
    spec: Spec,
    components: Vec<Vec<u8>>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Superblock 1.x: 1.1 at the start, 1.2 at 4 KiB, 1.0 near the end; or 0.90 in the last 64 KiB.
fn superblock(member: &[u8]) -> (u32, &[u8]) {
    let magic = 0xa92b_4efc;
    let sectors = member.len() / 512;
    for at in [0, 8, (sectors - 16) & !7] {
        let block = &member[at * 512..];
        if u32_at(block, 0) == magic && u32_at(block, 4) == 1 && u64_at(block, 144) == at as u64 {
            return (1, block);
        }
    }
    let block = &member[(sectors & !127) * 512 - 65536..];
    assert_eq!((u32_at(block, 0), u32_at(block, 4)), (magic, 0), "no superblock");
    (0, block)
}

impl Array {
    fn read(members: &[Vec<u8>]) -> Array {
        let mut components = vec![Vec::new(); members.len()];
        let mut member_sizes = vec![0; members.len()];
        let mut spec = None;
        for member in members {
            let (major, block) = superblock(member);
            let word = |index: usize| u32_at(block, index * 4);
            let (level, layout, chunk_size, raid_disks, component_size, slot, start, size);
            if major == 1 {
                level = u32_at(block, 72).cast_signed();
                layout = u32_at(block, 76);
                component_size = u64_at(block, 80) * SECTOR;
                chunk_size = u64::from(u32_at(block, 88)) * SECTOR;
                raid_disks = u32_at(block, 92) as usize;
                let dev_number = u32_at(block, 160) as usize;
                let role = &block[256 + 2 * dev_number..][..2];
                slot = usize::from(u16::from_le_bytes([role[0], role[1]]));
                (start, size) = (u64_at(block, 128) * SECTOR, u64_at(block, 136) * SECTOR);
            } else {
                level = word(7).cast_signed();
                component_size = u64::from(word(8)) * 1024;
                raid_disks = word(10) as usize;
                (layout, chunk_size) = (word(64), word(65).into());
                slot = word(992 + 3) as usize;
                (start, size) = (0, component_size);
            }
            let level = Level::from_md(level).expect("a level that braid runs");
            components[slot] = member[start as usize..(start + size) as usize].to_vec();
            member_sizes[slot] = size;
            let member_sizes = Vec::new();
            let own = Spec { level, layout, chunk_size, raid_disks, component_size, member_sizes };
            assert_eq!(spec.get_or_insert(own.clone()), &own, "members of one array differ");
        }
        let spec = Spec { member_sizes, ..spec.expect("an array has members") };
        assert_eq!(spec.raid_disks, components.len());
        Array { spec, components }
    }

    fn block(&self, place: Place) -> &[u8] {
        &self.components[place.slot][place.offset as usize..][..BLOCK]
    }
}

/// The number that fills array block `block`.
fn pattern(block: u64) -> u64 {
    (block + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn filled(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK / 8)
}

/// Each of eight field elements times the generator: GF(2^8), polynomial 0x11d.
fn double(value: u64) -> u64 {
    let bytes = value.to_le_bytes().map(|b| (b << 1) ^ if b & 0x80 != 0 { 0x1d } else { 0 });
    u64::from_le_bytes(bytes)
}

fn power(value: u64, exponent: usize) -> u64 {
    (0..exponent).fold(value, |value, _| double(value))
}

/// Compares every block of every member; returns how many blocks were compared.
fn check_parity(name: &str, array: &Array, geometry: &Parity) -> u64 {
    let mut compared = 0;
    for stripe in 0..geometry.stripes() {
        let map = geometry.map_stripe(stripe);
        for within in (0..geometry.chunk_size()).step_by(BLOCK) {
            let data = |k| pattern(geometry.array_offset(stripe, k, within) / BLOCK as u64);
            let chunks = 0..geometry.data_chunks();
            for slot in 0..geometry.slots() {
                let (role, chunks) = (map.role(slot), chunks.clone());
                let want = match role {
                    Role::Data(k) => data(k),
                    Role::P => chunks.fold(0, |p, k| p ^ data(k)),
                    Role::Q => chunks.fold(0, |q, k| q ^ power(data(k), map.exponent(k))),
                };
                let place = Place { slot, offset: geometry.member_offset(stripe) + within };
                assert!(array.block(place) == filled(want), "{name}: {role:?} at {place:?}");
                compared += 1;
            }
        }
    }
    compared
}

/// Compares every copy of every block of the array; returns how many blocks were compared.
fn check_copies(name: &str, array: &Array, size: u64, places: impl Fn(u64) -> Vec<Place>) -> u64 {
    let mut compared = 0;
    for offset in (0..size).step_by(BLOCK) {
        for place in places(offset) {
            let want = filled(pattern(offset / BLOCK as u64));
            assert!(array.block(place) == want, "{name}: array offset {offset} at {place:?}");
            compared += 1;
        }
    }
    compared
}

fn check(name: &str, array: &Array, size: u64) {
    let layout = Layout::new(&array.spec).expect("md made this array");
    assert_eq!(layout.array_size(), size, "{name}: array size");
    let blocks = |bytes: u64| bytes / BLOCK as u64;
    let (compared, want) = match &layout {
        Layout::Parity(geometry) => {
            let all = geometry.used_component_size() * geometry.slots() as u64;
            (check_parity(name, array, geometry), blocks(all))
        }
        Layout::Raid10(geometry) => {
            let places = |offset| {
                let (chunk_nr, within) = geometry.locate(offset);
                let shifted = |place: Place| Place { offset: place.offset + within, ..place };
                geometry.copies(chunk_nr).into_iter().map(shifted).collect()
            };
            let all = size * geometry.copy_count() as u64;
            (check_copies(name, array, size, places), blocks(all))
        }
        Layout::Striped(geometry) => {
            (check_copies(name, array, size, |offset| vec![geometry.map(offset).0]), blocks(size))
        }
        Layout::Mirror(_) | Layout::Linear(_) => panic!("{name}: no image has this level"),
    };
    assert_eq!(compared, want, "{name}: blocks compared");
}

#[test]
fn arrays_written_by_linux_md_are_understood_to_the_last_byte() {
    let xz = lzma_rust2::XzReader::new(IMAGES, false);
    let mut archive = tar::Archive::new(xz);
    let mut members: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    let mut seen = Vec::new();
    for entry in archive.entries().expect("the fixture is a tar archive") {
        let mut entry = entry.expect("the fixture is whole");
        let path = entry.path().expect("a path").to_string_lossy().into_owned();
        let (name, kind) = path.rsplit_once('.').expect("NAME.KIND");
        let mut content = Vec::with_capacity(entry.size() as usize);
        entry.read_to_end(&mut content).expect("the fixture is whole");
        if kind != "size" {
            // Members stand in the archive in the order of their slots.
            members.entry(name.to_owned()).or_default().push(content);
            continue;
        }
        let sectors = String::from_utf8_lossy(&content);
        let size = sectors.trim().parse::<u64>().expect("a number of sectors") * SECTOR;
        let array = Array::read(&members.remove(name).expect("members come before the size"));
        check(name, &array, size);
        seen.push((array.spec.level, layout_name(array.spec.level, array.spec.layout)));
    }
    assert_eq!((seen.len(), members.len()), (34, 0));
    let distinct = |level| {
        let mut names: Vec<_> = seen.iter().filter(|(of, _)| *of == level).collect();
        names.sort();
        names.dedup();
        names.len()
    };
    let levels = [Level::Raid4, Level::Raid5, Level::Raid6, Level::Raid10].map(distinct);
    assert_eq!(levels, [1, 6, 14, 5], "layouts that an image covers");
}

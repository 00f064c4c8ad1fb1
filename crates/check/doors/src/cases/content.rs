//! Data reads back as it was written.

use crate::client::Command;
use crate::{Adapter, Rig, Shape};

fn pattern(offset: u64, length: u64, salt: u64) -> Vec<u8> {
    let byte = |at: u64| ((at / 512).wrapping_mul(0x9e37_79b9) >> 7) as u8 ^ at as u8 ^ salt as u8;
    (offset..offset + length).map(byte).collect()
}

/// All of the disk in pieces of many sizes, read back in others.
pub fn every_byte_is_written_and_read_back(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    let size = client.properties().size;
    let mut at = 0;
    for length in [512, 4096, 1024, 65536, 512 * 3, 300 * 512].into_iter().cycle() {
        if at == size {
            break;
        }
        let length = length.min(size - at);
        let data = pattern(at, length, 7);
        client.ask(Command::Write { offset: at, data, fua: false }).expect("a write");
        at += length;
    }
    let mut at = 0;
    for length in [128 << 10, 512, 77 * 512].into_iter().cycle() {
        if at == size {
            break;
        }
        let length = length.min(size - at);
        assert!(client.read(at, length) == pattern(at, length, 7), "read at {at}");
        at += length;
    }
}

/// The largest request that the door admits, and the connection goes on.
pub fn the_largest_request_goes_through_whole(adapter: &dyn Adapter) {
    let rig = Rig::of(adapter, Shape { size: 66 << 20, ..Shape::default() });
    let mut client = rig.client();
    let largest = client.properties().largest;
    assert!(largest >= 1 << 20, "requests of 1 MiB at least");
    assert!(largest <= rig.door.limits().request_bytes);
    let data = pattern(4096, largest, 1);
    let write = Command::Write { offset: 4096, data: data.clone(), fua: false };
    client.ask(write).expect("the largest write");
    assert!(client.read(4096, largest) == data);
    assert_eq!(client.read(0, 4096), vec![0; 4096]);
}

/// Requests of all sizes at random places, many under way, against a model.
pub fn data_survives_a_storm_of_requests(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    let properties = client.properties();
    let mut model = vec![0u8; properties.size as usize];
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..40 {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for _ in 0..60 {
            let length = 512 << random.u64(..9);
            let offset = random.u64(..properties.size / 512) * 512;
            let free = |(from, to): &(u64, u64)| *to <= offset || *from >= offset + length;
            if offset + length <= properties.size && ranges.iter().all(free) {
                ranges.push((offset, offset + length));
            }
        }
        let mut expected = Vec::new();
        let commands = ranges.iter().enumerate().map(|(nr, (from, to))| {
            let (offset, length) = (*from, to - from);
            let place = *from as usize..*to as usize;
            match nr % 4 {
                0 | 1 => {
                    let data = pattern(offset, length, round);
                    model[place].copy_from_slice(&data);
                    expected.push(None);
                    Command::Write { offset, data, fua: nr % 8 == 0 }
                }
                2 if properties.zeroes => {
                    model[place].fill(0);
                    expected.push(None);
                    Command::Zero { offset, length }
                }
                _ => {
                    expected.push(Some(model[place].to_vec()));
                    Command::Read { offset, length }
                }
            }
        });
        let commands: Vec<Command> = commands.collect();
        let results = client.all(commands);
        for (result, expected) in results.into_iter().zip(expected) {
            let data = result.expect("no request fails");
            assert!(expected.is_none_or(|expected| expected == data), "a read in round {round}");
        }
    }
    for at in (0..properties.size).step_by(1 << 20) {
        let place = at as usize..at as usize + (1 << 20);
        assert!(client.read(at, 1 << 20) == model[place], "MiB at {at}");
    }
}

/// Connections live on different shards and see the same disk.
pub fn clients_see_each_others_writes(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut clients: Vec<_> = (0..4).map(|_| rig.client()).collect();
    for (nr, client) in clients.iter_mut().enumerate() {
        client.fill(512 * nr as u64, 512, nr as u8 + 1);
    }
    let expected: Vec<u8> = (1..=4).flat_map(|byte| [byte; 512]).collect();
    for client in &mut clients {
        assert_eq!(client.read(0, 2048), expected);
    }
}

/// A discard is answered, and nothing beside it changes.
pub fn a_discard_harms_no_neighbour(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    assert!(client.properties().discards, "the disk discards, so the door offers it");
    client.fill(0, 64 << 10, 0x11);
    client.ask(Command::Discard { offset: 8192, length: 16384 }).expect("a discard");
    assert_eq!(client.read(0, 8192), vec![0x11; 8192]);
    // Its content may be anything, but can be read.
    client.read(8192, 16384);
    assert_eq!(client.read(24576, 40960), vec![0x11; 40960]);
    client.ask(Command::Discard { offset: 0, length: 8 << 20 }).expect("a discard of everything");
}

/// Write-zeroes, from one block up to everything.
pub fn zeroes_read_back_as_zeroes(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    let properties = client.properties();
    assert!(properties.zeroes, "every door offers write-zeroes");
    client.fill(0, 64 << 10, 0x22);
    for (offset, length) in [(512, 512), (4096, 12288), (40960, 4096)] {
        client.ask(Command::Zero { offset, length }).expect("zeroes");
        assert_eq!(client.read(offset, length), vec![0; length as usize]);
        assert_eq!(client.read(offset - 512, 512), vec![0x22; 512]);
        assert_eq!(client.read(offset + length, 512), vec![0x22; 512]);
    }
    client.fill(properties.size - 512, 512, 1);
    let all = Command::Zero { offset: 0, length: properties.size };
    client.ask(all).expect("zeroes everywhere");
    assert_eq!(client.read(properties.size - 512, 512), vec![0; 512]);
}

//! Flush and FUA, against a disk that loses its cache.

use crate::client::Command;
use crate::{Adapter, Rig};

/// Only the FUA write is promised.
pub fn a_fua_write_survives_a_power_cut(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    for round in 0..30u64 {
        let data = vec![round as u8 + 1; 4096];
        let offset = round * 8192;
        client.ask(Command::Write { offset, data: data.clone(), fua: true }).expect("a write");
        client.fill(offset + 4096, 4096, 0xee);
        rig.disk.cut_power();
        assert_eq!(client.read(offset, 4096), data, "round {round}");
    }
}

/// A flush makes durable all writes that were answered before it was sent.
pub fn a_flush_covers_what_was_answered(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    for round in 0..20u64 {
        let write = |nr: u64| Command::Write {
            offset: nr * 4096,
            data: vec![(round * 7 + nr) as u8; 4096],
            fua: false,
        };
        for result in client.all((0..64).map(write).collect()) {
            result.expect("a write");
        }
        client.flush();
        rig.disk.cut_power();
        for nr in 0..64u64 {
            let expected = vec![(round * 7 + nr) as u8; 4096];
            assert_eq!(client.read(nr * 4096, 4096), expected, "round {round}, block {nr}");
        }
    }
}

/// A flush of one connection covers writes of another that were answered before.
pub fn a_flush_covers_what_other_clients_wrote(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let (mut writer, mut flusher) = (rig.client(), rig.client());
    for round in 0..20u8 {
        writer.fill(u64::from(round) * 4096, 4096, round + 1);
        flusher.flush();
        rig.disk.cut_power();
        let read = flusher.read(u64::from(round) * 4096, 4096);
        assert_eq!(read, vec![round + 1; 4096]);
    }
}

/// Without a flush a block is what it was, or what was written.
pub fn what_is_not_flushed_is_old_or_new(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    let mut old = 0u8;
    let (mut kept, mut lost) = (0, 0);
    for round in 1..=20u8 {
        client.fill(0, 64 << 10, round);
        rig.disk.cut_power();
        let found = client.read(0, 64 << 10);
        for block in found.chunks(512) {
            assert!(block.iter().all(|byte| *byte == block[0]), "a block is never torn");
            assert!([old, round].contains(&block[0]), "round {round}");
            (kept, lost) = (kept + u32::from(block[0] == round), lost + u32::from(block[0] == old));
        }
        client.fill(0, 64 << 10, round);
        client.flush();
        old = round;
    }
    assert!(kept > 0 && lost > 0, "a disk that loses nothing shows nothing");
}

/// Zeroes are written like anything else.
pub fn a_flush_covers_zeroes(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    for _ in 0..20 {
        client.fill(0, 65536, 0x77);
        client.flush();
        client.ask(Command::Zero { offset: 4096, length: 32768 }).expect("zeroes");
        client.flush();
        rig.disk.cut_power();
        assert_eq!(client.read(4096, 32768), vec![0; 32768]);
        assert_eq!(client.read(0, 4096), vec![0x77; 4096]);
    }
}

//! The cases that only a guest's driver and its front end can bring about.

use braid_doors::vhost::VhostUser;
use braid_doors::vhost::guest::Guest;
use braid_doors::{Answer, Client, Command, Rig};
use std::io::Read;
use std::time::Duration;

const F_FLUSH: u64 = 1 << 9;
const F_EVENT_IDX: u64 = 1 << 29;
const PATIENCE: Duration = Duration::from_secs(30);

fn write(tag: u32, byte: u8) -> Command {
    Command::Write { offset: u64::from(tag) * 4096, data: vec![byte; 4096], fua: false }
}

fn done(guest: &mut Guest, count: usize) {
    for _ in 0..count {
        let answer = guest.answer(PATIENCE);
        assert!(matches!(answer, Answer::Done(_, Ok(_))), "{answer:?}");
    }
}

#[test]
fn a_driver_that_breaks_a_rule_loses_its_disk_and_nobody_else() {
    let rig = Rig::new(&VhostUser);
    let mut witness = Guest::connect(&rig.socket()).expect("a server");
    rig.disk.hold(true);
    witness.submit(0, write(0, 1));
    for _ in 0..20 {
        let mut guest = Guest::connect(&rig.socket()).expect("a server");
        guest.break_the_rules();
        let client: &mut dyn Client = &mut guest;
        assert!(client.is_disconnected());
    }
    rig.disk.hold(false);
    done(&mut witness, 1);
    assert_eq!(rig.door.clients().len(), 1);
}

#[test]
fn a_guest_whose_memory_is_taken_away_loses_its_disk_and_nobody_else() {
    let rig = Rig::new(&VhostUser);
    let mut witness = Guest::connect(&rig.socket()).expect("a server");
    for round in 0..20u8 {
        let mut guest = Guest::connect(&rig.socket()).expect("a server");
        rig.disk.hold(true);
        // Some are with the device when the memory goes, and are answered into nothing.
        (0..u32::from(round % 4)).for_each(|tag| guest.submit(tag, write(tag, 1)));
        assert!(guest.cut_memory(), "round {round}");
        rig.disk.hold(false);
        witness.submit(0, write(9, round));
        done(&mut witness, 1);
    }
}

#[test]
fn a_guest_is_told_that_its_disk_has_grown_and_uses_all_of_it() {
    const CONFIG_CHANGE: u32 = 2;
    let rig = Rig::new(&VhostUser);
    rig.disk.resize(4 << 20);
    let mut guest = Guest::connect(&rig.socket()).expect("a server");
    let mut requests = guest.requests();
    assert_eq!(guest.properties().size, 4 << 20);
    rig.disk.resize(8 << 20);
    let mut head = [0; 12];
    requests.read_exact(&mut head).expect("a message");
    let expected = [CONFIG_CHANGE, 1, 0].map(u32::to_ne_bytes).concat();
    assert_eq!(head[..], expected);
    assert_eq!(guest.properties().size, 8 << 20);
    let client: &mut dyn Client = &mut guest;
    let offset = (8 << 20) - 65536;
    client.ask(Command::Write { offset, data: vec![7; 65536], fua: false }).expect("a write");
    assert_eq!(client.read(offset, 65536), vec![7; 65536]);
}

#[test]
fn a_driver_that_knows_no_flush_gets_durable_writes() {
    let rig = Rig::new(&VhostUser);
    let mut guest = Guest::connect_without(&rig.socket(), F_FLUSH).expect("a server");
    for round in 1..=20u8 {
        (0..16).for_each(|tag| guest.submit(tag, write(tag, round)));
        done(&mut guest, 16);
        rig.disk.cut_power();
        let client: &mut dyn Client = &mut guest;
        assert_eq!(client.read(0, 65536), vec![round; 65536]);
    }
}

#[test]
fn a_driver_without_an_event_index_is_called_all_the_same() {
    let rig = Rig::new(&VhostUser);
    let mut guest = Guest::connect_without(&rig.socket(), F_EVENT_IDX).expect("a server");
    for _ in 0..50 {
        (0..8).for_each(|tag| guest.submit(tag, write(tag, 1)));
        done(&mut guest, 8);
    }
}

#[test]
fn rings_stop_when_all_is_answered_and_go_on_where_they_were() {
    let rig = Rig::new(&VhostUser);
    let mut guest = Guest::connect(&rig.socket()).expect("a server");
    for round in 0..20 {
        (0..16).for_each(|tag| guest.submit(tag, write(tag, round)));
        match round % 3 {
            0 => (0..2).for_each(|nr| guest.restart(nr)),
            1 => guest.pass_memory_again(),
            _ => {}
        }
        done(&mut guest, 16);
    }
    let client: &mut dyn Client = &mut guest;
    assert_eq!(client.read(0, 65536), vec![19; 65536]);
    assert_eq!(rig.door.clients().len(), 1);
}

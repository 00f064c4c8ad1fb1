//! Servers that end with requests under way, and their successors.

use braid_doors::vhost::VhostUser;
use braid_doors::vhost::guest::Guest;
use braid_doors::{Answer, Client, Command, Disk, Rig, Shape};
use braid_export::Export;
use braid_vhost::{Limits, Server};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// The guest's next answers, by tag.
fn answers(guest: &mut Guest, count: usize) -> Vec<u32> {
    let one = |_| match guest.answer(PATIENCE) {
        Answer::Done(tag, Ok(_)) => tag,
        other => panic!("{other:?}"),
    };
    let mut tags: Vec<u32> = (0..count).map(one).collect();
    tags.sort_unstable();
    tags
}

fn write(offset: u64, byte: u8) -> Command {
    Command::Write { offset, data: vec![byte; 4096], fua: false }
}

#[test]
fn what_a_server_left_is_done_once_by_the_next() {
    let rig = Rig::new(&VhostUser);
    let mut guest = Guest::connect(&rig.socket()).expect("a server");
    (0..4).for_each(|tag| guest.submit(tag, write(u64::from(tag) * 4096, 1)));
    assert_eq!(answers(&mut guest, 4), [0, 1, 2, 3]);
    rig.disk.hold(true);
    (4..20).for_each(|tag| guest.submit(tag, write(u64::from(tag) * 4096, 2)));
    while rig.disk.under_way() < 16 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The front end is cut off with sixteen requests at the device, and comes back while they are still there.
    guest.leave();
    assert!(guest.connect_again(&rig.socket()));
    (20..24).for_each(|tag| guest.submit(tag, write(u64::from(tag) * 4096, 3)));
    assert_eq!(guest.answer(Duration::from_millis(200)), Answer::Nothing);
    assert_eq!(rig.disk.under_way(), 16, "what the device has is not given to it again");
    rig.disk.hold(false);
    assert_eq!(answers(&mut guest, 20), (4..24).collect::<Vec<u32>>());
    for nr in 0..24u32 {
        let expected = match nr {
            0..4 => 1,
            4..20 => 2,
            _ => 3,
        };
        let client: &mut dyn Client = &mut guest;
        assert_eq!(client.read(u64::from(nr) * 4096, 4096), vec![expected; 4096]);
    }
}

#[test]
fn another_server_goes_on_where_the_first_was_stopped() {
    let rig = Rig::new(&VhostUser);
    let mut guest = Guest::connect(&rig.socket()).expect("a server");
    let mut model = [0u8; 64];
    let mut tag = 0;
    for round in 1..=20u8 {
        let path = rig.socket();
        let target = rig.target();
        for nr in 0..16u8 {
            let place = (round * 5 + nr * 3) % 64;
            guest.submit(tag, write(u64::from(place) * 4096, round));
            model[usize::from(place)] = round;
            tag += 1;
        }
        if round == 1 {
            rig.door.stop();
        }
        // Requests that were not answered go to the next server.
        let limits = Limits::default();
        let next = Server::start(&limits, rig.shards(), &path, None, &[target]);
        let next = next.expect("a server");
        assert!(guest.connect_again(&path), "round {round}");
        let first = tag - 16;
        let expected: Vec<u32> = (first..tag).collect();
        assert_eq!(answers(&mut guest, 16), expected, "round {round}");
        next.stop();
    }
    let target = rig.target();
    let last = Server::start(&Limits::default(), rig.shards(), &rig.socket(), None, &[target]);
    let last = last.expect("a server");
    assert!(guest.connect_again(&rig.socket()));
    for (place, byte) in model.iter().enumerate() {
        let client: &mut dyn Client = &mut guest;
        assert_eq!(client.read(place as u64 * 4096, 4096), vec![*byte; 4096], "block {place}");
    }
    last.stop();
}

#[test]
fn a_socket_is_for_the_target_that_it_was_opened_for() {
    let rig = Rig::new(&VhostUser);
    let path = rig.socket().with_extension("other");
    let limits = Limits::default();
    let targets: [Arc<dyn braid_device::Target>; 1] = [rig.target()];
    let another = Server::start(&limits, rig.shards(), &path, Some("another"), &targets);
    let another = another.expect("a server");
    assert!(!another.offers("disk") && Guest::connect(&path).is_none());
    another.stop();
    let any = Server::start(&limits, rig.shards(), &path, None, &targets).expect("a server");
    let other = Disk::new(Shape::default(), 2);
    any.offer(Arc::new(other)).expect("it is passed over");
    assert_eq!(any.locations("disk"), [format!("vhost-user:{}", path.display())]);
    any.stop();
    assert!(!path.exists());
}

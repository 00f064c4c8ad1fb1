//! Offered, listed, drained, withdrawn, handed over, stopped.

use crate::client::{Answer, Command};
use crate::rig::wait_until;
use crate::{Adapter, Rig};
use std::time::Duration;

const SOON: Duration = Duration::from_millis(200);

/// The clients, by address, and their counters.
pub fn clients_are_listed_with_what_they_did(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    assert!(rig.door.clients().is_empty());
    let mut client = rig.client();
    client.fill(0, 8192, 1);
    client.read(0, 4096);
    client.read(4096, 512);
    let beyond = Command::Read { offset: 1 << 40, length: 512 };
    client.ask(beyond).expect_err("there is nothing");
    wait_until("one client and four requests", || {
        rig.door.clients().first().is_some_and(|client| client.traffic.requests == 4)
    });
    let clients = rig.door.clients();
    let [listed] = clients.as_slice() else { panic!("{clients:?}") };
    assert_eq!((listed.target.as_str(), listed.protocol), ("disk", adapter.protocol()));
    assert_eq!(listed.address, format!("process {}", std::process::id()));
    let traffic = listed.traffic;
    assert_eq!((traffic.read_bytes, traffic.written_bytes, traffic.errors), (4608, 8192, 1));
    rig.disk.hold(true);
    client.submit(1, Command::Flush);
    wait_until("a request under way", || {
        rig.door.clients().first().is_some_and(|client| client.traffic.in_flight == 1)
    });
    rig.disk.hold(false);
    drop(client);
    wait_until("no client", || rig.door.clients().is_empty());
}

/// A drain answers what was taken, and keeps what comes until it is resumed.
pub fn a_drain_answers_what_was_taken(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    rig.disk.hold(true);
    (0..4).for_each(|tag| client.submit(tag, Command::Read { offset: 0, length: 512 }));
    wait_until("four requests under way", || rig.disk.under_way() == 4);
    assert_eq!(rig.door.drain(SOON), 4);
    rig.disk.hold(false);
    assert_eq!(rig.door.drain(Duration::from_secs(20)), 0);
    for _ in 0..4 {
        let answer = client.answer(SOON);
        assert!(matches!(answer, Answer::Done(_, Ok(_))), "{answer:?}");
    }
    client.submit(9, Command::Write { offset: 0, data: vec![4; 512], fua: false });
    let mut late = rig.client();
    late.submit(3, Command::Read { offset: 512, length: 512 });
    assert_eq!(client.answer(SOON), Answer::Nothing);
    assert_eq!(late.answer(SOON), Answer::Nothing);
    assert_eq!((rig.disk.under_way(), rig.disk.changes()), (0, 0));
    rig.door.resume();
    assert_eq!(client.answer(Duration::from_secs(20)), Answer::Done(9, Ok(Vec::new())));
    assert_eq!(late.answer(Duration::from_secs(20)), Answer::Done(3, Ok(vec![0; 512])));
    assert_eq!(client.read(0, 512), vec![4; 512]);
}

/// Its clients are cut off, nobody new gets it, and it can be offered again.
pub fn a_target_that_is_withdrawn_loses_its_clients(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    client.fill(0, 512, 1);
    rig.door.withdraw("disk");
    assert!(client.is_disconnected());
    assert!(!rig.door.offers("disk"));
    assert_eq!(rig.door.locations("disk"), Vec::<String>::new());
    assert!(rig.adapter.connect(&rig.socket()).is_none());
    rig.door.offer(rig.target()).expect("a name that is free");
    assert!(rig.door.offers("disk"));
    assert_eq!(rig.client().read(0, 512), vec![1; 512]);
}

/// A target that somebody uses stays, and its clients with it.
pub fn a_target_in_use_is_not_taken_away(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let (mut one, other) = (rig.client(), rig.client());
    one.flush();
    wait_until("two clients", || rig.door.withdraw_unused("disk") == Err(2));
    one.fill(0, 512, 1);
    drop(other);
    wait_until("one client", || rig.door.withdraw_unused("disk") == Err(1));
    drop(one);
    wait_until("no client", || rig.door.withdraw_unused("disk") == Ok(()));
    assert!(!rig.door.offers("disk"));
    assert_eq!(rig.door.withdraw_unused("disk"), Ok(()));
}

/// New clients reach the successor, those of before stay where they are.
pub fn a_successor_gets_new_clients_and_old_ones_stay(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut old = rig.client();
    old.fill(0, 512, 1);
    let sockets = rig.door.hand_over().expect("descriptors");
    let successor = adapter.adopt(sockets, rig.shards(), rig.target());
    let mut new = rig.client();
    new.fill(512, 512, 2);
    assert_eq!(old.read(512, 512), vec![2; 512]);
    assert_eq!(new.read(0, 512), vec![1; 512]);
    assert_eq!((rig.door.clients().len(), successor.clients().len()), (1, 1));
    rig.door.stop();
    assert!(old.is_disconnected());
    assert_eq!(new.read(0, 512), vec![1; 512]);
    // Nor did the stop take the socket away.
    rig.assert_serves();
    assert!(rig.door.hand_over().expect("nothing is left to give").is_empty());
    successor.stop();
    assert!(!rig.socket().exists());
}

/// Clients that are connected notice nothing, requests that wait with them are carried out by the successor; or they stay where
/// they are.
pub fn a_successor_goes_on_with_clients_where_it_can(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let (mut idle, mut asking) = (rig.client(), rig.client());
    idle.fill(0, 512, 1);
    asking.flush();
    assert_eq!(rig.door.drain(Duration::from_secs(20)), 0);
    asking.submit(7, Command::Write { offset: 512, data: vec![2; 32768], fua: false });
    asking.submit(8, Command::Read { offset: 0, length: 512 });
    let passed = rig.door.pass_clients();
    if !adapter.passes_clients() {
        assert!(passed.is_empty());
        rig.door.resume();
        assert!(matches!(asking.answer(Duration::from_secs(20)), Answer::Done(_, Ok(_))));
        assert_eq!(idle.read(0, 512), vec![1; 512]);
        return;
    }
    assert_eq!(passed.len(), 2);
    wait_until("no client", || rig.door.clients().is_empty());
    let sockets = rig.door.hand_over().expect("descriptors");
    let successor = adapter.adopt(sockets, rig.shards(), rig.target());
    rig.door.stop();
    assert_eq!(rig.disk.under_way(), 0);
    for client in passed {
        assert_eq!(client.target, "disk");
        successor.take_client(client).expect("a client of the same door");
    }
    let mut answers =
        vec![asking.answer(Duration::from_secs(20)), asking.answer(Duration::from_secs(20))];
    answers.sort_by_key(|answer| matches!(answer, Answer::Done(8, _)));
    let wanted = [Answer::Done(7, Ok(Vec::new())), Answer::Done(8, Ok(vec![1; 512]))];
    assert_eq!(answers, wanted);
    assert_eq!(idle.read(512, 32768), vec![2; 32768]);
    assert_eq!(successor.clients().len(), 2);
    drop((idle, asking));
    wait_until("no client", || successor.clients().is_empty());
}

/// No client, no socket, no task.
pub fn a_stop_leaves_nothing_behind(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut clients: Vec<_> = (0..3).map(|_| rig.client()).collect();
    clients.iter_mut().for_each(|client| client.flush());
    let idle = rig.connection();
    rig.disk.hold(true);
    clients.iter_mut().for_each(|client| client.submit(1, Command::Flush));
    wait_until("requests under way", || rig.disk.under_way() == 3);
    std::thread::scope(|scope| {
        scope.spawn(|| rig.door.stop());
        std::thread::sleep(SOON);
        rig.disk.hold(false);
    });
    assert!(clients.iter_mut().all(|client| client.is_disconnected()));
    assert!(!rig.socket().exists());
    assert!(rig.door.clients().is_empty());
    wait_until("no task on any shard", || rig.tasks() == 0);
    rig.door.stop();
    drop(idle);
}

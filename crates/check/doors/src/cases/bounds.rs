//! Sizes, alignment, rights, errors.

use crate::client::{Client, Command, Failure};
use crate::{Adapter, Rig, Shape};

/// Size, blocks, rights, limits and places are told as they are.
pub fn the_target_is_described_as_it_is(adapter: &dyn Adapter) {
    for (size, block, read_only) in
        [(8 << 20, 512, false), ((1 << 20) + 512, 512, true), (3 << 20, 4096, false)]
    {
        let rig = Rig::of(adapter, Shape { size, block, read_only });
        assert_eq!(rig.door.protocol(), adapter.protocol());
        assert!(rig.door.offers("disk") && !rig.door.offers("another"));
        assert_eq!(rig.door.locations("another"), Vec::<String>::new());
        let locations = rig.door.locations("disk");
        let socket = rig.socket();
        let named = |location: &String| adapter.names(location, &socket);
        assert!(!locations.is_empty() && locations.iter().all(named), "{locations:?}");
        let limits = rig.door.limits();
        assert!(limits.connections > 0 && limits.request_bytes > 0 && limits.memory > 0);
        let found = rig.client().properties();
        assert_eq!((found.size, found.block), (size, u64::from(block)));
        assert_eq!(found.read_only, read_only);
    }
}

/// Every kind of request at these bytes.
fn each_at(offset: u64, length: u64) -> Vec<Command> {
    vec![
        Command::Read { offset, length },
        Command::Write { offset, data: vec![1; length as usize], fua: false },
        Command::Discard { offset, length },
        Command::Zero { offset, length },
    ]
}

fn assert_refused(adapter: &dyn Adapter, client: &mut dyn Client, command: Command) {
    let said = format!("{command:?}").chars().take(60).collect::<String>();
    let failure = client.ask(command).expect_err(&said);
    assert!(!adapter.tells_refusals() || failure == Failure::Refused, "{said}: {failure:?}");
}

/// A disk of large blocks takes no part of one.
pub fn blocks_of_4096_are_kept_to(adapter: &dyn Adapter) {
    let rig = Rig::of(adapter, Shape { block: 4096, ..Shape::default() });
    let mut client = rig.client();
    for (offset, length) in [(512, 4096), (4096, 512), (0, 4608)] {
        for command in each_at(offset, length) {
            assert_refused(adapter, &mut *client, command);
        }
    }
    client.fill(4096, 8192, 9);
    assert_eq!(client.read(4096, 8192), vec![9; 8192]);
    assert_eq!(client.read(0, 4096), vec![0; 4096]);
}

/// Beyond the end, across it, and where offset and length overflow.
pub fn requests_beyond_the_end_are_refused(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    let mut client = rig.client();
    let size = client.properties().size;
    for offset in [size, size - 512, size + 512, 1 << 62, u64::MAX - 1023] {
        for command in each_at(offset, 1024) {
            assert_refused(adapter, &mut *client, command);
        }
    }
    client.fill(size - 512, 512, 3);
    assert_eq!(client.read(size - 512, 512), vec![3; 512]);
}

/// Nothing that writes reaches a read-only target.
pub fn a_read_only_target_takes_no_write(adapter: &dyn Adapter) {
    let rig = Rig::of(adapter, Shape { read_only: true, ..Shape::default() });
    let mut client = rig.client();
    assert!(client.properties().read_only);
    for command in each_at(4096, 4096).into_iter().skip(1) {
        assert_refused(adapter, &mut *client, command);
    }
    assert_eq!(client.read(4096, 4096), vec![0; 4096]);
    client.flush();
    assert_eq!(rig.disk.changes(), 0);
}

/// A block that cannot be read or written is an error of that request.
pub fn errors_of_the_device_reach_the_client_and_nobody_else(adapter: &dyn Adapter) {
    let rig = Rig::new(adapter);
    rig.disk.break_at(8192..8704);
    let (mut client, mut other) = (rig.client(), rig.client());
    let read = Command::Read { offset: 8192, length: 512 };
    assert_eq!(client.ask(read), Err(Failure::Io));
    let write = Command::Write { offset: 4096, data: vec![1; 8192], fua: false };
    assert_eq!(client.ask(write), Err(Failure::Io));
    client.fill(0, 8192, 5);
    assert_eq!(other.read(0, 8192), vec![5; 8192]);
}

/// Clients that were there before can use the part that a target has gained, and its end is kept to as before.
pub fn a_target_that_grows_is_used_to_its_new_end(adapter: &dyn Adapter) {
    let rig = Rig::of(adapter, Shape { size: 8 << 20, ..Shape::default() });
    rig.disk.resize(4 << 20);
    let (mut client, mut other) = (rig.client(), rig.client());
    assert_eq!(client.properties().size, 4 << 20);
    client.fill((4 << 20) - 4096, 4096, 1);
    for command in each_at(4 << 20, 4096) {
        assert_refused(adapter, &mut *client, command);
    }
    rig.disk.resize(6 << 20);
    // Across the end of before, behind it, and up to the end of now.
    for (offset, byte) in [((4 << 20) - 512, 2), (5 << 20, 3), ((6 << 20) - 4096, 4)] {
        client.fill(offset, 4096, byte);
        assert_eq!(other.read(offset, 4096), vec![byte; 4096]);
    }
    client.ask(Command::Zero { offset: 5 << 20, length: 2048 }).expect("zeroes behind the end");
    client.ask(Command::Discard { offset: 4 << 20, length: 4096 }).expect("a discard across it");
    for command in each_at((6 << 20) - 2048, 4096) {
        assert_refused(adapter, &mut *client, command);
    }
    client.flush();
    rig.disk.cut_power();
    let expected = [vec![0; 2048], vec![3; 2048]].concat();
    assert_eq!(other.read(5 << 20, 4096), expected);
    assert_eq!(rig.client().properties().size, 6 << 20);
}

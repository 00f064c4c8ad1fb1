//! Members that lie on a file system that is full.

use crate::control::tests::hanging::{array, clear, named, set, start, start_write, state};
use crate::control::tests::world::pattern;
use crate::status::{ArrayState, MemberState};
use braid_layout::Level;
use std::rc::Rc;

const SECOND: u64 = 1_000_000_000;

#[test]
fn writes_wait_for_space_and_reads_go_on() {
    for level in [Level::Raid0, Level::Raid1, Level::Raid5] {
        let (world, members, array, control) = array(2, level, 3);
        // The superblocks say "active" by now: it is the data that finds no space.
        world.write(&array, 0, 0, &pattern(7, 4096)).unwrap();
        members.iter().for_each(|member| set(&member.full));
        let write = start_write(&world, &array, 1 << 20);
        world.sleep(600 * SECOND);
        assert_eq!(*write.borrow(), None, "{level}");
        let status = world.status(&control);
        assert!(status.state.contains(&ArrayState::NoSpace), "{level}: {:?}", status.state);
        assert!(status.members.iter().any(|member| member.waiting_for_space > 0), "{level}");
        assert!(status.members.iter().all(|member| member.state == MemberState::InSync), "{level}");
        assert!(world.read(&array, 1, 2 << 20, 4096).unwrap() == pattern(2 << 20, 4096), "{level}");
        members.iter().for_each(|member| clear(&member.full));
        // By itself, or by command.
        match level {
            Level::Raid1 => world.sleep(6 * SECOND),
            _ => {
                let c = Rc::clone(&control);
                assert!(world.run(async move { c.unanswered().resume().await }) > 0, "{level}");
                world.sleep(SECOND / 10);
            }
        }
        assert_eq!(*write.borrow(), Some(true), "{level}");
        world.sleep(2 * SECOND);
        assert!(!world.status(&control).state.contains(&ArrayState::NoSpace), "{level}");
        assert!(world.read(&array, 0, 1 << 20, 4096).unwrap() == pattern(7, 4096), "{level}");
        world.stop(&control);
    }
}

#[test]
fn a_member_without_space_can_be_failed_and_writes_go_on() {
    // Also where the superblocks are what finds no space, under the turn.
    for active in [true, false] {
        let (world, members, array, control) = array(1, Level::Raid5, 3);
        if active {
            world.write(&array, 0, 0, &pattern(7, 4096)).unwrap();
        }
        set(&members[1].full);
        // The second chunk, which m1 has.
        let write = start_write(&world, &array, 64 << 10);
        world.sleep(60 * SECOND);
        assert_eq!((*write.borrow(), state(&world, &control, "m1")), (None, MemberState::InSync));
        let c = Rc::clone(&control);
        world.run(async move { c.membership().fail(&named("m1")).await }).unwrap();
        world.sleep(SECOND / 10);
        assert_eq!(*write.borrow(), Some(true));
        assert!(!world.status(&control).state.contains(&ArrayState::NoSpace));
        world.stop(&control);
    }
}

#[test]
fn a_stop_ends_without_space_and_the_next_start_resyncs() {
    for active in [true, false] {
        let (world, members, array, control) = array(2, Level::Raid5, 3);
        if active {
            world.write(&array, 0, 0, &pattern(7, 4096)).unwrap();
        }
        set(&members[1].full);
        // The second chunk, which m1 has.
        let write = start_write(&world, &array, 64 << 10);
        world.sleep(SECOND);
        let c = Rc::clone(&control);
        let stopped = start(&world, async move { c.stop().await });
        world.sleep(60 * SECOND);
        assert!(stopped.borrow().is_some());
        assert_eq!(*write.borrow(), Some(false));
        clear(&members[1].full);
        let (_, control) = world.assemble(&members);
        let status = world.status(&control);
        assert!(status.members.iter().all(|member| member.state == MemberState::InSync));
        assert!(status.resynced.is_some(), "it was left as if it were clean");
        world.wait_idle(&control);
        assert_eq!(world.check(&control), 0);
        world.stop(&control);
    }
}

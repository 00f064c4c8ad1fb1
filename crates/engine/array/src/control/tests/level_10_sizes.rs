//! Level 10 notes the size that its layout uses when it is first run: until all members say so, both sizes are right.

use crate::control::Control;
use crate::control::tests::world::{TestMember, World, members, pattern};
use crate::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::Opener;
use braid_layout::{Level, layout_number};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const CHUNK: u64 = 64 << 10;
const DISKS: usize = 4;
/// Of far layouts with three copies each third of a component is one copy: a chunk is left over.
const CHUNKS: u64 = 31;

fn created(world: &World) -> Vec<Arc<TestMember>> {
    let members = members("m", DISKS, 8 << 20);
    let options = CreateOptions {
        layout: Some(layout_number(Level::Raid10, "f3").unwrap()),
        size: Some(CHUNKS * CHUNK),
        chunk_size: Some(CHUNK),
        assume_clean: true,
        bitmap: CreateBitmap::Internal { chunk: Some(CHUNK) },
        ..CreateOptions::new("data", Level::Raid10, DISKS)
    };
    world.create(&members, options);
    members
}

fn size(world: &World, member: &Arc<TestMember>) -> u64 {
    world.superblock(member).size * 512
}

#[test]
fn a_power_cut_while_the_size_is_noted_leaves_an_array_that_starts() {
    let mut noted = BTreeSet::new();
    for writes in 0.. {
        let world = World::new(1);
        let members = created(&world);
        members[0].power.store(writes, Ordering::Relaxed);
        drop(world.try_assemble(&members, AssembleOptions::default()));
        let all_written = members[0].power.swap(u64::MAX, Ordering::Relaxed) > 0;
        let world = world.crash();
        let has_noted = |member: &&Arc<TestMember>| size(&world, member) != CHUNKS * CHUNK;
        noted.insert(members.iter().filter(has_noted).count());
        let (array, control) = world.assemble(&members);
        world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
        world.stop(&control);
        for member in &members {
            assert_eq!(size(&world, member), (CHUNKS - 1) * CHUNK, "after {writes} writes");
        }
        if all_written {
            break;
        }
    }
    assert!(noted.iter().copied().eq(0..=DISKS), "so many members had noted it: {noted:?}");
}

#[test]
fn a_member_that_was_away_when_the_size_was_noted_needs_no_full_rebuild() {
    let world = World::new(1);
    let members = created(&world);
    let (array, control) = world.assemble(&members[..DISKS - 1]);
    world.write(&array, 0, 0, &pattern(0, 4096)).unwrap();
    assert_eq!(size(&world, &members[0]), (CHUNKS - 1) * CHUNK);
    assert_eq!(size(&world, &members[DISKS - 1]), CHUNKS * CHUNK);
    let opener = Arc::clone(&members[DISKS - 1]) as Arc<dyn Opener>;
    let asked: Rc<Control> = Rc::clone(&control);
    let added = world.run(async move { asked.membership().add(opener, false).await }).unwrap();
    assert!(added.re_added, "the bitmap says what it lacks");
    world.wait_idle(&control);
    assert_eq!(world.check(&control), 0);
    world.stop(&control);
}

//! Other levels in several steps across the border: braid makes all of them and md runs the array, or braid is stopped or killed
//! in one of them and md goes on with it.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::control::steps::wanted::{WantedArray, WantedLayout};
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::file::create_sparse;
use braid_interop::across::{self, content, die, openers, path};
use braid_interop::by_braid::own_context;
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fmt::Write as _;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MEMBER: u64 = 16 * MIB;
const COMPONENT: u64 = 8 * MIB;
/// Bytes at the start of the array that are compared.
const COMPARED: usize = 15 << 20;

/// A change: of what, to what, and what the array is while the step is under way in which data is moved.
struct Kind {
    name: &'static str,
    from: Level,
    layout: u32,
    disks: usize,
    spares: usize,
    to: Level,
    wanted: WantedLayout,
    chunk: Option<u64>,
    /// Slots in the end.
    left: usize,
    moved_at: Level,
}

fn kinds() -> [Kind; 10] {
    use Level::{Raid0, Raid4, Raid5, Raid6};
    let of = |name, (from, layout, disks, spares), (to, wanted, chunk, left), moved_at| Kind {
        name,
        from,
        layout,
        disks,
        spares,
        to,
        wanted,
        chunk,
        left,
        moved_at,
    };
    let (any, number) = (WantedLayout::Any, WantedLayout::Number);
    let small = Some(16 * KIB);
    [
        of("fivesix", (Raid5, 2, 3, 1), (Raid6, number(2), None, 4), Raid6),
        of("normal", (Raid5, 0, 4, 1), (Raid6, WantedLayout::Normalise, None, 5), Raid6),
        of("sixfive", (Raid6, 2, 5, 0), (Raid5, any, None, 4), Raid6),
        of("sixchunk", (Raid6, 2, 5, 0), (Raid5, number(3), small, 4), Raid6),
        of("foursix", (Raid4, 0, 3, 1), (Raid6, number(2), None, 4), Raid6),
        of("fivefour", (Raid5, 2, 3, 0), (Raid4, any, small, 3), Raid5),
        of("fourfive", (Raid4, 0, 3, 0), (Raid5, number(2), None, 3), Raid5),
        of("fivezero", (Raid5, 2, 4, 1), (Raid0, any, None, 3), Raid5),
        of("sixzero", (Raid6, 2, 5, 0), (Raid0, any, small, 3), Raid6),
        of("fourzero", (Raid4, 0, 3, 0), (Raid0, any, small, 2), Raid4),
    ]
}

impl Kind {
    fn members(&self) -> usize {
        self.disks + self.spares
    }

    /// Those that are there at the end: the first ones stay, and level 0 has no spares.
    fn stay(&self) -> usize {
        if self.to == Level::Raid0 { self.left } else { self.members() }
    }

    fn size(&self) -> u64 {
        COMPONENT * (self.disks - self.from.parity_count()) as u64
    }
}

/// An array is made, filled and changed; copies of its members stay behind as `NAMEkilled` in the middle of what is moved.
fn changed_by_braid(folder: &std::path::Path, shard: &Shard, kind: &Kind) {
    let (name, members) = (kind.name, kind.members());
    for nr in 0..members {
        create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
    }
    let options = CreateOptions {
        chunk_size: Some(64 * KIB),
        size: Some(COMPONENT),
        spares: kind.spares,
        layout: (kind.from != Level::Raid4).then_some(kind.layout),
        assume_clean: true,
        bitmap: CreateBitmap::None,
        ..CreateOptions::new(name, kind.from, kind.disks)
    };
    let (ctx, given) = (own_context(shard), openers(folder, name, members));
    let wanted = WantedArray {
        level: kind.to,
        layout: kind.wanted,
        chunk_size: kind.chunk,
        raid_disks: None,
    };
    let (on, folder) = (shard.clone(), folder.to_path_buf());
    let (to, left) = (kind.to, kind.left);
    shard.block_on(async move {
        let all = given.iter().cloned().map(Some).collect();
        create(&ctx, all, options).await.expect("it is created");
        let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
        let control = Control::find(&on, array.id()).expect("it runs");
        across::write(&on, &array, &content(COMPARED)).await;
        control.jobs().set_sync_speed(0, 4 * KIB).expect("a speed is set");
        control.change_to(wanted, false).await.expect("it begins");
        loop {
            on.sleep(20_000_000).await;
            let reshape = control.status().await.reshape;
            if reshape.is_some_and(|reshape| reshape.position > 0) {
                break;
            }
        }
        die(&folder, name, &format!("{name}killed"), members);
        control.jobs().set_sync_speed(0, u64::MAX).expect("a speed is set");
        control.jobs().wait_idle().await;
        let status = control.status().await;
        assert_eq!((status.level, status.raid_disks, status.degraded), (to, left, 0), "{name}");
        control.stop().await;
    });
}

#[test]
fn md_runs_what_braid_has_changed_in_steps_and_goes_on_with_a_step_that_was_cut() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(COMPARED)).unwrap();
    let mut script = across::preamble(900);
    for kind in kinds() {
        changed_by_braid(folder, &shard, &kind);
        let (name, killed) = (kind.name, format!("{}killed", kind.name));
        let level = |script: &mut String, name: &str, devices: &str| {
            writeln!(
                script,
                "mdadm --assemble --run --quiet /dev/md0 {devices}\n\
                 echo {name}: level $(cat /sys/block/md0/md/level) of $(cat /sys/block/md0/md/raid_disks)\n\
                 stop"
            )
            .unwrap();
        };
        let devices = across::losetup(&mut script, name, kind.stay());
        level(&mut script, name, &devices);
        across::losetup(&mut script, name, kind.stay());
        across::md_checks(&mut script, name, &devices, COMPARED);
        let devices = across::losetup(&mut script, &killed, kind.members());
        writeln!(
            script,
            "mdadm --examine /dev/loop0 | grep -c 'Reshape pos' | sed 's/^/{killed}: reshaping /'"
        )
        .unwrap();
        across::md_checks(&mut script, &killed, &devices, COMPARED);
        across::losetup(&mut script, &killed, kind.members());
        level(&mut script, &killed, &devices);
        script.push_str("losetup -D\n");
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(550));
    let said = output.expect("the guest runs").text;
    for kind in kinds() {
        let name = kind.name;
        let killed = format!("{name}killed");
        let mut lines = across::md_found(name, kind.size()).to_vec();
        if kind.to == Level::Raid0 {
            // md counts no differences there.
            lines.remove(1);
        }
        lines.extend(across::md_found(&killed, kind.size()));
        lines.push(format!("{name}: level {} of {}", kind.to, kind.left));
        lines.push(format!("{killed}: reshaping 1"));
        // md knows the step alone.
        lines.push(format!("{killed}: level {} of ", kind.moved_at));
        for line in lines {
            assert!(said.contains(&line), "{line:?} is not in:\n{said}");
        }
    }
}

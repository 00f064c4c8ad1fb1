//! Reshapes onto more members across the border: begun by one side, stopped or killed in the middle, finished by the other.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::control::reshaping::WantedShape;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions, SyncSpeed};
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
const MEMBER: u64 = 24 * MIB;
const COMPONENT: u64 = 12 * MIB;
/// Bytes at the start of the array that are compared: all that it had before.
const COMPARED: usize = 24 << 20;
/// Slots before, and after.
const LEVELS: [(&str, Level, usize, usize); 3] =
    [("raid4", Level::Raid4, 3, 4), ("raid5", Level::Raid5, 3, 5), ("raid6", Level::Raid6, 4, 5)];
const ENDS: [&str; 2] = ["stopped", "killed"];

fn new_size(level: Level, members: usize) -> u64 {
    COMPONENT * (members - level.parity_count()) as u64
}

#[test]
fn md_goes_on_with_reshapes_that_braid_has_begun() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(COMPARED)).unwrap();
    let mut script = across::preamble(900);
    for (level_name, level, before, after) in LEVELS {
        let stopped = format!("{level_name}stopped");
        (0..after).for_each(|nr| {
            create_sparse(path(folder, &stopped, nr), MEMBER).expect("there is room");
        });
        let options = CreateOptions {
            chunk_size: Some(64 * KIB),
            size: Some(COMPONENT),
            spares: after - before,
            assume_clean: true,
            bitmap: CreateBitmap::None,
            ..CreateOptions::new(level_name, level, before)
        };
        let (ctx, given) = (own_context(&shard), openers(folder, &stopped, after));
        let wanted = WantedShape { raid_disks: Some(after), ..WantedShape::default() };
        let (on, folder_too) = (shard.clone(), folder.to_path_buf());
        shard.block_on(async move {
            let all = given.iter().cloned().map(Some).collect();
            create(&ctx, all, options).await.expect("it is created");
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            let control = Control::find(&on, array.id()).expect("it runs");
            across::write(&on, &array, &content(COMPARED)).await;
            control.jobs().set_sync_speed(0, 1024).expect("a speed is set");
            control.reshape(wanted, false).await.expect("it grows");
            loop {
                on.sleep(50_000_000).await;
                let reshape = control.status().await.reshape.expect("it is slow");
                if reshape.position > 0 {
                    break;
                }
            }
            die(&folder_too, &stopped, &format!("{level_name}killed"), after);
            control.stop().await;
        });
        for end in ENDS {
            let name = format!("{level_name}{end}");
            let devices = across::losetup(&mut script, &name, after);
            writeln!(
                script,
                "mdadm --examine /dev/loop0 | grep -c 'Reshape pos' | sed 's/^/{name}: reshaping /'"
            )
            .unwrap();
            across::md_checks(&mut script, &name, &devices, COMPARED);
        }
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(400));
    let said = output.expect("the guest runs").text;
    for (level_name, level, _, after) in LEVELS {
        for end in ENDS {
            let name = format!("{level_name}{end}");
            let found = across::md_found(&name, new_size(level, after));
            for line in found.into_iter().chain([format!("{name}: reshaping 1")]) {
                assert!(said.contains(&line), "{line:?} is not in:\n{said}");
            }
        }
    }
}

#[test]
fn braid_goes_on_with_reshapes_that_md_has_begun() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(COMPARED)).unwrap();
    let mut script = across::preamble(400);
    for (name, _, before, after) in LEVELS {
        let (mut devices, mut more) = (String::new(), String::new());
        for nr in 0..after {
            create_sparse(path(folder, &format!("{name}stopped"), nr), MEMBER).expect("room");
            writeln!(script, "losetup /dev/loop{nr} {name}stopped.{nr}").unwrap();
            let list = if nr < before { &mut devices } else { &mut more };
            write!(list, " /dev/loop{nr}").unwrap();
        }
        let (number, size) = (&name[4..], COMPONENT / KIB);
        writeln!(
            script,
            "mdadm --create --run --quiet --assume-clean --level {number} --raid-devices {before} --chunk 64 --size {size} \
             --bitmap none /dev/md0{devices}\n\
             dd if=content of=/dev/md0 bs=1M oflag=direct status=none\n\
             mdadm --add --quiet /dev/md0{more}\n\
             echo 1500 > /sys/block/md0/md/sync_speed_max; echo 1000 > /sys/block/md0/md/sync_speed_min\n\
             mdadm --grow --quiet --raid-devices {after} /dev/md0\n\
             await differs reshape_position 0; freeze\n\
             echo {name}: at $(cat /sys/block/md0/md/reshape_position)\n\
             for nr in $(seq 0 {}); do cp {name}stopped.$nr {name}killed.$nr; done\n\
             stop",
            after - 1
        )
        .unwrap();
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(400));
    let said = output.expect("the guest runs").text;
    for (level_name, level, _, after) in LEVELS {
        for end in ENDS {
            let name = format!("{level_name}{end}");
            let (ctx, given) = (own_context(&shard), openers(folder, &name, after));
            let on = shard.clone();
            let options = AssembleOptions {
                sync_speed: SyncSpeed { min_kib: 0, max_kib: 1 },
                ..AssembleOptions::default()
            };
            let (position, found) = shard.block_on(async move {
                let array = assemble(&ctx, given, options).await.expect("it runs");
                let control = Control::find(&on, array.id()).expect("it runs");
                let position = control.status().await.reshape.map(|reshape| reshape.position);
                control.jobs().set_sync_speed(0, u64::MAX).expect("a speed is set");
                (position, across::check(&on, &array, COMPARED).await)
            });
            assert!(position.is_some_and(|at| at > 0), "{name}: {position:?}\n{said}");
            assert!(found.bytes == content(COMPARED), "{name}: the content differs\n{said}");
            let right = (new_size(level, after), 0);
            assert_eq!((found.size, found.mismatch_cnt), right, "{name}\n{said}");
        }
    }
}

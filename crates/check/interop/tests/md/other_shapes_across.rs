//! Reshapes to other chunks, another layout or fewer members across the border: begun by one side, stopped or killed at
//! three places, finished by the other.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::control::reshaping::WantedShape;
use braid_array::control::resizing::WantedSize;
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
/// All that is left of each array in the end.
const LEFT: u64 = 2 * COMPONENT;

struct Kind {
    name: &'static str,
    level: Level,
    members: usize,
    layout: u32,
    /// `None`: with room before the data.
    data_offset: Option<u64>,
    wanted: WantedShape,
}

const SAME: WantedShape = WantedShape { raid_disks: None, chunk_size: None, layout: None };

fn kinds() -> [Kind; 6] {
    let chunk = |kib| WantedShape { chunk_size: Some(kib * KIB), ..SAME };
    let layout = |layout| WantedShape { layout: Some(layout), ..SAME };
    let disks = |disks| WantedShape { raid_disks: Some(disks), ..SAME };
    let of = |name, level, members, layout, data_offset, wanted| Kind {
        name,
        level,
        members,
        layout,
        data_offset,
        wanted,
    };
    let behind = Some(48 * KIB);
    [
        of("smaller", Level::Raid5, 3, 2, None, chunk(16)),
        of("larger", Level::Raid6, 4, 2, behind, chunk(256)),
        of("layout5", Level::Raid5, 3, 2, behind, layout(1)),
        of("layout6", Level::Raid6, 4, 18, None, layout(2)),
        of("fewer5", Level::Raid5, 4, 2, None, disks(3)),
        of("fewer6", Level::Raid6, 5, 2, None, disks(4)),
    ]
}

const ENDS: [&str; 4] = ["early", "middle", "late", "stopped"];

#[test]
fn md_goes_on_with_reshapes_that_braid_has_begun() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(LEFT as usize)).unwrap();
    let mut script = across::preamble(900);
    for kind in kinds() {
        let (name, members) = (kind.name, kind.members);
        let of = |end: &str| format!("{name}{end}");
        (0..members).for_each(|nr| {
            create_sparse(path(folder, &of("stopped"), nr), MEMBER).expect("there is room");
        });
        let options = CreateOptions {
            chunk_size: Some(64 * KIB),
            size: Some(COMPONENT),
            layout: Some(kind.layout),
            data_offset: kind.data_offset,
            assume_clean: true,
            bitmap: CreateBitmap::None,
            ..CreateOptions::new(name, kind.level, members)
        };
        let (ctx, given) = (own_context(&shard), openers(folder, &of("stopped"), members));
        let (on, folder_too) = (shard.clone(), folder.to_path_buf());
        let backwards = kind.data_offset.is_some() || kind.wanted.raid_disks.is_some();
        shard.block_on(async move {
            let all = given.iter().cloned().map(Some).collect();
            create(&ctx, all, options).await.expect("it is created");
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            let control = Control::find(&on, array.id()).expect("it runs");
            across::write(&on, &array, &content(LEFT as usize)).await;
            let left = WantedSize::Bytes(LEFT);
            control.set_array_size(left, false).await.expect("users see less");
            control.jobs().set_sync_speed(0, 3 * KIB).expect("a speed is set");
            let begun = control.reshape(kind.wanted, false).await.expect("it begins");
            assert_eq!(begun.backwards, backwards, "{name}");
            for (end, part) in ENDS.iter().zip([0, 30, 60]) {
                loop {
                    let reshape = control.status().await.reshape.expect("it is slow");
                    let at = reshape.position * 512;
                    let done = if backwards { LEFT - at } else { at };
                    if done * 100 >= part * LEFT {
                        break;
                    }
                    on.sleep(20_000_000).await;
                }
                let to = format!("{name}{end}");
                die(&folder_too, &format!("{name}stopped"), &to, members);
            }
            control.stop().await;
        });
        for end in ENDS {
            let name = of(end);
            let devices = across::losetup(&mut script, &name, members);
            writeln!(
                script,
                "mdadm --examine /dev/loop0 | grep -c 'Reshape pos' | sed 's/^/{name}: reshaping /'"
            )
            .unwrap();
            across::md_checks(&mut script, &name, &devices, LEFT as usize);
        }
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(550));
    let said = output.expect("the guest runs").text;
    for kind in kinds() {
        for end in ENDS {
            let name = format!("{}{end}", kind.name);
            let found = across::md_found(&name, LEFT);
            for line in found.into_iter().chain([format!("{name}: reshaping 1")]) {
                assert!(said.contains(&line), "{line:?} is not in:\n{said}");
            }
        }
    }
}

/// Has md go to fewer members; this mdadm gives new places of the data before it says which way the reshape goes, which md
/// refuses, and asks for a backup file then.
const FEWER: &str = "cd /sys/block/md0/md; echo backwards > reshape_direction; \
     for d in dev-*; do echo $(($(cat $d/offset) + 1024)) > $d/new_offset; done; \
     echo DISKS > raid_disks; echo reshape > sync_action; cd -";

/// By md: name, number of the level, members, and what is to be done: so many members, or what `mdadm --grow` is told.
const BY_MD: [(&str, u32, usize, &str); 4] = [
    ("fewer5", 5, 4, "3"),
    ("fewer6", 6, 5, "4"),
    ("chunk5", 5, 3, "--chunk 16"),
    ("layout6", 6, 4, "--layout right-symmetric"),
];

#[test]
fn braid_goes_on_with_reshapes_to_fewer_members_that_md_has_begun_and_not_where_md_loses_its_place()
{
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(LEFT as usize)).unwrap();
    let mut script = across::preamble(400);
    for (name, number, members, change) in BY_MD {
        let mut devices = String::new();
        for nr in 0..members {
            create_sparse(path(folder, &format!("{name}stopped"), nr), MEMBER).expect("room");
            writeln!(script, "losetup /dev/loop{nr} {name}stopped.{nr}").unwrap();
            write!(devices, " /dev/loop{nr}").unwrap();
        }
        let (size, left) = (COMPONENT / KIB, LEFT / KIB);
        let begin = match change.parse::<usize>() {
            Ok(_) => FEWER.replace("DISKS", change),
            Err(_) => format!("mdadm --grow --quiet {change} /dev/md0"),
        };
        let copy = |end: &str| {
            format!(
                "freeze; \
                 for nr in $(seq 0 {}); do cp {name}stopped.$nr {name}{end}.$nr; done\n\
                 echo {name} {end}: at $(cat /sys/block/md0/md/reshape_position)\n\
                 echo reshape > /sys/block/md0/md/sync_action",
                members - 1
            )
        };
        writeln!(
            script,
            "mdadm --create --run --quiet --assume-clean --level {number} --raid-devices {members} --chunk 64 --size {size} \
             --bitmap none /dev/md0{devices}\n\
             dd if=content of=/dev/md0 bs=1M oflag=direct status=none\n\
             mdadm --grow --quiet --array-size {left} /dev/md0\n\
             echo 1500 > /sys/block/md0/md/sync_speed_max; echo 1000 > /sys/block/md0/md/sync_speed_min\n\
             {begin}\n{}\nsleep 2\n{}\nsleep 2\n{}\nsleep 0.5\n\
             freeze; stop",
            copy("early"),
            copy("middle"),
            copy("late"),
        )
        .unwrap();
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(400));
    let said = output.expect("the guest runs").text;
    for (name, _, members, change) in BY_MD {
        for end in ENDS {
            let name = format!("{name}{end}");
            let (ctx, given) = (own_context(&shard), openers(folder, &name, members));
            let on = shard.clone();
            let options = AssembleOptions {
                sync_speed: SyncSpeed { min_kib: 0, max_kib: 1 },
                ..AssembleOptions::default()
            };
            if change.starts_with("--") {
                let outcome = shard.block_on(async move {
                    match assemble(&ctx, given, options).await {
                        Ok(array) => {
                            let control = Control::find(&on, array.id()).expect("it runs");
                            let reshape = control.status().await.reshape;
                            control.stop().await;
                            Ok(reshape)
                        }
                        Err(error) => Err(error.to_string()),
                    }
                });
                match outcome {
                    Err(error) => assert!(error.contains("--force"), "{name}: {error}\n{said}"),
                    // md had not begun, or had come to its end.
                    Ok(reshape) => {
                        let outside = matches!(end, "early" | "stopped");
                        assert!(reshape.is_none() && outside, "{name}: {reshape:?}\n{said}");
                    }
                }
                continue;
            }
            let (reshaping, found) = shard.block_on(async move {
                let array = assemble(&ctx, given, options).await.expect("it runs");
                let control = Control::find(&on, array.id()).expect("it runs");
                let reshape = control.status().await.reshape;
                control.jobs().set_sync_speed(0, u64::MAX).expect("a speed is set");
                (reshape, across::check(&on, &array, LEFT as usize).await)
            });
            assert!(reshaping.is_some_and(|reshape| reshape.backwards), "{name}\n{said}");
            assert!(found.bytes == content(LEFT as usize), "{name}: the content differs\n{said}");
            assert_eq!((found.size, found.mismatch_cnt), (LEFT, 0), "{name}\n{said}");
        }
    }
}

//! Component sizes across the border: arrays that one side made larger, or smaller, in the hands of the other.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::control::resizing::WantedSize;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::file::create_sparse;
use braid_interop::across::{self, content, openers, path};
use braid_interop::by_braid::own_context;
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fmt::Write as _;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MEMBER: u64 = 24 * MIB;
const SMALL: u64 = 4 * MIB;
/// The largest component is left to the one who grows: these are what both must agree on.
const LARGE: u64 = 12 * MIB;
/// Bytes at the start of the array that are compared.
const COMPARED: usize = 4 << 20;
const LEVELS: [(&str, Level, usize); 5] = [
    ("raid1", Level::Raid1, 2),
    ("raid4", Level::Raid4, 3),
    ("raid5", Level::Raid5, 4),
    ("raid6", Level::Raid6, 5),
    ("raid10", Level::Raid10, 4),
];

fn size_of(level: Level, members: usize, component: u64) -> u64 {
    let data = match level {
        Level::Raid1 => 1,
        Level::Raid10 => members as u64 / 2,
        level => (members - level.parity_count()) as u64,
    };
    component * data
}

#[test]
fn md_runs_what_braid_has_resized() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(COMPARED)).unwrap();
    let mut script = across::preamble(500);
    for bitmap in [CreateBitmap::None, CreateBitmap::Internal { chunk: Some(64 * KIB) }] {
        for (level_name, level, members) in LEVELS {
            let name =
                format!("{level_name}{}", if bitmap == CreateBitmap::None { "" } else { "b" });
            (0..members).for_each(|nr| {
                create_sparse(path(folder, &name, nr), MEMBER).expect("there is room");
            });
            let options = CreateOptions {
                chunk_size: (level != Level::Raid1).then_some(64 * KIB),
                size: Some(SMALL),
                bitmap,
                ..CreateOptions::new(&*name, level, members)
            };
            let (ctx, given) = (own_context(&shard), openers(folder, &name, members));
            let on = shard.clone();
            shard.block_on(async move {
                let all = given.iter().cloned().map(Some).collect();
                create(&ctx, all, options).await.expect("it is created");
                let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("runs");
                let control = Control::find(&on, array.id()).expect("it runs");
                control.jobs().wait_idle().await;
                let large = WantedSize::Bytes(LARGE);
                control.set_component_size(large, false).await.expect("it grows");
                across::write(&on, &array, &content(COMPARED)).await;
                // Not waited for: md does what is left of the resync.
                control.stop().await;
            });
            let devices = across::losetup(&mut script, &name, members);
            across::md_checks(&mut script, &name, &devices, COMPARED);
        }
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(300));
    let said = output.expect("the guest runs").text;
    for suffix in ["", "b"] {
        for (name, level, members) in LEVELS {
            let name = format!("{name}{suffix}");
            for line in across::md_found(&name, size_of(level, members, LARGE)) {
                assert!(said.contains(&line), "{line:?} is not in:\n{said}");
            }
        }
    }
}

#[test]
fn braid_runs_what_md_has_resized() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(COMPARED)).unwrap();
    let mut script = format!("cd {}\n", uml::SHARED);
    for (name, level, members) in LEVELS {
        (0..members).for_each(|nr| {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
        });
        let devices = across::losetup(&mut script, name, members);
        let chunk = if level == Level::Raid1 { "" } else { "--chunk 64" };
        let (number, small, large) = (&name[4..], SMALL / KIB, LARGE / KIB);
        writeln!(
            script,
            "mdadm --create --run --quiet --assume-clean --level {number} --raid-devices {members} {chunk} --size {small} \
             --bitmap internal --bitmap-chunk 64 /dev/md0 {devices}\n\
             mdadm --grow --quiet --size {large} /dev/md0 && echo {name}: grown\n\
             dd if=content of=/dev/md0 bs=1M oflag=direct status=none\n\
             mdadm --stop --quiet /dev/md0; losetup -D"
        )
        .unwrap();
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(300));
    let said = output.expect("the guest runs").text;
    for (name, level, members) in LEVELS {
        assert!(said.contains(&format!("{name}: grown")), "{said}");
        let (ctx, given) = (own_context(&shard), openers(folder, name, members));
        let on = shard.clone();
        let found = shard.block_on(async move {
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            across::check(&on, &array, COMPARED).await
        });
        let size = size_of(level, members, LARGE);
        assert_eq!((found.size, found.mismatch_cnt), (size, 0), "{name}");
        assert!(found.bytes == content(COMPARED), "{name}: the content differs");
    }
}

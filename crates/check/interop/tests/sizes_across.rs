//! Component sizes across the border: arrays that one side made larger, or smaller, in the hands of the other.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::control::resizing::WantedSize;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::file::{FileMember, Mode, create_sparse};
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_interop::by_braid::own_context;
use braid_interop::uml;
use braid_layout::Level;
use braid_shard::Shard;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
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

fn path(folder: &Path, name: &str, nr: usize) -> PathBuf {
    folder.join(format!("{name}.{nr}"))
}

fn openers(folder: &Path, name: &str, members: usize) -> Vec<Arc<dyn Opener>> {
    let open =
        |nr| FileMember::open(path(folder, name, nr), Mode::ReadWrite).expect("a member opens");
    (0..members).map(|nr| Arc::new(open(nr)) as Arc<dyn Opener>).collect()
}

fn content() -> Vec<u8> {
    (0..COMPARED).map(|at| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

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
    std::fs::write(folder.join("content"), content()).unwrap();
    let mut script = format!(
        "cd {}\nsettle() {{ for i in $(seq 500); do [ \"$(cat /sys/block/md0/md/sync_action)\" = idle ] && break; \
         sleep 0.05; done; }}\n",
        uml::SHARED
    );
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
                let device = array.open(&on).expect("it runs");
                let bytes = on.pool().copy_of(&content()).freeze();
                let written = IoSets::new(&on).one(&*device, Request::write(0, bytes, true)).await;
                written.result.expect("it is written");
                // Not waited for: md does what is left of the resync.
                drop(device);
                control.stop().await;
            });
            let mut devices = String::new();
            for nr in 0..members {
                writeln!(script, "losetup /dev/loop{nr} {name}.{nr}").unwrap();
                write!(devices, " /dev/loop{nr}").unwrap();
            }
            writeln!(
                script,
                "mdadm --assemble --run --quiet /dev/md0{devices}\nmdadm --readwrite --quiet /dev/md0\nsleep 0.3; settle\n\
                 echo {name}: $(blockdev --getsize64 /dev/md0) bytes\n\
                 echo check > /sys/block/md0/md/sync_action; sleep 0.2; settle\n\
                 echo {name}: mismatch_cnt $(cat /sys/block/md0/md/mismatch_cnt) degraded $(cat /sys/block/md0/md/degraded)\n\
                 cmp -n {COMPARED} /dev/md0 content && echo {name}: same\n\
                 mdadm --stop --quiet /dev/md0; losetup -D"
            )
            .unwrap();
        }
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(300));
    let said = output.expect("the guest runs").text;
    for suffix in ["", "b"] {
        for (name, level, members) in LEVELS {
            let size = size_of(level, members, LARGE);
            for line in [format!("{size} bytes"), "mismatch_cnt 0 degraded 0".into(), "same".into()]
            {
                let line = format!("{name}{suffix}: {line}");
                assert!(said.contains(&line), "{line:?} is not in:\n{said}");
            }
        }
    }
}

#[test]
fn braid_runs_what_md_has_resized() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content()).unwrap();
    let mut script = format!("cd {}\n", uml::SHARED);
    for (name, level, members) in LEVELS {
        let mut devices = String::new();
        for nr in 0..members {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
            writeln!(script, "losetup /dev/loop{nr} {name}.{nr}").unwrap();
            write!(devices, " /dev/loop{nr}").unwrap();
        }
        let chunk = if level == Level::Raid1 { "" } else { "--chunk 64" };
        let (number, small, large) = (&name[4..], SMALL / KIB, LARGE / KIB);
        writeln!(
            script,
            "mdadm --create --run --quiet --assume-clean --level {number} --raid-devices {members} {chunk} --size {small} \
             --bitmap internal --bitmap-chunk 64 /dev/md0{devices}\n\
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
        let (size, seen, wrong) = shard.block_on(async move {
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            let control = Control::find(&on, array.id()).expect("it runs");
            let device = array.open(&on).expect("it runs");
            control.jobs().wait_idle().await;
            control.jobs().start_check().expect("a check starts");
            control.jobs().wait_idle().await;
            let read = Request::read(0, on.pool().get(COMPARED));
            let seen = match IoSets::new(&on).one(&*device, read).await.op {
                Op::Read(bufs) => bufs.iter().flat_map(|buf| buf.to_vec()).collect(),
                _ => Vec::new(),
            };
            let wrong = control.status().await.mismatch_cnt;
            drop(device);
            control.stop().await;
            (array.info().device.size, seen, wrong)
        });
        assert_eq!((size, wrong), (size_of(level, members, LARGE), 0), "{name}");
        assert!(seen == content(), "{name}: the content differs");
    }
}

//! Other levels, and other numbers of copies, across the border: one side changes the level and fills the new slots, the other
//! runs the array.

use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::control::levels::WantedLevel;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, CreateBitmap, CreateOptions};
use braid_device::file::create_sparse;
use braid_interop::across::{self, content, opener, openers, path};
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
const COMPARED: usize = 7 << 20;

struct Kind {
    name: &'static str,
    from: Level,
    layout: u32,
    disks: usize,
    to: Level,
    /// Slots more, or fewer.
    more: isize,
}

fn kinds() -> [Kind; 15] {
    use Level::{Raid0, Raid1, Raid4, Raid5, Raid6, Raid10};
    let of = |name, from, layout, disks, to, more| Kind { name, from, layout, disks, to, more };
    [
        of("fourtofive", Raid4, 0, 3, Raid5, 0),
        of("fivetofour", Raid5, 5, 3, Raid4, 0),
        of("fivetosix", Raid5, 2, 3, Raid6, 1),
        of("firsttosix", Raid5, 4, 3, Raid6, 1),
        of("sixtofive", Raid6, 18, 4, Raid5, -1),
        of("zerotofive", Raid0, 0, 3, Raid5, 1),
        of("zerotofour", Raid0, 0, 2, Raid4, 1),
        of("fivetozero", Raid5, 5, 3, Raid0, -1),
        of("onetofive", Raid1, 0, 2, Raid5, 0),
        of("fivetoone", Raid5, 2, 2, Raid1, 0),
        of("zerototen", Raid0, 0, 2, Raid10, 2),
        of("threetoten", Raid0, 0, 3, Raid10, 3),
        of("tentozero", Raid10, 0x102, 4, Raid0, -2),
        of("morecopies", Raid1, 0, 2, Raid1, 2),
        of("fewercopies", Raid1, 0, 4, Raid1, -2),
    ]
}

impl Kind {
    /// Members, those for new slots with them.
    fn members(&self) -> usize {
        self.disks.max(self.left())
    }

    /// Members that hold slots in the end.
    fn left(&self) -> usize {
        self.disks.saturating_add_signed(self.more)
    }

    /// Bytes of the array; of levels 0 and 10 all that there is. (Linux uses all of the members when 10 becomes 0.)
    fn size(&self) -> Option<u64> {
        let data = match self.from {
            Level::Raid0 | Level::Raid10 => return None,
            Level::Raid1 => 1,
            level => self.disks - level.parity_count(),
        };
        Some(COMPONENT * data as u64)
    }

    /// The members that are there at first, by slots: those that stay have the first numbers.
    fn order(&self) -> Vec<usize> {
        match self.from {
            Level::Raid10 => {
                (0..self.disks).map(|slot| slot / 2 + slot % 2 * self.disks / 2).collect()
            }
            _ => (0..self.disks).collect(),
        }
    }

    /// The members that leave, by number: level 0 has no use for them, and md makes copies fewer only without them.
    fn gone(&self) -> std::ops::Range<usize> {
        let leave = self.to == Level::Raid0 || self.to == self.from;
        if leave { self.left()..self.disks.max(self.left()) } else { 0..0 }
    }

    /// The attribute of md that makes the change, and the value for it.
    fn by_md(&self) -> (&'static str, String) {
        match self.to == self.from {
            true => ("raid_disks", self.left().to_string()),
            false => ("level", self.to.to_string()),
        }
    }
}

#[test]
fn md_runs_arrays_whose_level_braid_has_changed() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(COMPARED)).unwrap();
    let (mut script, mut sizes) = (across::preamble(900), Vec::new());
    for kind in kinds() {
        let name = kind.name;
        for nr in 0..kind.members() {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
        }
        let options = CreateOptions {
            chunk_size: (kind.from != Level::Raid1).then_some(64 * KIB),
            size: kind.size().map(|_| COMPONENT),
            layout: matches!(kind.from, Level::Raid5 | Level::Raid6).then_some(kind.layout),
            bitmap: CreateBitmap::None,
            ..CreateOptions::new(name, kind.from, kind.disks)
        };
        let ctx = own_context(&shard);
        let given: Vec<_> = kind.order().iter().map(|nr| opener(folder, name, *nr)).collect();
        let new: Vec<_> = (kind.disks..kind.members()).map(|nr| opener(folder, name, nr)).collect();
        let (on, level) = (shard.clone(), kind.to);
        let copies = (kind.to == kind.from).then(|| kind.left());
        let size = shard.block_on(async move {
            let all = given.iter().cloned().map(Some).collect();
            create(&ctx, all, options).await.expect("it is created");
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            let control = Control::find(&on, array.id()).expect("it runs");
            across::write(&on, &array, &content(COMPARED)).await;
            control.jobs().wait_idle().await;
            let wanted = WantedLevel { level, chunk_size: None, layout: None, raid_disks: copies };
            control.change_level(wanted, false).await.expect("it is changed");
            for opener in new {
                control.membership().add(opener, false).await.expect("it is added");
            }
            control.jobs().wait_idle().await;
            let size = control.status().await.array_size;
            control.stop().await;
            size
        });
        sizes.push(size);
        let devices = across::losetup(&mut script, name, kind.left());
        writeln!(
            script,
            "mdadm --assemble --run --quiet /dev/md0 {devices}\n\
             echo {name}: level $(cat /sys/block/md0/md/level) of $(cat /sys/block/md0/md/raid_disks)\n\
             mdadm --stop --quiet /dev/md0"
        )
        .unwrap();
        across::losetup(&mut script, name, kind.left());
        across::md_checks(&mut script, name, &devices, COMPARED);
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(400));
    let said = output.expect("the guest runs").text;
    for (kind, size) in kinds().iter().zip(sizes) {
        let mut lines = across::md_found(kind.name, size).to_vec();
        if kind.to == Level::Raid0 {
            // md counts no differences there.
            lines.remove(1);
        }
        assert_eq!(kind.size().unwrap_or(size), size, "{}", kind.name);
        lines.push(format!("{}: level {} of {}", kind.name, kind.to, kind.left()));
        for line in lines {
            assert!(said.contains(&line), "{line:?} is not in:\n{said}");
        }
    }
}

#[test]
fn braid_runs_arrays_whose_level_md_has_changed() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let (folder, shard) = (folder.path(), Shard::with_ring(0).unwrap());
    std::fs::write(folder.join("content"), content(COMPARED)).unwrap();
    let mut script = across::preamble(900);
    for kind in kinds() {
        let (name, number) = (kind.name, kind.from.md_number());
        for nr in 0..kind.members() {
            create_sparse(path(folder, name, nr), MEMBER).expect("there is room");
        }
        across::losetup(&mut script, name, kind.members());
        let devices = |range: std::ops::Range<usize>| -> String {
            range.map(|nr| format!(" /dev/loop{nr}")).collect()
        };
        let mut how = String::new();
        if kind.from != Level::Raid1 {
            how.push_str(" --chunk 64");
        }
        if kind.size().is_some() {
            write!(how, " --size {}", COMPONENT / KIB).unwrap();
        }
        if kind.from != Level::Raid0 {
            how.push_str(" --bitmap none");
        }
        if let (Level::Raid5 | Level::Raid6, Some(layout)) =
            (kind.from, braid_layout::layout_name(kind.from, kind.layout))
        {
            write!(how, " --layout {layout}").unwrap();
        }
        writeln!(
            script,
            "mdadm --create --run --quiet --level {number} --raid-devices {}{how} /dev/md0{}\n\
             settle; dd if=content of=/dev/md0 bs=1M oflag=direct status=none; settle",
            kind.disks,
            kind.order().iter().map(|nr| format!(" /dev/loop{nr}")).collect::<String>()
        )
        .unwrap();
        for last in kind.gone() {
            writeln!(
                script,
                "mdadm --fail --quiet /dev/md0 /dev/loop{last}; \
                 for i in $(seq 100); do mdadm --remove --quiet /dev/md0 /dev/loop{last} && break; sleep 0.05; done"
            )
            .unwrap();
        }
        let (attribute, value) = kind.by_md();
        writeln!(
            script,
            "for i in $(seq 100); do echo {value} > /sys/block/md0/md/{attribute} && break; sleep 0.05; done"
        )
        .unwrap();
        if kind.members() > kind.disks {
            let new = devices(kind.disks..kind.members());
            writeln!(
                script,
                "mdadm --add --quiet /dev/md0{new}; for i in $(seq 900); do \
                 [ \"$(cat /sys/block/md0/md/degraded)\" = 0 ] && break; sleep 0.05; done; settle"
            )
            .unwrap();
        }
        writeln!(
            script,
            "sync; echo {name}: level $(cat /sys/block/md0/md/level) of $(cat /sys/block/md0/md/raid_disks), \
             $(blockdev --getsize64 /dev/md0) bytes\n\
             mdadm --stop --quiet /dev/md0; losetup -D"
        )
        .unwrap();
    }
    let output = uml::run(&script, folder, 512, Duration::from_secs(400));
    let said = output.expect("the guest runs").text;
    for kind in kinds() {
        let name = kind.name;
        let (ctx, given) = (own_context(&shard), openers(folder, name, kind.left()));
        let (on, redundant) = (shard.clone(), kind.to.has_redundancy());
        let (status, bytes, mismatches) = shard.block_on(async move {
            let array = assemble(&ctx, given, AssembleOptions::default()).await.expect("it runs");
            let control = Control::find(&on, array.id()).expect("it runs");
            let status = control.status().await;
            let found = match redundant {
                true => across::check(&on, &array, COMPARED).await,
                false => across::read(&on, &array, COMPARED).await,
            };
            (status, found.bytes, found.mismatch_cnt)
        });
        let is = (status.level, status.raid_disks, status.degraded);
        assert_eq!(is, (kind.to, kind.left(), 0), "{name}\n{said}");
        let size = status.array_size;
        assert_eq!(kind.size().unwrap_or(size), size, "{name}\n{said}");
        let line = format!("{name}: level {} of {}, {size} bytes", kind.to, kind.left());
        assert!(said.contains(&line), "{line:?} is not in:\n{said}");
        assert!(bytes == content(COMPARED), "{name}: the content differs\n{said}");
        assert_eq!(mismatches, 0, "{name}\n{said}");
    }
}

//! Arrays of Linux that have lost too many members: whom braid takes by force, and what is read then, is what
//! `mdadm --assemble --force` takes and the kernel reads.

use braid_array::assemble::assemble;
use braid_array::assemble::outlook::outlook;
use braid_array::options::AssembleOptions;
use braid_device::file::{FileMember, Mode};
use braid_device::{IoSets, Op, Opener, Request, Target};
use braid_interop::by_braid::own_context;
use braid_interop::uml;
use braid_shard::Shard;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Name, members, and those that are given in the end.
const CASES: [(&str, usize, &[usize]); 4] = [
    ("last", 3, &[0, 1, 2]),
    ("three", 4, &[0, 1, 2, 3]),
    ("away", 5, &[0, 1, 3, 4]),
    ("ages", 5, &[0, 1, 3, 4]),
];

/// Makes the arrays, loses members, keeps what is left, and has mdadm choose among copies.
const SCRIPT: &str = r#"
set -e
cd /run/shared
# Until md has told the members that nothing is being written to the array $1.
settled() { until case $(cat /sys/block/$(basename $(readlink -f $1))/md/array_state) in clean|broken) true;; *) false;; esac; do sleep 0.05; done; }
write() { dd if=/dev/urandom of=$1 bs=$2 count=$3 oflag=direct status=none; settled $1; }
members() { local all=""; for nr in $(seq 0 $(($2 - 1))); do truncate -s 12M $1.$nr; all="$all $(losetup -f --show $1.$nr)"; done; echo $all; }
create() { mdadm --create /dev/md/$1 --run --level=$2 --raid-devices=$3 --chunk=64 --assume-clean --homehost=any ${@:4} 2>/dev/null; }
choose() {
    sync; name=$1; shift; given=""
    for nr in $@; do cp $name.$nr $name.copy.$nr; given="$given $(losetup -f --show $name.copy.$nr)"; done
    mdadm --assemble --force --run /dev/md/f-$name $given
    cat /dev/md/f-$name > $name.read
    array=$(basename $(readlink -f /dev/md/f-$name))
    for member in /sys/block/$array/md/dev-*; do
        if [ "$(cat $member/state)" = in_sync ]; then cat $member/slot; fi
    done > $name.slots
    mdadm --stop /dev/md/f-$name
}
mkdir -p /dev/md
# One failed, then another, which was one too many.
M=($(members last 3)); create last 5 3 ${M[@]}; write /dev/md/last 1M 4
mdadm /dev/md/last --fail ${M[2]}; write /dev/md/last 64K 4; mdadm /dev/md/last --fail ${M[1]} || true; sleep 0.5
mdadm --stop /dev/md/last; choose last 0 1 2
M=($(members three 4)); create three 5 4 ${M[@]}; write /dev/md/three 1M 4
mdadm /dev/md/three --fail ${M[3]}; write /dev/md/three 64K 4; mdadm /dev/md/three --fail ${M[2]} || true; sleep 0.5
mdadm --stop /dev/md/three; choose three 0 1 2 3
# Two were away together while the array was written, then a third was lost.
M=($(members away 5)); create away 6 5 ${M[@]}; write /dev/md/away 1M 4; mdadm --stop /dev/md/away
mdadm --assemble --run /dev/md/away ${M[0]} ${M[1]} ${M[2]}; write /dev/md/away 64K 4; mdadm --stop /dev/md/away
choose away 0 1 3 4
# One was away for longer than another.
M=($(members ages 5)); create ages 6 5 ${M[@]}; write /dev/md/ages 1M 4; mdadm --stop /dev/md/ages
mdadm --assemble --run /dev/md/ages ${M[0]} ${M[1]} ${M[2]} ${M[3]}; write /dev/md/ages 64K 4; mdadm --stop /dev/md/ages
mdadm --assemble --run /dev/md/ages ${M[0]} ${M[1]} ${M[2]}; write /dev/md/ages 64K 4; mdadm --stop /dev/md/ages
choose ages 0 1 3 4
"#;

fn openers(folder: &Path, name: &str, given: &[usize]) -> Vec<Arc<dyn Opener>> {
    let open = |nr: &usize| {
        let member = FileMember::open(folder.join(format!("{name}.{nr}")), Mode::ReadOnly);
        Arc::new(member.expect("a member opens")) as Arc<dyn Opener>
    };
    given.iter().map(open).collect()
}

/// The slots that braid would fill, by force.
fn chosen(shard: &Shard, folder: &Path, name: &str, given: &[usize]) -> BTreeSet<usize> {
    let (ctx, openers) = (own_context(shard), openers(folder, name, given));
    let outlook = shard.block_on(async move { outlook(&ctx, openers, true).await });
    let outlook = outlook.expect("the members belong together");
    assert!(outlook.by_force, "{name}: {outlook:?}");
    let taken = outlook.members.iter().filter(|m| m.by_force || m.part == "up to date");
    taken.filter_map(|member| member.slot).collect()
}

/// All that braid reads of it, by force and without writing.
fn read(shard: &Shard, folder: &Path, name: &str, given: &[usize]) -> Vec<u8> {
    let (ctx, openers) = (own_context(shard), openers(folder, name, given));
    let home = shard.clone();
    shard.block_on(async move {
        let options = AssembleOptions {
            read_only: true,
            force: true,
            take_stale: true,
            ..AssembleOptions::default()
        };
        let array = assemble(&ctx, openers, options).await.expect("it is assembled");
        let device = Arc::clone(&array).open(&home).expect("it opens");
        let sets = IoSets::new(&home);
        let mut all = Vec::new();
        while (all.len() as u64) < array.info().device.size {
            let len = (array.info().device.size - all.len() as u64).min(1 << 20);
            let buf = home.pool().get(len as usize);
            let outcome = sets.one(&*device, Request::read(all.len() as u64, buf)).await;
            outcome.result.expect("it is read");
            let Op::Read(bufs) = outcome.op else { panic!("a read gives what it read") };
            bufs.iter().for_each(|buf| all.extend_from_slice(buf));
        }
        drop(device);
        let control = braid_array::control::Control::find(&home, array.id()).expect("it runs");
        control.stop().await;
        all
    })
}

#[test]
fn braid_takes_by_force_whom_mdadm_takes_and_reads_what_the_kernel_reads() {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp");
    let folder = folder.expect("a folder in /var/tmp");
    let output =
        uml::run(SCRIPT, folder.path(), 512, Duration::from_secs(300)).expect("the guest runs");
    assert_eq!(output.status, 0, "{}", output.text);
    let shard = Shard::with_ring(0).expect("a shard with io_uring");
    for (name, members, given) in CASES {
        let slots =
            fs::read_to_string(folder.path().join(format!("{name}.slots"))).expect("the slots");
        let by_mdadm: BTreeSet<usize> =
            slots.lines().map(|line| line.trim().parse().expect("a slot")).collect();
        assert!(by_mdadm.len() < members, "{name}: {by_mdadm:?}");
        assert_eq!(chosen(&shard, folder.path(), name, given), by_mdadm, "{name}: {}", output.text);
        let by_md = fs::read(folder.path().join(format!("{name}.read"))).expect("what md read");
        let by_braid = read(&shard, folder.path(), name, given);
        assert!(by_braid == by_md, "{name}: braid reads something else");
    }
}

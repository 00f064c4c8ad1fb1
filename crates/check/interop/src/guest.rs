//! What the guest does in the matrix: a script, and what its lines say.
//!
//! The guest prints one line for each step, `NAME STEP VALUE`; what the steps must give is known
//! here, so that a step that says nothing counts as failed.

use crate::cell::Cell;
use crate::uml::SHARED;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What the arrays of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Logical blocks of the members, in bytes, beginning anew when there are more members.
    pub blocks: &'static [u32],
    /// Arrays with redundancy have a write-intent bitmap.
    pub bitmap: bool,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting { blocks: &[512], bitmap: false }
    }
}

/// Exit status of a script that ended in a crash of the guest.
pub const CRASHED: i32 = 86;
/// Arrays that are attached at the same time: their syncs run side by side.
const BATCH: usize = 8;

/// An array and its name in this run.
pub type Named<'a> = (usize, &'a Cell, String);

/// Functions that every script begins with; each leaves what it has to say in R. To start a program
/// takes 30 ms here, so that only what bash cannot do is done by one.
pub(crate) fn library() -> String {
    format!(
        r#"cd {SHARED}
echo 1000000 > /proc/sys/dev/raid/speed_limit_min
echo 1000000 > /proc/sys/dev/raid/speed_limit_max
exec 9<> <(:)
# say NAME STEP: R as the step's value
say() {{ echo "$1 $2 $R"; }}
# attach NAME SLOT...: the members of these slots as block devices, in DEVICES, with the logical blocks BLOCKS
# over and over
BLOCKS=(512)
attach() {{ local name=$1 slot; shift; DEVICES=; for slot; do losetup -b ${{BLOCKS[$((slot % ${{#BLOCKS[@]}}))]}} /dev/loop$LOOP $name.$slot; DEVICES="$DEVICES /dev/loop$LOOP"; LOOP=$((LOOP + 1)); done; }}
# detach: all devices
detach() {{ losetup -D; LOOP=0; }}
LOOP=0
# state MD ATTRIBUTE
state() {{ R=none; [ -e /sys/block/$1/md/$2 ] && read -r R < /sys/block/$1/md/$2; }}
# settle MD: until no sync runs or waits to be run
settle() {{ state $1 sync_action; while [ $R != idle ] && [ $R != none ]; do read -r -t 0.01 -u 9; state $1 sync_action; done; }}
# rebuilt MD: until no member lacks, also when the rebuild has yet to begin, which md calls idle; or for 20 s of nothing
rebuilt() {{ local n=0; settle $1; state $1 degraded; while [ $R != 0 ] && [ $n -lt 2000 ]; do read -r -t 0.01 -u 9; n=$((n + 1)); settle $1; state $1 degraded; done; }}
# synced MD: until its resync is done, also when that has yet to begin
synced() {{ state $1 resync_start; while [ $R != none ]; do read -r -t 0.05 -u 9; state $1 resync_start; done; settle $1; }}
size() {{ R=0; [ -e /sys/block/$1/size ] && read -r R < /sys/block/$1/size; R=$((R * 512)); }}
# same MD PATTERN FROM: ok, or where the first other byte is
same() {{ size $1; if cmp -n $R -i 0:$3 /dev/$1 $2 > $1.said 2>&1; then R=ok; else R="differs: $(<$1.said)"; fi; }}
write() {{ size $1; if dd if=$2 of=/dev/$1 bs=192k iflag=skip_bytes,count_bytes skip=$3 count=$R conv=fsync status=none > $1.said 2>&1; then R=ok; else R="failed: $(<$1.said)"; fi; }}
# assemble MD OPTION...: from DEVICES
assemble() {{ local md=$1; shift; mdadm --assemble --quiet "$@" /dev/$md $DEVICES > $md.said 2>&1
  state $md array_state; case $R in none|clear|inactive) R="failed: $(<$md.said)";; *) R=ok;; esac; }}
# create MD OPTION...: from DEVICES
create() {{ local md=$1; shift; mdadm --create /dev/$md --run --quiet "$@" $DEVICES > $md.said 2>&1; R="$(<$md.said) ok"; }}
# crash: the guest dies here, with all that its caches hold
crash() {{ echo {CRASHED} > /run/rig/status; sync; echo 1 > /proc/sys/kernel/panic_on_oops; echo c > /proc/sysrq-trigger; }}
# moved: sectors that all loop devices have read and written
moved() {{ local a b c rest; R=0; for f in /sys/block/loop*/stat; do read -r a b c rest < $f; set -- $rest; R=$((R + c + $4)); done; }}
stop() {{ if mdadm --stop --quiet /dev/$1 > $1.said 2>&1; then R=ok; else R="failed: $(<$1.said)"; fi; }}
"#
    )
}

pub(crate) fn slots(cell: &Cell, without: &[usize]) -> String {
    let slots = (0..cell.members).filter(|nr| !without.contains(nr));
    slots.map(|nr| nr.to_string()).collect::<Vec<_>>().join(" ")
}

/// What every script begins with, for members of these logical blocks.
fn library_with(blocks: &[u32]) -> String {
    let blocks: Vec<String> = blocks.iter().map(u32::to_string).collect();
    format!("{}BLOCKS=({})\n", library(), blocks.join(" "))
}

/// A script that runs `steps` for each batch of arrays: first all arrays' first step, then all
/// arrays' second, and so on.
fn batched(
    arrays: &[Named<'_>],
    blocks: &[u32],
    steps: &[&dyn Fn(&Named<'_>) -> String],
) -> String {
    let mut script = library_with(blocks);
    for batch in arrays.chunks(BATCH) {
        for step in steps {
            batch.iter().for_each(|array| script += &step(array));
        }
        script += "detach\n";
    }
    script
}

/// Assembles an array from all its members, reads it, and starts a check where there is redundancy.
fn begin_check((nr, cell, name): &Named<'_>, content: &str, from: usize) -> String {
    let mut lines = format!(
        "attach {name} {}\nassemble md{nr}; say {name} assemble\nsize md{nr}; say {name} size\nsame md{nr} {content} {from}; say {name} read\n",
        slots(cell, &[]),
    );
    if cell.level.has_redundancy() {
        let _ = write!(
            lines,
            "state md{nr} resync_start; say {name} resync_start\nstate md{nr} degraded; say {name} degraded\necho check > /sys/block/md{nr}/md/sync_action\n"
        );
    }
    lines
}

/// Waits for the check and tells its count.
fn end_check((nr, cell, name): &Named<'_>) -> String {
    match cell.level.has_redundancy() {
        true => format!("settle md{nr}\nstate md{nr} mismatch_cnt; say {name} mismatch_cnt\n"),
        false => String::new(),
    }
}

/// What a check must say of one array, and the stop after it.
fn fine(cell: &Cell) -> BTreeMap<&'static str, String> {
    let ok = ["assemble", "read", "stop"].map(|step| (step, "ok".to_owned()));
    let mut steps = BTreeMap::from(ok);
    if cell.level.has_redundancy() {
        steps.insert("resync_start", "none".to_owned());
        steps.insert("degraded", "0".to_owned());
        steps.insert("mismatch_cnt", "0".to_owned());
    }
    steps
}

/// md assembles what braid made and reads it (`old`), checks it, and writes `new`. Patterns are files
/// of the shared folder, of which array `nr` uses the bytes from `from(nr)` on.
pub fn check_and_write(
    arrays: &[Named<'_>],
    blocks: &[u32],
    (old, new): (&str, &str),
    from: impl Fn(usize) -> usize,
) -> String {
    let begin = |array: &Named<'_>| begin_check(array, old, from(array.0));
    let end = |array: &Named<'_>| {
        let (nr, _, name) = array;
        let from = from(*nr);
        end_check(array)
            + &format!(
                "write md{nr} {new} {from}; say {name} write\nstop md{nr}; say {name} stop\n"
            )
    };
    batched(arrays, blocks, &[&begin, &end])
}

/// What [`check_and_write`] must say of one array.
pub fn checked_and_written(cell: &Cell, size: usize) -> BTreeMap<&'static str, String> {
    let mut steps = fine(cell);
    steps.insert("size", size.to_string());
    steps.insert("write", "ok".to_owned());
    steps
}

/// mdadm makes an array of all members, with `options` besides; tells "ok" after what it said.
pub(crate) fn create((nr, cell, name): &Named<'_>, options: &str) -> String {
    let chunk = cell.chunk_kib.map_or(String::new(), |chunk| format!("--chunk {chunk}"));
    let layout = cell.layout.map_or(String::new(), |layout| format!("--layout {layout}"));
    format!(
        "attach {name} {slots}\ncreate md{nr} --metadata {version} --level {level} --raid-devices {members} \
         {chunk} {layout} {options}; say {name} create\n",
        slots = slots(cell, &[]),
        version = cell.version,
        level = cell.level,
        members = cell.members,
    )
}

/// mdadm makes the arrays, with a bitmap if so told; the kernel syncs them and writes `content`.
pub fn make(
    arrays: &[Named<'_>],
    setting: &Setting,
    content: &str,
    from: impl Fn(usize) -> usize,
) -> String {
    let blocks = setting.blocks;
    let begin = |array: &Named<'_>| {
        let bitmap = setting.bitmap && array.1.level.has_redundancy();
        create(array, if bitmap { "--bitmap internal --bitmap-chunk 64K" } else { "" })
    };
    let end = |(nr, _, name): &Named<'_>| {
        format!(
            "settle md{nr}\nsize md{nr}; say {name} size\nwrite md{nr} {content} {}; say {name} write\nstop md{nr}; say {name} stop\n",
            from(*nr)
        )
    };
    batched(arrays, blocks, &[&begin, &end])
}

/// md assembles what braid wrote, reads all of it and checks it; then again with members missing.
pub fn check(
    arrays: &[Named<'_>],
    blocks: &[u32],
    content: &str,
    from: impl Fn(usize) -> usize,
    without: impl Fn(&Cell) -> Vec<usize>,
) -> String {
    let begin = |array: &Named<'_>| begin_check(array, content, from(array.0));
    let end = |array: &Named<'_>| {
        let (nr, cell, name) = array;
        let mut lines = end_check(array) + &format!("stop md{nr}; say {name} stop\n");
        let without = without(cell);
        if !without.is_empty() {
            let _ = write!(
                lines,
                "attach {name} {}\nassemble md{nr} --run --readonly; say {name} assemble-degraded\nsame md{nr} {content} {}; say {name} read-degraded\nstop md{nr}; say {name} stop-degraded\n",
                slots(cell, &without),
                from(*nr),
            );
        }
        lines
    };
    batched(arrays, blocks, &[&begin, &end])
}

/// What [`check`] must say of one array.
pub fn checked(cell: &Cell, degraded: bool) -> BTreeMap<&'static str, String> {
    let mut steps = fine(cell);
    if degraded {
        let more = ["assemble-degraded", "read-degraded", "stop-degraded"];
        steps.extend(more.map(|step| (step, "ok".to_owned())));
    }
    steps
}

/// The value of step `step` of array `name` in what a guest said.
pub fn said<'a>(output: &'a str, name: &str, step: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(' ')?.strip_prefix(step);
    output.lines().find_map(|line| value(line)?.strip_prefix(' ')).map(str::trim)
}

/// The first step that did not say what it must.
pub fn first_wrong(
    output: &str,
    name: &str,
    steps: &BTreeMap<&'static str, String>,
) -> Result<(), String> {
    steps.iter().try_for_each(|(step, expected)| match said(output, name, step) {
        Some(value) if value == expected => Ok(()),
        Some(value) => Err(format!("md: {step}: {value:?}, not {expected:?}")),
        None => Err(format!("md: {step}: the guest did not get there")),
    })
}

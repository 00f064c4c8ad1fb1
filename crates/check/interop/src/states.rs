//! Arrays that one side leaves in a state other than clean, and the other takes over.
//!
//! ```text
//!  braid writes, is killed ─► md resyncs, reads, checks, rebuilds onto a spare ─► braid reads
//!  md writes, its kernel dies ─► braid resyncs, reads, checks, rebuilds onto a spare ─► md checks
//! ```
//!
//! With a bitmap the resync must move far less than the array.

use crate::by_braid::Braid;
use crate::cell::Cell;
use crate::guest::{self, CRASHED, slots};
use crate::matrix::{MatrixError, Patterns, from};
use crate::uml;
use braid_array::options::CreateBitmap;
use braid_format::superblock::Version;
use braid_layout::Level;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
/// Bytes that braid has written when it is killed: a part of the smallest array.
const KILLED_AT: usize = 400 << 10;
/// Bytes after which it waits for that, on a machine that takes long: less than half of an array is to be resynced.
const WAITS_AT: usize = 2 * KILLED_AT;
const BITMAP_CHUNK: u64 = 64 << 10;

/// An array of this page.
struct Case {
    cell: Cell,
    bitmap: bool,
}

fn cases() -> Vec<Case> {
    let case = |level, layout, members, version, bitmap| {
        let chunk_kib = (level != Level::Raid1).then_some(64);
        Case { cell: Cell { level, layout, chunk_kib, members, version, unequal: false }, bitmap }
    };
    vec![
        case(Level::Raid5, Some("left-symmetric"), 4, Version::V1_2, false),
        case(Level::Raid5, Some("left-symmetric"), 4, Version::V1_2, true),
        case(Level::Raid5, Some("right-asymmetric"), 3, Version::V0_90, false),
        case(Level::Raid5, Some("left-symmetric"), 4, Version::V0_90, true),
        case(Level::Raid6, Some("left-symmetric"), 5, Version::V1_1, true),
        case(Level::Raid10, Some("n2"), 4, Version::V1_0, true),
        case(Level::Raid10, Some("f2"), 3, Version::V1_2, false),
        case(Level::Raid1, None, 2, Version::V1_2, true),
    ]
}

impl Case {
    fn name(&self, by: &str) -> String {
        format!("{}{}-{by}", self.cell.name(), if self.bitmap { "-bitmap" } else { "" })
    }

    /// The number of the spare among the members' files.
    fn spare(&self) -> usize {
        self.cell.members
    }

    fn make_members(&self, braid: &Braid, name: &str) -> Result<(), MatrixError> {
        let with_spare = Cell { members: self.cell.members + 1, ..self.cell.clone() };
        braid.make_members(&with_spare, name).map_err(MatrixError::Shard)
    }

    /// Bytes of the members' data: what a whole resync reads.
    fn whole(&self) -> u64 {
        let data = self.cell.member_size(0).saturating_sub(1 << 20);
        data * self.cell.members as u64
    }
}

/// Runs them all; what was wrong, a line for each array. `program` is `braid-interop`, which is killed.
///
/// # Errors
/// When they could not be run.
pub fn run(program: &Path) -> Result<Vec<String>, MatrixError> {
    let folder = tempfile::Builder::new().prefix("braid-interop.").tempdir_in("/var/tmp")?;
    let folder = folder.path();
    let patterns = Patterns::new(folder)?;
    let braid = Braid::new(folder).map_err(MatrixError::Shard)?;
    let cases = cases();
    let mut failures = Vec::new();

    // braid writes and is killed; md takes over.
    let mut script = guest::library();
    let mut taken = Vec::new();
    for (nr, case) in cases.iter().enumerate() {
        let name = case.name("braid");
        case.make_members(&braid, &name)?;
        let bitmap = match case.bitmap {
            true => CreateBitmap::Internal { chunk: Some(BITMAP_CHUNK) },
            false => CreateBitmap::None,
        };
        let acknowledged = braid
            .make_with(&case.cell, &name, &patterns.a(nr), bitmap)
            .and_then(|_| write_and_be_killed(program, folder, nr));
        match acknowledged {
            Ok(acknowledged) => {
                script += &take_over(nr, case, &name, acknowledged);
                taken.push((nr, case, name));
            }
            Err(why) => failures.push(format!("{name}: {why}")),
        }
    }
    // mdadm makes arrays, md writes them, and its kernel dies.
    for (nr, case) in cases.iter().enumerate() {
        case.make_members(&braid, &case.name("mdadm"))?;
        script += &make(nr + cases.len(), case, &case.name("mdadm"));
    }
    // md clears bits when nothing was written under them for one to two times daemon_sleep, 5 s.
    script += "sleep 12\n";
    for nr in 0..cases.len() {
        let md = nr + cases.len();
        let _ = writeln!(
            script,
            "(while :; do dd if={} of=/dev/md{md} bs=20k iflag=skip_bytes skip={} count=15 oflag=direct status=none; done) &",
            Patterns::B,
            from(md)
        );
    }
    // Everything is being written when it dies.
    script += "sleep 3; crash\n";
    let output = uml::run(&script, folder, 1024, LIMIT)?;
    if output.status != CRASHED {
        failures.push(format!("the guest did not get to its crash: {}", output.text));
    }
    for (_, case, name) in &taken {
        let mut wrong = |why: String| failures.push(format!("{name}: {why}"));
        let steps = [
            ("assemble", "ok"),
            ("acknowledged", "ok"),
            ("resync_start", "none"),
            ("mismatch_cnt", "0"),
            ("degraded", "0"),
            ("stop", "ok"),
        ];
        if let Err(why) = guest::first_wrong(&output.text, name, &expected(&steps)) {
            wrong(why);
        }
        let moved = guest::said(&output.text, name, "moved").and_then(|moved| moved.parse().ok());
        match moved.map(|sectors: u64| sectors * 512) {
            Some(moved) if !case.bitmap || moved < case.whole() / 2 => {}
            other => wrong(format!("md: resync by bitmap moved {other:?} of {}", case.whole())),
        }
    }

    // braid reads what md rebuilt, and takes over what md's crash left.
    let mut script = guest::library();
    for (nr, case, name) in &taken {
        let with_spare = Cell { members: case.cell.members + 1, ..case.cell.clone() };
        let read = braid.each_block(&with_spare, name, &patterns.a(*nr), &patterns.b(*nr), &[1]);
        // Slot 1 is the spare's by now; another is left out.
        let degraded = match case.cell.members / 2 {
            1 => [1, 0],
            other => [1, other],
        };
        let read = read.and_then(|()| {
            braid.each_block(&with_spare, name, &patterns.a(*nr), &patterns.b(*nr), &degraded)
        });
        if let Err(why) = read {
            failures.push(format!("{name}: after md's rebuild: {why}"));
        }
    }
    for (nr, case) in cases.iter().enumerate() {
        let (name, md) = (case.name("mdadm"), nr + cases.len());
        let (old, new) = (patterns.a(md), patterns.b(md));
        let resynced = braid.resync(&case.cell, &name, &old, &new);
        let result = resynced.and_then(|moved| {
            if case.bitmap && moved > case.whole() / 2 {
                return Err(format!("resync by bitmap moved {moved} of {}", case.whole()));
            }
            braid.replace(&case.cell, &name, 1, case.spare())
        });
        match result {
            Ok(()) => script += &check_rebuilt(md, case, &name),
            Err(why) => failures.push(format!("{name}: {why}")),
        }
    }
    let output = uml::run(&script, folder, 1024, LIMIT)?.text;
    for case in &cases {
        let name = case.name("mdadm");
        if failures.iter().any(|failure| failure.starts_with(&format!("{name}:"))) {
            continue;
        }
        let steps = [("assemble", "ok"), ("degraded", "0"), ("mismatch_cnt", "0"), ("stop", "ok")];
        if let Err(why) = guest::first_wrong(&output, &name, &expected(&steps)) {
            failures.push(format!("{name}: after braid's rebuild: {why}"));
        }
    }
    Ok(failures)
}

/// Steps and what they must say.
fn expected(steps: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
    steps.iter().map(|(step, value)| (*step, (*value).to_owned())).collect()
}

/// What the victim does: see [`write_and_be_killed`].
///
/// # Errors
/// What could not be done.
pub fn victim(folder: &Path, nr: usize) -> Result<(), String> {
    let cases = cases();
    let case = cases.get(nr).ok_or("there is no such case")?;
    let patterns = Patterns::read(folder).map_err(|error| error.to_string())?;
    let braid = Braid::new(folder)?;
    braid.write_on_and_on(&case.cell, &case.name("braid"), &patterns.b(nr), |bytes| {
        println!("{bytes}");
        if bytes >= WAITS_AT {
            loop {
                std::thread::park();
            }
        }
    })
}

/// Has another process write the array, and kills it (SIGKILL) in the middle. Gives how many bytes it
/// had had acknowledged, at least.
fn write_and_be_killed(program: &Path, folder: &Path, nr: usize) -> Result<usize, String> {
    let text = |error: std::io::Error| format!("running the process to be killed: {error}");
    let mut child = Command::new(program)
        .args(["victim", &nr.to_string()])
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let mut acknowledged = 0;
    let lines = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
    for line in lines {
        acknowledged = line.map_err(text)?.parse().map_err(|_| "the victim said no number")?;
        if acknowledged >= KILLED_AT {
            break;
        }
    }
    child.kill().map_err(text)?;
    child.wait().map_err(text)?;
    if acknowledged < KILLED_AT {
        Err("the victim ended too early".to_owned())
    } else {
        Ok(acknowledged)
    }
}

fn take_over(md: usize, case: &Case, name: &str, acknowledged: usize) -> String {
    format!(
        "attach {name} {slots}; moved; before=$R; assemble md{md}; say {name} assemble\n\
         mdadm --readwrite /dev/md{md}; synced md{md}; moved; R=$((R - before)); say {name} moved; state md{md} resync_start; say {name} resync_start\n\
         if cmp -n {acknowledged} -i 0:{from} /dev/md{md} {b}; then R=ok; else R=differs; fi; say {name} acknowledged\n\
         echo check > /sys/block/md{md}/md/sync_action; settle md{md}; state md{md} mismatch_cnt; say {name} mismatch_cnt\n\
         mdadm --quiet /dev/md{md} --fail /dev/loop1 --remove /dev/loop1\n\
         attach {name} {spare}; mdadm --quiet /dev/md{md} --add $DEVICES; rebuilt md{md}; state md{md} degraded; say {name} degraded\n\
         stop md{md}; say {name} stop; detach\n",
        slots = slots(&case.cell, &[]),
        from = from(md),
        b = Patterns::B,
        spare = case.spare(),
    )
}

fn make(md: usize, case: &Case, name: &str) -> String {
    let bitmap = match case.bitmap {
        true => format!("--bitmap=internal --bitmap-chunk={}", BITMAP_CHUNK >> 10),
        false => "--bitmap=none".to_owned(),
    };
    let create = guest::create(&(md, &case.cell, name.to_owned()), &bitmap);
    format!(
        "{create}settle md{md}; echo 10 > /sys/block/md{md}/md/safe_mode_delay; write md{md} {} {}; sync\n",
        Patterns::A,
        from(md),
    )
}

fn check_rebuilt(md: usize, case: &Case, name: &str) -> String {
    let members = (0..=case.cell.members).filter(|nr| *nr != 1).map(|nr| nr.to_string());
    format!(
        "attach {name} {slots}; assemble md{md}; say {name} assemble; state md{md} degraded; say {name} degraded\n\
         echo check > /sys/block/md{md}/md/sync_action; settle md{md}; state md{md} mismatch_cnt; say {name} mismatch_cnt\n\
         stop md{md}; say {name} stop; detach\n",
        slots = members.collect::<Vec<_>>().join(" "),
    )
}

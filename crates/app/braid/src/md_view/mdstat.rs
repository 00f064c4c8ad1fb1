//! /proc/mdstat: `md_seq_show` and `status_resync` of drivers/md/md.c, and the `status` of each level.

use super::member::short_names;
use braid_control::protocol::{Detail, Job, Member};
use std::fmt::Write;

/// Bits of a bitmap of which md keeps the counters in one page: two bytes each.
const BITS_OF_A_PAGE: u64 = 2048;
/// Characters of a progress bar.
const BAR: u64 = 20;

/// The text about all arrays.
pub(super) fn text(arrays: &[Detail]) -> String {
    let mut text =
        "Personalities : [linear] [raid0] [raid1] [raid10] [raid6] [raid5] [raid4] \n".to_string();
    for detail in arrays {
        text.push_str(&array(detail));
    }
    text.push_str("unused devices: <none>\n");
    text
}

fn array(detail: &Detail) -> String {
    let mut text = format!("{} : active ", detail.name);
    if detail.read_only {
        text.push_str("(read-only) ");
    }
    text.push_str(&detail.level);
    for (member, name) in detail.members.iter().zip(short_names(detail)) {
        // Writing to a string cannot fail, here and below.
        let _ = write!(text, " {name}[{}]{}", member.device_number, flags(member));
    }
    let _ = write!(text, "\n      {} blocks", detail.array_size / 1024);
    if detail.version != "0.90" {
        let _ = write!(text, " super {}", detail.version);
    }
    let _ = write!(text, " {}\n      ", level(detail));
    if detail.redundant
        && let Some(line) = progress(detail)
    {
        let _ = write!(text, "{line}\n      ");
    }
    if let Some(bitmap) = &detail.bitmap {
        let pages = bitmap.bits.div_ceil(BITS_OF_A_PAGE);
        let used = bitmap.dirty.min(pages);
        let chunk = match bitmap.chunk {
            small if small < 1024 => format!("{small}B"),
            chunk => format!("{}KB", chunk / 1024),
        };
        let _ = writeln!(text, "bitmap: {used}/{pages} pages [{}KB], {chunk} chunk", used * 4);
    }
    text.push('\n');
    text
}

/// At most what md says: of a faulty member nothing else.
fn flags(member: &Member) -> String {
    let mut text = String::new();
    if member.write_mostly {
        text.push_str("(W)");
    }
    match member.state.as_str() {
        "journal" => text.push_str("(J)"),
        "faulty" => text.push_str("(F)"),
        "spare" => text.push_str("(S)"),
        "replacing" => text.push_str("(R)"),
        _ => {}
    }
    text
}

/// The details that go with the level.
fn level(detail: &Detail) -> String {
    let kib = detail.chunk_size / 1024;
    match detail.level.as_str() {
        "linear" => format!("{kib}k rounding"),
        "raid0" => format!("{kib}k chunks"),
        "raid1" => slots(detail),
        "raid10" => format!("{}{}", copies(detail), slots(detail)),
        level => {
            let level = level.trim_start_matches("raid");
            let algorithm = detail.layout_number;
            format!("level {level}, {kib}k chunk, algorithm {algorithm} {}", slots(detail))
        }
    }
}

/// Level 10's chunks and copies, each with a blank after it.
fn copies(detail: &Detail) -> String {
    let (near, far) = (detail.layout_number & 0xff, detail.layout_number >> 8 & 0xff);
    let mut text = String::new();
    if (near as usize) < detail.raid_devices {
        let _ = write!(text, "{}K chunks ", detail.chunk_size / 1024);
    }
    if near > 1 {
        let _ = write!(text, "{near} near-copies ");
    }
    if far > 1 {
        let kind = if detail.layout_number & 0x1_0000 != 0 { "offset" } else { "far" };
        let _ = write!(text, "{far} {kind}-copies ");
    }
    text
}

/// `[3/2] [UU_]`.
fn slots(detail: &Detail) -> String {
    let is_up = |number: &Option<u32>| {
        let member = detail.members.iter().find(|member| Some(member.number) == *number);
        member.is_some_and(|member| member.state == "active sync")
    };
    let up: String = detail.slots.iter().map(|slot| if is_up(slot) { 'U' } else { '_' }).collect();
    let working = up.matches('U').count();
    format!("[{}/{working}] [{up}]", detail.raid_devices)
}

fn progress(detail: &Detail) -> Option<String> {
    match &detail.job {
        Some(job) => Some(bar(job)),
        None if !detail.stuck_jobs.is_empty() => Some("\tresync=DELAYED".to_string()),
        None => detail.resynced.map(|_| "\tresync=PENDING".to_string()),
    }
}

fn bar(job: &Job) -> String {
    let (done, total) = (job.done / 1024, (job.total / 1024).max(1));
    let per_mille = (done.saturating_mul(1000) / total).min(1000);
    let filled = per_mille * BAR / 1000;
    let kind = match job.kind.as_str() {
        "recover" => "recovery",
        // md calls it so, and it writes as a resync does.
        "repair" => "resync",
        kind => kind,
    };
    let mut text = String::from("[");
    text.extend(std::iter::repeat_n('=', filled as usize));
    text.push('>');
    text.extend(std::iter::repeat_n('.', (BAR - filled) as usize));
    let (percent, tenths) = (per_mille / 10, per_mille % 10);
    let _ = write!(text, "]  {kind} ={percent:3}.{tenths}% ({done}/{total})");
    // Minutes with one digit; without a rate nobody knows.
    let tenths = job.eta_seconds.map_or(0, |seconds| seconds / 6);
    let _ = write!(text, " finish={}.{}min", tenths / 10, tenths % 10);
    let _ = write!(text, " speed={}K/sec", job.rate / 1024);
    text
}

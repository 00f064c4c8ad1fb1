//! The text of `detail`.

use super::count::{count, spares};
use crate::output::tree::Node;
use crate::output::{found, report, size, time, words};
use braid_control::protocol::{ClientDetail, Detail, Following, Job, Member, NextStep, Reshape};

pub(super) fn text(detail: &Detail) -> String {
    let mut lines = vec![format!("{}:", detail.name)];
    for group in [array(detail), bitmap(detail), state(detail), shape(detail), policy(detail)] {
        push(&mut lines, group);
    }
    push(&mut lines, heartbeat(detail).into_iter().chain(lease(detail)).collect());
    // The lines about a reshape say how far it is.
    let job = detail.job.as_ref().filter(|_| detail.reshape.is_none());
    push(&mut lines, job.map(job_status).into_iter().collect());
    push(&mut lines, detail.reshape.iter().flat_map(|r| reshape(detail, r)).collect());
    push(&mut lines, detail.following.iter().flat_map(following).collect());
    push(&mut lines, identity(detail));
    push(&mut lines, members(detail));
    push(&mut lines, stack(detail));
    push(&mut lines, more(detail));
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n")
}

/// Appends a group of lines and the empty line after it, unless it is empty.
fn push(lines: &mut Vec<String>, group: Vec<String>) {
    if !group.is_empty() {
        lines.extend(group);
        lines.push(String::new());
    }
}

fn field(name: &str, value: impl AsRef<str>) -> String {
    format!("{name:>18} : {}", value.as_ref())
}

fn array(detail: &Detail) -> Vec<String> {
    let mut lines = vec![
        field("Version", &detail.version),
        field("Creation Time", time::local(detail.created)),
        field("Raid Level", &detail.level),
        field("Array Size", size::mdadm(detail.array_size)),
    ];
    if detail.component_size > 0 {
        lines.push(field("Used Dev Size", size::mdadm(detail.component_size)));
    }
    lines.push(field("Raid Devices", detail.raid_devices.to_string()));
    lines.push(field("Total Devices", detail.members.len().to_string()));
    lines.extend(detail.preferred_minor.map(|nr| field("Preferred Minor", nr.to_string())));
    lines.push(field("Persistence", "Superblock is persistent"));
    lines
}

fn bitmap(detail: &Detail) -> Vec<String> {
    let line = || field("Intent Bitmap", "Internal");
    detail.has_bitmap.then(line).into_iter().collect()
}

fn state(detail: &Detail) -> Vec<String> {
    let faulty = count(detail, &["faulty"]);
    vec![
        field("Update Time", time::local(detail.updated)),
        field("State", &detail.state),
        field("Active Devices", count(detail, &["active sync"]).to_string()),
        field("Working Devices", (detail.members.len() - faulty).to_string()),
        field("Failed Devices", faulty.to_string()),
        field("Spare Devices", spares(detail).to_string()),
    ]
}

fn shape(detail: &Detail) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(layout) = &detail.layout {
        let spelled = (detail.level == "raid10").then(|| {
            braid_layout::layout_number(braid_layout::Level::Raid10, layout)
                .map(words::raid10_layout)
        });
        lines.push(field("Layout", spelled.and_then(Result::ok).as_ref().unwrap_or(layout)));
    }
    let name = if detail.level == "linear" { "Rounding" } else { "Chunk Size" };
    if detail.chunk_size > 0 || detail.level == "linear" {
        lines.push(field(name, size::chunk(detail.chunk_size)));
    }
    lines
}

fn policy(detail: &Detail) -> Vec<String> {
    let policy = match (detail.has_bitmap, detail.redundant) {
        _ if detail.has_journal => "journal",
        _ if detail.has_ppl => "ppl",
        (true, _) => "bitmap",
        (false, true) => "resync",
        (false, false) => "none",
    };
    vec![field("Consistency Policy", policy)]
}

fn heartbeat(detail: &Detail) -> Option<String> {
    let beats = detail.heartbeat.as_ref()?;
    let said = match &beats.lost {
        Some(why) => format!("LOST: {why}; no more writes here"),
        None => format!(
            "every {} s on {} of {} members",
            f64::from(beats.interval_ms) / 1000.0,
            beats.members,
            detail.members.len()
        ),
    };
    Some(field("Heartbeat", said))
}

fn lease(detail: &Detail) -> Option<String> {
    let lease = detail.lease.as_ref()?;
    let left = lease.left_ms as f64 / 1000.0;
    let said =
        format!("{}, token {}, {left:.1} s left, renewed meanwhile", lease.place, lease.token);
    Some(field("Lease", said))
}

fn job_status(job: &Job) -> String {
    let name = match job.kind.as_str() {
        "recover" => "Rebuild Status",
        "check" => "Check Status",
        // md makes no difference between the two.
        _ => "Resync Status",
    };
    field(name, format!("{:.0}% complete", job.percent().floor()))
}

/// The steps that are left of a change in several.
fn following(following: &Following) -> Vec<String> {
    let mut lines: Vec<String> = following.steps.iter().map(next_step).collect();
    if let Some(why) = &following.refused {
        lines.push(field("Refused", format!("{why}; give the command again when that is mended")));
    } else if let Some(what) = following.waits_for.as_ref().filter(|_| !lines.is_empty()) {
        lines.push(field("Waits For", what));
    }
    lines
}

fn next_step(step: &NextStep) -> String {
    let mut is = step.level.clone();
    is.extend(step.layout.iter().map(|layout| format!(", {layout}")));
    if step.chunk_size > 0 {
        is.push_str(&format!(", chunks of {}", size::chunk(step.chunk_size)));
    }
    let moved = if step.moves { "data is moved" } else { "nothing is moved" };
    field("Next Step", format!("{is}, {} devices; {moved}", step.raid_devices))
}

fn reshape(detail: &Detail, reshape: &Reshape) -> Vec<String> {
    let done = match reshape.backwards {
        true => detail.array_size.saturating_sub(reshape.position),
        false => reshape.position,
    };
    let percent = match &detail.job {
        // It also fills what is new, behind the end that users see.
        Some(job) => job.percent().floor() as u128,
        None => u128::from(done) * 100 / u128::from(detail.array_size.max(1)),
    };
    let mut lines = vec![field("Reshape Status", format!("{}% complete", percent.min(100)))];
    let (old, new) = (reshape.old_devices, reshape.new_devices);
    if old != new {
        lines.push(field("Delta Devices", format!("{}, ({old}->{new})", new - old)));
    }
    lines.extend(reshape.new_level.iter().map(|level| field("New Level", level)));
    lines.extend(reshape.new_layout.iter().map(|layout| field("New Layout", layout)));
    lines.extend(reshape.new_chunk_size.map(|chunk| field("New Chunksize", size::chunk(chunk))));
    lines
}

fn identity(detail: &Detail) -> Vec<String> {
    let mut lines = vec![field("UUID", &detail.uuid)];
    if detail.version == "0.90" {
        lines = vec![field("UUID", words::v0_uuid(&detail.uuid))];
        // Such a superblock has no name, and its counter is shown in two halves.
        let (high, low) = (detail.events >> 32, detail.events & 0xffff_ffff);
        lines.push(field("Events", format!("{high}.{low}")));
    } else {
        lines.insert(0, field("Name", words::name(&detail.full_name)));
        lines.push(field("Events", detail.events.to_string()));
    }
    lines
}

fn members(detail: &Detail) -> Vec<String> {
    let mut lines = vec!["    Number   Major   Minor   RaidDevice State".to_string()];
    for (slot, number) in detail.slots.iter().enumerate() {
        let member = detail.members.iter().find(|member| Some(member.number) == *number);
        lines.push(match member {
            Some(member) => member_line(member, &slot.to_string()),
            None => row("-", Some((0, 0)), &slot.to_string(), "removed"),
        });
    }
    let without_slot = detail.members.iter().filter(|m| !detail.slots.contains(&Some(m.number)));
    let without_slot: Vec<String> = without_slot.map(|member| member_line(member, "-")).collect();
    if !without_slot.is_empty() {
        lines.push(String::new());
        lines.extend(without_slot);
    }
    lines
}

fn member_line(member: &Member, slot: &str) -> String {
    let state = match member.state.as_str() {
        "rebuilding" | "replacing" => "spare rebuilding",
        other => other,
    };
    // As mdadm shows them, in its order.
    let write_mostly = if member.write_mostly { " writemostly" } else { "" };
    let failfast = if member.failfast { " failfast" } else { "" };
    let state = format!("{state}{write_mostly}{failfast}   {}", member.name);
    row(&member.device_number.to_string(), member.device, slot, &state)
}

fn row(number: &str, device: Option<(u32, u32)>, slot: &str, state: &str) -> String {
    let (major, minor) = match device {
        Some((major, minor)) => (major.to_string(), minor.to_string()),
        None => ("-".to_string(), "-".to_string()),
    };
    format!("   {number:>5}   {major:>5}    {minor:>5}    {slot:>5}      {state}")
}

/// What the array is made of, down to the devices, where there is more than one layer.
fn stack(detail: &Detail) -> Vec<String> {
    match detail.members.iter().any(|member| member.array.is_some()) {
        true => node(detail.name.clone(), detail).lines(),
        false => Vec::new(),
    }
}

fn node(name: String, detail: &Detail) -> Node {
    let below = detail.members.iter().map(|member| match &member.array {
        Some(array) => {
            let mut node = node(member.name.clone(), array);
            node.text.push_str(&format!(" ({})", member.state));
            node
        }
        None => Node { text: format!("{}: {}", member.name, member.state), below: Vec::new() },
    });
    let size = size::human(detail.array_size);
    let job =
        detail.job.as_ref().map(|job| format!(", {} {:.0} %", job.kind, job.percent().floor()));
    let job = job.unwrap_or_default();
    let text = format!("{name}: {}, {size}, {}{job}", detail.level, detail.state);
    Node { text, below: below.collect() }
}

/// `Check` of `check`.
fn word(kind: &str) -> String {
    let mut letters = kind.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What md does not say.
fn more(detail: &Detail) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(job) = &detail.job {
        let mut value = size::rate(job.rate as f64);
        if let Some(seconds) = job.eta_seconds {
            value.push_str(&format!(", {} to go", time::span(seconds)));
        }
        lines.push(field("Job Speed", value));
    }
    if let Some(bitmap) = &detail.bitmap {
        let (dirty, bits, chunk) = (bitmap.dirty, bitmap.bits, size::chunk(bitmap.chunk));
        lines.push(field("Bitmap", format!("{dirty} of {bits} bits dirty, {chunk} each")));
    }
    if !detail.settings.is_empty() {
        let all = detail.settings.iter().map(|(name, value)| format!("{name}={value}"));
        lines.push(field("Settings", all.collect::<Vec<_>>().join(", ")));
    }
    for line in &detail.spare_moves {
        lines.push(field("Spare", line));
    }
    if let Some(scrub) = &detail.scrub {
        let (state, done) = (report::state(scrub.state), scrub.percent());
        let why = scrub.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        lines.push(field(&word(&scrub.found.kind), format!("{state}, {done:.1} % done{why}")));
    }
    for job in &detail.stuck_jobs {
        let (kind, why, name, seconds) = (&job.kind, &job.why, &detail.name, job.again_in);
        let again = format!("tried again in {seconds} s, at once by: braid resume {name}");
        lines.push(field("Stuck", format!("{kind} {why}; {again}")));
    }
    if detail.mismatch_count > 0 {
        let sectors = detail.mismatch_count;
        lines.push(field("Mismatches", format!("{sectors} sectors at the last check")));
    }
    for line in detail.scrubbed.iter().flat_map(found::lines) {
        lines.push(field("Found", line));
    }
    for member in detail.members.iter().filter(|member| member.wrong > 0) {
        let (name, wrong) = (&member.name, member.wrong);
        lines.push(field("Wrong", format!("{name}: {wrong} bytes in checks and repairs so far")));
    }
    for member in detail.members.iter().filter(|member| member.errors > 0) {
        let (name, errors) = (&member.name, member.errors);
        lines.push(field("Corrected", format!("{name}: {errors} sectors that could not be read")));
    }
    for member in &detail.members {
        if let Some(fault) = &member.fault {
            lines.push(field("Fault", format!("{}: {fault}", member.name)));
        }
    }
    for member in &detail.members {
        for warning in &member.smart {
            lines.push(field("SMART", format!("{}: {warning}", member.name)));
        }
    }
    for member in detail.members.iter().filter(|member| member.waiting_for_space > 0) {
        let (name, writes) = (&member.name, member.waiting_for_space);
        lines.push(field("No Space", format!("{name}: {writes} writes wait for room")));
    }
    for line in &detail.taken_by_force {
        lines.push(field("Forced", line));
    }
    for line in detail.in_doubt.iter().flat_map(found::in_doubt) {
        lines.push(field("In Doubt", line));
    }
    for line in &detail.left_out {
        lines.push(field("Left Out", line));
    }
    for export in &detail.exports {
        lines.push(field("Export", export));
    }
    for client in &detail.clients {
        let ClientDetail { address, protocol, requests, read_bytes, written_bytes, .. } = client;
        let (read, written) = (size::human(*read_bytes), size::human(*written_bytes));
        let done = format!("{requests} requests, {read} read, {written} written");
        let in_flight = match client.in_flight {
            0 => String::new(),
            under_way => format!(", {under_way} under way"),
        };
        let errors = match client.errors {
            0 => String::new(),
            errors => format!(", {errors} failed"),
        };
        lines.push(field("Client", format!("{address} ({protocol}): {done}{in_flight}{errors}")));
    }
    lines
}

//! `braid volume status`: what a mounted volume is made of, how full it is, what it does.

use super::asking::{ask, connect, unexpected, volume_name};
use crate::cli::volume::Status;
use crate::output::{self, size, table, time};
use anyhow::Result;
use braid_control::protocol::volume::{
    BrickDetail, VolumeAnswer, VolumeDetail, VolumeJobDetail, VolumeRequest,
};
use std::process::ExitCode;

pub fn run(options: Status) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    let volume = options.name.as_deref().map(volume_name);
    let answer = ask(&mut client, VolumeRequest::Status { volume })?;
    let VolumeAnswer::Status { status } = answer else { return Err(unexpected(answer)) };
    if options.json {
        output::json(&status)?;
    } else {
        output::line(text(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How far the job of a volume is, in a line.
pub fn job_line(volume: &str, detail: &VolumeJobDetail) -> String {
    let job = &detail.job;
    let of = detail.brick.as_ref().map(|brick| format!(" ({brick})")).unwrap_or_default();
    let mut line = format!(
        "{}{of}: {:.1} %, {} of {}",
        job.kind,
        job.percent(),
        size::human(job.done),
        size::human(job.total)
    );
    match (detail.state.as_str(), &detail.error) {
        ("paused", _) => {
            line.push_str(&format!(
                ", paused; `braid volume jobs {volume} --resume` goes on with it"
            ));
        }
        (_, Some(error)) => {
            line.push_str(&format!(
                ", failed: {error}; `braid volume jobs {volume} --resume` tries again"
            ));
        }
        _ => {
            line.push_str(&format!(", {}", size::rate(job.rate as f64)));
            if let Some(seconds) = job.eta_seconds {
                line.push_str(&format!(", {} to go", time::span(seconds)));
            }
        }
    }
    line
}

fn checksums(status: &VolumeDetail) -> String {
    let read = match (status.checksums, status.checksum_errors) {
        (false, _) => "off".to_string(),
        (true, 0) => "on".to_string(),
        (true, 1) => "on; one read found what was not written, see the log".to_string(),
        (true, count) => format!("on; {count} reads found what was not written, see the log"),
    };
    match status.checksum_mended {
        0 => read,
        1 => format!("{read}; one block was mended from another copy"),
        count => format!("{read}; {count} blocks were mended from other copies"),
    }
}

fn copies(status: &VolumeDetail) -> String {
    let name = &status.name;
    let missing = match (status.incomplete, status.job.is_some()) {
        (false, _) => String::new(),
        (true, true) => "; some are missing or have missed a write".to_string(),
        (true, false) => format!(
            "; some are missing or have missed a write: they are made when all bricks are there, or by `braid volume copies \
             {name} {}`",
            status.copies
        ),
    };
    let away = status.bricks.iter().filter(|brick| matches!(&*brick.state, "missing" | "lost"));
    let away = match away.map(|brick| brick.used).sum() {
        0 => String::new(),
        bytes => format!("; {} of copies are on bricks that are not there", size::human(bytes)),
    };
    let together = match status.copies_share_domain {
        false => String::new(),
        true => format!(
            "; the bricks that take data are in {}: some copies lie together, and would be lost together, until a brick in \
             another domain is added (`braid volume add {name} BRICK --domain LABEL`)",
            output::count(status.domains, "domain")
        ),
    };
    format!("{} of each file in the root folder{away}{missing}{together}", status.copies)
}

fn snapshots(status: &VolumeDetail) -> String {
    let alone = size::human(status.snapshot_bytes);
    match status.snapshots {
        0 => format!("none; {alone} of removed ones are still to be freed"),
        1 => format!("1, which alone holds {alone}"),
        count => format!("{count}, which alone hold {alone}"),
    }
}

fn text(status: &VolumeDetail) -> String {
    let mut lines = vec![format!("volume {} at {}: {}", status.name, status.dir, status.state)];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<11} {value}"));
    row("uuid", status.uuid.clone());
    row("size", part_of(status.used, status.size));
    row("stripe", size::human(status.stripe));
    row("checksums", checksums(status));
    if status.copies > 1 || status.incomplete {
        row("copies", copies(status));
    }
    if status.snapshots > 0 || status.snapshot_bytes > 0 {
        row("snapshots", snapshots(status));
    }
    let on = status.metadata_on.join(", ");
    row("metadata", format!("{} on {on}", part_of(status.metadata_used, status.metadata_size)));
    if status.metadata_used > status.metadata_size / 10 * 9 {
        let why = "nearly full: new files may be refused; `braid volume grow-metadata";
        row("", format!("{why} {} --size SIZE` makes it larger", status.name));
    }
    let way = if status.over_io_uring { "over io_uring" } else { "through /dev/fuse" };
    row("fuse", way.to_string());
    if let Some(lease) = &status.lease {
        let left = lease.left_ms as f64 / 1000.0;
        let (place, token) = (&lease.place, lease.token);
        row("lease", format!("{place}, token {token}, {left:.1} s left, renewed meanwhile"));
    }
    for job in status.job.iter().chain(&status.check) {
        row("job", job_line(&status.name, job));
    }
    if let Some(bytes) = status.job_speed {
        row("speed", format!("jobs move at most {}", size::rate(bytes as f64)));
    }
    if let Some(micros) = status.job_latency {
        let target = time::short(micros.saturating_mul(1000));
        row("latency", format!("jobs slow down while requests take longer than {target}"));
    }
    if status.unbalanced && status.job.is_none() {
        row(
            "balance",
            format!(
                "stripes lie elsewhere than they belong; `braid volume balance {}` moves them",
                status.name
            ),
        );
    }
    if let Some(why) = &status.failure {
        row("failure", format!("{why}; unmount the volume and see to its bricks"));
    }
    for export in &status.exports {
        row("export", format!("{} as {}", export.file, export.uri));
    }
    lines.push(bricks(&status.bricks));
    for brick in &status.bricks {
        if let Some(why) = &brick.failure {
            lines.push(format!("  brick {} ({}): {why}", brick.id, brick.name));
        }
    }
    lines.join("\n")
}

fn bricks(bricks: &[BrickDetail]) -> String {
    let heads = [
        "Id", "Brick", "State", "Domain", "Weight", "Size", "Used", "Use", "Share", "Fair",
        "Reads", "Writes", "Read/s", "Write/s",
    ];
    let mut table = table::table(&heads);
    for brick in bricks {
        table.add_row([
            brick.id.to_string(),
            brick.name.clone(),
            brick.state.clone(),
            if brick.domain.is_empty() { "-".to_string() } else { brick.domain.clone() },
            brick.weight.to_string(),
            size::human(brick.size),
            size::human(brick.used),
            percent(brick.used, brick.size),
            format!("{:.1} %", brick.share * 100.0),
            format!("{:.1} %", brick.fair_share * 100.0),
            brick.reads.to_string(),
            brick.writes.to_string(),
            size::rate(brick.read_rate as f64),
            size::rate(brick.write_rate as f64),
        ]);
    }
    table::align_right(&mut table, &[0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    table::text(&table)
}

fn part_of(used: u64, size: u64) -> String {
    format!("{} of {} in use ({})", size::human(used), size::human(size), percent(used, size))
}

fn percent(used: u64, size: u64) -> String {
    match size {
        0 => "-".to_string(),
        size => format!("{:.1} %", used as f64 * 100.0 / size as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::Job;

    #[test]
    fn what_is_to_be_done_next_is_said() {
        let mut status =
            VolumeDetail { name: "pool".into(), unbalanced: true, ..VolumeDetail::default() };
        assert!(text(&status).contains("braid volume balance pool"));
        assert!(!text(&status).contains("snapshots"));
        status.snapshot_bytes = 3 << 20;
        assert!(text(&status).contains("3 MiB of removed ones"), "{}", text(&status));
        status.snapshots = 2;
        assert!(text(&status).contains("2, which alone hold 3 MiB"), "{}", text(&status));
        status.copies = 2;
        for (state, used) in [("data", 5), ("missing", 2), ("lost", 1)] {
            let used = used << 20;
            status.bricks.push(BrickDetail { state: state.into(), used, ..BrickDetail::default() });
        }
        let said = text(&status);
        assert!(said.contains("2 of each file in the root folder; 3 MiB of copies are"), "{said}");
        assert!(!said.contains("domain is added"), "{said}");
        (status.domains, status.copies_share_domain) = (1, true);
        let said = text(&status);
        assert!(said.contains("take data are in 1 domain: some copies lie together"), "{said}");
        let job = Job {
            kind: "balance".into(),
            done: 1 << 20,
            total: 4 << 20,
            rate: 1_000_000,
            eta_seconds: Some(3),
            mismatches: 0,
        };
        let detail = VolumeJobDetail { job, brick: None, state: "running".into(), error: None };
        status.job = Some(detail.clone());
        let said = text(&status);
        assert!(said.contains("25.0 %, 1 MiB of 4 MiB, 1 MB/s, 3 s to go"), "{said}");
        assert!(!said.contains("braid volume balance"), "{said}");
        let paused = VolumeJobDetail { state: "paused".into(), ..detail };
        assert!(job_line("pool", &paused).contains("--resume"));
    }
}

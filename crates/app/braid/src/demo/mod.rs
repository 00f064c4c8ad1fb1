//! `braid demo`: the whole story with real files, real commands and, where the machine allows it, a
//! real file system on the array.
//!
//! | file | subject |
//! |---|---|
//! | `stage` | the folder, the server as a child process, tools, interruption |
//! | `cleanup` | what has to be undone, undone in the reverse order whatever happens |
//! | `sources` | the files that are copied in, with their checksums |
//! | `medium` | where they are copied: a mounted ext4, or the device through an NBD client |
//! | `disk` | the disk below the members, by itself |
//! | `summary` | the table at the end |
//!
//! Invariant: when it ends, by itself, by an error or by a signal, nothing of it is left: no mount, no
//! loop device, no process, no socket, no file.

mod cleanup;
mod disk;
mod heading;
mod medium;
mod sources;
mod stage;
mod summary;

use self::heading::heading;
use crate::cli;
use crate::client::Client;
use crate::output::{self, progress::Progress, size};
use anyhow::{Context, Result, bail, ensure};
use braid_control::protocol::Request;
use medium::Medium;
use sources::Sources;
use stage::Stage;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use summary::Summary;

/// The array's name.
const NAME: &str = "vault";
/// Slots of the array.
const SLOTS: usize = 4;
/// Speed of the rebuild while everything is read back, in KiB per second.
const HELD_BACK_KIB: &str = "1000";
/// The member that is lost.
const LOST: usize = 1;

pub fn run(options: &cli::Demo) -> Result<ExitCode> {
    let began = Instant::now();
    let mut stage = Stage::set(options.dir.as_deref())?;
    let told = tell(&mut stage, options);
    let undone = stage.strike();
    let summary = told?;
    undone.context("cleaning up after the demo")?;
    output::line(summary.text(began.elapsed()))?;
    Ok(ExitCode::SUCCESS)
}

fn tell(stage: &mut Stage, options: &cli::Demo) -> Result<Summary> {
    let mut summary = Summary::default();
    heading("Files to copy, and how fast the disk below is")?;
    let sources = Sources::choose(options.data << 20, &stage.interrupt())?;
    output::line(sources.describe())?;
    raw(stage, &sources, &mut summary)?;

    heading("A RAID5 of four files, and a spare")?;
    let members = make_members(stage, sources.bytes())?;
    let member_names: Vec<&str> = members.iter().map(String::as_str).collect();
    let mut create = vec!["create", NAME, "--level", "5", "--raid-devices", "4"];
    create.extend(["--spare-devices", "1", "--chunk", "64K"]);
    create.extend(&member_names);
    stage.braid(&create)?;
    stage.serve(&member_names)?;
    let control = stage.control();
    wait(stage, "the first resync")?;
    output::line(
        "# A rebuild of so little data would be over at once; held back, it can be watched.",
    )?;
    stage.braid(&["speed", NAME, "--max", HELD_BACK_KIB])?;

    let mut medium = Medium::open(stage, NAME, !options.no_mount)?;
    copy_in(stage, &sources, &mut medium, &members, &mut summary)?;

    heading("Reading everything back from a cold cache, with a member missing")?;
    read_back(stage, &sources, &mut medium, &mut summary, "read back, one member lost")?;

    heading("The rebuild onto the spare, at full speed")?;
    let mut client = Client::connect(&control)?;
    rebuild(stage, &mut client, &mut summary)?;

    heading("Check: does parity match the data everywhere?")?;
    check(stage, &mut client, &mut summary)?;

    heading("Reading everything back once more, from the rebuilt array")?;
    read_back(stage, &sources, &mut medium, &mut summary, "read back, rebuilt")?;

    heading("The end")?;
    medium.close(stage)?;
    stage.braid(&["stop", NAME])?;
    stage.wait_for_server()?;
    output::line("the server has ended")?;
    Ok(summary)
}

/// The same files, copied to and read from a folder beside the members; and large requests in order.
fn raw(stage: &Stage, sources: &Sources, summary: &mut Summary) -> Result<()> {
    let folder = stage.path("raw");
    std::fs::create_dir(&folder).context("making a folder for the comparison")?;
    let began = Instant::now();
    sources.copy_to(&folder, &stage.interrupt(), &AtomicU64::new(0))?;
    sources::sync(&folder)?;
    summary.raw_write = rate(sources.bytes(), began.elapsed());
    sources.drop_from_cache(&folder)?;
    let began = Instant::now();
    sources.compare(&folder, &stage.interrupt())?;
    summary.raw_read = rate(sources.bytes(), began.elapsed());
    std::fs::remove_dir_all(&folder).context("removing the copy that was compared with")?;
    let rates =
        disk::measure(&stage.path("raw"), member_bytes(sources.bytes()), &stage.interrupt())?;
    (summary.disk_write, summary.disk_read) = (rates.write, rates.read);
    output::line(format!(
        "the disk that holds the members: files copied at {}, read at {}; in order, written at {}, read at {}",
        size::rate(summary.raw_write),
        size::rate(summary.raw_read),
        size::rate(summary.disk_write),
        size::rate(summary.disk_read)
    ))
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9)
}

/// Room for the data, a file system and superblocks, in whole MiB.
fn member_bytes(data: u64) -> u64 {
    let array = data + data / 4 + (96 << 20);
    (array / (SLOTS as u64 - 1)).next_multiple_of(1 << 20) + (4 << 20)
}

/// Sparse files.
fn make_members(stage: &Stage, data: u64) -> Result<Vec<String>> {
    let size = member_bytes(data);
    let mut members = Vec::new();
    for index in 0..=SLOTS {
        let path = stage.path(&format!("disk{index}"));
        braid_device::file::create_sparse(&path, size)?;
        members.push(path.display().to_string());
    }
    Ok(members)
}

/// Waits until no job is running, showing its progress.
fn wait(stage: &Stage, what: &str) -> Result<()> {
    let mut client = Client::connect(&stage.control())?;
    let mut progress = Progress::new(false);
    let waited = client.wait(Some(NAME), &mut |job| {
        stage.go_on()?;
        progress.show(job)
    });
    progress.finish();
    let (last, _) = waited.with_context(|| format!("waiting for {what}"))?;
    if let Some(job) = last.filter(|job| job.outcome == "failed") {
        bail!("{what} failed: {}", job.error.unwrap_or_default());
    }
    Ok(())
}

/// Copies everything in; when half of it has arrived, one member's file is cut to nothing.
fn copy_in(
    stage: &Stage,
    sources: &Sources,
    medium: &mut Medium,
    members: &[String],
    summary: &mut Summary,
) -> Result<()> {
    heading("Copying in; half-way a member is lost")?;
    let lost = members.get(LOST).context("a member to lose")?;
    let arrived = AtomicU64::new(0);
    let interrupt = stage.interrupt();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            medium.copy_in(sources, &interrupt, &arrived)?;
            medium.sync()
        });
        while arrived.load(Ordering::Relaxed) < sources.bytes() / 2 && !copying.is_finished() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let cut = stage.cut_to_nothing(lost);
        let copied = copying.join();
        cut?;
        match copied {
            Ok(copied) => copied,
            Err(_) => bail!("the thread that copies has ended; see what was printed before"),
        }
    })?;
    summary.row("copied in, losing a member", sources.bytes(), began.elapsed(), summary.raw_write);
    let mut client = Client::connect(&stage.control())?;
    let detail = client.detail(Some(NAME))?;
    let faulty = detail.members.iter().find(|member| member.name == *lost);
    let fault = faulty.and_then(|member| member.fault.clone());
    let Some(fault) = fault else {
        bail!("{lost} was cut to nothing and the array has not noticed: {}", detail.state);
    };
    output::line(format!(
        "copied {}; array {NAME} is {}",
        size::human(sources.bytes()),
        detail.state
    ))?;
    output::line(format!("{lost} is faulty: {fault}"))
}

fn read_back(
    stage: &Stage,
    sources: &Sources,
    medium: &mut Medium,
    summary: &mut Summary,
    what: &str,
) -> Result<()> {
    medium.forget(stage)?;
    let began = Instant::now();
    medium.compare(sources, &stage.interrupt())?;
    summary.row(what, sources.bytes(), began.elapsed(), summary.raw_read);
    output::line(format!("{} files: every checksum is right", sources.count()))
}

fn rebuild(stage: &Stage, client: &mut Client, summary: &mut Summary) -> Result<()> {
    let before = client.detail(Some(NAME))?;
    let job = before.job.filter(|job| job.kind == "recover");
    let job =
        job.context("no rebuild is running although a member is lost and there is a spare")?;
    output::line(format!("so far {:.0} % are rebuilt", job.percent()))?;
    output::line(format!("$ braid speed {NAME} --max none"))?;
    let faster =
        Request::Speed { array: Some(NAME.to_string()), min_kib: None, max_kib: Some(u64::MAX) };
    client.order(&faster)?;
    // The pause that it is in was still measured out for the old speed.
    let (began, left) = loop {
        let now = client.detail(Some(NAME))?.job.filter(|job| job.kind == "recover");
        let left = now.map_or(0, |now| now.total.saturating_sub(now.done));
        if left < job.total.saturating_sub(job.done) {
            break (Instant::now(), left);
        }
        stage.go_on()?;
        std::thread::sleep(Duration::from_millis(2));
    };
    wait(stage, "the rebuild")?;
    let time = began.elapsed();
    let detail = client.detail(Some(NAME))?;
    ensure!(detail.degraded == 0, "the array is still degraded: {}", detail.state);
    summary.row("rebuilt onto the spare", left, time, summary.disk_write);
    output::line(format!("array {NAME}: {}, every slot has a member in sync again", detail.state))
}

fn check(stage: &Stage, client: &mut Client, summary: &mut Summary) -> Result<()> {
    let began = Instant::now();
    let request =
        Request::Scrub { array: Some(NAME.to_string()), repair: false, parity_only: false };
    client.order(&request)?;
    wait(stage, "the check")?;
    let time = began.elapsed();
    let detail = client.detail(Some(NAME))?;
    let component = detail.component_size;
    let last = detail.last_job.context("a check has ended")?;
    ensure!(
        last.kind == "check" && last.outcome == "done",
        "the check did not come to its end: {} {}",
        last.kind,
        last.outcome
    );
    ensure!(last.mismatches == 0, "parity does not match the data in {} sectors", last.mismatches);
    summary.row("checked, all members", component * SLOTS as u64, time, summary.disk_read);
    output::line("0 mismatches")
}

//! The disks, each behind an nbdkit for each host, which logs what that host asks for; and etcd.

use super::hosts::HERE;
use crate::program::Killed;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DISKS: usize = 3;
/// Bytes of a disk: a sparse file.
const DISK: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests that change a disk, as nbdkit's log names them.
const CHANGES: [&str; 3] = [" Write id=", " Zero id=", " Trim id="];
/// The end of such a request has its name behind dots.
const ENDS: [&str; 3] = [" ...Write id=", " ...Zero id=", " ...Trim id="];

fn port(host: usize, disk: usize) -> usize {
    11000 + 1000 * host + disk
}

/// The disks, as host `nr` reaches them.
pub(super) fn uris(nr: usize) -> Vec<String> {
    (0..DISKS).map(|disk| format!("nbd://{HERE}:{}/", port(nr, disk))).collect()
}

/// See the module's documentation.
pub(super) struct Storage {
    /// For each host, of each disk.
    logs: Vec<Vec<PathBuf>>,
    _processes: Vec<Killed>,
}

impl Storage {
    /// Starts all of it, for so many hosts.
    pub fn start(work: &Path, hosts: usize) -> Result<Storage> {
        let mut processes = Vec::new();
        let mut start = |name: &str, command: &mut Command, port: usize| -> Result<()> {
            let log = File::create(work.join(format!("{name}.log")))?;
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            let child = command.spawn();
            processes.push(Killed(
                child.with_context(|| format!("{name} (scripts/setup-packages test)"))?,
            ));
            let end = Instant::now() + PATIENCE;
            while TcpStream::connect(format!("{HERE}:{port}")).is_err() {
                ensure!(
                    Instant::now() < end,
                    "{name} does not come up; its log is in {}",
                    work.display()
                );
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        };
        let client = format!("http://{HERE}:2379");
        let mut etcd = Command::new("etcd");
        etcd.args(["--heartbeat-interval", "100", "--election-timeout", "500", "--data-dir"])
            .arg(work.join("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        start("etcd", &mut etcd, 2379)?;
        let mut logs = vec![Vec::new(); hosts];
        for disk in 0..DISKS {
            let file = work.join(format!("disk{disk}"));
            File::create(&file)?.set_len(DISK)?;
            for (host, logs) in logs.iter_mut().enumerate() {
                let name = format!("disk{disk}-of-{host}");
                let log = work.join(format!("{name}.requests"));
                let mut nbdkit = Command::new("nbdkit");
                nbdkit.args([
                    "--foreground",
                    "--exit-with-parent",
                    "--filter=log",
                    "--ipaddr",
                    HERE,
                    "--port",
                ]);
                nbdkit.arg(port(host, disk).to_string()).arg("file").arg(&file);
                nbdkit.arg(format!("logfile={}", log.display()));
                start(&name, &mut nbdkit, port(host, disk))?;
                logs.push(log);
            }
        }
        Ok(Storage { logs, _processes: processes })
    }
}

/// The ends of the logs at some moment.
pub(super) struct Window(Vec<Vec<u64>>);

/// The changes of a disk that a host has asked for, by the times of their lines.
#[derive(Default)]
struct Changes {
    first: Option<String>,
    /// The beginning or the end of the last one.
    last: Option<String>,
    count: u64,
}

impl Window {
    /// From now on.
    pub fn begin(storage: &mut Storage) -> Result<Window> {
        let end = |log: &PathBuf| Ok(fs::metadata(log)?.len());
        let all =
            storage.logs.iter().map(|logs| logs.iter().map(end).collect::<Result<Vec<u64>>>());
        Ok(Window(all.collect::<Result<_>>()?))
    }

    /// Of each disk the last change by `before` has ended before the first by `next` began. Gives the number of all.
    pub fn check(&self, storage: &mut Storage, (before, next): (usize, usize)) -> Result<u64> {
        let of = |host: usize, disk: usize| changes(&storage.logs[host][disk], self.0[host][disk]);
        let (mut count, mut earliest, mut latest) = (0, None, None);
        for disk in 0..DISKS {
            let (old, new) = (of(before, disk)?, of(next, disk)?);
            count += old.count + new.count;
            let first = new
                .first
                .with_context(|| format!("the next host has not written to disk {disk}"))?;
            earliest = Some(
                earliest.map_or_else(|| first.clone(), |known: String| known.min(first.clone())),
            );
            latest = latest.max(old.last);
        }
        // The disks are of one machine, so their times are of one clock.
        if let (Some(latest), Some(earliest)) = (latest, earliest) {
            ensure!(
                latest < earliest,
                "two hosts write: the one before at {latest}, the next since {earliest}"
            );
        }
        Ok(count)
    }
}

/// What a log says from there on.
fn changes(log: &Path, from: u64) -> Result<Changes> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(|| log.display().to_string())?;
    let mut found = Changes::default();
    for line in text.lines() {
        // Date and time.
        let time = line.get(..26).unwrap_or_default().to_string();
        if CHANGES.iter().any(|word| line.contains(word)) {
            found.first.get_or_insert_with(|| time.clone());
            found.last = Some(time);
            found.count += 1;
        } else if ENDS.iter().any(|word| line.contains(word)) {
            found.last = Some(time);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u32, word: &str) -> String {
        format!("2026-11-27 17:12:{second:02}.000000 connection=1 {word}Write id=1 offset=0x0\n")
    }

    #[test]
    fn a_write_of_the_host_before_after_one_of_the_next_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |host: usize, disk: usize| folder.path().join(format!("{host}-{disk}"));
        let logs = (0..2).map(|host| (0..DISKS).map(|disk| path(host, disk)).collect()).collect();
        let mut storage = Storage { logs, _processes: Vec::new() };
        for disk in 0..DISKS {
            fs::write(path(0, disk), line(1, "") + &line(2, "...")).expect("a log");
            fs::write(path(1, disk), line(4, "")).expect("a log");
        }
        let window = Window(vec![vec![0; DISKS]; 2]);
        assert_eq!(window.check(&mut storage, (0, 1)).expect("one after the other"), 6);
        // On another disk than the one that the next host wrote to first.
        fs::write(path(1, 0), line(3, "")).expect("a log");
        fs::write(path(0, 2), line(1, "") + &line(3, "...")).expect("a log");
        let error = window.check(&mut storage, (0, 1)).expect_err("two at a time").to_string();
        assert!(error.contains("two hosts write"), "{error}");
    }

    #[test]
    fn a_log_of_nbdkit_says_when_the_first_change_begins_and_the_last_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let text = "2026-11-27 17:12:10.997702 connection=1 Connect export=\"\" tls=0\n\
                    2026-11-27 17:12:10.998809 connection=2 Write id=1 offset=0x0 count=0x2000 fua=0 ...\n\
                    2026-11-27 17:12:10.998992 connection=2 ...Write id=1 return=0\n\
                    2026-11-27 17:12:11.000100 connection=2 Read id=2 offset=0x0 count=0x2000 ...\n\
                    2026-11-27 17:12:11.000430 connection=2 Disconnect transactions=1\n";
        fs::write(&log, text).expect("a log");
        let found = changes(&log, 0).expect("changes");
        assert_eq!(found.first.as_deref(), Some("2026-11-27 17:12:10.998809"));
        assert_eq!(found.last.as_deref(), Some("2026-11-27 17:12:10.998992"));
        assert_eq!(found.count, 1);
        let at = text.find("2026-11-27 17:12:11").expect("a place") as u64;
        assert_eq!(changes(&log, at).expect("changes").count, 0);
    }
}

//! The health of disks as they tell it themselves (SMART), reported by smartctl of smartmontools.
//!
//! smartctl knows ATA, SCSI, NVMe and the controllers between, and the faults of disks' firmware; where it is not installed
//! there are no warnings. A disk in standby is not woken. Nothing follows from a warning: a disk that says that it fails may
//! serve for years, and one that fails may have said nothing.

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A disk that has not answered within this time is asked another time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks at whether smartctl has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The warnings of the last round, by the name of the member.
#[derive(Default)]
pub struct Warnings(Mutex<BTreeMap<String, Vec<String>>>);

impl Warnings {
    /// The warnings of this member's disk.
    pub fn of(&self, member: &str) -> Vec<String> {
        self.all().get(member).cloned().unwrap_or_default()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        // A list of sentences is whole at any moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a disk said; true when that is something else than before.
    pub fn replace(&self, member: &str, warnings: Vec<String>) -> bool {
        let mut all = self.all();
        if all.get(member).map_or(&[][..], |known| &known[..]) == &warnings[..] {
            return false;
        }
        match warnings.is_empty() {
            true => all.remove(member),
            false => all.insert(member.to_string(), warnings),
        };
        true
    }
}

/// Why there is no answer.
pub enum Unasked {
    /// There is no such program.
    NotInstalled,
    /// The disk, or smartctl, gave none.
    NoAnswer(anyhow::Error),
}

/// Asks a disk for its warnings.
///
/// # Errors
/// There is no answer.
pub fn ask(smartctl: &Path, disk: &Path) -> Result<Vec<String>, Unasked> {
    let mut child = Command::new(smartctl)
        .args(["--json=c", "--health", "--attributes", "--nocheck=standby"])
        .arg(disk)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Unasked::NotInstalled,
            _ => Unasked::NoAnswer(anyhow!(error).context("starting smartctl")),
        })?;
    let answer = answer_of(&mut child).map_err(Unasked::NoAnswer)?;
    warnings(&answer).map_err(Unasked::NoAnswer)
}

fn answer_of(child: &mut Child) -> Result<String> {
    let mut output = child.stdout.take().context("smartctl was given no output")?;
    // Read beside the wait: who has much to say waits for its reader.
    let reader = std::thread::Builder::new()
        .name("smartctl".to_string())
        .spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).map(|_| text)
        })
        .context("starting the thread that reads what smartctl says")?;
    let until = Instant::now() + ANSWERS_WITHIN;
    while child.try_wait().context("waiting for smartctl")?.is_none() {
        if Instant::now() >= until {
            // It may have ended just now.
            let _ = child.kill();
            // Where the disk keeps it in the kernel it ends when that answers; nobody waits for it.
            return Err(anyhow!("no answer within {} s", ANSWERS_WITHIN.as_secs()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let read = reader.join().map_err(|_| anyhow!("reading what smartctl says"))?;
    read.context("reading what smartctl says")
}

/// The parts of smartctl's JSON that say something bad.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    smart_status: Option<Status>,
    nvme_smart_health_information_log: Option<Nvme>,
    ata_smart_attributes: Attributes,
}

#[derive(Debug, Deserialize)]
struct Status {
    passed: bool,
}

/// Log page 2 of NVMe (NVM Express base specification, SMART / Health Information).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Nvme {
    critical_warning: u64,
    available_spare: Option<u64>,
    available_spare_threshold: Option<u64>,
    percentage_used: Option<u64>,
    media_errors: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Attributes {
    table: Vec<Attribute>,
}

#[derive(Debug, Deserialize)]
struct Attribute {
    id: u64,
    #[serde(default)]
    name: String,
    #[serde(default)]
    when_failed: String,
    #[serde(default)]
    raw: Raw,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    value: u64,
}

/// The attributes of which any count is bad news, as smartd watches them: sectors that wait to be reallocated, and those that
/// could not be read offline.
const COUNTS: [u64; 2] = [197, 198];

const CRITICAL: [(u64, &str); 6] = [
    (1, "its spare blocks are nearly used up"),
    (2, "its temperature is beyond its limits"),
    (4, "its reliability has suffered from errors"),
    (8, "it can only be read any more"),
    (16, "its cache is not protected against a power cut any more"),
    (32, "its persistent memory can only be read any more"),
];

fn warnings(answer: &str) -> Result<Vec<String>> {
    let answer: Answer = serde_json::from_str(answer).context("reading smartctl's JSON")?;
    let mut all = Vec::new();
    if answer.smart_status.is_some_and(|status| !status.passed) {
        all.push("it expects to fail (overall health: failed)".to_string());
    }
    if let Some(nvme) = answer.nvme_smart_health_information_log {
        let set = CRITICAL.iter().filter(|(bit, _)| nvme.critical_warning & bit != 0);
        all.extend(set.map(|(_, what)| (*what).to_string()));
        if nvme.media_errors > 0 {
            all.push(format!("{} errors of its medium", nvme.media_errors));
        }
        if let Some(used) = nvme.percentage_used.filter(|used| *used >= 100) {
            all.push(format!("{used} % of the writes that it is made for are used up"));
        }
        if let (Some(spare), Some(least)) = (nvme.available_spare, nvme.available_spare_threshold)
            && spare < least
            && nvme.critical_warning & 1 == 0
        {
            all.push(format!("{spare} % of its spare blocks are left, less than {least} %"));
        }
    }
    for attribute in answer.ata_smart_attributes.table {
        let Attribute { id, name, when_failed, raw } = attribute;
        // Old: it was below its threshold once.
        if when_failed == "now" {
            all.push(format!("attribute {id} ({name}) is below its threshold"));
        } else if COUNTS.contains(&id) && raw.value > 0 {
            all.push(format!("attribute {id} ({name}) is {}", raw.value));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_healthy_disk_warns_of_nothing() {
        let ata = r#"{"smartctl":{"exit_status":0},"smart_status":{"passed":true},"ata_smart_attributes":{"table":[
            {"id":5,"name":"Reallocated_Sector_Ct","value":100,"thresh":10,"when_failed":"","raw":{"value":0,"string":"0"}},
            {"id":197,"name":"Current_Pending_Sector","when_failed":"","raw":{"value":0,"string":"0"}}]}}"#;
        assert_eq!(warnings(ata).unwrap(), Vec::<String>::new());
        let nvme = r#"{"smart_status":{"passed":true,"nvme":{"value":0}},"nvme_smart_health_information_log":
            {"critical_warning":0,"available_spare":100,"available_spare_threshold":10,"percentage_used":3,"media_errors":0}}"#;
        assert_eq!(warnings(nvme).unwrap(), Vec::<String>::new());
        // In standby, or of a kind that smartctl does not know.
        assert_eq!(warnings(r#"{"smartctl":{"exit_status":2}}"#).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_a_disk_says_is_told_in_words() {
        let ata = r#"{"smart_status":{"passed":false},"ata_smart_attributes":{"table":[
            {"id":5,"name":"Reallocated_Sector_Ct","when_failed":"now","raw":{"value":4000}},
            {"id":9,"name":"Power_On_Hours","when_failed":"past","raw":{"value":70000}},
            {"id":197,"name":"Current_Pending_Sector","when_failed":"","raw":{"value":8}}]}}"#;
        assert_eq!(
            warnings(ata).unwrap(),
            [
                "it expects to fail (overall health: failed)",
                "attribute 5 (Reallocated_Sector_Ct) is below its threshold",
                "attribute 197 (Current_Pending_Sector) is 8",
            ]
        );
        let nvme = r#"{"nvme_smart_health_information_log":{"critical_warning":9,"available_spare":4,
            "available_spare_threshold":10,"percentage_used":104,"media_errors":2}}"#;
        assert_eq!(
            warnings(nvme).unwrap(),
            [
                "its spare blocks are nearly used up",
                "it can only be read any more",
                "2 errors of its medium",
                "104 % of the writes that it is made for are used up",
            ]
        );
        assert!(warnings("smartctl 7.4").is_err());
    }

    #[test]
    fn smartctl_is_asked_about_a_disk_and_one_that_is_missing_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("smartctl");
        let script = r#"#!/bin/sh
            test "$1" = "--json=c" && test "$5" = /dev/sdz || exit 1
            echo '{"smart_status":{"passed":false}}'
            exit 8"#;
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let told = ask(&program, Path::new("/dev/sdz")).ok().unwrap();
        assert_eq!(told, ["it expects to fail (overall health: failed)"]);
        let missing = ask(&dir.path().join("nothing"), Path::new("/dev/sdz"));
        assert!(matches!(missing, Err(Unasked::NotInstalled)));
        let silent = ask(&program, Path::new("/dev/sdy"));
        assert!(matches!(silent, Err(Unasked::NoAnswer(_))));
    }

    #[test]
    fn what_is_known_changes_when_the_disk_says_something_else() {
        let known = Warnings::default();
        assert!(!known.replace("/dev/sda", Vec::new()));
        assert!(known.replace("/dev/sda", vec!["hot".into()]));
        assert!(!known.replace("/dev/sda", vec!["hot".into()]));
        assert_eq!((known.of("/dev/sda"), known.of("/dev/sdb")), (vec!["hot".into()], Vec::new()));
        assert!(known.replace("/dev/sda", Vec::new()) && known.of("/dev/sda").is_empty());
    }
}

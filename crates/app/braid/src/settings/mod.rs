//! What can be set on an array, as it is typed, kept and shown: the engine's settings, and md's limits of background jobs.
//!
//! | file | subject |
//! |---|---|
//! | `kept` | the file in which an array's settings wait for the next `serve` |
//! | `hours` | hours of the day, for checks and repairs |
//! | `group` | groups of arrays that share their spares |
//! | `fit` | whether settings suit an array that is not running yet |
//!
//! Owns the names. What a value of the write path may be is the engine's to say.

pub mod fit;
pub mod group;
pub mod hours;
pub mod kept;

use anyhow::{Context, Result, bail};
use braid_array::options::{SyncRange, SyncSpeed};
use braid_array::settings::Settings;
use braid_array::status::ArrayStatus;
use group::SpareGroup;
use hours::Hours;
use std::fmt;
use std::str::FromStr;

/// The names, in the order in which they are shown.
pub const NAMES: [&str; 14] = {
    let [a, b, c, d, e, f, g, h] = braid_array::settings::NAMES;
    let [i, j, k, l, m] = OF_JOBS;
    [a, b, c, d, e, f, g, h, i, j, k, l, m, SPARE_GROUP]
};

/// Those of background jobs.
const OF_JOBS: [&str; 5] =
    ["sync_speed_min", "sync_speed_max", "sync_min", "sync_max", "check_between"];

/// That of the arrays beside it.
const SPARE_GROUP: &str = "spare_group";

/// All settings of an array; the default is auto everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArraySettings {
    /// Those of the write path.
    pub path: Settings,
    /// md's `sync_speed_min` in KiB per second and member; `None`: auto.
    pub sync_speed_min: Option<u64>,
    /// md's `sync_speed_max` in KiB per second and member; `None`: auto, which is no limit.
    pub sync_speed_max: Option<u64>,
    /// md's `sync_min` in sectors: checks and repairs begin there; `None`: auto, at the beginning.
    pub sync_min: Option<u64>,
    /// md's `sync_max` in sectors: checks and repairs end there; `None`: auto, at the end.
    pub sync_max: Option<u64>,
    /// Checks and repairs run between these hours; `None`: auto, always.
    pub check_between: Option<Hours>,
    /// It shares spares with the other arrays of this group; `None`: auto, with nobody.
    pub spare_group: Option<SpareGroup>,
}

/// The settings of an array that its engine does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The hours of checks and repairs.
    pub hours: Option<Hours>,
    /// The group with which it shares spares.
    pub spare_group: Option<SpareGroup>,
}

/// `NAME=VALUE`, as typed; the name is one of [`NAMES`] and the value can be one of its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The setting.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Assignment, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("write NAME=VALUE, with one of: {}", NAMES.join(", ")));
        };
        let assignment = Assignment { name: name.to_string(), value: value.trim().to_string() };
        let one = ArraySettings::default().with(std::slice::from_ref(&assignment));
        one.map(|_| assignment).map_err(|error| format!("{error:#}"))
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

/// The assignments as text: `stripe_size=16384, shards=2`.
pub fn list(assignments: &[Assignment]) -> String {
    assignments.iter().map(Assignment::to_string).collect::<Vec<_>>().join(", ")
}

impl ArraySettings {
    /// The settings of a running array.
    pub fn of(status: &ArrayStatus, beside: Beside) -> ArraySettings {
        let (speed, range) = (status.sync_speed, status.sync_range);
        let auto = SyncSpeed::default();
        ArraySettings {
            path: status.settings,
            sync_min: (range.min > 0).then_some(range.min / SECTOR),
            sync_max: (range.max != u64::MAX).then_some(range.max / SECTOR),
            check_between: beside.hours,
            spare_group: beside.spare_group,
            sync_speed_min: (speed.min_kib != auto.min_kib).then_some(speed.min_kib),
            sync_speed_max: (speed.max_kib != auto.max_kib).then_some(speed.max_kib),
        }
    }

    /// These settings after all `assignments`, each setting at most once.
    ///
    /// # Errors
    /// A name that there is not, or twice; a value that cannot be.
    pub fn with(mut self, assignments: &[Assignment]) -> Result<ArraySettings> {
        for (index, Assignment { name, value }) in assignments.iter().enumerate() {
            if assignments.iter().take(index).any(|earlier| earlier.name == *name) {
                bail!("{name} is given twice; which of the two values?");
            }
            self.set(name, value)?;
        }
        Ok(self)
    }

    /// Whether the settings agree with each other, whatever the array is.
    ///
    /// # Errors
    /// The two that do not.
    pub fn check(&self) -> Result<()> {
        let SyncSpeed { min_kib, max_kib } = self.sync_speed();
        if min_kib > max_kib {
            bail!("sync_speed_min={min_kib} is above sync_speed_max={max_kib}; set both");
        }
        let SyncRange { min, max } = self.sync_range();
        if min >= max {
            let (min, max) = (min / SECTOR, max / SECTOR);
            bail!(
                "sync_min={min} is not below sync_max={max}, in sectors: a check would find nothing to do; set both"
            );
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "sync_speed_min" => self.sync_speed_min = kib(name, value)?,
            "sync_speed_max" => {
                self.sync_speed_max = if value == "none" { None } else { kib(name, value)? };
                if self.sync_speed_max == Some(0) {
                    bail!("sync_speed_max=0: jobs could never end; \"none\" is no limit");
                }
            }
            "sync_min" => self.sync_min = sectors(name, value)?.filter(|sectors| *sectors > 0),
            "sync_max" => {
                self.sync_max = if value == "max" { None } else { sectors(name, value)? };
            }
            "check_between" => {
                self.check_between = match value {
                    AUTO => None,
                    hours => Some(hours.parse().with_context(|| format!("{name}={value}"))?),
                };
            }
            SPARE_GROUP => {
                self.spare_group = match value {
                    AUTO => None,
                    group => Some(group.parse().map_err(anyhow::Error::msg)?),
                };
            }
            _ if !NAMES.contains(&name) => {
                bail!("{name:?} is no setting of an array; there are: {}", NAMES.join(", "))
            }
            _ => self.path.set(name, value)?,
        }
        Ok(())
    }

    /// The value of a setting as text that [`ArraySettings::with`] takes; `auto` where nothing is set.
    pub fn get(&self, name: &str) -> String {
        let value = match name {
            "sync_min" => self.sync_min.map(|sectors| sectors.to_string()),
            "sync_max" => self.sync_max.map(|sectors| sectors.to_string()),
            "check_between" => self.check_between.map(|hours| hours.to_string()),
            SPARE_GROUP => self.spare_group.map(|group| group.to_string()),
            "sync_speed_min" => self.sync_speed_min.map(|kib| kib.to_string()),
            "sync_speed_max" => self.sync_speed_max.map(|kib| kib.to_string()),
            _ => self.path.get(name),
        };
        value.unwrap_or_else(|| AUTO.to_string())
    }

    /// The settings that are not auto.
    pub fn chosen(&self) -> Vec<Assignment> {
        let all =
            NAMES.iter().map(|name| Assignment { name: name.to_string(), value: self.get(name) });
        all.filter(|assignment| assignment.value != AUTO).collect()
    }

    /// Limits of background jobs.
    pub fn sync_speed(&self) -> SyncSpeed {
        let auto = SyncSpeed::default();
        SyncSpeed {
            min_kib: self.sync_speed_min.unwrap_or(auto.min_kib),
            max_kib: self.sync_speed_max.unwrap_or(auto.max_kib),
        }
    }
}

impl ArraySettings {
    /// The part of the array that checks and repairs go through.
    pub fn sync_range(&self) -> SyncRange {
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
        SyncRange {
            min: self.sync_min.map_or(0, bytes),
            max: self.sync_max.map_or(u64::MAX, bytes),
        }
    }
}

const SECTOR: u64 = braid_format::SECTOR as u64;

/// What stands for the value that braid chooses.
pub const AUTO: &str = "auto";

fn kib(name: &str, value: &str) -> Result<Option<u64>> {
    if value == AUTO {
        return Ok(None);
    }
    match value.parse() {
        Ok(kib) => Ok(Some(kib)),
        Err(_) => bail!("{name}={value}: \"auto\", or KiB per second and member"),
    }
}

/// Sectors as md counts them, or bytes with a unit.
fn sectors(name: &str, value: &str) -> Result<Option<u64>> {
    if value == AUTO {
        return Ok(None);
    }
    let last = |text: &str| text.ends_with(|last: char| last.is_ascii_alphabetic());
    let sectors = match value.parse::<u64>() {
        Ok(sectors) => Some(sectors),
        Err(_) if last(value) => {
            let bytes = braid_device::spec::parse_size(value).ok();
            bytes.filter(|bytes| bytes.is_multiple_of(SECTOR)).map(|bytes| bytes / SECTOR)
        }
        Err(_) => None,
    };
    match sectors.filter(|sectors| *sectors <= u64::MAX / SECTOR) {
        Some(sectors) => Ok(Some(sectors)),
        None => bail!(
            "{name}={value}: \"auto\", sectors of 512 bytes of each member (of the array at levels 1 and 10), or a size \
             with K, M, G or T"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Assignment>, String> {
        text.split_whitespace().map(str::parse).collect()
    }

    #[test]
    fn all_names_can_be_set_and_are_read_back() {
        let text = "stripe_size=16384 stripe_cache_size=4096 rmw_level=0 preread_bypass_threshold=2 shards=3 \
                    max_read_errors=4 max_member_latency=300 member_timeout=90 sync_speed_min=10 sync_speed_max=20 sync_min=8 sync_max=4096 \
                    check_between=22:00-05:30 spare_group=rack-1";
        let settings = ArraySettings::default().with(&parsed(text).unwrap()).unwrap();
        let shown: Vec<String> = settings.chosen().iter().map(Assignment::to_string).collect();
        assert_eq!(shown.join(" "), text);
        let autos: Vec<String> = NAMES.iter().map(|name| format!("{name}=auto")).collect();
        let autos = parsed(&autos.join(" ")).unwrap();
        assert_eq!(settings.with(&autos).unwrap(), ArraySettings::default());
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        for (text, says) in [
            ("stripe_siz=4096", "stripe_size, stripe_cache_size"),
            ("=4096", "stripe_size"),
            ("stripe_size", "NAME=VALUE"),
            ("stripe_size=large", "bytes"),
            ("rmw_level=3", "0 (never)"),
            ("sync_speed_min=fast", "KiB per second"),
            ("sync_speed_max=0", "none"),
            ("sync_min=1.5", "sectors"),
            ("sync_max=10B", "sectors"),
            ("check_between=night", "01:00-05:00"),
            ("spare_group=a/b", "spare group"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let with = |text: &str| ArraySettings::default().with(&parsed(text).unwrap());
        assert!(with("shards=1 shards=2").is_err());
        for (text, agree) in [
            ("sync_speed_max=20", false),
            ("sync_speed_max=20 sync_speed_min=10", true),
            ("sync_speed_min=10 sync_speed_max=9", false),
            ("sync_min=8 sync_max=16", true),
            ("sync_min=1M sync_max=2048", false),
        ] {
            assert_eq!(with(text).unwrap().check().is_ok(), agree, "{text}");
        }
    }
}

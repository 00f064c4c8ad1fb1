//! What can be set on an array, as it is typed, kept and shown: the engine's settings, and md's limits of background jobs.
//!
//! | file | subject |
//! |---|---|
//! | `kept` | the file in which an array's settings wait for the next `serve` |
//! | `fit` | whether settings suit an array that is not running yet |
//!
//! Owns the names. What a value of the write path may be is the engine's to say.

pub mod fit;
pub mod kept;

use anyhow::{Result, bail};
use braid_array::options::SyncSpeed;
use braid_array::settings::Settings;
use std::fmt;
use std::str::FromStr;

/// The names, in the order in which they are shown.
pub const NAMES: [&str; 9] = {
    let [a, b, c, d, e, f, g] = braid_array::settings::NAMES;
    [a, b, c, d, e, f, g, "sync_speed_min", "sync_speed_max"]
};

/// All settings of an array; the default is auto everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArraySettings {
    /// Those of the write path.
    pub path: Settings,
    /// md's `sync_speed_min` in KiB per second and member; `None`: auto.
    pub sync_speed_min: Option<u64>,
    /// md's `sync_speed_max` in KiB per second and member; `None`: auto, which is no limit.
    pub sync_speed_max: Option<u64>,
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
    /// What is set on a running array.
    pub fn of(path: Settings, speed: SyncSpeed) -> ArraySettings {
        let auto = SyncSpeed::default();
        ArraySettings {
            path,
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
            _ if !NAMES.contains(&name) => {
                bail!("{name:?} is no setting of an array; there are: {}", NAMES.join(", "))
            }
            _ => self.path.set(name, value)?,
        }
        Ok(())
    }

    /// The value of a setting as text that [`ArraySettings::with`] takes; `auto` where nothing is set.
    pub fn get(&self, name: &str) -> String {
        let speed = match name {
            "sync_speed_min" => self.sync_speed_min.map(|kib| kib.to_string()),
            "sync_speed_max" => self.sync_speed_max.map(|kib| kib.to_string()),
            _ => self.path.get(name),
        };
        speed.unwrap_or_else(|| AUTO.to_string())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Assignment>, String> {
        text.split_whitespace().map(str::parse).collect()
    }

    #[test]
    fn all_names_can_be_set_and_are_read_back() {
        let text = "stripe_size=16384 stripe_cache_size=4096 rmw_level=0 preread_bypass_threshold=2 shards=3 \
                    max_read_errors=4 member_timeout=90 sync_speed_min=10 sync_speed_max=20";
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
        ] {
            assert_eq!(with(text).unwrap().check().is_ok(), agree, "{text}");
        }
    }
}

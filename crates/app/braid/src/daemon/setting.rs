//! Settings of running arrays: changed, kept for the next `serve`, shown with what auto means.
//!
//! Owns the order of things when settings change: first the running array, which may refuse, then the
//! file. Invariant: when a request is refused, both are as they were.

use super::orders::{order, status};
use super::scrubs::Scrubs;
use super::spares::Spares;
use crate::output::size;
use crate::settings::kept::Kept;
use crate::settings::{AUTO, ArraySettings, Assignment, Beside, NAMES, fit, list};
use anyhow::{Context, Result};
use braid_array::array::Array;
use braid_array::settings::MEMBER_TIMEOUT;
use braid_array::state::geometry::Geometry;
use braid_array::status::ArrayStatus;
use braid_control::protocol::Setting;
use braid_device::Target;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's documentation.
pub struct Setter {
    kept: Kept,
    scrubs: Arc<Scrubs>,
    spares: Arc<Spares>,
    /// Held while settings are read, changed and kept: changes come one after the other.
    turn: Mutex<()>,
}

impl Setter {
    /// One that keeps settings in `kept`; `scrubs` know the hours of checks, `spares` the groups.
    pub fn new(kept: Kept, scrubs: Arc<Scrubs>, spares: Arc<Spares>) -> Setter {
        Setter { kept, scrubs, spares, turn: Mutex::new(()) }
    }

    /// The settings of an array that its engine does not know.
    ///
    /// # Errors
    /// When the array has been stopped.
    fn beside(&self, array: &Array) -> Result<Beside> {
        let hours = self.scrubs.known(array)?.hours;
        Ok(Beside { hours, spare_group: self.spares.group(&array.uuid()) })
    }

    /// Makes sure that there is a place to keep settings in.
    ///
    /// # Errors
    /// When there can be none.
    pub fn prepare(&self) -> Result<()> {
        self.kept.prepare().map(|_| ())
    }

    /// Keeps the settings of a new array.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, uuid: &[u8; 16], name: &str, settings: &ArraySettings) -> Result<()> {
        self.kept.store(uuid, name, settings)
    }

    /// Sets all of `settings`, or none; `once`: what is kept stays as it is. Says what was done.
    ///
    /// # Errors
    /// A setting that there is not or that does not suit the array; a file that cannot be written.
    pub fn set(
        &self,
        array: &Array,
        settings: Vec<(String, String)>,
        once: bool,
    ) -> Result<String> {
        let asked: Vec<Assignment> =
            settings.into_iter().map(|(name, value)| Assignment { name, value }).collect();
        let name = array.name();
        let doing = || format!("setting {} of array {name}", list(&asked));
        // Nothing is left half done by a panic: whoever comes next reads everything anew.
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let now = status(array)?;
        let before = ArraySettings::of(&now, self.beside(array)?);
        let wanted = before.with(&asked).with_context(doing)?;
        let (kept, damaged) = self.kept.load(&array.uuid());
        let keep = kept.with(&asked).with_context(doing)?;
        wanted.check().with_context(doing)?;
        if !once {
            keep.check().with_context(|| format!("{}, with what else is kept", doing()))?;
        }
        take_over(array, before, wanted)?;
        if !once && let Err(error) = self.kept.store(&array.uuid(), name, &keep) {
            take_over(array, wanted, before)?;
            return Err(error.context("nothing was set; with --once it is set without being kept"));
        }
        self.scrubs.set_hours(array.uuid(), wanted.check_between);
        if wanted.spare_group != before.spare_group {
            self.spares.set_group(array.uuid(), wanted.spare_group);
        }
        drop(turn);
        Ok(match (once, damaged) {
            (true, _) => format!("array {name}: {}, until it is stopped", list(&asked)),
            (false, None) => format!("array {name}: {}", list(&asked)),
            (false, Some(was)) => format!("array {name}: {} (before that, {was})", list(&asked)),
        })
    }

    /// All settings.
    ///
    /// # Errors
    /// When the array has been stopped.
    pub fn get(&self, array: &Array) -> Result<Vec<Setting>> {
        let status = status(array)?;
        let geometry = fit::running(&status, array.info().device.logical_block);
        let set = ArraySettings::of(&status, self.beside(array)?);
        let (kept, _) = self.kept.load(&array.uuid());
        let setting = |name: &&str| {
            let value = set.get(name);
            let auto = (value == AUTO).then(|| auto(name, &status, geometry.as_ref()));
            let (meaning, now) = auto.unwrap_or_default();
            Setting { name: name.to_string(), value, kept: kept.get(name), meaning, now }
        };
        Ok(NAMES.iter().map(setting).collect())
    }
}

/// Has the array take over settings, or leave those that it has.
fn take_over(array: &Array, from: ArraySettings, to: ArraySettings) -> Result<()> {
    let (before, after) = (from.sync_speed(), to.sync_speed());
    let (range_before, range) = (from.sync_range(), to.sync_range());
    order(array, move |control| async move {
        control.jobs().set_sync_range(range)?;
        if after != before {
            control.jobs().set_sync_speed(after.min_kib, after.max_kib)?;
        }
        if to.path == from.path {
            return Ok(());
        }
        let outcome = control.set(to.path).await;
        if outcome.is_err() {
            // These were in force a moment ago, so they cannot be refused.
            let _ = control.jobs().set_sync_speed(before.min_kib, before.max_kib);
            let _ = control.jobs().set_sync_range(range_before);
        }
        outcome
    })
}

/// What auto means at the moment: in words and in numbers.
fn auto(
    name: &str,
    status: &ArrayStatus,
    geometry: Option<&Geometry>,
) -> (Option<String>, BTreeMap<String, u64>) {
    let numbers = |pairs: &[(&str, u64)]| {
        pairs.iter().map(|(name, number)| (name.to_string(), *number)).collect()
    };
    let (meaning, now): (String, BTreeMap<String, u64>) = match name {
        "shards" => (status.shards.to_string(), numbers(&[("shards", status.shards.into())])),
        "sync_speed_min" => {
            let kib = status.sync_speed.min_kib;
            (format!("{kib} KiB/s"), numbers(&[("kib_per_second", kib)]))
        }
        "sync_speed_max" => ("no limit".to_string(), BTreeMap::new()),
        "sync_min" => ("from the beginning".to_string(), BTreeMap::new()),
        "sync_max" => ("to the end".to_string(), BTreeMap::new()),
        "spare_group" => ("none: it shares its spares with nobody".to_string(), BTreeMap::new()),
        "check_between" => ("at any time".to_string(), BTreeMap::new()),
        "max_read_errors" => match status.level {
            level if level.has_redundancy() => {
                let most = status.settings.max_read_errors(level);
                (most.to_string(), numbers(&[("read_errors", most.into())]))
            }
            level => (format!("not used at level {level}"), BTreeMap::new()),
        },
        "max_member_latency" => ("no limit".to_string(), BTreeMap::new()),
        "member_timeout" => {
            let seconds = MEMBER_TIMEOUT;
            (format!("{seconds} s"), numbers(&[("seconds", seconds.into())]))
        }
        _ if !status.level.is_parity() => {
            (format!("not used at level {}", status.level), BTreeMap::new())
        }
        "stripe_size" => match geometry {
            None => return (None, BTreeMap::new()),
            Some(geometry) => {
                let line = status.settings.line_size(geometry);
                (format!("lines of {line} bytes"), numbers(&[("line_bytes", line)]))
            }
        },
        "stripe_cache_size" => {
            let lines = status.cache.capacity;
            let line = geometry.map_or(0, |geometry| status.settings.line_size(geometry));
            let bytes = lines.saturating_mul(line).saturating_mul(status.raid_disks as u64);
            let meaning = format!("{lines} lines, {}", size::human(bytes));
            (meaning, numbers(&[("lines", lines), ("bytes", bytes)]))
        }
        "rmw_level" => (
            "where it reads less; on members without heads also where both read the same"
                .to_string(),
            BTreeMap::new(),
        ),
        _ => {
            let times = u64::from(status.settings.bypass_threshold());
            (times.to_string(), numbers(&[("times", times)]))
        }
    };
    (Some(meaning), now)
}

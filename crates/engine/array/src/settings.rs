//! Settings of a running array: md's attributes of the write path, each `auto` unless somebody
//! knows better.
//!
//! Settings are no part of an array's bytes on disk: md has no place for them, and an array that goes
//! back to md takes none along.

use crate::state::geometry::Geometry;
use braid_layout::Level;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The smallest `stripe_size`, in bytes: a page of every machine that md runs on.
pub const STRIPE_SIZE_MIN: u64 = 4096;
/// Lines of a stripe, unless their height is set: a stripe of which one line is cached takes an entry for each.
const HEIGHTS_MAX: u64 = 4096;
/// Largest `stripe_cache_size` in lines: beyond md's 32768, and few enough for 32-bit line numbers.
pub const STRIPE_CACHE_LINES_MAX: u32 = 1 << 24;
/// Number of full stripes that may overtake a stripe with reads to do, unless set (md's default).
pub const PREREAD_BYPASS_THRESHOLD: u32 = 1;

/// Read errors that a member may have at levels 1 and 10 before it is failed, unless set (md's default).
pub const MAX_READ_ERRORS: u32 = 20;

/// The same at levels 4, 5 and 6: md compares with its `stripe_cache_size` (`raid5.c`, `raid5_end_read_request`).
pub const MAX_READ_ERRORS_WITH_PARITY: u32 = 256;

/// Time limit of a request to a member unless set, in seconds: longer than disks try to read a bad block (7 to 20 s),
/// as long as Linux waits for a SCSI command.
pub const MEMBER_TIMEOUT: u32 = 30;

/// Height of a line of the stripe cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripeSize {
    /// Parity is brought up to date in segments as tall as each write; lines are as small as they can
    /// be.
    #[default]
    Auto,
    /// Bytes: what is read for parity, and written of it, is whole lines.
    Bytes(u64),
}

/// Size of the stripe cache, all shards together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripeCacheSize {
    /// As large as pays, up to [`bound`](crate::cache).
    #[default]
    Auto,
    /// Lines, as md counts; 0: no cache.
    Lines(u32),
    /// Bytes, for as many whole lines as fit.
    Bytes(u64),
}

/// The choice between read-modify-write and reconstruct-write (md's `rmw_level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RmwLevel {
    /// Where it reads less than reconstruct-write. Where both read the same, as `Enable` on disks with heads, and as `Prefer`
    /// on all other members: there the one way costs them what the other does, and it takes less of the processor.
    #[default]
    Auto,
    /// 0: never, where reconstruct-write is possible.
    Disable,
    /// 1: where it reads less.
    Enable,
    /// 2: also where both read the same.
    Prefer,
}

impl RmwLevel {
    /// The level that `Auto` stands for, where all members have `heads` that have to move, or not.
    #[inline]
    pub(crate) fn of_members(self, heads: bool) -> RmwLevel {
        match self {
            RmwLevel::Auto if heads => RmwLevel::Enable,
            RmwLevel::Auto => RmwLevel::Prefer,
            set => set,
        }
    }

    /// Read-modify-write that reads so many blocks is taken, rather than reconstruct-write that reads so many.
    pub(crate) fn prefers_rmw(self, rmw: usize, reconstruct: usize) -> bool {
        match self {
            RmwLevel::Disable => false,
            RmwLevel::Auto | RmwLevel::Enable => rmw < reconstruct,
            RmwLevel::Prefer => rmw <= reconstruct,
        }
    }
}

/// Time limit of a request to a member, past which the member is failed, or, where the data depends on it, before the
/// log says that the array waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberTimeout {
    /// [`MEMBER_TIMEOUT`].
    #[default]
    Auto,
    /// For ever.
    Off,
    /// Seconds, not 0.
    Seconds(u32),
}

impl MemberTimeout {
    /// The limit in nanoseconds; `None`: there is none.
    pub fn limit(self) -> Option<u64> {
        match self {
            MemberTimeout::Auto => Some(MEMBER_TIMEOUT),
            MemberTimeout::Off => None,
            MemberTimeout::Seconds(seconds) => Some(seconds),
        }
        .map(|seconds| u64::from(seconds) * 1_000_000_000)
    }
}

impl fmt::Display for MemberTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberTimeout::Auto => f.pad("auto"),
            MemberTimeout::Off => f.pad("off"),
            MemberTimeout::Seconds(seconds) => f.pad(&seconds.to_string()),
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Height of a line.
    pub stripe_size: StripeSize,
    /// Size of the stripe cache.
    pub stripe_cache_size: StripeCacheSize,
    /// The choice between read-modify-write and reconstruct-write.
    pub rmw_level: RmwLevel,
    /// Number of full stripes that may overtake a stripe with reads to do; `None`: auto.
    pub preread_bypass_threshold: Option<u32>,
    /// Shards that own stripes; `None`: all that the process has.
    pub shards: Option<u16>,
    /// Read errors that a member may have, corrected from the others; the count halves each hour, and with one more it
    /// fails. `None`: [`MAX_READ_ERRORS`], or [`MAX_READ_ERRORS_WITH_PARITY`].
    pub max_read_errors: Option<u32>,
    /// Milliseconds that a member's requests may take on average, for a minute in which those of the others do not: then it
    /// fails, if the data does not depend on it. `None`: for ever.
    pub max_member_latency: Option<u32>,
    /// Time limit of a request to a member.
    pub member_timeout: MemberTimeout,
}

/// Names of the settings, as on the command line.
pub const NAMES: [&str; 8] = [
    "stripe_size",
    "stripe_cache_size",
    "rmw_level",
    "preread_bypass_threshold",
    "shards",
    "max_read_errors",
    "max_member_latency",
    "member_timeout",
];

/// Why a setting was refused. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// No such setting.
    #[error("{name} is no setting of an array; there are: {}", NAMES.join(", "))]
    Unknown {
        /// The value given.
        name: String,
    },
    /// The value cannot be read.
    #[error("{name}={value}: {want}")]
    Value {
        /// The setting.
        name: &'static str,
        /// The value given.
        value: String,
        /// The accepted values.
        want: &'static str,
    },
    /// The array has no parity, so nothing there is to set.
    #[error("{name} is for levels 4, 5 and 6, not for {level}")]
    NoParity {
        /// The setting.
        name: &'static str,
        /// The array's level.
        level: String,
    },
    /// The array has no member that could stand in for another.
    #[error("{name} is for arrays with redundancy, not for {level}")]
    NoRedundancy {
        /// The setting.
        name: &'static str,
        /// The array's level.
        level: String,
    },
    /// Not a power of two.
    #[error(
        "stripe_size={bytes}: must be a power of two, from {STRIPE_SIZE_MIN} to the chunk, {chunk}"
    )]
    NotAPowerOfTwo {
        /// The value given, in bytes.
        bytes: u64,
        /// The chunk, in bytes.
        chunk: u64,
    },
    /// Below 4096 bytes.
    #[error("stripe_size={bytes}: must be {STRIPE_SIZE_MIN} at least")]
    TooSmall {
        /// The value given, in bytes.
        bytes: u64,
    },
    /// Above the chunk.
    #[error("stripe_size={bytes}: must not be above the chunk of this array, {chunk}")]
    AboveChunk {
        /// The value given, in bytes.
        bytes: u64,
        /// The chunk, in bytes.
        chunk: u64,
    },
    /// Below the logical block of a member.
    #[error(
        "stripe_size={bytes}: a member has logical blocks of {block} bytes, so that is the least"
    )]
    BelowBlock {
        /// The value given, in bytes.
        bytes: u64,
        /// The largest logical block of the members, in bytes.
        block: u64,
    },
    /// More memory than there is.
    #[error(
        "stripe_cache_size={lines} lines of {line} bytes would take {} MiB; {} MiB is the most that caches may take here",
        lines.saturating_mul(*line) >> 20, memory >> 20
    )]
    Memory {
        /// Lines asked for.
        lines: u64,
        /// Bytes of a line: members × stripe_size.
        line: u64,
        /// The most that is allowed, in bytes.
        memory: u64,
    },
    /// More shards than the process has, or none.
    #[error(
        "shards={asked}: this process runs {there}, so 1 to {there}; serve it with --shards N for more"
    )]
    Shards {
        /// The number asked for.
        asked: u16,
        /// The number that exists.
        there: u16,
    },
}

impl SettingError {
    /// The setting that was refused; what was given in its place where there is none of that name.
    pub fn setting(&self) -> &str {
        match self {
            SettingError::Unknown { name } => name,
            SettingError::Value { name, .. }
            | SettingError::NoParity { name, .. }
            | SettingError::NoRedundancy { name, .. } => name,
            SettingError::NotAPowerOfTwo { .. }
            | SettingError::TooSmall { .. }
            | SettingError::AboveChunk { .. }
            | SettingError::BelowBlock { .. } => "stripe_size",
            SettingError::Memory { .. } => "stripe_cache_size",
            SettingError::Shards { .. } => "shards",
        }
    }

    /// Says why `array` keeps its level and layout: this setting would not suit it afterwards.
    pub(crate) fn after_a_change(&self, array: &str) -> String {
        let setting = self.setting();
        format!(
            "its settings do not suit that: {self}; do without it first: braid set {array} {setting}=auto"
        )
    }
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 10),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, 20),
            None => match text.strip_suffix(['G', 'g']) {
                Some(digits) => (digits, 30),
                None => (text, 0),
            },
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn value<T>(
    name: &'static str,
    text: &str,
    want: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, SettingError> {
    if text == "auto" {
        return Ok(None);
    }
    let wrong = || SettingError::Value { name, value: text.to_string(), want };
    parse(text).map(Some).ok_or_else(wrong)
}

impl Settings {
    /// Sets one setting from text, as `stripe_size` and `64K`. Whether it suits an array is for
    /// [`Settings::check`].
    ///
    /// # Errors
    /// When there is no such setting, or the text is no value of it.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
        let text = text.trim();
        match name {
            "stripe_size" => {
                let want = "\"auto\", or bytes (K, M and G may follow the number)";
                let size = value("stripe_size", text, want, bytes)?;
                self.stripe_size = size.map_or(StripeSize::Auto, StripeSize::Bytes);
            }
            "stripe_cache_size" => {
                let want = "\"auto\", a number of lines, or bytes with K, M or G after the number";
                let parse = |text: &str| match text.parse::<u32>() {
                    Ok(lines) => Some(StripeCacheSize::Lines(lines)),
                    Err(_) if text.ends_with(|last: char| last.is_ascii_alphabetic()) => {
                        bytes(text).map(StripeCacheSize::Bytes)
                    }
                    Err(_) => None,
                };
                let size = value("stripe_cache_size", text, want, parse)?;
                self.stripe_cache_size = size.unwrap_or_default();
            }
            "rmw_level" => {
                let want = "\"auto\", 0 (never), 1 (where it reads less) or 2 (also where both \
                            read the same)";
                let parse = |text: &str| match text {
                    "0" => Some(RmwLevel::Disable),
                    "1" => Some(RmwLevel::Enable),
                    "2" => Some(RmwLevel::Prefer),
                    _ => None,
                };
                self.rmw_level = value("rmw_level", text, want, parse)?.unwrap_or_default();
            }
            "preread_bypass_threshold" => {
                let want = "\"auto\", or a number from 0";
                let parse = |text: &str| u32::from_str(text).ok();
                self.preread_bypass_threshold =
                    value("preread_bypass_threshold", text, want, parse)?;
            }
            "shards" => {
                let parse = |text: &str| u16::from_str(text).ok();
                self.shards = value("shards", text, "\"auto\", or a number from 1", parse)?;
            }
            "max_read_errors" => {
                let parse = |text: &str| u32::from_str(text).ok();
                let want = "\"auto\", or a number from 0";
                self.max_read_errors = value("max_read_errors", text, want, parse)?;
            }
            "max_member_latency" => {
                let parse = |text: &str| match text {
                    "off" | "0" => Some(None),
                    millis => u32::from_str(millis).ok().map(Some),
                };
                let want = "milliseconds, or \"auto\" or \"off\" (0): no limit";
                self.max_member_latency =
                    value("max_member_latency", text, want, parse)?.unwrap_or_default();
            }
            "member_timeout" => {
                let parse = |text: &str| match text {
                    "off" | "0" => Some(MemberTimeout::Off),
                    seconds => u32::from_str(seconds).ok().map(MemberTimeout::Seconds),
                };
                let want = "\"auto\", seconds, or \"off\" (0) to wait for ever";
                self.member_timeout =
                    value("member_timeout", text, want, parse)?.unwrap_or_default();
            }
            _ => return Err(SettingError::Unknown { name: name.to_string() }),
        }
        Ok(())
    }

    /// The value of one setting as text that [`Settings::set`] takes.
    pub fn get(&self, name: &str) -> Option<String> {
        fn or_auto<T: ToString>(value: Option<T>) -> String {
            value.map_or_else(|| "auto".to_string(), |value| value.to_string())
        }
        Some(match name {
            "stripe_size" => self.stripe_size.to_string(),
            "stripe_cache_size" => self.stripe_cache_size.to_string(),
            "rmw_level" => self.rmw_level.to_string(),
            "preread_bypass_threshold" => or_auto(self.preread_bypass_threshold),
            "shards" => or_auto(self.shards),
            "max_read_errors" => or_auto(self.max_read_errors),
            "max_member_latency" => or_auto(self.max_member_latency),
            "member_timeout" => self.member_timeout.to_string(),
            _ => return None,
        })
    }

    /// Read errors that a member of an array of this level may have, what auto means included.
    pub fn max_read_errors(&self, level: Level) -> u32 {
        let auto = if level.is_parity() { MAX_READ_ERRORS_WITH_PARITY } else { MAX_READ_ERRORS };
        self.max_read_errors.unwrap_or(auto)
    }

    /// Checks the settings against an array of `geometry` whose process has `shards` shards and may
    /// take `memory` bytes for caches.
    ///
    /// # Errors
    /// The first setting that does not, and why.
    pub fn check(&self, geometry: &Geometry, shards: u16, memory: u64) -> Result<(), SettingError> {
        if let Some(asked) = self.shards
            && (asked == 0 || asked > shards)
        {
            return Err(SettingError::Shards { asked, there: shards });
        }
        for (name, set) in [
            ("max_read_errors", self.max_read_errors.is_some()),
            ("max_member_latency", self.max_member_latency.is_some()),
        ] {
            if set && !geometry.level.has_redundancy() {
                let level = geometry.level.to_string();
                return Err(SettingError::NoRedundancy { name, level });
            }
        }
        if !geometry.has_parity() {
            let plain = self.without_parity();
            let differs = |name: &&&str| self.get(name) != plain.get(name);
            return match NAMES.iter().find(differs) {
                Some(name) => {
                    Err(SettingError::NoParity { name, level: geometry.level.to_string() })
                }
                None => Ok(()),
            };
        }
        let chunk = geometry.layout.chunk_size();
        if let StripeSize::Bytes(bytes) = self.stripe_size {
            let block = u64::from(geometry.logical_block);
            if !bytes.is_power_of_two() {
                return Err(SettingError::NotAPowerOfTwo { bytes, chunk });
            }
            if bytes < block {
                return Err(SettingError::BelowBlock { bytes, block });
            }
            if bytes < STRIPE_SIZE_MIN {
                return Err(SettingError::TooSmall { bytes });
            }
            if bytes > chunk {
                return Err(SettingError::AboveChunk { bytes, chunk });
            }
        }
        let line = self.line_size(geometry) * geometry.slots() as u64;
        let lines = match self.stripe_cache_size {
            StripeCacheSize::Auto => 0,
            StripeCacheSize::Lines(lines) => u64::from(lines),
            StripeCacheSize::Bytes(bytes) => bytes / line,
        };
        if lines.saturating_mul(line) > memory || lines > u64::from(STRIPE_CACHE_LINES_MAX) {
            return Err(SettingError::Memory { lines, line, memory });
        }
        Ok(())
    }

    /// These settings without those that do not suit the array, and what was wrong with them; the
    /// parameters are those of [`Settings::check`]. For settings that were kept from another day, when the
    /// array or the machine was another one.
    pub fn suited(
        mut self,
        geometry: &Geometry,
        shards: u16,
        memory: u64,
    ) -> (Settings, Vec<SettingError>) {
        let mut refused = Vec::new();
        // Each round resets one setting, so there are no more rounds than settings.
        for _ in NAMES {
            let Err(why) = self.check(geometry, shards, memory) else { break };
            match &why {
                SettingError::Shards { .. } => self.shards = None,
                SettingError::Memory { .. } => self.stripe_cache_size = StripeCacheSize::Auto,
                SettingError::NoRedundancy { .. } => {
                    (self.max_read_errors, self.max_member_latency) = (None, None);
                }
                SettingError::NoParity { .. } => {
                    self = self.without_parity();
                }
                _ => self.stripe_size = StripeSize::Auto,
            }
            refused.push(why);
        }
        (self, refused)
    }

    /// Those that suit an array without parity.
    fn without_parity(&self) -> Settings {
        let Settings { shards, max_read_errors, max_member_latency, member_timeout, .. } = *self;
        Settings {
            shards,
            max_read_errors,
            max_member_latency,
            member_timeout,
            ..Settings::default()
        }
    }

    /// Height of a line in bytes: what is set, else as small as lines can be, of which a stripe has [`HEIGHTS_MAX`].
    pub fn line_size(&self, geometry: &Geometry) -> u64 {
        let smallest = STRIPE_SIZE_MIN.max(u64::from(geometry.logical_block));
        match self.stripe_size {
            StripeSize::Bytes(bytes) => bytes,
            StripeSize::Auto => {
                let chunk = geometry.layout.chunk_size().max(1);
                smallest.max(chunk / HEIGHTS_MAX).min(chunk)
            }
        }
    }

    /// Height of a line in bytes, when it is set.
    #[inline]
    pub(crate) fn line(&self) -> Option<u64> {
        match self.stripe_size {
            StripeSize::Auto => None,
            StripeSize::Bytes(bytes) => Some(bytes),
        }
    }

    /// Number of full stripes that may overtake a stripe with reads to do.
    pub fn bypass_threshold(&self) -> u32 {
        self.preread_bypass_threshold.unwrap_or(PREREAD_BYPASS_THRESHOLD)
    }
}

impl fmt::Display for StripeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StripeSize::Auto => f.pad("auto"),
            StripeSize::Bytes(bytes) => f.pad(&bytes.to_string()),
        }
    }
}

impl fmt::Display for StripeCacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StripeCacheSize::Auto => f.pad("auto"),
            StripeCacheSize::Lines(lines) => f.pad(&lines.to_string()),
            StripeCacheSize::Bytes(bytes) => f.pad(&format!("{}K", bytes >> 10)),
        }
    }
}

impl fmt::Display for RmwLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RmwLevel::Auto => "auto",
            RmwLevel::Disable => "0",
            RmwLevel::Enable => "1",
            RmwLevel::Prefer => "2",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_read_back_as_it_is_shown() {
        let cases = [
            ("stripe_size", "16384"),
            ("stripe_cache_size", "4096"),
            ("stripe_cache_size", "65536K"),
            ("rmw_level", "2"),
            ("preread_bypass_threshold", "0"),
            ("shards", "3"),
            ("max_member_latency", "250"),
            ("member_timeout", "5"),
            ("member_timeout", "off"),
        ];
        for (name, text) in cases {
            let mut settings = Settings::default();
            assert_eq!(settings.get(name).as_deref(), Some("auto"));
            settings.set(name, text).unwrap();
            assert_eq!(settings.get(name).as_deref(), Some(text));
            settings.set(name, "auto").unwrap();
            assert_eq!(settings, Settings::default());
        }
        let mut settings = Settings::default();
        settings.set("stripe_size", "64K").unwrap();
        assert_eq!(settings.stripe_size, StripeSize::Bytes(65536));
        settings.set("member_timeout", "0").unwrap();
        assert_eq!(settings.member_timeout.limit(), None);
        settings.set("max_member_latency", "9").unwrap();
        settings.set("max_member_latency", "off").unwrap();
        assert_eq!(settings.max_member_latency, None);
    }

    #[test]
    fn what_is_no_setting_or_no_value_is_refused_and_nothing_changes() {
        let mut settings = Settings::default();
        for (name, text) in [
            ("chunk", "4"),
            ("stripe_size", "many"),
            ("stripe_size", "99999999999999999999"),
            ("stripe_cache_size", "-1"),
            ("stripe_cache_size", "12X"),
            ("rmw_level", "3"),
            ("shards", "70000"),
            ("member_timeout", "-1"),
            ("max_member_latency", "fast"),
        ] {
            assert!(settings.set(name, text).is_err(), "{name}={text}");
            assert_eq!(settings, Settings::default());
        }
    }
}

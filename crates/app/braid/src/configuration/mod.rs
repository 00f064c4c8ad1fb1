//! The file that a server is started from at boot, `/etc/braid/braid.toml`: which arrays, from which devices, offered where, and
//! who is told of events.
//!
//! | file | subject |
//! |---|---|
//! | `mdadm_conf` | the lines of `mdadm.conf` that mean the same, and those that are ignored |
//! | `entries` | what is said of an array, and of those who are told |
//! | `volume` | what is said of a volume |
//! | `auto` | which arrays are started that no line names |
//! | `domains` | the spare group of an array, from the paths of its members |
//! | `error` | a mistake, with its line and column |
//!
//! Owns the shape of the file and what it means. The keys of `[serve]` are the long options of `braid serve`: the command line
//! knows them. Does not look at devices.

pub mod auto;
pub mod domains;
mod entries;
mod error;
mod mdadm_conf;
mod volume;

pub use entries::{ArrayEntry, Monitor};
pub use error::ConfigError;
pub use mdadm_conf::Ignored;
pub use volume::VolumeEntry;

use auto::Auto;
use braid_format::superblock::Superblock;
use braid_format::uuid_text;
use domains::Domain;
use entries::{Words, one_or_more};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use volume::FileVolume;

/// Where it is unless somebody says otherwise.
pub const DEFAULT_PATH: &str = "/etc/braid/braid.toml";
/// Seconds after which an array is started without members that have not come.
const DEGRADED_AFTER: u64 = 30;

/// The file, understood.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Where it was read.
    pub path: PathBuf,
    text: String,
    /// Options of `braid serve`.
    pub serve: Vec<ServeOption>,
    /// Devices that are looked at: `partitions`, or patterns.
    pub devices: Vec<String>,
    /// Arrays that no entry names.
    pub auto: Auto,
    /// The host whose arrays are local.
    pub homehost: Option<String>,
    /// An array is started without those of its members that have not come after so many seconds; `None`: never.
    pub degraded_after: Option<u64>,
    /// The arrays that are named.
    pub arrays: Vec<ArrayEntry>,
    /// The volumes that are named.
    pub volumes: Vec<VolumeEntry>,
    /// Spare groups by the paths of members.
    pub domains: Vec<Domain>,
    /// Those who are told of events.
    pub monitor: Monitor,
    /// The server's memory stays in memory, where the system allows that.
    pub lock_memory: bool,
    /// Lines of `mdadm.conf` that have no effect.
    pub ignored: Vec<Ignored>,
}

/// A key of `[serve]` with its values.
#[derive(Debug, Clone)]
pub struct ServeOption {
    /// The option's long name.
    pub name: String,
    /// Its values as words; none for an option that has no value.
    pub values: Vec<String>,
    /// It is there for its name alone, and is not wanted.
    pub off: bool,
    /// Where the key stands.
    pub span: Range<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    mdadm_conf: Option<Spanned<PathBuf>>,
    #[serde(default)]
    serve: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    #[serde(default)]
    scan: FileScan,
    #[serde(default)]
    array: Vec<Spanned<FileArray>>,
    #[serde(default)]
    volume: Vec<Spanned<FileVolume>>,
    #[serde(default)]
    monitor: Monitor,
    #[serde(default)]
    process: FileProcess,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct FileScan {
    #[serde(deserialize_with = "one_or_more")]
    devices: Vec<String>,
    auto: Option<Spanned<Words>>,
    homehost: Option<String>,
    degraded_after: Option<Spanned<Seconds>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    After(u64),
    Word(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileArray {
    uuid: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    #[serde(default, deserialize_with = "one_or_more")]
    devices: Vec<String>,
    spare_group: Option<Spanned<String>>,
    spares: Option<usize>,
    #[serde(default = "yes")]
    start: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct FileProcess {
    lock_memory: bool,
}

impl Default for FileProcess {
    fn default() -> FileProcess {
        FileProcess { lock_memory: true }
    }
}

fn yes() -> bool {
    true
}

impl Configuration {
    /// Reads the file at `path`, and the `mdadm.conf` that it names.
    ///
    /// # Errors
    /// A file that cannot be read, or the first mistake in it.
    pub fn read(path: &Path) -> Result<Configuration, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        Configuration::parse(path, text)
    }

    /// Understands the text of a file.
    ///
    /// # Errors
    /// The first mistake in it.
    pub fn parse(path: &Path, text: String) -> Result<Configuration, ConfigError> {
        let wrong = |span: Range<usize>, why: String| ConfigError::at(path, &text, span.start, why);
        let file: File = toml::from_str(&text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            ConfigError::at(path, &text, at, error.message().to_string())
        })?;
        let mut serve = Vec::new();
        for (key, value) in file.serve {
            let span = key.span();
            let (values, off) = words_of(value.get_ref()).ok_or_else(|| {
                let why =
                    format!("{}: a text, a number, true, false, or a list of them", key.get_ref());
                wrong(value.span(), why)
            })?;
            serve.push(ServeOption { name: key.into_inner(), values, off, span });
        }
        let auto = match file.scan.auto {
            None => None,
            Some(words) => {
                let span = words.span();
                let words = match words.into_inner() {
                    Words::One(one) => one.split_whitespace().map(str::to_string).collect(),
                    Words::More(all) => all,
                };
                Some(Auto::of(&words).map_err(|why| wrong(span, why))?)
            }
        };
        let degraded_after = match file.scan.degraded_after {
            None => Some(DEGRADED_AFTER),
            Some(after) => {
                let span = after.span();
                match after.into_inner() {
                    Seconds::After(seconds) => Some(seconds),
                    Seconds::Word(word) if word == "never" => None,
                    Seconds::Word(word) => {
                        let why =
                            format!("degraded-after: {word:?} is neither seconds nor \"never\"");
                        return Err(wrong(span, why));
                    }
                }
            }
        };
        let entry =
            |array: Spanned<FileArray>| entry(array).map_err(|(span, why)| wrong(span, why));
        let arrays = file.array.into_iter().map(entry).collect::<Result<_, _>>()?;
        let volumes = volume::entries(file.volume).map_err(|(span, why)| wrong(span, why))?;
        let mut read = Configuration {
            path: path.to_owned(),
            serve,
            devices: file.scan.devices,
            auto: auto.clone().unwrap_or_default(),
            homehost: file.scan.homehost,
            degraded_after,
            arrays,
            volumes,
            domains: Vec::new(),
            monitor: file.monitor,
            lock_memory: file.process.lock_memory,
            ignored: Vec::new(),
            text: String::new(),
        };
        if let Some(other) = file.mdadm_conf {
            let mdadm = std::fs::read_to_string(other.get_ref()).map_err(|error| {
                let why = format!("reading {}: {error}", other.get_ref().display());
                wrong(other.span(), why)
            })?;
            read.take(mdadm_conf::read(other.get_ref(), &mdadm, auto.is_none()));
        }
        if read.devices.is_empty() {
            read.devices.push("partitions".to_string());
        }
        read.text = text;
        Ok(read)
    }

    /// One that names devices to look at, and no arrays.
    pub fn of_devices(devices: impl Iterator<Item = String>) -> Configuration {
        Configuration {
            path: PathBuf::from(DEFAULT_PATH),
            text: String::new(),
            serve: Vec::new(),
            devices: devices.map(|device| glob::Pattern::escape(&device)).collect(),
            auto: Auto::default(),
            homehost: None,
            degraded_after: None,
            arrays: Vec::new(),
            volumes: Vec::new(),
            domains: Vec::new(),
            monitor: Monitor::default(),
            lock_memory: false,
            ignored: Vec::new(),
        }
    }

    /// Adds what `mdadm.conf` says; what this file says goes before it.
    fn take(&mut self, said: mdadm_conf::Said) {
        self.arrays.extend(said.arrays);
        self.devices.extend(said.devices);
        self.domains.extend(said.domains);
        self.ignored.extend(said.ignored);
        if let Some(auto) = said.auto {
            self.auto = auto;
        }
        self.homehost = self.homehost.take().or(said.homehost);
        self.monitor.mail.extend(said.monitor.mail);
        self.monitor.mail_from = self.monitor.mail_from.take().or(said.monitor.mail_from);
        self.monitor.program = self.monitor.program.take().or(said.monitor.program);
    }

    /// A mistake at a place of the file.
    pub fn wrong(&self, span: &Range<usize>, why: String) -> ConfigError {
        ConfigError::at(&self.path, &self.text, span.start, why)
    }

    /// The entry that names the array of this superblock.
    pub fn entry_of(&self, superblock: &Superblock) -> Option<&ArrayEntry> {
        self.arrays.iter().find(|entry| entry.names(superblock))
    }

    /// The array of this superblock is to be started.
    pub fn wants(&self, superblock: &Superblock) -> bool {
        match self.entry_of(superblock) {
            Some(entry) => entry.start,
            None => self.auto.takes(superblock, &self.host()),
        }
    }

    /// The number of spares that the array with this UUID and name is to have.
    pub fn spares_of(&self, uuid: &str, name: &str) -> Option<usize> {
        let uuid = uuid_text::parse(uuid).ok();
        let short = name.split_once(':').map_or(name, |(_, short)| short);
        let is = |entry: &&ArrayEntry| {
            let by_name = entry.name.as_deref().is_none_or(|own| own == name || own == short);
            entry.uuid.is_none_or(|own| Some(own) == uuid) && by_name
        };
        self.arrays.iter().find(is).and_then(|entry| entry.spares)
    }

    /// The host whose arrays are local: this one, unless it says otherwise.
    pub fn host(&self) -> String {
        match self.homehost.as_deref() {
            None | Some("<system>") => {
                rustix::system::uname().nodename().to_string_lossy().into_owned()
            }
            Some(host) => host.to_string(),
        }
    }
}

fn entry(array: Spanned<FileArray>) -> Result<ArrayEntry, (Range<usize>, String)> {
    let (at, array) = (array.span(), array.into_inner());
    let mut entry = ArrayEntry {
        devices: array.devices,
        spares: array.spares,
        start: array.start,
        ..ArrayEntry::default()
    };
    if let Some(uuid) = array.uuid {
        let parsed = uuid_text::parse(uuid.get_ref())
            .map_err(|_| (uuid.span(), format!("{:?} is no UUID of an array", uuid.get_ref())))?;
        entry.uuid = Some(parsed);
    }
    entry.name = array.name.map(Spanned::into_inner);
    if let Some(group) = array.spare_group {
        let span = group.span();
        entry.spare_group = Some(group.get_ref().parse().map_err(|why| (span, why))?);
    }
    if entry.uuid.is_none() && entry.name.is_none() {
        return Err((at, "an [[array]] has neither uuid nor name".to_string()));
    }
    Ok(entry)
}

/// A value as the words of an option, and whether it switches one off.
fn words_of(value: &toml::Value) -> Option<(Vec<String>, bool)> {
    Some(match value {
        toml::Value::Boolean(on) => (Vec::new(), !on),
        toml::Value::Array(all) => {
            (all.iter().map(word_of).collect::<Option<Vec<_>>>()?, all.is_empty())
        }
        other => (vec![word_of(other)?], false),
    })
}

fn word_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Configuration, String> {
        Configuration::parse(Path::new("/etc/braid/braid.toml"), text.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_says_what_is_served() {
        let read = parsed(
            "[serve]\nnbd = [\"unix:/run/braid/nbd.sock\", \"tcp:127.0.0.1:10809\"]\nshards = 2\nublk = true\n\
             [scan]\ndevices = \"/dev/sd*\"\nauto = \"homehost -all\"\ndegraded-after = \"never\"\n\
             [[array]]\nuuid = \"00112233:44556677:8899aabb:ccddeeff\"\nspare-group = \"a\"\n\
             [[array]]\nname = \"host:data\"\nstart = false\n\
             [[volume]]\nname = \"pool\"\nmount = \"/srv/pool\"\nbricks = [\"/dev/sde\", \"array:data\"]\nread-only = true\n\
             [monitor]\nmail = \"root\"\nwebhook = [\"http://h/x\"]\n",
        )
        .unwrap();
        let options: Vec<(&str, usize)> =
            read.serve.iter().map(|one| (one.name.as_str(), one.values.len())).collect();
        assert_eq!(options, [("nbd", 2), ("shards", 1), ("ublk", 0)]);
        assert_eq!(
            (read.devices.as_slice(), read.degraded_after),
            (&["/dev/sd*".to_string()][..], None)
        );
        assert_eq!(
            (read.arrays.len(), read.arrays[0].start, read.arrays[1].start),
            (2, true, false)
        );
        let [volume] = read.volumes.as_slice() else { panic!("{:?}", read.volumes) };
        assert_eq!((volume.mount.as_str(), volume.bricks.len()), ("/srv/pool", 2));
        assert_eq!((volume.wanted().as_str(), volume.start), ("pool", true));
        assert!(volume.read_only && !volume.degraded);
        assert_eq!(read.monitor.mail, ["root"]);
        assert!(read.lock_memory);
    }

    #[test]
    fn nothing_said_is_nothing_started() {
        let read = parsed("").unwrap();
        assert_eq!(
            (read.devices.as_slice(), read.degraded_after),
            (&["partitions".to_string()][..], Some(30))
        );
        assert!(read.arrays.is_empty() && read.monitor.is_empty());
    }

    #[test]
    fn a_mistake_has_a_line_and_a_column() {
        for (text, says) in [
            ("[serve]\nnbd = \n", "braid.toml:2:7: "),
            ("\n[scan]\nauto = [\"+9.x\"]\n", "braid.toml:3:8: \"+9.x\""),
            ("[[array]]\nuuid = \"12\"\n", "braid.toml:2:8: \"12\" is no UUID"),
            ("[sevre]\n", "braid.toml:1:2: unknown field"),
            ("[scan]\ndevices = 7\n", "braid.toml:2:11: "),
            ("[[array]]\nstart = true\n", "neither uuid nor name"),
            ("[serve]\nnbd = { a = 1 }\n", "braid.toml:2:7: nbd: a text"),
            ("[scan]\ndegraded-after = \"soon\"\n", "braid.toml:2:18: degraded-after: \"soon\""),
            ("[[volume]]\nmount = \"/srv\"\n", "neither uuid nor name"),
            ("[[volume]]\nname = \"p\"\n", "braid.toml:1:1: volume p has no mount"),
            ("[[volume]]\nname = \"p\"\nmount = \"srv\"\n", "braid.toml:3:9: mount: \"srv\" is no"),
            ("[[volume]]\nname = \"p\"\nmout = \"/s\"\n", "braid.toml:3:1: unknown field `mout`"),
            ("[[volume]]\nuuid = \"12\"\n", "braid.toml:2:8: \"12\" is no UUID of a volume"),
            (
                "[[volume]]\nname = \"p\"\nmount = \"/s\"\nbricks = [\"ram:1G\"]\n",
                "braid.toml:4:10: bricks: \"ram:1G\" is gone",
            ),
            (
                "[[volume]]\nname = \"p\"\nmount = \"/s\"\nbricks = \"disk\"\n",
                "braid.toml:4:10: bricks: \"disk\" is no absolute path",
            ),
            (
                "[[volume]]\nname = \"p\"\nmount = \"/s\"\n[[volume]]\nname = \"q\"\nmount = \"/s\"\n",
                "braid.toml:4:1: two volumes are to be mounted at /s",
            ),
            ("mdadm-conf = \"/nonexistent\"\n", "braid.toml:1:14: reading /nonexistent"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}

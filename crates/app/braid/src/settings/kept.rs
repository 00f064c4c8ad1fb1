//! Settings between two runs: one small file for each array, `UUID.settings` in the state directory, with
//! a line `NAME=VALUE` for each setting that is not auto.
//!
//! md has no place for settings on the members, so they are kept beside them: on another machine an array
//! starts with auto. Invariants: a file is replaced as a whole or not at all, also in a crash; whatever
//! stands in it, the array is served.

use super::{ArraySettings, Assignment};
use anyhow::{Context, Result, anyhow};
use braid_format::uuid_text;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// More bytes than these are no settings of ours.
const FILE_MAX: u64 = 64 << 10;

/// The state directory.
#[derive(Clone, Debug)]
pub struct Kept {
    /// `None`: nobody has said where, and there is no home.
    folder: Option<PathBuf>,
}

impl Kept {
    /// The directory that was asked for; else `/var/lib/braid` for root, and `braid` in the user's
    /// folder for state for others.
    pub fn new(asked: Option<&Path>) -> Kept {
        let from_env = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            path.is_absolute().then_some(path)
        };
        let usual = || {
            if rustix::process::geteuid().is_root() {
                return Some(PathBuf::from("/var/lib/braid"));
            }
            let state =
                from_env("XDG_STATE_HOME").or_else(|| Some(from_env("HOME")?.join(".local/state")));
            Some(state?.join("braid"))
        };
        Kept { folder: asked.map(Path::to_path_buf).or_else(usual) }
    }

    /// The directory, whether it is there or not; `None`: nobody has said where, and there is no home.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The file of an array, whether it is there or not.
    fn path(&self, uuid: &[u8; 16]) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(file_name(uuid)))
    }

    /// What is kept for an array, and what of it was not understood: that is auto.
    pub fn load(&self, uuid: &[u8; 16]) -> (ArraySettings, Option<String>) {
        let Some(path) = self.path(uuid) else { return (ArraySettings::default(), None) };
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return (ArraySettings::default(), None);
            }
            Err(error) => {
                let warning = format!(
                    "the settings in {} cannot be read: {error}; all are \"auto\"",
                    path.display()
                );
                return (ArraySettings::default(), Some(warning));
            }
        };
        let (settings, wrong) = parse(&text);
        let warning = wrong.map(|wrong| {
            format!(
                "the settings in {}: {wrong}; that is \"auto\" instead, and `braid set` writes the file anew",
                path.display()
            )
        });
        (settings, warning)
    }

    /// Makes the directory, so that it is known before anything else is done whether there can be one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn prepare(&self) -> Result<&Path> {
        let folder = self.folder.as_deref().ok_or_else(|| {
            anyhow!("there is no place to keep settings: HOME is not set; give --state-dir")
        })?;
        // What an array is tuned to is nobody's secret, and not everybody's to change.
        DirBuilder::new().recursive(true).mode(0o755).create(folder).with_context(|| {
            format!(
                "making {} to keep settings in; --state-dir or BRAID_STATE_DIR says where else",
                folder.display()
            )
        })?;
        Ok(folder)
    }

    /// Keeps the settings of array `name`; a file that would hold none is removed. The file that was
    /// there stays until the new one is on disk.
    ///
    /// # Errors
    /// When the file cannot be written or removed. It holds what it held, then.
    pub fn store(&self, uuid: &[u8; 16], name: &str, settings: &ArraySettings) -> Result<()> {
        let chosen = settings.chosen();
        if chosen.is_empty() && !self.path(uuid).is_some_and(|path| path.exists()) {
            return Ok(());
        }
        let doing = format!("keeping the settings of array {name}");
        if !chosen.is_empty() {
            return self.replace(&file_name(uuid), &text(name, &chosen), &doing);
        }
        let folder = self.prepare()?;
        let path = folder.join(file_name(uuid));
        let doing = || format!("{doing} in {}", path.display());
        fs::remove_file(&path).with_context(doing)?;
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(doing)
    }

    /// Replaces a file of the state directory by one that holds `text`. The one that was there stays until the new one is on
    /// disk.
    ///
    /// # Errors
    /// When it cannot be written, while `doing` what it is for.
    pub fn replace(&self, file_name: &str, text: &str, doing: &str) -> Result<()> {
        let folder = self.prepare()?;
        let path = folder.join(file_name);
        let doing = || format!("{doing} in {}", path.display());
        let mut file =
            tempfile::Builder::new().prefix(".new-").tempfile_in(folder).with_context(doing)?;
        file.write_all(text.as_bytes()).with_context(doing)?;
        file.as_file().sync_all().with_context(doing)?;
        file.persist(&path).map_err(|failed| failed.error).with_context(doing)?;
        File::open(folder).and_then(|folder| folder.sync_all()).with_context(doing)
    }

    /// The text of a file of the state directory; `None` when there is none.
    ///
    /// # Errors
    /// When it cannot be read, is too large or no text.
    pub fn read(&self, file_name: &str) -> std::io::Result<Option<String>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        match read(&folder.join(file_name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn file_name(uuid: &[u8; 16]) -> String {
    format!("{}.settings", uuid_text::format(uuid))
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    let no_text = |why: &str| std::io::Error::new(ErrorKind::InvalidData, why.to_string());
    if bytes.len() as u64 > FILE_MAX {
        return Err(no_text("it is too large"));
    }
    String::from_utf8(bytes).map_err(|_| no_text("it is no text"))
}

fn text(name: &str, chosen: &[Assignment]) -> String {
    let lines = chosen.iter().map(|assignment| format!("{assignment}\n"));
    let name = name.replace(char::is_control, "?");
    let head = format!("# Settings of array {name}, kept by braid; `braid set` changes them.\n");
    std::iter::once(head).chain(lines).collect()
}

/// The settings of a file, and what is wrong with it.
fn parse(text: &str) -> (ArraySettings, Option<String>) {
    let mut settings = ArraySettings::default();
    let mut wrong = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let with = |assignment: Assignment| {
            settings.with(&[assignment]).map_err(|error| format!("{error:#}"))
        };
        match line.parse::<Assignment>().and_then(with) {
            Ok(more) => settings = more,
            Err(why) => wrong.push(format!("line {number}: {}", why.escape_debug())),
        }
    }
    if let Err(why) = settings.check() {
        wrong.push(format!("{why:#}"));
        (settings.sync_speed_min, settings.sync_speed_max) = (None, None);
    }
    let more = wrong.len().saturating_sub(1);
    let first = wrong.into_iter().next().map(|first| match more {
        0 => first,
        more => format!("{first} (and {more} more)"),
    });
    (settings, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn settings(lines: &str) -> ArraySettings {
        let (settings, wrong) = parse(lines);
        assert_eq!(wrong, None);
        settings
    }

    #[test]
    fn what_is_kept_is_loaded_and_auto_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(&folder.path().join("made/when/needed")));
        kept.store(&UUID, "data", &ArraySettings::default()).unwrap();
        assert!(!folder.path().join("made").exists());
        let wanted = settings("stripe_size=16384\nshards=2\nsync_speed_max=10000");
        kept.store(&UUID, "da\nta", &wanted).unwrap();
        assert_eq!(kept.load(&UUID), (wanted, None));
        assert_eq!(kept.load(&[8; 16]).0, ArraySettings::default());
        kept.store(&UUID, "data", &ArraySettings::default()).unwrap();
        assert_eq!(kept.load(&UUID), (ArraySettings::default(), None));
        let left: Vec<_> = fs::read_dir(folder.path().join("made/when/needed")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_damaged_file_warns_and_what_is_whole_in_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(Some(folder.path()));
        let path = kept.path(&UUID).unwrap();
        for (bytes, says) in [
            (b"stripe_size=1\x07x\nshards=2\n".to_vec(), "line 1"),
            (b"\nchunk=4\nshards=2\nnonsense".to_vec(), "line 2"),
            (b"\xff\xfe".to_vec(), "no text"),
            (vec![b'\n'; 100_000], "too large"),
            (b"sync_speed_min=5\nsync_speed_max=4".to_vec(), "above sync_speed_max=4"),
        ] {
            fs::write(&path, &bytes).unwrap();
            let (loaded, warning) = kept.load(&UUID);
            let warning = warning.unwrap();
            assert!(warning.contains(says), "{warning}");
            assert!(!warning.contains('\x07'), "{warning}");
            let shards = bytes.windows(8).any(|at| at == b"shards=2").then_some(2);
            assert_eq!(loaded.path.shards, shards);
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(kept.load(&UUID).1.unwrap().contains("cannot be read"));
    }

    #[test]
    fn where_nothing_can_be_written_the_old_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let kept = Kept::new(Some(&file));
        let error = kept.store(&UUID, "data", &settings("shards=2")).unwrap_err();
        assert!(format!("{error:#}").contains("--state-dir"), "{error:#}");
        let nowhere = Kept { folder: None };
        assert!(nowhere.store(&UUID, "data", &settings("shards=2")).is_err());
        assert!(nowhere.store(&UUID, "data", &ArraySettings::default()).is_ok());
        assert_eq!(nowhere.load(&UUID), (ArraySettings::default(), None));
    }
}

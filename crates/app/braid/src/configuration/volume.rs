//! The `[[volume]]` entries of `braid.toml`: volumes with their mount points.
//!
//! Owns their keys. Whether a volume is there, or may be mounted where it is to be, is found out when it is.

use super::entries::Words;
use crate::members::parse_brick;
use crate::output;
use serde::Deserialize;
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use uuid::Uuid;

/// A volume that is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeEntry {
    /// Its UUID.
    pub uuid: Option<Uuid>,
    /// Its name. Beside a UUID it is for those who read.
    pub name: Option<String>,
    /// The directory that it is mounted at, an absolute path.
    pub mount: String,
    /// Its bricks, as `braid volume mount` takes them; none: they are looked for.
    pub bricks: Vec<String>,
    /// Also without bricks that have not come.
    pub degraded: bool,
    /// Nothing of it is changed.
    pub read_only: bool,
    /// Other users may come in; root's mounts let them in anyway.
    pub allow_other: bool,
    /// Setuid and setgid bits of programs have no effect.
    pub no_suid: bool,
    /// Names of devices cannot be opened.
    pub no_dev: bool,
    /// Programs cannot be run.
    pub no_exec: bool,
    /// It is mounted.
    pub start: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileVolume {
    uuid: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
    mount: Option<Spanned<String>>,
    bricks: Option<Spanned<Words>>,
    #[serde(default)]
    degraded: bool,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    allow_other: bool,
    #[serde(default)]
    no_suid: bool,
    #[serde(default)]
    no_dev: bool,
    #[serde(default)]
    no_exec: bool,
    #[serde(default = "super::yes")]
    start: bool,
}

impl VolumeEntry {
    /// Its name in commands.
    pub fn wanted(&self) -> String {
        match (&self.uuid, &self.name) {
            (Some(uuid), _) => uuid.to_string(),
            (None, name) => name.clone().unwrap_or_default(),
        }
    }

    /// Its name in messages.
    pub fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.wanted())
    }
}

/// A mistake, with where it stands.
type Wrong = (Range<usize>, String);

/// Understands the entries; `text` is the file.
///
/// # Errors
/// The first mistake.
pub(super) fn entries(volumes: Vec<Spanned<FileVolume>>) -> Result<Vec<VolumeEntry>, Wrong> {
    let mut all: Vec<VolumeEntry> = Vec::new();
    for volume in volumes {
        let at = volume.span();
        let entry = entry(volume)?;
        for other in &all {
            if other.mount == entry.mount {
                let why = format!("two volumes are to be mounted at {}", entry.mount);
                return Err((at, why));
            }
            if other.wanted() == entry.wanted() {
                return Err((at, format!("volume {} has an entry already", entry.called())));
            }
        }
        all.push(entry);
    }
    Ok(all)
}

fn entry(volume: Spanned<FileVolume>) -> Result<VolumeEntry, Wrong> {
    let (at, volume) = (volume.span(), volume.into_inner());
    let mut entry = VolumeEntry {
        degraded: volume.degraded,
        read_only: volume.read_only,
        allow_other: volume.allow_other,
        no_suid: volume.no_suid,
        no_dev: volume.no_dev,
        no_exec: volume.no_exec,
        start: volume.start,
        ..VolumeEntry::default()
    };
    if let Some(uuid) = volume.uuid {
        let parsed = Uuid::parse_str(uuid.get_ref())
            .map_err(|_| (uuid.span(), format!("{:?} is no UUID of a volume", uuid.get_ref())))?;
        entry.uuid = Some(parsed);
    }
    if let Some(name) = volume.name {
        if name.get_ref().is_empty() || name.get_ref().contains('/') {
            return Err((name.span(), format!("{:?} is no name of a volume", name.get_ref())));
        }
        entry.name = Some(name.into_inner());
    }
    if entry.uuid.is_none() && entry.name.is_none() {
        return Err((at, "a [[volume]] has neither uuid nor name".to_string()));
    }
    let Some(mount) = volume.mount else {
        let why = format!("volume {} has no mount: the directory to mount it at", entry.called());
        return Err((at, why));
    };
    if !Path::new(mount.get_ref()).is_absolute() {
        let why = format!("mount: {:?} is no absolute path", mount.get_ref());
        return Err((mount.span(), why));
    }
    entry.mount = mount.into_inner();
    if let Some(bricks) = volume.bricks {
        let span = bricks.span();
        entry.bricks = match bricks.into_inner() {
            Words::One(one) => vec![one],
            Words::More(all) => all,
        };
        check_bricks(&entry.bricks).map_err(|why| (span, format!("bricks: {why}")))?;
    }
    Ok(entry)
}

/// Each can be a brick, wherever the server is started.
fn check_bricks(bricks: &[String]) -> Result<(), String> {
    let mut names = HashSet::new();
    for text in bricks {
        let member = parse_brick(text).map_err(|error| output::said(&error))?;
        if member.in_memory() {
            return Err(format!(
                "{text:?} is gone when the server ends: `braid volume mount --create` makes such a volume"
            ));
        }
        if member.path().is_some() && !Path::new(text).is_absolute() {
            return Err(format!("{text:?} is no absolute path"));
        }
        if !names.insert(member.name) {
            return Err(format!("{text:?} is named twice"));
        }
    }
    Ok(())
}

//! The members that were typed, opened: names made absolute and distinct, the same device found twice.
//! `array:NAME` is an array that runs in the same server; only a server can open it. An NBD URI is an export of another
//! server: as a member of an array it is lost with its connection, as a brick of a volume it may live through that.
//!
//! Owns what a member is called from here on. Does not know what is on it.
//!
//! Invariant: no two members of one command have the same name or are the same file or device.

use anyhow::{Context, Result, bail};
use braid_array::stacking;
use braid_device::file::Mode;
use braid_device::spec::MemberSpec;
use braid_device::{Device, OpenError, Opener};
use braid_nbd::{ExportUri, Place, RemoteExport, RemoteMember};
use braid_shard::Shard;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// What mdadm users write for a slot that stays empty.
pub const MISSING: &str = "missing";

/// A member as it was typed, understood.
#[derive(Clone)]
pub struct Member {
    /// Its name from here on: an absolute path, the kind with a number, `array:NAME`, or an NBD URI.
    pub name: String,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Device(MemberSpec),
    /// An array's name, and the array once it was found.
    Array(String, Option<Arc<dyn Opener>>),
    Remote(ExportUri, Part),
}

/// The use that is to be made of another server's export.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Member,
    Brick,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Member {
    /// Its path; `None` for all but files and block devices.
    pub fn path(&self) -> Option<&Path> {
        match &self.source {
            Source::Device(MemberSpec::Path(path)) => Some(path),
            _ => None,
        }
    }

    /// The name of the array that it is.
    pub fn array(&self) -> Option<&str> {
        match &self.source {
            Source::Array(name, _) => Some(name),
            Source::Device(_) | Source::Remote(..) => None,
        }
    }

    /// It is an export of another server.
    pub fn is_remote(&self) -> bool {
        matches!(self.source, Source::Remote(..))
    }

    /// It is the array that `opener` opens.
    pub fn found(&mut self, opener: Arc<dyn Opener>) {
        if let Source::Array(_, found) = &mut self.source {
            self.name = opener.name().to_string();
            *found = Some(opener);
        }
    }

    /// It lives in the memory of a process.
    pub fn in_memory(&self) -> bool {
        self.path().is_none() && self.array().is_none() && !self.is_remote()
    }

    /// Opens it. Where that is an export of another server, it blocks until the server answers, or for ten seconds: not
    /// for a shard's thread.
    ///
    /// # Errors
    /// When it is not there, is in use, does not answer, or there is not enough memory.
    pub fn prepare(&self, mode: Mode) -> Result<Arc<dyn Opener>, OpenError> {
        let opener = match &self.source {
            Source::Device(spec) => spec.prepare_as(mode)?,
            Source::Remote(uri, Part::Member) => {
                return Ok(Arc::new(RemoteMember::reach(uri, mode == Mode::ReadWrite)?));
            }
            Source::Remote(uri, Part::Brick) => {
                return Ok(Arc::new(RemoteExport::reach(uri, mode == Mode::ReadWrite)?));
            }
            Source::Array(_, Some(opener)) => return Ok(Arc::clone(opener)),
            Source::Array(_, None) => {
                let why = "an array can be used by the server that runs it only; `braid create` and `braid add` \
                           ask that server";
                return Err(OpenError { name: self.name.clone(), why: why.to_string() });
            }
        };
        if opener.name() == self.name {
            return Ok(opener);
        }
        Ok(Arc::new(Named { name: self.name.clone(), opener }))
    }
}

/// Understands one member of an array.
///
/// # Errors
/// Says what was not understood.
pub fn parse_one(text: &str) -> Result<Member> {
    parse(text, Part::Member)
}

/// Understands one brick of a volume.
///
/// # Errors
/// Says what was not understood.
pub fn parse_brick(text: &str) -> Result<Member> {
    parse(text, Part::Brick)
}

fn parse(text: &str, part: Part) -> Result<Member> {
    if ExportUri::is_meant(text) {
        let uri = text.parse::<ExportUri>()?;
        let uri =
            uri.absolute().with_context(|| format!("making the socket of {text} absolute"))?;
        return Ok(Member { name: uri.to_string(), source: Source::Remote(uri, part) });
    }
    if let Some(array) = text.strip_prefix(stacking::PREFIX) {
        if array.is_empty() {
            bail!("member {text:?}: the name of the array is missing");
        }
        let source = Source::Array(array.to_string(), None);
        return Ok(Member { name: text.to_string(), source });
    }
    let spec = MemberSpec::parse(text).with_context(|| format!("member {text:?}"))?;
    let spec = match spec {
        MemberSpec::Path(path) => MemberSpec::Path(absolute(&path)?),
        other => other,
    };
    Ok(Member { name: spec.to_string(), source: Source::Device(spec) })
}

/// Understands members of an array; `None` is a missing one, where `missing` is allowed.
///
/// # Errors
/// Says which was not understood, or was given twice.
pub fn parse_all(texts: &[String], missing: bool) -> Result<Vec<Option<Member>>> {
    parse_each(texts, missing, parse_one)
}

/// Understands bricks of a volume.
///
/// # Errors
/// Says which was not understood, or was given twice.
pub fn parse_bricks(texts: &[String]) -> Result<Vec<Member>> {
    Ok(parse_each(texts, false, parse_brick)?.into_iter().flatten().collect())
}

fn parse_each(
    texts: &[String],
    missing: bool,
    parse: fn(&str) -> Result<Member>,
) -> Result<Vec<Option<Member>>> {
    let mut members = Vec::new();
    let mut in_memory = 0;
    for text in texts {
        if text == MISSING {
            if !missing {
                bail!("\"missing\" is for `braid create`; here, leave out what is not there");
            }
            members.push(None);
            continue;
        }
        let mut member = parse(text)?;
        if member.in_memory() {
            member.name = format!("{}#{in_memory}", member.name);
            in_memory += 1;
        }
        members.push(Some(member));
    }
    refuse_twice(members.iter().flatten())?;
    Ok(members)
}

/// Understands members of which each is used once, however often and by whatever path it is given. With a note for
/// each that was passed over.
///
/// # Errors
/// Says which was not understood.
pub fn parse_distinct(texts: &[String]) -> Result<(Vec<Member>, Vec<String>)> {
    let (mut members, mut notes) = (Vec::<Member>::new(), Vec::new());
    for text in texts {
        let member = parse_one(text)?;
        let same = |known: &&Member| match (known.path(), member.path()) {
            (Some(known), Some(path)) => same_device(known, path),
            _ => !member.in_memory() && known.name == member.name,
        };
        match members.iter().find(same) {
            Some(known) if known.name == member.name => {
                notes.push(format!("{} was given twice", known.name));
            }
            Some(known) => {
                notes.push(format!("{} is the same device as {}", member.name, known.name));
            }
            None => members.push(member),
        }
    }
    Ok((members, notes))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("making {} absolute", path.display()))
}

/// What a path leads to: device and inode, or the number of a block device.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    if found.file_type().is_block_device() {
        return Some((u64::MAX, found.rdev()));
    }
    Some((found.dev(), found.ino()))
}

/// Two paths lead to the same file or device.
pub fn same_device(one: &Path, other: &Path) -> bool {
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// What tells a member from others, as far as that can be known without opening it; the second part is empty for all but
/// exports of a server behind a socket, of which it is the name.
fn place_of(member: &Member) -> Option<((u64, u64), &str)> {
    match &member.source {
        Source::Device(MemberSpec::Path(path)) => Some((identity(path)?, "")),
        Source::Remote(uri, _) => match uri.place() {
            Place::Unix(path) => Some((identity(path)?, uri.export())),
            Place::Tcp { .. } => None,
        },
        _ => None,
    }
}

fn refuse_twice<'a>(members: impl Iterator<Item = &'a Member>) -> Result<()> {
    let mut seen: HashMap<((u64, u64), &str), &Member> = HashMap::new();
    let mut named: HashSet<&str> = HashSet::new();
    for member in members {
        let has_one_name = member.array().is_some() || member.is_remote();
        if has_one_name && !named.insert(&member.name) {
            bail!("{} was given twice; give each member once", member.name);
        }
        let Some(place) = place_of(member) else { continue };
        if let Some(other) = seen.insert(place, member) {
            if other.name == member.name {
                bail!("{} was given twice; give each member once", member.name);
            }
            bail!("{} and {} are the same device; give each member once", other.name, member.name);
        }
    }
    Ok(())
}

/// An opener under another name: several members in memory would else have the same one.
struct Named {
    name: String,
    opener: Arc<dyn Opener>,
}

impl Opener for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        self.opener.open(shard)
    }

    fn notes(&self) -> Vec<String> {
        self.opener.notes()
    }

    fn is_remote(&self) -> bool {
        self.opener.is_remote()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<Vec<Option<Member>>> {
        parse_all(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>(), true)
    }

    #[test]
    fn members_in_memory_get_names_of_their_own() {
        let members = parse(&["ram:1M", "missing", "ram:1M", "model:nvme,1M"]).unwrap();
        let names: Vec<&str> =
            members.iter().flatten().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["ram:1M#0", "ram:1M#1", "model:nvme,1M#2"]);
        let opener = members[0].as_ref().unwrap().prepare(Mode::ReadWrite).unwrap();
        assert_eq!(opener.name(), "ram:1M#0");
    }

    #[test]
    fn one_device_by_two_paths_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "x").unwrap();
        std::os::unix::fs::symlink(&one, &two).unwrap();
        let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
        assert!(parse(&[one, one]).unwrap_err().to_string().contains("given twice"));
        assert!(parse(&[one, two]).unwrap_err().to_string().contains("the same device"));
    }

    #[test]
    fn where_nothing_is_written_a_device_may_be_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "x").unwrap();
        std::os::unix::fs::symlink(&one, &two).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_string();
        let (members, notes) = parse_distinct(&[text(&one), text(&two), text(&one)]).unwrap();
        assert_eq!(members.len(), 1);
        assert!(notes[0].contains("the same device as") && notes[1].contains("given twice"));
    }

    #[test]
    fn an_array_is_given_once_and_cannot_be_opened_by_a_command() {
        let members = parse(&["array:m0", "ram:1M", "array:m1"]).unwrap();
        let names: Vec<&str> =
            members.iter().flatten().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["array:m0", "ram:1M#0", "array:m1"]);
        let refused = members[0].as_ref().unwrap().prepare(Mode::ReadWrite).err().unwrap();
        assert!(refused.to_string().contains("the server that runs it"), "{refused}");
        assert!(parse(&["array:m0", "array:m0"]).unwrap_err().to_string().contains("given twice"));
        assert!(parse(&["array:"]).unwrap_err().to_string().contains("name of the array"));
    }

    #[test]
    fn an_export_of_another_server_is_a_member_or_brick_once() {
        let bricks = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
            let bricks = parse_bricks(&texts)?;
            Ok::<_, anyhow::Error>(bricks.into_iter().map(|brick| brick.name).collect::<Vec<_>>())
        };
        let here = std::env::current_dir().unwrap();
        let socket = |name: &str| format!("nbd+unix:///x?socket={}/{name}", here.display());
        let named = bricks(&["nbd://Host:10809/x", "nbd+unix:///x?socket=a", "ram:1M"]).unwrap();
        assert_eq!(named, ["nbd://host/x".to_string(), socket("a"), "ram:1M#0".to_string()]);
        let twice = bricks(&["nbd://host/x", "nbd://HOST:10809/x"]).unwrap_err().to_string();
        assert!(twice.starts_with("nbd://host/x was given twice"), "{twice}");
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        std::fs::write(&one, "").unwrap();
        std::os::unix::fs::symlink(&one, &two).unwrap();
        let of =
            |export: &str, path: &Path| format!("nbd+unix:///{export}?socket={}", path.display());
        assert!(bricks(&[&of("x", &one), &of("y", &two)]).is_ok());
        let same = bricks(&[&of("x", &one), &of("x", &two)]).unwrap_err().to_string();
        assert!(same.contains("are the same device"), "{same}");
        assert!(bricks(&["nbd://"]).unwrap_err().to_string().contains("is no host"));
        let members = parse(&["nbd://Host/x", "missing", "nbd://host:1/x"]).unwrap();
        let names: Vec<&str> =
            members.iter().flatten().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["nbd://host/x", "nbd://host:1/x"]);
        assert!(members.iter().flatten().all(|member| member.is_remote() && !member.in_memory()));
        assert!(
            parse(&["nbd://h/x", "nbd://H/x"]).unwrap_err().to_string().contains("given twice")
        );
        let text = |name: &str| name.to_string();
        let (members, notes) = parse_distinct(&[text("nbd://h/x"), text("NBD://H/x")]).unwrap();
        assert_eq!((members.len(), notes.len()), (1, 1), "{notes:?}");
    }

    #[test]
    fn missing_is_for_create() {
        let error = parse_all(&["missing".to_string()], false).unwrap_err();
        assert!(error.to_string().contains("braid create"));
    }
}

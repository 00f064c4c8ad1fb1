//! Walks a whole file system, or a folder of it, and notes everything in it but the bytes of files.

use super::call::list;
use super::seen::{Number, Observed};
use braid_filesystem::{Errno, FileSystem, Ino, Kind};
use std::collections::VecDeque;

/// What did not work, where.
pub type Trouble = (String, Errno);

/// Walks from the directory `root` down, and asks for the attributes of chattr(1) with `with_flags`. The caller holds a reference for each name in the result.
///
/// # Errors
/// The first request that failed.
pub async fn walk<F: FileSystem>(
    fs: &F,
    root: Ino,
    plus: bool,
    with_flags: bool,
) -> Result<Observed, Trouble> {
    let mut seen = Observed::default();
    let at = |what: &str, ino: u64| {
        let text = format!("{what} of file {ino}");
        move |errno| (text, errno)
    };
    let found = fs.lookup(root, b".").await.map_err(at("lookup", root))?;
    fs.forget(root, 1);
    let root_number = (root, found.generation);
    seen.attrs.insert(root_number, found.attr);
    xattrs(fs, root_number, &mut seen).await?;
    if with_flags {
        flags(fs, root_number, Kind::Directory, &mut seen).await?;
    }
    let mut dirs = VecDeque::from([root_number]);
    while let Some(dir) = dirs.pop_front() {
        let entries = list(fs, dir.0, 7, plus).await.map_err(at("read_dir", dir.0))?;
        for (entry, looked_up) in entries {
            let found = match looked_up {
                Some(found) => found,
                None => fs.lookup(dir.0, &entry.name).await.map_err(at("lookup", entry.ino))?,
            };
            let number: Number = (found.attr.ino, found.generation);
            if (entry.ino, entry.kind) != (found.attr.ino, found.attr.kind) {
                let text = format!("entry {:?} is not what it looks up as: {entry:?}", entry.name);
                return Err((text, Errno::Io));
            }
            seen.names.push((dir, entry.name, number));
            let known = seen.attrs.insert(number, found.attr).is_some();
            if !known {
                let ino = number.0;
                match found.attr.kind {
                    Kind::Directory => {
                        let parent = fs.parent(ino).await.map_err(at("parent", ino))?;
                        if parent != dir.0 {
                            let text =
                                format!("directory {ino} is in {}, and says {parent}", dir.0);
                            return Err((text, Errno::Io));
                        }
                        dirs.push_back(number);
                    }
                    Kind::Symlink => {
                        let target = fs.read_link(ino).await.map_err(at("read_link", ino))?;
                        seen.targets.insert(number, target);
                    }
                    _ => {}
                }
                xattrs(fs, number, &mut seen).await?;
                if with_flags {
                    flags(fs, number, found.attr.kind, &mut seen).await?;
                }
            } else if found.attr.kind == Kind::Directory {
                return Err((format!("directory {} has two names", number.0), Errno::Io));
            }
        }
    }
    Ok(seen)
}

async fn flags<F: FileSystem>(
    fs: &F,
    number: Number,
    kind: Kind,
    seen: &mut Observed,
) -> Result<(), Trouble> {
    if matches!(kind, Kind::File | Kind::Directory) {
        let trouble = |errno| (format!("flags of file {}", number.0), errno);
        seen.flags.insert(number, fs.flags(number.0).await.map_err(trouble)?);
    }
    Ok(())
}

async fn xattrs<F: FileSystem>(fs: &F, number: Number, seen: &mut Observed) -> Result<(), Trouble> {
    let trouble = |errno| (format!("extended attributes of file {}", number.0), errno);
    for name in fs.xattrs(number.0).await.map_err(trouble)? {
        let value = fs.xattr(number.0, &name).await.map_err(trouble)?;
        seen.xattrs.insert((number, name), value);
    }
    Ok(())
}

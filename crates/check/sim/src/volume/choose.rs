//! Which request comes next: at random, with a taste that differs from run to run.

use super::call::{Call, What};
use super::client::Client;
use super::file::SECTOR;
use super::meta::{Id, Node, ROOT};
use super::model::Model;
use super::stamp::ZEROES;
use crate::rng::Rng;
use braid_filesystem::{
    Allocate, Caller, FileSystem, Kind, RENAME_EXCHANGE, RENAME_NOREPLACE, RenameFlags, Seek,
    SetAttr, SetTime, Time, XattrMode,
};

/// What a run likes. Weights are parts of 100.
#[derive(Clone, Debug)]
pub struct Taste {
    /// Requests on the bytes of files; the others are on names and attributes.
    pub data: u64,
    /// Requests that make things durable.
    pub durable: u64,
    /// Files that there may be before removing is preferred.
    pub files: usize,
    /// Different names in one directory.
    pub names: u64,
    /// Bytes that most files stay within.
    pub size: u64,
    /// The longest write in bytes.
    pub longest: u64,
    /// Bytes of a stripe: places around its borders are liked.
    pub stripe: u64,
    /// Large writes to fresh places only, until there is no space left.
    pub fill: bool,
    /// Large extended attributes, until there is no room for metadata left.
    pub fill_names: bool,
}

impl Taste {
    /// Drawn at random, for a volume with `space` bytes and such stripes.
    pub fn of(rng: &Rng, space: u64, stripe: u64) -> Taste {
        let fill = rng.percent(12);
        let size = rng.log_range(16 << 10..(space / 4).max(32 << 10));
        Taste {
            data: *rng.pick(&[20, 50, 80]),
            durable: *rng.pick(&[1, 4, 12]),
            files: *rng.pick(&[5, 20, 60]),
            names: *rng.pick(&[3, 8, 30]),
            size: if fill { space / 4 } else { size },
            longest: *rng.pick(&[16 << 10, 256 << 10, 1 << 20]),
            stripe,
            fill,
            fill_names: false,
        }
    }
}

/// Bytes that are copied at a time.
const COPY_MAX: u64 = 16 << 20;
/// Of 100 requests of a run that has them, how many are of the calls that came last.
const LATER: u64 = 30;
/// The farthest that files reach.
const FAR: u64 = 1 << 43;

impl<F: FileSystem + 'static> Client<F> {
    /// Makes a random request; nothing when the one that was drawn would get in the way of others.
    pub fn send_random(&mut self, model: &mut Model, taste: &Taste) {
        if let Some(call) = self.choose(model, taste) {
            self.send(model, call);
        }
    }

    fn choose(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let rng = &self.rng;
        if self.calls && rng.percent(LATER) {
            return self.later(model, taste);
        }
        if rng.percent(taste.durable) {
            let id = self.some(model, |_| true)?;
            let what = match rng.range(0..10) {
                0..2 => What::Sync,
                2..5 => What::Fsync(true),
                _ => What::Fsync(false),
            };
            return Some(call(id, what));
        }
        // What nobody has looked up yet is of no use.
        if rng.percent(8) {
            return self.lookup(model, taste);
        }
        match rng.percent(taste.data) {
            true => self.on_bytes(model, taste),
            false => self.on_names(model, taste),
        }
    }

    /// Some file that requests may name.
    pub(super) fn some(&self, model: &Model, which: impl Fn(&Node) -> bool) -> Option<Id> {
        let usable = |(id, node): (&Id, &Node)| (self.has(*id) && which(node)).then_some(*id);
        let ids: Vec<Id> = model.now.nodes.iter().filter_map(usable).collect();
        ids.get(self.rng.below(ids.len())).copied()
    }

    pub(super) fn dir(&self, model: &Model) -> Option<Id> {
        // A directory that is gone, now and then.
        let gone = self.rng.percent(3);
        self.some(model, |node| node.is_dir() && (gone || node.nlink > 0))
    }

    pub(super) fn name(&self, taste: &Taste) -> Vec<u8> {
        match self.rng.range(0..60) {
            0 => vec![b'l'; 255],
            1 => vec![b'l'; 256],
            _ => format!("n{}", self.rng.range(0..taste.names)).into_bytes(),
        }
    }

    /// A directory and a name that is in it.
    fn named(&self, model: &Model, which: impl Fn(&Node) -> bool) -> Option<(Id, Vec<u8>)> {
        let fits = |((dir, _), id): &(&(Id, Vec<u8>), &Id)| {
            self.has(*dir) && model.now.nodes.get(id).is_some_and(&which)
        };
        let all: Vec<_> = model.now.names.iter().filter(fits).map(|(key, _)| key).collect();
        all.get(self.rng.below(all.len())).map(|key| (*key).clone())
    }

    fn lookup(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let dots: [&[u8]; 2] = [b".", b".."];
        match self.rng.range(0..10) {
            0 => Some(call(self.dir(model)?, What::Lookup(self.name(taste)))),
            1 => Some(call(self.dir(model)?, What::Lookup(self.rng.pick(&dots).to_vec()))),
            2 => Some(call(self.some(model, Node::is_dir)?, What::Parent)),
            _ => {
                let unknown =
                    |((dir, _), id): &(&(Id, Vec<u8>), &Id)| self.has(*dir) && !self.has(**id);
                let all: Vec<_> = model.now.names.iter().filter(unknown).collect();
                let ((dir, name), _) = all.get(self.rng.below(all.len()))?;
                Some(call(*dir, What::Lookup(name.clone())))
            }
        }
    }

    // --- Bytes ------------------------------------------------------------------------------

    fn on_bytes(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let rng = &self.rng;
        let id = self.some(model, |node| node.kind == Kind::File)?;
        let size = model.now.nodes.get(&id)?.size;
        let offset = self.offset(taste, size);
        let len = self.length(taste);
        if self.copies_ranges && !taste.fill && rng.percent(20) {
            return self.copy(model, taste, id);
        }
        let what = match rng.range(0..100) {
            _ if taste.fill => {
                let end = size.min(FAR) / SECTOR * SECTOR;
                What::Write(end, taste.longest as usize, model.next_version()?)
            }
            0..45 => What::Write(offset, len as usize, model.next_version()?),
            45..75 => What::Read(offset, len as usize),
            75..83 => {
                let size = match rng.range(0..4) {
                    0 => 0,
                    1 => offset,
                    2 => size.saturating_sub(rng.log_range(1..taste.stripe * 2)),
                    _ => rng.range(0..size + 1),
                };
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                What::SetAttr(Caller::default(), set)
            }
            83..93 => {
                let keep_size = rng.percent(50);
                let how = match rng.range(0..3) {
                    0 => Allocate::Reserve { keep_size },
                    1 => Allocate::PunchHole,
                    _ => Allocate::ZeroRange { keep_size },
                };
                // Nothing sets terabytes aside.
                let offset = if offset > taste.size { 0 } else { offset };
                What::Allocate(how, offset, len)
            }
            93..97 => {
                let what = if rng.percent(50) { Seek::Data } else { Seek::Hole };
                What::Seek(offset, what)
            }
            _ => What::Open(rng.percent(15)),
        };
        Some(call(id, what))
    }

    /// A range of another file is copied to this one: most begin at a stripe, and many go to the end.
    fn copy(&self, model: &Model, taste: &Taste, on: Id) -> Option<Call> {
        let rng = &self.rng;
        let other = self.some(model, |node| node.kind == Kind::File && node.size > 0)?;
        let size = model.now.nodes.get(&other)?.size.min(FAR);
        let start = match rng.range(0..4) {
            0 => 0,
            1..3 => rng.range(0..size / taste.stripe + 1) * taste.stripe,
            _ => rng.range(0..size + 1),
        };
        let end = match rng.range(0..3) {
            0 => size,
            1 => (start / taste.stripe + 1 + rng.range(0..6)) * taste.stripe,
            _ => start + self.length(taste),
        };
        let range = start..end.min(size);
        if on == other || range.is_empty() || range.end - range.start > COPY_MAX {
            return None;
        }
        let pieces = match model.data.get(&other) {
            Some(data) => data.surely(range.clone())?,
            None => vec![(range.clone(), ZEROES)],
        };
        Some(Call { on, other, what: What::Copy(range, pieces) })
    }

    fn offset(&self, taste: &Taste, size: u64) -> u64 {
        let rng = &self.rng;
        let near = |at: u64| match rng.range(0..3) {
            0 => at,
            1 => at.saturating_sub(rng.log_range(1..8192)),
            _ => at + rng.log_range(1..8192),
        };
        match rng.range(0..20) {
            0..5 => rng.range(0..taste.size),
            5..9 => rng.range(0..taste.size / 4096 + 1) * 4096,
            9..12 => near(rng.range(0..taste.size / taste.stripe + 1) * taste.stripe),
            12..16 => near(size.min(FAR)),
            16..19 => rng.range(0..size.clamp(1, FAR)),
            _ if rng.percent(10) => near(FAR),
            _ => 0,
        }
    }

    fn length(&self, taste: &Taste) -> u64 {
        let rng = &self.rng;
        let len = match rng.range(0..4) {
            0 => rng.log_range(1..taste.longest + 1),
            1 => 4096 * (1 + rng.range(0..8)),
            2 => rng.log_range(1..4096),
            _ => taste.stripe / 2 * (1 + rng.range(0..6)),
        };
        len.clamp(1, taste.longest)
    }

    // --- Names and attributes ---------------------------------------------------------------

    fn on_names(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let rng = &self.rng;
        let crowded = model.now.names.len() > taste.files;
        if taste.fill_names && rng.percent(50) {
            return self.large_xattr(model);
        }
        match rng.range(0..100) {
            0..28 if !crowded || rng.percent(20) => self.make(model, taste),
            0..40 => {
                let (dir, name) = self.named(model, |node| !node.is_dir())?;
                Some(call(dir, What::Unlink(name)))
            }
            40..46 => {
                let any = rng.percent(10);
                let (dir, name) = self.named(model, |node| any || node.is_dir())?;
                Some(call(dir, What::RemoveDir(name)))
            }
            46..62 => self.rename(model, taste),
            62..68 => {
                let on = self.some(model, |node| !node.is_dir() || rng.percent(5))?;
                let (other, name) = (self.dir(model)?, self.name(taste));
                Some(Call { on, other, what: What::Link(name) })
            }
            68..76 => {
                let dir = self.some(model, |node| node.is_dir() || rng.percent(2))?;
                let most = *rng.pick(&[1, 2, 7, 100]);
                Some(call(dir, What::List(most, rng.percent(50))))
            }
            76..80 => Some(call(self.some(model, |_| true)?, What::Attr)),
            80..86 => self.set_attr(model),
            86..88 => {
                let on = self.some(model, |node| node.kind == Kind::Symlink || rng.percent(5))?;
                Some(call(on, What::ReadLink))
            }
            88..89 => Some(call(ROOT, What::Space)),
            89..90 => {
                let (dir, name) = self.named(model, |_| true)?;
                let what = if rng.percent(50) { What::Unlink(name) } else { What::RemoveDir(name) };
                Some(call(dir, what))
            }
            _ => self.xattr(model),
        }
    }

    fn make(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let rng = &self.rng;
        let kind = match rng.range(0..20) {
            0..12 => Kind::File,
            12..16 => Kind::Directory,
            16..18 => Kind::Symlink,
            18 => *rng.pick(&[Kind::Fifo, Kind::Socket]),
            _ => *rng.pick(&[Kind::CharDevice, Kind::BlockDevice]),
        };
        let rdev = match kind {
            Kind::CharDevice | Kind::BlockDevice => rng.range(0..1 << 20) as u32,
            _ => 0,
        };
        let target = match kind {
            Kind::Symlink => vec![b'a' + rng.range(0..26) as u8; rng.log_range(1..4096) as usize],
            _ => Vec::new(),
        };
        let perm = *rng.pick(&[0o644, 0o600, 0o755, 0o777, 0]);
        let caller = self.caller();
        let name = self.name(taste);
        let umask = if self.calls { *rng.pick(&[0, 0o022, 0o077]) } else { 0 };
        Some(call(self.dir(model)?, What::Make { caller, name, kind, perm, umask, rdev, target }))
    }

    pub(super) fn caller(&self) -> Caller {
        *self.rng.pick(&[Caller { uid: 0, gid: 0 }, Caller { uid: 1000, gid: 100 }])
    }

    pub(super) fn rename(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let rng = &self.rng;
        let (on, name) = match rng.range(0..20) {
            0 => (self.dir(model)?, self.name(taste)),
            _ => self.named(model, |_| true)?,
        };
        let (other, new) = match rng.range(0..10) {
            0..5 => (self.dir(model)?, self.name(taste)),
            _ => self.named(model, |_| true)?,
        };
        let flags = match rng.range(0..20) {
            0..13 => RenameFlags(0),
            13..16 => RENAME_NOREPLACE,
            16..19 => RENAME_EXCHANGE,
            _ => RenameFlags(RENAME_EXCHANGE.0 | RENAME_NOREPLACE.0),
        };
        Some(Call { on, other, what: What::Rename(name, new, flags) })
    }

    fn set_attr(&self, model: &Model) -> Option<Call> {
        let rng = &self.rng;
        let id = self.some(model, |node| node.kind != Kind::Symlink || rng.percent(20))?;
        let mut set = SetAttr::default();
        let time = || match rng.range(0..3) {
            0 => SetTime::Now,
            1 => SetTime::To(Time { seconds: rng.range(0..1 << 33) as i64, nanos: 999_999_999 }),
            _ => SetTime::To(Time { seconds: -(rng.range(0..1 << 30) as i64), nanos: 1 }),
        };
        match rng.range(0..3) {
            0 => set.perm = Some(rng.range(0..0o1000) as u16),
            1 => (set.atime, set.mtime) = (Some(time()), rng.percent(70).then(time)),
            _ => {
                (set.uid, set.gid) = (Some(rng.range(0..3) as u32), Some(rng.range(0..3) as u32));
            }
        }
        Some(call(id, What::SetAttr(Caller::default(), set)))
    }

    fn large_xattr(&self, model: &Model) -> Option<Call> {
        let rng = &self.rng;
        let id = self.some(model, |node| matches!(node.kind, Kind::File | Kind::Directory))?;
        let name = format!("user.{}", rng.range(0..8)).into_bytes();
        let value = vec![rng.range(0..256) as u8; 65536];
        Some(call(id, What::SetXattr(name, value, XattrMode::Any)))
    }

    fn xattr(&self, model: &Model) -> Option<Call> {
        let rng = &self.rng;
        let id = self.some(model, |node| matches!(node.kind, Kind::File | Kind::Directory))?;
        let name = match rng.range(0..30) {
            0 => [&b"user."[..], &[b'x'; 250]].concat(),
            1 => [&b"user."[..], &[b'x'; 251]].concat(),
            _ => format!("user.{}", rng.range(0..4)).into_bytes(),
        };
        let what = match rng.range(0..10) {
            0..4 => {
                let len = match rng.range(0..20) {
                    0 => 65536,
                    1 => 65537,
                    2 => 0,
                    _ => rng.log_range(1..3000),
                };
                let value = vec![rng.range(0..256) as u8; len as usize];
                let modes = [XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                What::SetXattr(name, value, *rng.pick(&modes))
            }
            4..6 => What::Xattr(name),
            6..8 => What::Xattrs,
            _ => What::RemoveXattr(name),
        };
        Some(call(id, what))
    }
}

pub(super) fn call(on: Id, what: What) -> Call {
    Call { on, other: on, what }
}

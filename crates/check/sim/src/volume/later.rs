//! The calls that came last, drawn in runs of the kind that has them.

use super::access_list::{ACCESS, DEFAULT, is_list, random_value};
use super::call::{Call, What};
use super::choose::{Taste, call};
use super::client::Client;
use super::meta::{Id, Node, ROOT};
use super::model::Model;
use braid_filesystem::{
    Caller, FileFlags, FileSystem, Kind, RENAME_WHITEOUT, RenameFlags, SetAttr, TrimRange,
    XattrMode,
};

impl<F: FileSystem + 'static> Client<F> {
    /// One of the calls that came last.
    pub(super) fn later(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let rng = &self.rng;
        match rng.range(0..100) {
            0..14 => {
                let what = What::MakeUnnamed {
                    caller: self.caller(),
                    perm: *rng.pick(&[0o644, 0o666, 0o777, 0]),
                    umask: *rng.pick(&[0, 0o022, 0o077]),
                };
                Some(call(self.dir(model)?, what))
            }
            14..32 => {
                let on = self.some(model, |node| node.unnamed)?;
                let (other, name) = (self.dir(model)?, self.name(taste));
                Some(Call { on, other, what: What::Link(name) })
            }
            32..46 => self.leave_whiteout(model, taste),
            46..50 => Some(call(self.some(model, |_| true)?, What::Flags)),
            50..64 => self.set_flags(model),
            64..92 => self.list_call(model),
            _ => Some(call(ROOT, What::Trim(self.trim_range(taste)))),
        }
    }

    fn leave_whiteout(&self, model: &Model, taste: &Taste) -> Option<Call> {
        let mut call = self.rename(model, taste)?;
        if let What::Rename(_, _, flags) = &mut call.what {
            *flags = RenameFlags(flags.0 | RENAME_WHITEOUT.0);
        }
        Some(call)
    }

    fn set_flags(&self, model: &Model) -> Option<Call> {
        let rng = &self.rng;
        let is_kept = |node: &Node| node.flags.immutable || node.flags.append;
        // Not too much is kept for too long.
        let kept = self.some(model, is_kept).filter(|_| rng.percent(60));
        let some = |node: &Node| matches!(node.kind, Kind::File | Kind::Directory);
        let any = rng.percent(5);
        let id = match kept {
            Some(id) => id,
            None => self.some(model, |node| any || some(node))?,
        };
        let is_dir = model.now.nodes.get(&id).is_some_and(Node::is_dir);
        let flags = FileFlags {
            immutable: kept.is_none() && rng.percent(12),
            append: kept.is_none() && rng.percent(12),
            no_atime: rng.percent(20),
            no_dump: rng.percent(20),
            inherits_project: if is_dir { rng.percent(40) } else { rng.percent(3) },
            project: *rng.pick(&[0, 0, 1, 2]),
        };
        Some(call(id, What::SetFlags(flags)))
    }

    /// Access control lists are set, read and removed, and modes of files with one changed.
    fn list_call(&self, model: &Model) -> Option<Call> {
        let rng = &self.rng;
        let name = *rng.pick(&[ACCESS, ACCESS, DEFAULT]);
        let listed: Vec<&(Id, Vec<u8>)> =
            model.now.xattrs.keys().filter(|(id, name)| self.has(*id) && is_list(name)).collect();
        let (id, name) = match listed.get(rng.below(listed.len())) {
            Some((id, name)) if rng.percent(50) => (*id, name.clone()),
            _ => {
                let any = rng.percent(5);
                let fits = |node: &Node| match name == DEFAULT {
                    true => node.is_dir(),
                    false => node.kind != Kind::Symlink,
                };
                (self.some(model, |node| any || fits(node))?, name.to_vec())
            }
        };
        let what = match rng.range(0..20) {
            0..10 => {
                let modes = [XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace];
                What::SetXattr(name, random_value(rng), *rng.pick(&modes))
            }
            10..13 => What::Xattr(name),
            13..15 => What::RemoveXattr(name),
            _ => {
                let perm = Some(rng.range(0..0o1000) as u16);
                What::SetAttr(Caller::default(), SetAttr { perm, ..SetAttr::default() })
            }
        };
        Some(call(id, what))
    }

    fn trim_range(&self, taste: &Taste) -> TrimRange {
        let rng = &self.rng;
        let min_len = *rng.pick(&[0, 0, 4096, 64 << 10]);
        match rng.percent(50) {
            true => TrimRange { start: 0, len: u64::MAX, min_len },
            false => {
                let (start, len) = (rng.range(0..taste.size * 4), rng.log_range(1..32 << 20));
                TrimRange { start, len, min_len }
            }
        }
    }
}

//! What POSIX says of each request, as what is `expected` of it.

use super::access_list::is_list;
use super::call::{Call, What, is_behind};
use super::expected::{Bytes, Need, Plan, Thing};
use super::file::SECTOR;
use super::meta::{Change, Id, Meta, Moment, Node, Span, Touch, moment};
use super::rights::{Rights, Unless};
use super::stamp::ZEROES;
use braid_filesystem::{
    Allocate, Caller, Errno, Kind, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, Seek,
    SetAttr, SetTime, XATTR_NAME_MAX, XATTR_VALUE_MAX, XattrMode,
};
use std::ops::Range;

const BOTH: Touch = Touch { mtime: true, ctime: true, perhaps: false };
const CTIME: Touch = Touch { mtime: false, ctime: true, perhaps: false };
const PERHAPS: Touch = Touch { mtime: true, ctime: true, perhaps: true };

/// `range` in whole sectors.
pub fn sectors(range: Range<u64>) -> Range<u64> {
    range.start / SECTOR * SECTOR..range.end.div_ceil(SECTOR).saturating_mul(SECTOR)
}

/// What must happen to `call` when what is there is `meta`. `next` is the name of a new file.
pub fn plan(meta: &Meta, call: &Call, next: Id) -> Plan {
    let mut plan = Plan::default();
    let on = call.on;
    let Some(node) = meta.nodes.get(&on) else {
        plan.no(Errno::Stale);
        return plan;
    };
    match &call.what {
        What::Lookup(name) if name == b"." || name == b".." => {
            plan.dir(meta, on, name);
            plan.alone(Thing::Tree);
            if node.is_dir() {
                // A directory that was removed may still know itself and where it was.
                plan.may = std::mem::take(&mut plan.errors);
            }
        }
        What::Lookup(name) => {
            plan.dir(meta, on, name);
            plan.shared(Thing::Name(on, name.clone()));
            if !meta.names.contains_key(&(on, name.clone())) {
                plan.no(Errno::NotFound);
            }
        }
        What::Attr | What::Sync | What::Space | What::Fsync(_) => {}
        What::Parent => plan.alone(Thing::Tree),
        What::SetAttr(_, set) => {
            plan.sets(meta, on, set);
            if let Some(perm) = set.perm {
                plan.changes_mode(meta, on, perm);
            }
            set_attr(&mut plan, on, node, set);
        }
        What::Make { caller, name, kind, perm, umask, rdev, target } => {
            plan.dir(meta, on, name);
            plan.alone(Thing::Name(on, name.clone()));
            plan.shared(Thing::Node(on));
            if meta.names.contains_key(&(on, name.clone())) {
                plan.no(Errno::Exists);
            }
            let rights = plan.inherits(meta, on, *kind, (*perm, *umask));
            let is_dir = *kind == Kind::Directory;
            let new = Node {
                rdev: *rdev,
                target: target.clone(),
                size: target.len() as u64,
                size_most: target.len() as u64,
                nlink: if is_dir { 2 } else { 1 },
                ..new_node(on, *kind, *caller, &rights)
            };
            make(&mut plan, next, new, rights);
            plan.changes.push(Change::Name(on, name.clone(), Some(next)));
            if is_dir {
                plan.changes.push(Change::Links(on, 1));
            }
            plan.touch(on, BOTH);
        }
        What::MakeUnnamed { caller, perm, umask } => {
            plan.dir(meta, on, b"");
            let rights = plan.inherits(meta, on, Kind::File, (*perm, *umask));
            let new = new_node(on, Kind::File, *caller, &rights);
            make(&mut plan, next, Node { nlink: 0, unnamed: true, ..new }, rights);
        }
        What::Flags | What::SetFlags(_) if !matches!(node.kind, Kind::File | Kind::Directory) => {
            plan.no(Errno::Unsupported);
        }
        What::Flags => plan.shared(Thing::Flags(on)),
        What::SetFlags(flags) => {
            plan.alone(Thing::Flags(on));
            plan.shared(Thing::Node(on));
            if flags.inherits_project && !node.is_dir() {
                plan.no(Errno::Invalid);
            }
            plan.changes.push(Change::Flags(on, *flags));
            plan.touch(on, CTIME);
        }
        What::Trim(_) => plan.may.push(Errno::Unsupported),
        What::ReadLink => {
            if node.kind != Kind::Symlink {
                plan.no(Errno::Invalid);
            }
        }
        What::Link(name) => {
            plan.dir(meta, call.other, name);
            plan.alone(Thing::Name(call.other, name.clone()));
            plan.alone(Thing::Links(on));
            plan.shared(Thing::Node(on));
            plan.shared(Thing::Node(call.other));
            if node.is_dir() {
                plan.no(Errno::NotPermitted);
            }
            if node.nlink == 0 && !node.unnamed {
                plan.no(Errno::NotFound);
            }
            plan.refused(meta, call.other, Unless::Immutable);
            plan.refused(meta, on, Unless::Kept);
            plan.comes_into(meta, call.other, on);
            if meta.names.contains_key(&(call.other, name.clone())) {
                plan.no(Errno::Exists);
            }
            plan.changes.push(Change::Name(call.other, name.clone(), Some(on)));
            plan.changes.push(Change::Links(on, 1));
            plan.touch(on, CTIME);
            plan.touch(call.other, BOTH);
        }
        What::Unlink(name) => remove(&mut plan, meta, on, name, false),
        What::RemoveDir(name) => remove(&mut plan, meta, on, name, true),
        What::Rename(name, new, flags) => {
            rename(&mut plan, meta, (on, name), (call.other, new), (flags.0, next));
        }
        What::Open(cuts) => {
            plan.refused(meta, on, Unless::Kept);
            if *cuts {
                truncate(&mut plan, on, node, 0);
            }
        }
        What::Read(..) => {}
        What::Write(offset, len, version) => {
            let range = *offset..*offset + *len as u64;
            // What the kernel writes late was written when it was allowed.
            if !is_behind(on, &call.what) {
                plan.refused(meta, on, Unless::Immutable);
            }
            plan.shared(Thing::Node(on));
            plan.alone(Thing::Bytes(on, sectors(range.clone())));
            plan.changes.push(Change::Grow(on, range.end));
            plan.touch(on, BOTH);
            plan.bytes.push(Bytes { id: on, range, version: *version, firm: false });
        }
        What::Allocate(how, offset, len) => {
            plan.allocates(meta, on, *how);
            allocate(&mut plan, on, node, *how, *offset, *len);
        }
        What::Copy(range, pieces) => {
            plan.may.push(Errno::Unsupported);
            plan.refused(meta, on, Unless::Immutable);
            plan.shared(Thing::Node(on));
            plan.alone(Thing::Bytes(on, sectors(range.clone())));
            plan.shared(Thing::Bytes(call.other, 0..u64::MAX));
            plan.changes.push(Change::Grow(on, range.end));
            plan.touch(on, BOTH);
            for (range, version) in pieces {
                let (id, range, version) = (on, range.clone(), *version);
                plan.bytes.push(Bytes { id, range, version, firm: false });
            }
        }
        What::Seek(offset, what) => {
            if *what == Seek::Data {
                plan.may.push(Errno::Nxio);
            }
            plan.shared(Thing::Bytes(on, 0..u64::MAX));
            plan.alone(Thing::Node(on));
            if *offset >= node.size {
                plan.no(Errno::Nxio);
            }
        }
        What::List(..) => {
            if !node.is_dir() {
                plan.no(Errno::NotDirectory);
            }
        }
        What::SetXattr(name, value, mode) => {
            plan.alone(Thing::Xattrs(on));
            plan.shared(Thing::Node(on));
            let there = meta.xattrs.contains_key(&(on, name.clone()));
            too_long(&mut plan, name);
            if value.len() > XATTR_VALUE_MAX {
                plan.errors.extend([Errno::TooLarge, Errno::Range]);
            }
            match mode {
                XattrMode::Create if there => plan.no(Errno::Exists),
                XattrMode::Replace if !there => plan.no(Errno::NoData),
                _ => {}
            }
            plan.refused(meta, on, Unless::Kept);
            let changes = match is_list(name) {
                true => plan.sets_list(meta, on, node, name, value),
                false => {
                    plan.changes.push(Change::Xattr(on, name.clone(), Some(value.clone())));
                    true
                }
            };
            if changes {
                plan.touch(on, CTIME);
            }
        }
        What::Xattr(name) => {
            plan.looks_at_list(on, name);
            plan.shared(Thing::Xattrs(on));
            too_long(&mut plan, name);
            if !meta.xattrs.contains_key(&(on, name.clone())) {
                plan.no(Errno::NoData);
            }
        }
        What::Xattrs => plan.shared(Thing::Xattrs(on)),
        What::RemoveXattr(name) => {
            plan.refused(meta, on, Unless::Kept);
            if is_list(name) {
                plan.alone(Thing::Lists(on));
            }
            plan.alone(Thing::Xattrs(on));
            plan.shared(Thing::Node(on));
            too_long(&mut plan, name);
            if !meta.xattrs.contains_key(&(on, name.clone())) {
                plan.no(Errno::NoData);
            }
            plan.changes.push(Change::Xattr(on, name.clone(), None));
            plan.touch(on, CTIME);
        }
    }
    plan.finish()
}

/// A file without content, made in `dir`.
fn new_node(dir: Id, kind: Kind, caller: Caller, rights: &Rights) -> Node {
    let now = Span::at(0);
    Node {
        kind,
        rdev: 0,
        target: Vec::new(),
        perm: rights.perm,
        uid: caller.uid,
        gid: caller.gid,
        size: 0,
        size_most: 0,
        nlink: 1,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        parent: dir,
        unnamed: false,
        flags: rights.flags,
        subvolume: rights.subvolume,
    }
}

fn make(plan: &mut Plan, id: Id, node: Node, rights: Rights) {
    plan.changes.push(Change::Make(id, Box::new(node)));
    for (name, value) in rights.lists {
        plan.changes.push(Change::Xattr(id, name.to_vec(), Some(value)));
    }
    plan.makes = Some(id);
}

/// The name of an extended attribute may be that long, and no longer.
fn too_long(plan: &mut Plan, name: &[u8]) {
    if name.len() > XATTR_NAME_MAX {
        plan.no(Errno::Range);
    }
}

fn truncate(plan: &mut Plan, id: Id, node: &Node, size: u64) {
    plan.alone(Thing::Node(id));
    plan.alone(Thing::Bytes(id, 0..u64::MAX));
    match node.kind {
        Kind::File => {}
        Kind::Directory => plan.errors.extend([Errno::IsDirectory, Errno::Invalid]),
        _ => plan.no(Errno::Invalid),
    }
    plan.changes.push(Change::Size(id, size));
    plan.touch(id, if size == node.size { PERHAPS } else { BOTH });
    // What lies behind the end reads as zero for ever.
    let range = size.min(node.size)..u64::MAX;
    plan.bytes.push(Bytes { id, range, version: ZEROES, firm: true });
}

fn set_attr(plan: &mut Plan, id: Id, node: &Node, set: &SetAttr) {
    plan.alone(Thing::Node(id));
    if let Some(size) = set.size {
        truncate(plan, id, node, size);
    }
    let perm = set.perm.unwrap_or(node.perm);
    plan.changes.push(Change::Owner(
        id,
        perm,
        set.uid.unwrap_or(node.uid),
        set.gid.unwrap_or(node.gid),
    ));
    let any = set.perm.is_some() || set.uid.is_some() || set.gid.is_some();
    if any || set.atime.is_some() || set.mtime.is_some() {
        plan.touch(id, CTIME);
    }
    let to = |time: Option<SetTime>| match time {
        Some(SetTime::To(time)) => Some(moment(time)),
        _ => None,
    };
    let now = |time: Option<SetTime>| time == Some(SetTime::Now);
    if now(set.mtime) {
        plan.touch(id, Touch { mtime: true, ctime: false, perhaps: false });
    }
    if now(set.atime) {
        plan.changes.push(Change::Read(id));
    }
    let times: [Option<Moment>; 3] = [to(set.atime), to(set.mtime), set.ctime.map(moment)];
    plan.changes.push(Change::Times(id, times));
}

fn allocate(plan: &mut Plan, id: Id, node: &Node, how: Allocate, offset: u64, len: u64) {
    let end = offset.saturating_add(len);
    plan.shared(Thing::Node(id));
    plan.alone(Thing::Bytes(id, sectors(offset..end)));
    if len == 0 {
        plan.no(Errno::Invalid);
    }
    if node.kind != Kind::File {
        plan.errors.extend([Errno::Unsupported, Errno::Invalid, Errno::IsDirectory]);
    }
    let keep_size = match how {
        Allocate::Reserve { keep_size } | Allocate::ZeroRange { keep_size } => keep_size,
        Allocate::PunchHole => true,
    };
    if !keep_size {
        plan.changes.push(Change::Grow(id, end));
    }
    if !matches!(how, Allocate::Reserve { .. }) {
        // Behind the end there is nothing but zeroes anyway.
        plan.bytes.push(Bytes { id, range: offset..end, version: ZEROES, firm: true });
    }
    plan.touch(id, PERHAPS);
}

fn remove(plan: &mut Plan, meta: &Meta, dir: Id, name: &[u8], is_rmdir: bool) {
    plan.dir(meta, dir, name);
    plan.alone(Thing::Name(dir, name.to_vec()));
    plan.shared(Thing::Node(dir));
    let Some(id) = meta.names.get(&(dir, name.to_vec())).copied() else {
        return plan.no(Errno::NotFound);
    };
    let is_dir = meta.nodes.get(&id).is_some_and(Node::is_dir);
    match (is_rmdir, is_dir) {
        (true, false) => plan.no(Errno::NotDirectory),
        (false, true) => plan.errors.extend([Errno::IsDirectory, Errno::NotPermitted]),
        _ => {}
    }
    plan.loses_name(meta, dir, id);
    plan.changes.push(Change::Name(dir, name.to_vec(), None));
    plan.touch(dir, BOTH);
    gone(plan, meta, dir, id);
}

/// The entry of `id` in `dir` goes.
fn gone(plan: &mut Plan, meta: &Meta, dir: Id, id: Id) {
    let is_dir = meta.nodes.get(&id).is_some_and(Node::is_dir);
    plan.alone(Thing::Links(id));
    plan.shared(Thing::Node(id));
    if is_dir {
        plan.ends(meta, id);
        plan.alone(Thing::Entries(id));
        if !meta.is_empty_dir(id) {
            plan.errors.extend([Errno::NotEmpty, Errno::Exists]);
        }
        plan.changes.push(Change::Links(id, -2));
        plan.changes.push(Change::Links(dir, -1));
        plan.touch(id, Touch { mtime: false, ctime: true, perhaps: true });
    } else {
        plan.changes.push(Change::Links(id, -1));
        plan.touch(id, CTIME);
    }
}

fn rename(
    plan: &mut Plan,
    meta: &Meta,
    (dir, name): (Id, &[u8]),
    (new_dir, new): (Id, &[u8]),
    (flags, next): (u32, Id),
) {
    plan.dir(meta, dir, name);
    plan.dir(meta, new_dir, new);
    for (dir, name) in [(dir, name), (new_dir, new)] {
        let need = Need { thing: Thing::Name(dir, name.to_vec()), alone: true };
        plan.needs.push(need);
        plan.shared(Thing::Node(dir));
    }
    let (exchange, no_replace) = (flags & RENAME_EXCHANGE.0 != 0, flags & RENAME_NOREPLACE.0 != 0);
    let whiteout = flags & RENAME_WHITEOUT.0 != 0;
    if exchange && (no_replace || whiteout) {
        plan.no(Errno::Invalid);
    }
    plan.refused(meta, new_dir, Unless::Immutable);
    let source = meta.names.get(&(dir, name.to_vec())).copied();
    let target = meta.names.get(&(new_dir, new.to_vec())).copied();
    let is_dir = |id: Id| meta.nodes.get(&id).is_some_and(Node::is_dir);
    let any_dir = source.is_some_and(is_dir) || exchange && target.is_some_and(is_dir);
    if dir != new_dir && any_dir {
        plan.alone(Thing::Tree);
    }
    let Some(source) = source else { return plan.no(Errno::NotFound) };
    plan.shared(Thing::Node(source));
    plan.loses_name(meta, dir, source);
    plan.comes_into(meta, new_dir, source);
    if let Some(target) = target {
        plan.loses_name(meta, new_dir, target);
        // Two names of one file change places by staying where they are.
        if exchange && target != source {
            plan.comes_into(meta, dir, target);
        }
    }
    if no_replace && target.is_some() {
        plan.no(Errno::Exists);
    }
    if exchange && target.is_none() {
        plan.no(Errno::NotFound);
    }
    if is_dir(source) && meta.is_above(source, new_dir) {
        plan.no(Errno::Invalid);
    }
    if let Some(target) = target.filter(|target| is_dir(*target) && meta.is_above(*target, dir)) {
        plan.errors.extend([Errno::Invalid, Errno::NotEmpty, Errno::Exists]);
        // Also when it is a file that is to take the place.
        if !exchange && !is_dir(source) {
            plan.no(Errno::IsDirectory);
        }
        plan.shared(Thing::Node(target));
    }
    if target == Some(source) {
        return;
    }
    let touch_moved = Touch { mtime: false, ctime: true, perhaps: true };
    let moved = |plan: &mut Plan, id: Id, from: Id, to: Id| {
        plan.touch(id, touch_moved);
        if is_dir(id) && from != to {
            plan.changes.push(Change::Parent(id, to));
            plan.changes.push(Change::Links(from, -1));
            plan.changes.push(Change::Links(to, 1));
        }
    };
    plan.touch(dir, BOTH);
    plan.touch(new_dir, BOTH);
    plan.changes.push(Change::Name(new_dir, new.to_vec(), Some(source)));
    if exchange {
        plan.changes.push(Change::Name(dir, name.to_vec(), target));
        if let Some(target) = target {
            plan.shared(Thing::Node(target));
            moved(plan, target, new_dir, dir);
        }
    } else {
        plan.changes.push(Change::Name(dir, name.to_vec(), whiteout.then_some(next)));
        if whiteout {
            let rights = plan.inherits(meta, dir, Kind::CharDevice, (0, 0));
            let rights = Rights { perm: 0, lists: Vec::new(), ..rights };
            let node = new_node(dir, Kind::CharDevice, Caller::default(), &rights);
            make(plan, next, node, rights);
        }
        if let Some(target) = target {
            match (is_dir(source), is_dir(target)) {
                (true, false) => plan.no(Errno::NotDirectory),
                (false, true) => plan.no(Errno::IsDirectory),
                _ => {}
            }
            gone(plan, meta, new_dir, target);
        }
    }
    moved(plan, source, dir, new_dir);
}

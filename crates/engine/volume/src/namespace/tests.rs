//! Names and files in memory, with no bytes of files around them.

#![allow(clippy::unwrap_used)]

use crate::tests::rig::{ME, Rig};
use braid_filesystem::{DirEntry, Errno, Kind, NewNode, ROOT, RenameFlags, SetAttr};
use braid_format::volume::entry::ByName;
use braid_format::volume::inode::InodeRecord;
use braid_format::volume::keys;
use std::cell::RefCell;
use std::rc::Rc;

#[test]
fn names_are_made_found_renamed_and_listed() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let names = &rig.namespace;
        let node = NewNode { kind: Kind::Directory, perm: 0o755, umask: 0, rdev: 0, target: b"" };
        let directory = names.make_node(ME, ROOT, b"d", node).await.unwrap().attr.ino;
        let file = rig.file(b"f").await;
        let again = NewNode { kind: Kind::File, perm: 0, umask: 0, rdev: 0, target: b"" };
        assert_eq!(names.make_node(ME, ROOT, b"f", again).await.err(), Some(Errno::Exists));
        names.rename_name(ROOT, b"f", directory, b"g", RenameFlags(0)).await.unwrap();
        assert_eq!(names.look_up(ROOT, b"f").await.err(), Some(Errno::NotFound));
        assert_eq!(names.resolve(b"/d/g").await, Ok(file));
        let listed = names.read_entries(directory, 0, 10).await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].ino, &*listed[0].name), (file, &b"g"[..]));
        assert_eq!(names.remove_directory(ROOT, b"d").await, Err(Errno::NotEmpty));
    });
}

#[test]
fn the_end_of_a_directory_is_read_once_and_entries_are_found_wherever_they_come_to_lie() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let names = &rig.namespace;
        let found = async |cookie| {
            let listed = names.read_entries(ROOT, cookie, 10).await.unwrap();
            let name = |entry: &DirEntry| String::from_utf8(entry.name.clone()).unwrap();
            (listed.iter().map(name).collect::<String>(), listed.last().map(|last| last.cookie))
        };
        assert_eq!(found(0).await.0, "");
        for name in [b"a", b"b", b"c"] {
            rig.file(name).await;
        }
        let (all, last) = found(0).await;
        assert_eq!(all, "cba");
        let before = names.read_entries(ROOT, 0, 2).await.unwrap()[1].cookie;
        // A file that takes another's name takes its place, too.
        rig.file(b"d").await;
        names.rename_name(ROOT, b"d", ROOT, b"a", RenameFlags(0)).await.unwrap();
        assert_eq!(found(before).await.0, "a");
        let directory = rig.inodes.get(ROOT).await.unwrap();
        let behind = ByName { ino: 77, cookie: last.unwrap() + 5, kind: 8 };
        names.list_entry(&directory, b"e", behind);
        assert_eq!(found(last.unwrap()).await, ("e".to_owned(), Some(behind.cookie)));
        rig.store.fail("it is asked again");
        assert_eq!(names.read_entries(ROOT, behind.cookie, 10).await, Ok(Vec::new()));
        assert!(names.read_entries(ROOT, before, 10).await.is_err());
    });
}

#[test]
fn attributes_become_records_with_the_next_commit() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let file = rig.file(b"f").await;
        let inode = rig.inodes.get(file).await.unwrap();
        let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
        rig.namespace.set_attributes(ME, &inode, set).await.unwrap();
        assert!(!rig.store.snapshot().pairs().contains_key(&keys::inode(file)));
        rig.commits.sync_all().await.unwrap();
        let snapshot = rig.store.snapshot();
        let record = InodeRecord::parse(file, &snapshot.pairs()[&keys::inode(file)]).unwrap();
        assert_eq!((record.perm, record.nlink), (0o600, 1));
    });
}

#[test]
fn a_file_without_a_name_is_queued_when_the_last_user_goes() {
    let rig = Rig::new(&[8]);
    let shard = rig.shard.clone();
    shard.block_on(async move {
        let started = Rc::new(RefCell::new(0));
        let counted = Rc::clone(&started);
        rig.orphans.work_by(Rc::new(move || {
            *counted.borrow_mut() += 1;
            true
        }));
        let file = rig.file(b"f").await;
        rig.inodes.add_open(file);
        rig.namespace.give_back(file, 1, 0);
        rig.namespace.unlink_name(ROOT, b"f").await.unwrap();
        assert!(!rig.orphans.is_busy(), "it is open");
        rig.namespace.give_back(file, 0, 1);
        assert!(rig.orphans.is_busy());
        assert_eq!(
            (*started.borrow(), rig.orphans.next(), rig.orphans.next()),
            (1, Some(file), None)
        );
        assert!(!rig.orphans.is_busy());
        rig.commits.sync_all().await.unwrap();
        assert!(rig.store.snapshot().pairs().contains_key(&keys::orphan(file)));
    });
}

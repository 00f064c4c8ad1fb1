//! Extended attributes: set, get, list, remove, their sizes and who may touch them.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, holds, refuses, refuses_with,
    same_bytes, skip, works,
};
use rustix::fs::{
    XattrFlags, getxattr, getxattr_query, lgetxattr_query, listxattr, listxattr_query, lsetxattr,
    removexattr, setxattr,
};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

cases! {
    "xattr":
        set_get_list_remove,
        create_and_replace,
        get_into_too_little_room_is_refused,
        values_of_all_bytes_and_sizes,
        value_may_be_empty,
        missing_is_enodata,
        name_limits,
        value_limit,
        many,
        of_directories,
        of_links_and_pipes_are_refused,
        change_ctime_only,
        follow_the_object,
        go_with_the_object,
        need_permission,
        trusted_are_root_s,
        unknown_namespace_is_refused;
}

/// A file, where there are attributes of users.
fn subject(scene: &Scene) -> anyhow::Result<PathBuf> {
    let path = scene.file("file")?;
    match setxattr(&path, "user.probe", b"1", XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => return skip("no extended attributes of users here"),
        other => works("setxattr", other)?,
    }
    works("removexattr", removexattr(&path, "user.probe"))?;
    Ok(path)
}

fn value(path: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let mut value = Vec::with_capacity(70_000);
    let got = getxattr(path, name, rustix::buffer::spare_capacity(&mut value));
    works(format!("getxattr of {name}"), got)?;
    Ok(value)
}

/// The names that users see, sorted; those of other namespaces are the system's.
fn names(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut list = Vec::with_capacity(70_000);
    works("listxattr", listxattr(path, rustix::buffer::spare_capacity(&mut list)))?;
    let mut names: Vec<String> = list
        .split(|byte| *byte == 0)
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| name.starts_with("user."))
        .collect();
    names.sort();
    Ok(names)
}

fn set(path: &Path, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    setxattr(path, name, value, XattrFlags::empty())
}

fn set_get_list_remove(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    works("set", set(&path, "user.b", b"second"))?;
    works("set", set(&path, "user.a", b"first"))?;
    equal("names", names(&path)?, vec!["user.a".to_owned(), "user.b".to_owned()])?;
    same_bytes("user.a", &value(&path, "user.a")?, b"first")?;
    works("set again", set(&path, "user.a", b"longer than before"))?;
    same_bytes("user.a", &value(&path, "user.a")?, b"longer than before")?;
    equal("size", works("query", getxattr_query(&path, "user.b"))?, 6)?;
    works("remove", removexattr(&path, "user.a"))?;
    equal("names", names(&path)?, vec!["user.b".to_owned()])
}

fn create_and_replace(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    let replace = |value: &[u8]| setxattr(&path, "user.a", value, XattrFlags::REPLACE);
    let create = |value: &[u8]| setxattr(&path, "user.a", value, XattrFlags::CREATE);
    refuses("XATTR_REPLACE of a missing one", replace(b"1"), Errno::NODATA)?;
    works("XATTR_CREATE", create(b"2"))?;
    refuses("XATTR_CREATE of one that is there", create(b"3"), Errno::EXIST)?;
    same_bytes("value", &value(&path, "user.a")?, b"2")?;
    works("XATTR_REPLACE", replace(b"4"))?;
    same_bytes("value", &value(&path, "user.a")?, b"4")
}

fn get_into_too_little_room_is_refused(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    works("set", set(&path, "user.a", b"123456"))?;
    let got = getxattr(&path, "user.a", &mut [0_u8; 5][..]);
    refuses("a value of 6 bytes into 5", got, Errno::RANGE)?;
    let got = listxattr(&path, &mut [0_u8; 3][..]);
    refuses("names into 3 bytes", got, Errno::RANGE)
}

fn values_of_all_bytes_and_sizes(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    let all: Vec<u8> = (0..=255).cycle().take(2000).collect();
    // More than a block holds is not everywhere possible.
    for len in [1, 2, 31, 32, 33, 255, 256, 257, 1000, 2000] {
        works(format!("a value of {len} bytes"), set(&path, "user.a", &all[..len]))?;
        same_bytes(format!("{len} bytes"), &value(&path, "user.a")?, &all[..len])?;
    }
    Ok(())
}

fn value_may_be_empty(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    works("set", set(&path, "user.a", b""))?;
    equal("size", works("query", getxattr_query(&path, "user.a"))?, 0)?;
    equal("names", names(&path)?, vec!["user.a".to_owned()])
}

fn missing_is_enodata(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    refuses("get of a missing one", getxattr_query(&path, "user.a"), Errno::NODATA)?;
    refuses("remove of a missing one", removexattr(&path, "user.a"), Errno::NODATA)?;
    works("set", set(&path, "user.a", b"1"))?;
    works("remove", removexattr(&path, "user.a"))?;
    refuses("get of a removed one", getxattr_query(&path, "user.a"), Errno::NODATA)
}

fn name_limits(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    let longest = format!("user.{}", "n".repeat(250));
    works("a name of 255 bytes", set(&path, &longest, b"1"))?;
    equal("names", names(&path)?, vec![longest.clone()])?;
    let longer = format!("{longest}n");
    refuses("a name of 256 bytes", set(&path, &longer, b"1"), Errno::RANGE)?;
    refuses("a name that ends with its namespace", set(&path, "user.", b"1"), Errno::INVAL)?;
    refuses("no name", set(&path, "", b"1"), Errno::RANGE)
}

fn value_limit(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    let most = vec![3; 65_536];
    match set(&path, "user.a", &most) {
        Ok(()) => same_bytes("64 KiB", &value(&path, "user.a")?, &most)?,
        // One that keeps a value in one block says that there is no room.
        Err(errno) => {
            let got = Err::<(), _>(errno);
            refuses_with("64 KiB", got, &[Errno::NOSPC, Errno::RANGE, Errno::TOOBIG])?;
            equal("names", names(&path)?, Vec::<String>::new())?;
        }
    }
    let more = vec![3; 65_537];
    refuses("64 KiB and a byte", set(&path, "user.b", &more), Errno::TOOBIG)
}

fn many(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    let text = |number: usize| vec![number as u8; number];
    for number in 0..30 {
        works(format!("number {number}"), set(&path, &format!("user.{number:02}"), &text(number)))?;
    }
    for number in (0..30).step_by(2) {
        works("remove", removexattr(&path, format!("user.{number:02}").as_str()))?;
    }
    let odd: Vec<String> = (1..30).step_by(2).map(|number| format!("user.{number:02}")).collect();
    equal("names", names(&path)?, odd)?;
    for number in (1..30).step_by(2) {
        same_bytes("value", &value(&path, &format!("user.{number:02}"))?, &text(number))?;
    }
    Ok(())
}

fn of_directories(scene: &Scene) -> Outcome {
    subject(scene)?;
    let dir = scene.dir("dir")?;
    works("set", set(&dir, "user.a", b"1"))?;
    let inner = scene.file("dir/file")?;
    same_bytes("value", &value(&dir, "user.a")?, b"1")?;
    equal("names of what is in it", names(&inner)?, Vec::<String>::new())
}

fn of_links_and_pipes_are_refused(scene: &Scene) -> Outcome {
    subject(scene)?;
    // xattr(7): user attributes are for regular files and directories.
    let link = scene.symlink("file", "link")?;
    let got = lsetxattr(&link, "user.a", b"1", XattrFlags::empty());
    refuses_with("set on a link", got, &[Errno::PERM, Errno::OPNOTSUPP])?;
    let fifo = scene.make(Kind::Fifo, "fifo")?;
    refuses_with("set on a fifo", set(&fifo, "user.a", b"1"), &[Errno::PERM, Errno::OPNOTSUPP])
}

fn change_ctime_only(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    for remove in [false, true] {
        let before = facts(&path)?;
        scene.tick();
        if remove {
            works("remove", removexattr(&path, "user.a"))?;
        } else {
            works("set", set(&path, "user.a", b"1"))?;
        }
        let mut after = facts(&path)?;
        holds("ctime is later", after.ctime > before.ctime)?;
        // Attributes may take blocks.
        (after.ctime, after.blocks) = (before.ctime, before.blocks);
        equal("all else", after, before)?;
    }
    Ok(())
}

fn follow_the_object(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    works("set", set(&path, "user.a", b"1"))?;
    let link = scene.symlink("file", "link")?;
    same_bytes("by a symbolic link", &value(&link, "user.a")?, b"1")?;
    let got = lgetxattr_query(&link, "user.a");
    refuses_with("of the link itself", got, &[Errno::NODATA, Errno::PERM, Errno::OPNOTSUPP])?;
    let other = scene.path("other");
    works("link", rustix::fs::link(&path, &other))?;
    same_bytes("by a hard link", &value(&other, "user.a")?, b"1")?;
    let moved = scene.path("moved");
    works("rename", rustix::fs::rename(&path, &moved))?;
    same_bytes("after a rename", &value(&moved, "user.a")?, b"1")
}

fn go_with_the_object(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    works("set", set(&path, "user.a", b"1"))?;
    works("unlink", rustix::fs::unlink(&path))?;
    let new = scene.file("file")?;
    equal("names of the next file of that name", names(&new)?, Vec::<String>::new())
}

fn need_permission(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    works("set", set(&path, "user.a", b"1"))?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o640)?;
    let (set_it, get_it) =
        as_user(BOB, &[STAFF], || (set(&path, "user.a", b"2"), getxattr_query(&path, "user.a")))?;
    refuses("set by one who may read", set_it, Errno::ACCESS)?;
    works("get by one who may read", get_it)?;
    let (get_it, remove_it) =
        as_user(BOB, &[BOB], || (getxattr_query(&path, "user.a"), removexattr(&path, "user.a")))?;
    refuses("get by one who may not", get_it, Errno::ACCESS)?;
    refuses("remove by one who may not", remove_it, Errno::ACCESS)?;
    same_bytes("value", &value(&path, "user.a")?, b"1")
}

fn trusted_are_root_s(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    crate::scene::needs_root()?;
    match set(&path, "trusted.a", b"1") {
        Err(Errno::OPNOTSUPP) => return skip("no trusted attributes here"),
        other => works("set by root", other)?,
    }
    scene.give(&path, ALICE, STAFF)?;
    let (got, listed) =
        as_user(ALICE, &[STAFF], || (getxattr_query(&path, "trusted.a"), listxattr_query(&path)))?;
    refuses_with("get by the owner", got, &[Errno::NODATA, Errno::PERM])?;
    works("list by the owner", listed)?;
    let got = as_user(ALICE, &[STAFF], || set(&path, "trusted.a", b"2"))?;
    refuses("set by the owner", got, Errno::PERM)?;
    same_bytes("value", &value(&path, "trusted.a")?, b"1")
}

fn unknown_namespace_is_refused(scene: &Scene) -> Outcome {
    let path = subject(scene)?;
    refuses("set of nobody.a", set(&path, "nobody.a", b"1"), Errno::OPNOTSUPP)?;
    refuses("set without a namespace", set(&path, "a", b"1"), Errno::OPNOTSUPP)
}

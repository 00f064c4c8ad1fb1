//! The tree of names.

use super::*;
use braid_filesystem::{RENAME_EXCHANGE, RENAME_NOREPLACE, RenameFlags, XattrMode};

async fn names(volume: &Volume, directory: Ino) -> Vec<String> {
    let mut found = Vec::new();
    let mut cookie = 0;
    loop {
        let entries = volume.read_dir(directory, cookie, 3).await.unwrap();
        let Some(last) = entries.last() else { return found };
        cookie = last.cookie;
        found.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
    }
}

#[test]
fn names_are_made_moved_and_removed() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    let own = Rc::clone(&volume);
    world.shard.block_on(async move {
        let directory = make(&own, ROOT, "d", Kind::Directory).await.unwrap().attr.ino;
        let below = make(&own, directory, "e", Kind::Directory).await.unwrap().attr.ino;
        for at in 0..10 {
            make(&own, directory, &format!("f{at}"), Kind::File).await.unwrap();
        }
        assert_eq!(own.attr(directory).await.unwrap().nlink, 3);
        assert_eq!(make(&own, directory, "f1", Kind::File).await, Err(Errno::Exists));
        let plain = RenameFlags(0);
        let into_itself = own.rename(ROOT, b"d", below, b"x", plain).await;
        assert_eq!(into_itself, Err(Errno::Invalid));
        assert_eq!(
            own.rename(directory, b"f1", directory, b"f2", RENAME_NOREPLACE).await,
            Err(Errno::Exists)
        );
        own.rename(directory, b"f1", ROOT, b"g", plain).await.unwrap();
        own.rename(ROOT, b"g", directory, b"e", RENAME_EXCHANGE).await.unwrap();
        assert_eq!(own.lookup(ROOT, b"g").await.unwrap().attr.ino, below);
        assert_eq!(own.parent(below).await, Ok(ROOT));
        assert_eq!(own.remove_dir(ROOT, b"d").await, Err(Errno::NotEmpty));
        own.rename(directory, b"f3", directory, b"f4", plain).await.unwrap();
        own.unlink(directory, b"f5").await.unwrap();
        assert_eq!(own.unlink(ROOT, b"g").await, Err(Errno::IsDirectory));
        own.remove_dir(ROOT, b"g").await.unwrap();
        let long = "n".repeat(256);
        assert_eq!(make(&own, ROOT, &long, Kind::File).await, Err(Errno::NameTooLong));
        make(&own, ROOT, &long[1..], Kind::File).await.unwrap();
        own.set_xattr(directory, b"user.a", b"1", XattrMode::Create).await.unwrap();
        own.sync().await.unwrap();
        let left = names(&own, directory).await;
        assert_eq!(left, ["f9", "f8", "f7", "f6", "f4", "f2", "f0", "e"]);
    });
    let store = world.crash(&store);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let directory = volume.lookup(ROOT, b"d").await.unwrap().attr;
        assert_eq!((directory.nlink, directory.uid), (2, 7));
        let left = names(&volume, directory.ino).await;
        assert_eq!(left, ["f9", "f8", "f7", "f6", "f4", "f2", "f0", "e"]);
        assert_eq!(volume.xattr(directory.ino, b"user.a").await.unwrap(), b"1");
        assert_eq!(volume.xattrs(directory.ino).await.unwrap(), [b"user.a"]);
    });
}

#[test]
fn a_scan_finds_names_that_are_replaced_or_exchanged_meanwhile() {
    let (world, store) = World::new(128 << 10, &[8]);
    let volume = world.mount(&store);
    world.shard.block_on(async move {
        let directory = make(&volume, ROOT, "d", Kind::Directory).await.unwrap().attr.ino;
        let other = make(&volume, ROOT, "o", Kind::Directory).await.unwrap().attr.ino;
        for at in 0..10 {
            make(&volume, directory, &format!("f{at}"), Kind::File).await.unwrap();
        }
        make(&volume, other, "far", Kind::File).await.unwrap();
        let mut found = volume.read_dir(directory, 0, 3).await.unwrap();
        let cookie = found.last().unwrap().cookie;
        make(&volume, directory, "saved", Kind::File).await.unwrap();
        volume.rename(directory, b"saved", directory, b"f0", RenameFlags(0)).await.unwrap();
        volume.rename(other, b"far", directory, b"f1", RenameFlags(0)).await.unwrap();
        make(&volume, other, "far", Kind::Directory).await.unwrap();
        volume.rename(other, b"far", directory, b"f2", RENAME_EXCHANGE).await.unwrap();
        // Past the scan already: it must not come a second time.
        volume.rename(directory, b"f3", directory, b"f9", RENAME_EXCHANGE).await.unwrap();
        found.extend(volume.read_dir(directory, cookie, 100).await.unwrap());
        let kind = |name: &[u8]| found.iter().find(|entry| entry.name == name).unwrap().kind;
        assert_eq!(kind(b"f2"), Kind::Directory);
        let mut names: Vec<String> =
            found.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
        names.sort();
        let all: Vec<String> = (0..10).map(|at| format!("f{at}")).collect();
        assert_eq!(names, all);
        volume.sync().await.unwrap();
        let report = volume.check(false).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    });
}

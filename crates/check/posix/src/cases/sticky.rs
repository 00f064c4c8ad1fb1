//! Directories with the sticky bit: only the owner of an object or of the directory, or root, may remove or rename it
//! there.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, holds, needs_root,
    refuses_with, works,
};
use rustix::fs::{rename, rmdir, unlink};
use rustix::io::Errno;
use std::path::PathBuf;

cases! {
    "sticky":
        unlink_is_for_the_owners,
        rmdir_is_for_the_owners,
        rename_away_is_for_the_owners,
        rename_over_is_for_the_owners,
        without_the_bit_all_may_remove;
}

const REFUSED: [Errno; 2] = [Errno::PERM, Errno::ACCESS];

/// A directory that all may write, with `mode`'s bits above, and an object of Alice's in it.
fn place(scene: &Scene, owner: u32, mode: u32, kind: Kind) -> anyhow::Result<(PathBuf, PathBuf)> {
    needs_root()?;
    let dir = scene.dir(format!("{owner}-{kind:?}"))?;
    let object = scene.make(kind, format!("{owner}-{kind:?}/object"))?;
    scene.give(&object, ALICE, STAFF)?;
    scene.give(&dir, owner, STAFF)?;
    scene.set_mode(&dir, mode)?;
    Ok((dir, object))
}

fn unlink_is_for_the_owners(scene: &Scene) -> Outcome {
    for kind in scene.kinds().into_iter().filter(|kind| *kind != Kind::Directory) {
        let (_, object) = place(scene, 0, 0o1777, kind)?;
        let got = as_user(BOB, &[STAFF], || unlink(&object))?;
        refuses_with(format!("unlink of Alice's {kind:?} by Bob"), got, &REFUSED)?;
        works("by Alice", as_user(ALICE, &[STAFF], || unlink(&object))?)?;
        let (_, object) = place(scene, BOB, 0o1777, kind)?;
        works("in Bob's directory by Bob", as_user(BOB, &[BOB], || unlink(&object))?)?;
    }
    Ok(())
}

fn rmdir_is_for_the_owners(scene: &Scene) -> Outcome {
    let (_, object) = place(scene, 0, 0o1777, Kind::Directory)?;
    let got = as_user(BOB, &[STAFF], || rmdir(&object))?;
    refuses_with("rmdir of Alice's directory by Bob", got, &REFUSED)?;
    works("by Alice", as_user(ALICE, &[STAFF], || rmdir(&object))?)?;
    let (_, object) = place(scene, BOB, 0o1777, Kind::Directory)?;
    works("in Bob's directory by Bob", as_user(BOB, &[BOB], || rmdir(&object))?)
}

fn rename_away_is_for_the_owners(scene: &Scene) -> Outcome {
    let free = scene.dir("free")?;
    scene.set_mode(&free, 0o777)?;
    for kind in [Kind::Regular, Kind::Fifo, Kind::Symlink] {
        let (dir, object) = place(scene, 0, 0o1777, kind)?;
        let before = facts(&object)?.ino;
        let got = as_user(BOB, &[STAFF], || rename(&object, free.join("away")))?;
        refuses_with(format!("move of Alice's {kind:?} by Bob"), got, &REFUSED)?;
        let got = as_user(BOB, &[STAFF], || rename(&object, dir.join("new")))?;
        refuses_with(format!("rename of Alice's {kind:?} by Bob"), got, &REFUSED)?;
        equal("it is there", facts(&object)?.ino, before)?;
        works("by Alice", as_user(ALICE, &[STAFF], || rename(&object, dir.join("new")))?)?;
    }
    Ok(())
}

fn rename_over_is_for_the_owners(scene: &Scene) -> Outcome {
    let (dir, object) = place(scene, 0, 0o1777, Kind::Regular)?;
    let inode = facts(&object)?.ino;
    let over = |uid| {
        let own = dir.join(format!("{uid}"));
        as_user(uid, &[STAFF], || {
            crate::scene::plain(std::fs::write(&own, b"x"))?;
            rename(&own, &object)
        })
    };
    refuses_with("rename over Alice's file by Bob", over(BOB)?, &REFUSED)?;
    equal("it is there", facts(&object)?.ino, inode)?;
    works("by Alice", over(ALICE)?)?;
    holds("it was replaced", facts(&object)?.ino != inode)
}

fn without_the_bit_all_may_remove(scene: &Scene) -> Outcome {
    let (_, object) = place(scene, 0, 0o777, Kind::Regular)?;
    works("unlink of Alice's file by Bob", as_user(BOB, &[BOB], || unlink(&object))?)?;
    let (_, object) = place(scene, 0, 0o777, Kind::Directory)?;
    works("rmdir of Alice's directory by Bob", as_user(BOB, &[BOB], || rmdir(&object))?)
}

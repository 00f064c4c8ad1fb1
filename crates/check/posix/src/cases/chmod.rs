//! Permissions: who may set which bits, and what they then allow.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Kind, Outcome, STAFF, Scene, as_user, equal, facts, facts_of, holds, plain,
    refuses, skip, works,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

cases! {
    "chmod":
        sets_all_twelve_bits,
        changes_ctime_and_nothing_else,
        by_descriptor_works_after_unlink,
        is_for_the_owner_and_root,
        refused_changes_nothing,
        drops_setgid_of_a_foreign_group,
        keeps_setgid_of_an_own_group;
    "permissions":
        allow_what_the_nine_bits_say,
        supplementary_groups_count,
        root_passes,
        directory_read_and_search_are_two_things;
}

fn sets_all_twelve_bits(scene: &Scene) -> Outcome {
    for kind in scene.kinds() {
        if kind == Kind::Symlink {
            continue;
        }
        let path = scene.make(kind, format!("{kind:?}"))?;
        let type_bits = facts(&path)?.mode & !0o7777;
        for mode in [0, 0o111, 0o222, 0o444, 0o753, 0o1644, 0o2755, 0o4755, 0o7777] {
            works(format!("chmod {mode:o}"), rustix::fs::chmod(&path, Mode::from(mode)))?;
            equal(format!("mode of a {kind:?}"), facts(&path)?.mode, type_bits | mode)?;
        }
    }
    Ok(())
}

fn changes_ctime_and_nothing_else(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"abc")?;
    let before = facts(&path)?;
    scene.tick();
    works("chmod", rustix::fs::chmod(&path, Mode::from(0o640)))?;
    let mut after = facts(&path)?;
    holds("ctime is later after chmod", after.ctime > before.ctime)?;
    equal("mode", after.permissions(), 0o640)?;
    (after.ctime, after.mode) = (before.ctime, before.mode);
    equal("all else", after, before)
}

fn by_descriptor_works_after_unlink(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    std::fs::remove_file(&path)?;
    works("fchmod of an unlinked file", rustix::fs::fchmod(&file, Mode::from(0o604)))?;
    equal("its mode", facts_of(&file)?.permissions(), 0o604)
}

fn is_for_the_owner_and_root(scene: &Scene) -> Outcome {
    for kind in [Kind::Regular, Kind::Directory, Kind::Fifo] {
        let path = scene.make(kind, format!("{kind:?}"))?;
        scene.give(&path, ALICE, STAFF)?;
        let own = as_user(ALICE, &[STAFF], || rustix::fs::chmod(&path, Mode::from(0o700)))?;
        works(format!("chmod of a {kind:?} by its owner"), own)?;
        let other = as_user(BOB, &[STAFF], || rustix::fs::chmod(&path, Mode::from(0o777)))?;
        refuses(format!("chmod of a {kind:?} by another"), other, Errno::PERM)?;
        equal("mode", facts(&path)?.permissions(), 0o700)?;
        works("chmod by root", rustix::fs::chmod(&path, Mode::from(0o711)))?;
    }
    Ok(())
}

fn refused_changes_nothing(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    let before = facts(&path)?;
    scene.tick();
    let got = as_user(BOB, &[STAFF], || rustix::fs::chmod(&path, Mode::from(0o777)))?;
    refuses("chmod by another", got, Errno::PERM)?;
    equal("the file", facts(&path)?, before)
}

fn drops_setgid_of_a_foreign_group(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    let got = as_user(ALICE, &[ALICE], || rustix::fs::chmod(&path, Mode::from(0o2755)))?;
    works("chmod 2755 by the owner, who is not in the group", got)?;
    equal("mode, without setgid", facts(&path)?.permissions(), 0o755)
}

fn keeps_setgid_of_an_own_group(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    for groups in [&[STAFF][..], &[ALICE, STAFF]] {
        scene.set_mode(&path, 0o644)?;
        let got = as_user(ALICE, groups, || rustix::fs::chmod(&path, Mode::from(0o2755)))?;
        works("chmod 2755 by the owner, who is in the group", got)?;
        equal("mode, with setgid", facts(&path)?.permissions(), 0o2755)?;
    }
    Ok(())
}

fn allow_what_the_nine_bits_say(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    // Only the first class that fits counts: an owner without the bit is refused though others have it.
    let classes = [(ALICE, STAFF, 6), (BOB, STAFF, 3), (BOB, BOB, 0)];
    for (uid, gid, shift) in classes {
        for bits in 0..8_u32 {
            let others = !(0o7 << shift) & 0o777;
            let mode = others | (bits << shift);
            scene.set_mode(&path, mode)?;
            let (read, write) = as_user(uid, &[gid], || {
                let open = |flags| rustix::fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty());
                (open(OFlags::RDONLY).map(drop), open(OFlags::WRONLY).map(drop))
            })?;
            let expect = |allowed: bool| if allowed { Ok(()) } else { Err(Errno::ACCESS) };
            equal(format!("reading at mode {mode:o} as {uid}:{gid}"), read, expect(bits & 4 != 0))?;
            let what = format!("writing at mode {mode:o} as {uid}:{gid}");
            equal(what, write, expect(bits & 2 != 0))?;
        }
    }
    Ok(())
}

fn supplementary_groups_count(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o640)?;
    let got = as_user(BOB, &[BOB, STAFF], || plain(std::fs::read(&path)))?;
    equal("read by a member of the group", works("reading", got)?, b"text".to_vec())?;
    let got = as_user(BOB, &[BOB], || plain(std::fs::read(&path)))?;
    refuses("read by one who is not", got, Errno::ACCESS)
}

fn root_passes(scene: &Scene) -> Outcome {
    if !crate::scene::is_root() {
        return skip("needs root");
    }
    let path = scene.file_of("file", b"text")?;
    scene.set_mode(&path, 0)?;
    works("root reads a file of mode 0", plain(std::fs::read(&path)))?;
    let dir = scene.dir("dir")?;
    scene.set_mode(&dir, 0)?;
    scene.file("dir/file").map(drop)
}

fn directory_read_and_search_are_two_things(scene: &Scene) -> Outcome {
    let dir = scene.dir("dir")?;
    scene.file("dir/file")?;
    let list = || plain(std::fs::read_dir(&dir)).map(|entries| entries.count());
    let reach = || plain(std::fs::metadata(dir.join("file"))).map(drop);
    scene.set_mode(&dir, 0o711)?;
    let (listed, reached) = as_user(BOB, &[BOB], || (list(), reach()))?;
    refuses("listing a directory of mode 711", listed, Errno::ACCESS)?;
    works("reaching a file in it", reached)?;
    scene.set_mode(&dir, 0o744)?;
    let (listed, reached) = as_user(BOB, &[BOB], || (list(), reach()))?;
    equal("entries of a directory of mode 744", works("listing it", listed)?, 1)?;
    refuses("reaching a file in it", reached, Errno::ACCESS)
}

//! utimensat and the times that other calls set.

use crate::cases;
use crate::scene::{
    ALICE, BOB, Facts, Outcome, STAFF, Scene, as_user, equal, facts, facts_of, holds, refuses,
    skip, works,
};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::{Errno, Result};
use std::io::Read;
use std::path::Path;

cases! {
    "utimensat":
        keeps_nanoseconds_of_every_kind,
        sets_now,
        omits_what_it_is_told_to,
        omitting_both_changes_nothing,
        changes_ctime,
        of_a_link_itself,
        times_before_1970,
        times_after_2038,
        of_nanoseconds_out_of_range_is_refused,
        exact_times_are_for_the_owner,
        now_is_for_those_who_may_write,
        by_descriptor_works_after_unlink;
    "times":
        write_changes_mtime_and_ctime,
        read_leaves_mtime_and_ctime,
        write_of_nothing_changes_nothing,
        survive_being_forgotten,
        birth_is_told_and_stays;
}

fn time(seconds: i64, nanos: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanos }
}

fn whole(seconds: i64, nanos: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanos)
}

fn set(path: &Path, atime: Timespec, mtime: Timespec) -> Result<()> {
    let times = Timestamps { last_access: atime, last_modification: mtime };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn keeps_nanoseconds_of_every_kind(scene: &Scene) -> Outcome {
    for kind in scene.kinds() {
        let path = scene.make(kind, format!("{kind:?}"))?;
        works("utimensat", set(&path, time(1_000_000_001, 1), time(1_234_567_890, 987_654_321)))?;
        let Facts { atime, mtime, .. } = facts(&path)?;
        let want = (whole(1_000_000_001, 1), whole(1_234_567_890, 987_654_321));
        equal(format!("times of a {kind:?}"), (atime, mtime), want)?;
    }
    Ok(())
}

fn birth_is_told_and_stays(scene: &Scene) -> Outcome {
    let born = |path: &Path| -> anyhow::Result<(u32, i128)> {
        let wanted = rustix::fs::StatxFlags::BTIME;
        let found = works("statx", rustix::fs::statx(CWD, path, AtFlags::empty(), wanted))?;
        let time = whole(found.stx_btime.tv_sec, i64::from(found.stx_btime.tv_nsec));
        Ok((found.stx_mask & wanted.bits(), time))
    };
    let path = scene.file("file")?;
    let (mask, first) = born(&path)?;
    if mask == 0 {
        return skip("no time of birth here");
    }
    let made = facts(&path)?.ctime;
    holds("it is about that of the last change", (made - first).abs() < 1_000_000_000)?;
    scene.tick();
    std::fs::write(&path, b"text")?;
    works("utimensat", set(&path, time(1, 1), time(1, 1)))?;
    works("rename", rustix::fs::rename(&path, scene.path("new")))?;
    equal("after changes", born(&scene.path("new"))?, (mask, first))
}

fn sets_now(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    works("utimensat", set(&path, time(1, 1), time(1, 1)))?;
    let before = facts(&scene.file("before")?)?.mtime;
    scene.tick();
    works("UTIME_NOW", set(&path, time(0, UTIME_NOW), time(0, UTIME_NOW)))?;
    let Facts { atime, mtime, .. } = facts(&path)?;
    scene.tick();
    let after = facts(&scene.file("after")?)?.mtime;
    holds("atime is of now", before < atime && atime < after)?;
    holds("mtime is of now", before < mtime && mtime < after)
}

fn omits_what_it_is_told_to(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    works("utimensat", set(&path, time(100, 1), time(200, 2)))?;
    works("UTIME_OMIT of atime", set(&path, time(0, UTIME_OMIT), time(300, 3)))?;
    let Facts { atime, mtime, .. } = facts(&path)?;
    equal("times", (atime, mtime), (whole(100, 1), whole(300, 3)))?;
    works("UTIME_OMIT of mtime", set(&path, time(400, 4), time(0, UTIME_OMIT)))?;
    let Facts { atime, mtime, .. } = facts(&path)?;
    equal("times", (atime, mtime), (whole(400, 4), whole(300, 3)))
}

fn omitting_both_changes_nothing(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let before = facts(&path)?;
    scene.tick();
    works("UTIME_OMIT of both", set(&path, time(0, UTIME_OMIT), time(0, UTIME_OMIT)))?;
    equal("the file", facts(&path)?, before)
}

fn changes_ctime(scene: &Scene) -> Outcome {
    for kind in scene.kinds() {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let before = facts(&path)?.ctime;
        scene.tick();
        works("utimensat", set(&path, time(1, 1), time(1, 1)))?;
        holds(format!("ctime of a {kind:?} is later"), facts(&path)?.ctime > before)?;
    }
    Ok(())
}

fn of_a_link_itself(scene: &Scene) -> Outcome {
    let file = scene.file("file")?;
    let link = scene.symlink("file", "link")?;
    let before = facts(&file)?;
    works("utimensat of a link", set(&link, time(5, 6), time(7, 8)))?;
    equal("the link's mtime", facts(&link)?.mtime, whole(7, 8))?;
    equal("the file", facts(&file)?, before)?;
    let times = Timestamps { last_access: time(9, 10), last_modification: time(11, 12) };
    let got = rustix::fs::utimensat(CWD, &link, &times, AtFlags::empty());
    works("utimensat by a link", got)?;
    equal("the file's mtime", facts(&file)?.mtime, whole(11, 12))?;
    equal("the link's mtime", facts(&link)?.mtime, whole(7, 8))
}

fn times_before_1970(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    works("utimensat", set(&path, time(-1, 999_999_999), time(-1_000_000_000, 5)))?;
    let Facts { atime, mtime, .. } = facts(&path)?;
    equal("times", (atime, mtime), (whole(-1, 999_999_999), whole(-1_000_000_000, 5)))
}

fn times_after_2038(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    // 2038, 2106 and 2200: beyond 31 and beyond 32 bits of seconds.
    for seconds in [0x8000_0000, 0x1_0000_0001, 7_258_118_400] {
        works("utimensat", set(&path, time(seconds, 7), time(seconds + 1, 8)))?;
        let Facts { atime, mtime, .. } = facts(&path)?;
        equal("times", (atime, mtime), (whole(seconds, 7), whole(seconds + 1, 8)))?;
    }
    Ok(())
}

fn of_nanoseconds_out_of_range_is_refused(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let before = facts(&path)?;
    for nanos in [1_000_000_000, -1, i64::MAX] {
        refuses(format!("{nanos} ns"), set(&path, time(0, nanos), time(0, 0)), Errno::INVAL)?;
    }
    equal("the file", facts(&path)?, before)
}

fn exact_times_are_for_the_owner(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o666)?;
    let got = as_user(BOB, &[STAFF], || set(&path, time(1, 1), time(1, 1)))?;
    refuses("exact times by one who may write", got, Errno::PERM)?;
    let got = as_user(BOB, &[STAFF], || set(&path, time(0, UTIME_NOW), time(0, UTIME_OMIT)))?;
    refuses("one time now by one who may write", got, Errno::PERM)?;
    scene.set_mode(&path, 0)?;
    works("by the owner", as_user(ALICE, &[STAFF], || set(&path, time(1, 1), time(1, 1)))?)
}

fn now_is_for_those_who_may_write(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    scene.give(&path, ALICE, STAFF)?;
    scene.set_mode(&path, 0o666)?;
    let now = || set(&path, time(0, UTIME_NOW), time(0, UTIME_NOW));
    works("now by one who may write", as_user(BOB, &[BOB], now)?)?;
    scene.set_mode(&path, 0o444)?;
    refuses("now by one who may not", as_user(BOB, &[BOB], now)?, Errno::ACCESS)?;
    works("now by the owner, who may not either", as_user(ALICE, &[STAFF], now)?)
}

fn by_descriptor_works_after_unlink(scene: &Scene) -> Outcome {
    let path = scene.file("file")?;
    let file = scene.open(&path)?;
    std::fs::remove_file(&path)?;
    let times = Timestamps { last_access: time(9, 10), last_modification: time(11, 12) };
    works("futimens of an unlinked file", rustix::fs::futimens(&file, &times))?;
    equal("mtime", facts_of(&file)?.mtime, whole(11, 12))
}

fn write_changes_mtime_and_ctime(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let file = scene.open(&path)?;
    for size in [1, 4, 5000] {
        let before = facts(&path)?;
        scene.tick();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; size], 0)?;
        let after = facts(&path)?;
        holds(format!("mtime is later after {size} bytes"), after.mtime > before.mtime)?;
        holds(format!("ctime is later after {size} bytes"), after.ctime > before.ctime)?;
    }
    Ok(())
}

fn read_leaves_mtime_and_ctime(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let before = facts(&path)?;
    scene.tick();
    let mut text = Vec::new();
    std::fs::File::open(&path)?.read_to_end(&mut text)?;
    let after = facts(&path)?;
    equal("mtime and ctime", (after.mtime, after.ctime), (before.mtime, before.ctime))?;
    holds("atime goes forward or stays", after.atime >= before.atime)
}

fn write_of_nothing_changes_nothing(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let file = scene.open(&path)?;
    let before = facts(&path)?;
    scene.tick();
    equal("bytes", works("writing nothing", rustix::io::pwrite(&file, &[], 2))?, 0)?;
    equal("the file", facts(&path)?, before)
}

fn survive_being_forgotten(scene: &Scene) -> Outcome {
    let path = scene.file_of("file", b"text")?;
    let dir = scene.dir("dir")?;
    for path in [&path, &dir] {
        works("utimensat", set(path, time(1_111, 222_222_222), time(3_333, 444_444_444)))?;
    }
    let before = (facts(&path)?, facts(&dir)?);
    rustix::fs::syncfs(std::fs::File::open(scene.root())?)?;
    if std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
        return skip("needs root, to let the kernel forget");
    }
    equal("file and directory", (facts(&path)?, facts(&dir)?), before)
}

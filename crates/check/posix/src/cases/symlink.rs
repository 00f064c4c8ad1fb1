//! Symbolic links: their text, their length, chains of them.

use crate::cases;
use crate::scene::{
    ALICE, Outcome, STAFF, Scene, as_user, equal, facts, holds, plain, refuses, same_bytes, works,
};
use rustix::fs::FileType;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

cases! {
    "symlink":
        keeps_its_text,
        text_of_4095_bytes,
        text_of_4096_bytes_is_refused,
        empty_text_is_refused,
        keeps_bytes_outside_utf8,
        has_its_length_as_size,
        belongs_to_its_maker,
        changes_the_directory_s_times,
        chain_of_forty_is_followed,
        absolute_and_relative_targets,
        readlink_of_other_kinds_is_refused,
        readlink_cuts_at_the_buffer;
}

fn text_of(scene: &Scene, name: &str) -> anyhow::Result<Vec<u8>> {
    let text = rustix::fs::readlink(scene.path(name), Vec::new());
    Ok(works(format!("readlink of {name}"), text)?.into_bytes())
}

fn keeps_its_text(scene: &Scene) -> Outcome {
    for (number, text) in ["x", "../a//b/", "/", " ", "a\nb", "%s"].iter().enumerate() {
        let name = format!("{number}");
        scene.symlink(text, &name)?;
        same_bytes("text", &text_of(scene, &name)?, text.as_bytes())?;
    }
    // Short texts may lie in an inode and long ones in a block: every length around the usual borders.
    for len in [1, 30, 59, 60, 61, 127, 128, 255, 256, 511, 512, 1000, 1023] {
        let text = "abcdefghij".repeat(len / 10 + 1);
        let name = format!("length-{len}");
        scene.symlink(&text[..len], &name)?;
        same_bytes("text", &text_of(scene, &name)?, &text.as_bytes()[..len])?;
    }
    Ok(())
}

fn text_of_4095_bytes(scene: &Scene) -> Outcome {
    let text = "a/".repeat(2047) + "b";
    for len in [1024, 1025, 4000, 4094, 4095] {
        let name = format!("length-{len}");
        let made = rustix::fs::symlink(&text[..len], scene.path(&name));
        works(format!("symlink with {len} bytes"), made)?;
        same_bytes("text", &text_of(scene, &name)?, &text.as_bytes()[..len])?;
        equal("size", facts(&scene.path(&name))?.size, len as u64)?;
    }
    Ok(())
}

fn text_of_4096_bytes_is_refused(scene: &Scene) -> Outcome {
    let text = "a/".repeat(2048);
    let got = rustix::fs::symlink(&text, scene.path("link"));
    refuses("symlink with 4096 bytes", got, Errno::NAMETOOLONG)?;
    holds("nothing was made", scene.path("link").symlink_metadata().is_err())
}

fn empty_text_is_refused(scene: &Scene) -> Outcome {
    refuses("symlink with no text", rustix::fs::symlink("", scene.path("link")), Errno::NOENT)
}

fn keeps_bytes_outside_utf8(scene: &Scene) -> Outcome {
    let text: Vec<u8> = (1..=255).collect();
    scene.symlink(OsStr::from_bytes(&text), "link")?;
    same_bytes("text", &text_of(scene, "link")?, &text)
}

fn has_its_length_as_size(scene: &Scene) -> Outcome {
    let link = scene.symlink("twelve bytes", "link")?;
    let found = facts(&link)?;
    equal("type", FileType::from_raw_mode(found.mode), FileType::Symlink)?;
    equal("size and links", (found.size, found.nlink), (12, 1))?;
    equal("permissions", found.permissions(), 0o777)
}

fn belongs_to_its_maker(scene: &Scene) -> Outcome {
    scene.set_mode(scene.root(), 0o777)?;
    let path = scene.path("link");
    works("symlink", as_user(ALICE, &[STAFF], || rustix::fs::symlink("text", &path))?)?;
    let found = facts(&path)?;
    equal("owners", (found.uid, found.gid), (ALICE, STAFF))
}

fn changes_the_directory_s_times(scene: &Scene) -> Outcome {
    let before = facts(scene.root())?;
    scene.tick();
    scene.symlink("text", "link")?;
    let after = facts(scene.root())?;
    holds("mtime is later", after.mtime > before.mtime)?;
    holds("ctime is later", after.ctime > before.ctime)
}

fn chain_of_forty_is_followed(scene: &Scene) -> Outcome {
    // path_resolution(7): 40 links in one resolution, no more.
    scene.file_of("0", b"text")?;
    for number in 1..=41 {
        scene.symlink(format!("{}", number - 1), format!("{number}"))?;
    }
    let read = |name| plain(std::fs::read(scene.path(name)));
    equal("by 40 links", works("reading", read("40"))?, b"text".to_vec())?;
    refuses("reading by 41 links", read("41"), Errno::LOOP)
}

fn absolute_and_relative_targets(scene: &Scene) -> Outcome {
    scene.dir("dir")?;
    let file = scene.file_of("file", b"text")?;
    let up = scene.symlink("../file", "dir/up")?;
    let absolute = scene.symlink(&file, "dir/absolute")?;
    let dir = scene.symlink("dir", "to-dir")?;
    for path in [up, absolute, dir.join("up"), dir.join("absolute")] {
        let got = works(path.display(), plain(std::fs::read(&path)))?;
        equal("what it leads to", got, b"text".to_vec())?;
    }
    Ok(())
}

fn readlink_of_other_kinds_is_refused(scene: &Scene) -> Outcome {
    for kind in scene.kinds().into_iter().filter(|kind| *kind != crate::scene::Kind::Symlink) {
        let path = scene.make(kind, format!("{kind:?}"))?;
        let got = rustix::fs::readlink(&path, Vec::new());
        refuses(format!("readlink of a {kind:?}"), got, Errno::INVAL)?;
    }
    Ok(())
}

fn readlink_cuts_at_the_buffer(scene: &Scene) -> Outcome {
    let path = scene.symlink("twelve bytes", "link")?;
    let mut buffer = [0_u8; 5];
    let got = rustix::fs::readlinkat_raw(rustix::fs::CWD, &path, &mut buffer[..]);
    equal("bytes", works("readlink into 5 bytes", got)?, 5)?;
    same_bytes("text", &buffer, b"twelv")
}

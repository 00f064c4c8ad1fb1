//! `braid volume salvage`: files off bricks that are missing, of another time, or damaged.

use crate::checksums::rot;
use crate::support::Place;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const BRICK: u64 = 64 << 20;
const BRICKS: [&str; 3] = ["a", "b", "c"];
/// Bytes of a stripe.
const STRIPE: usize = 16 << 10;

/// A volume of three bricks with a tree, which is not mounted any more; and the tree's files.
struct Filled {
    place: Place,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

fn content(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at + seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl Filled {
    /// `None` where nothing can be mounted.
    fn new() -> Option<Filled> {
        Filled::with("")
    }

    /// The same, of a volume that is made with these options.
    fn with(options: &str) -> Option<Filled> {
        let can = rustix::process::geteuid().is_root()
            && File::options().read(true).write(true).open("/dev/fuse").is_ok();
        if !can {
            assert!(!rustix::process::geteuid().is_root(), "mounting needs /dev/fuse");
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let place = Place::new();
        for brick in BRICKS {
            File::create_new(place.path(brick)).unwrap().set_len(BRICK).unwrap();
        }
        fs::create_dir(place.path("mnt")).unwrap();
        place.run(&format!("volume create pool a b c --stripe 16K --metadata 4M {options}")).ok();
        place.run("volume mount pool mnt").ok();
        let mut files = BTreeMap::new();
        for folder in 0..4 {
            for nr in 0..40 {
                let name = PathBuf::from(format!("folder{folder}/below/file{nr}"));
                let bytes = content(folder * 100 + nr, nr * nr * 97 + nr);
                let path = place.path("mnt").join(&name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &bytes).unwrap();
                files.insert(name, bytes);
            }
        }
        let top = place.path("mnt");
        // With a hole, and more than one stripe on each brick.
        let mut sparse = vec![0; 40 * STRIPE];
        sparse[30 * STRIPE..].copy_from_slice(&content(7, 10 * STRIPE));
        let file = File::create_new(top.join("sparse")).unwrap();
        file.set_len(sparse.len() as u64).unwrap();
        file.write_all_at(&sparse[30 * STRIPE..], 30 * STRIPE as u64).unwrap();
        drop(file);
        files.insert("sparse".into(), sparse);
        fs::hard_link(top.join("sparse"), top.join("folder0/same")).unwrap();
        files.insert("folder0/same".into(), files[Path::new("sparse")].clone());
        symlink("../elsewhere", top.join("folder1/link")).unwrap();
        fs::set_permissions(top.join("folder2"), fs::Permissions::from_mode(0o750)).unwrap();
        rustix::fs::setxattr(
            top.join("sparse"),
            "user.colour",
            b"blue",
            rustix::fs::XattrFlags::empty(),
        )
        .unwrap();
        place.run("volume unmount pool").ok();
        Some(Filled { place, files })
    }

    /// The volume is mounted without a brick for a while, and gets a file more.
    fn change_without(&mut self, brick: &str) {
        let rest: Vec<&str> = BRICKS.into_iter().filter(|one| *one != brick).collect();
        self.place.run(&format!("volume mount pool mnt {} --degraded", rest.join(" "))).ok();
        fs::write(self.place.path("mnt/new"), content(1, 100_000)).unwrap();
        self.place.run("volume unmount pool").ok();
        self.files.insert("new".into(), content(1, 100_000));
    }

    /// Salvages from these bricks; gives the exit code and what was said.
    fn salvage(&self, bricks: &str, into: &str) -> (i32, serde_json::Value) {
        let ran = self.place.run(&format!("volume salvage {bricks} --into {into} --json"));
        assert!(ran.code < 2, "{}", ran.err);
        (ran.code, serde_json::from_str(&ran.out).unwrap())
    }

    /// Those of the files that are whole, each of which has its right bytes.
    fn whole(&self, into: &str) -> usize {
        let path = |name: &Path| self.place.path(into).join("files").join(name);
        let mut whole = 0;
        for (name, bytes) in &self.files {
            if let Ok(found) = fs::read(path(name)) {
                assert!(found == *bytes, "{}: other bytes", name.display());
                whole += 1;
            }
        }
        whole
    }

    /// The metadata region of a brick: where it begins, and its bytes.
    fn region(&self, brick: &str) -> (u64, u64) {
        let said = self.place.run(&format!("volume examine {brick} --json")).ok();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let number = |name: &str| said[0][name].as_u64().unwrap();
        (number("metadata_offset"), number("metadata_size"))
    }
}

#[test]
fn all_files_are_copied_off_whole_bricks_with_what_belongs_to_them() {
    let Some(filled) = Filled::new() else { return };
    let before: Vec<Vec<u8>> =
        BRICKS.iter().map(|name| fs::read(filled.place.path(name)).unwrap()).collect();
    let (code, said) = filled.salvage("c a b", "out");
    assert_eq!((code, &said["lost"]), (0, &serde_json::json!([])), "{said}");
    assert_eq!(filled.whole("out"), filled.files.len());
    let top = filled.place.path("out").join("files");
    let one = fs::metadata(top.join("sparse")).unwrap();
    assert_eq!(one.ino(), fs::metadata(top.join("folder0/same")).unwrap().ino());
    assert_eq!(fs::read_link(top.join("folder1/link")).unwrap(), Path::new("../elsewhere"));
    assert_eq!(fs::metadata(top.join("folder2")).unwrap().mode() & 0o7777, 0o750);
    let mut colour = [0; 10];
    let bytes = rustix::fs::getxattr(top.join("sparse"), "user.colour", &mut colour).unwrap();
    assert_eq!(&colour[..bytes], b"blue");
    assert!(!filled.place.path("out").join("lost.txt").exists());
    for (name, before) in BRICKS.iter().zip(before) {
        assert!(fs::read(filled.place.path(name)).unwrap() == before, "{name} was written to");
    }
    // Into a folder that has something, or from what is no brick.
    filled.place.run("volume salvage a b c --into out").refused(2, &["not empty"]);
    filled.place.run("volume salvage out --into other").refused(2, &["none of the devices"]);
    // A volume is as it was.
    filled.place.run("volume mount pool mnt").ok();
    filled.place.run("volume unmount pool").ok();
}

#[test]
fn of_a_volume_that_is_mounted_nothing_is_copied() {
    let Some(filled) = Filled::new() else { return };
    filled.place.run("volume mount pool mnt").ok();
    let words =
        ["salvaging volume pool", "is mounted at", "/mnt; `braid volume unmount pool` first"];
    filled.place.run("volume salvage a b c --into out").refused(2, &words);
    assert!(!filled.place.path("out").exists());
    // The server is asked at its socket; the locks of the bricks say it all the same.
    let other = ["a is in use", "another control socket", "unmount it there first"];
    filled.place.run("volume salvage a --into out --control none.sock").refused(2, &other);
    filled.place.run("volume unmount pool").ok();
    filled.salvage("a b c", "out");
}

#[test]
fn without_a_brick_what_it_had_is_lost_and_nothing_else() {
    let Some(filled) = Filled::new() else { return };
    for (bricks, into) in [("a b", "ab"), ("a c", "ac"), ("a", "one"), ("c", "last")] {
        let (code, said) = filled.salvage(bricks, into);
        assert_eq!(code, 1, "{said}");
        let whole = filled.whole(into);
        assert!(whole > 0 && whole < filled.files.len(), "{whole}");
        let incomplete = said["incomplete"].as_u64().unwrap();
        // Two names of one file.
        let files = said["files"].as_u64().unwrap();
        assert_eq!(files + incomplete, filled.files.len() as u64 - 1);
        let text = fs::read_to_string(filled.place.path(into).join("lost.txt")).unwrap();
        assert!(text.lines().all(|line| line.contains("is not there")), "{text}");
    }
    // Of four bricks the last has no metadata.
    for brick in ["d", "e", "f", "g"] {
        File::create_new(filled.place.path(brick)).unwrap().set_len(BRICK).unwrap();
    }
    filled.place.run("volume create other d e f g --metadata 4M").ok();
    filled.place.run("volume salvage g --into none").refused(2, &["copy of the metadata"]);
}

#[test]
fn of_three_copies_of_the_metadata_one_is_enough() {
    let Some(filled) = Filled::new() else { return };
    for left in BRICKS {
        let damaged = BRICKS.into_iter().filter(|brick| *brick != left);
        let kept: Vec<(&str, Vec<u8>)> =
            damaged.map(|brick| (brick, fs::read(filled.place.path(brick)).unwrap())).collect();
        for (brick, _) in &kept {
            let (at, bytes) = filled.region(brick);
            let file = File::options().write(true).open(filled.place.path(brick)).unwrap();
            file.write_all_at(&vec![0x5a; bytes as usize], at).unwrap();
        }
        let into = format!("only-{left}");
        let (code, said) = filled.salvage("a b c", &into);
        assert_eq!(code, 0, "{said}");
        assert_eq!(filled.whole(&into), filled.files.len());
        for (brick, bytes) in kept {
            fs::write(filled.place.path(brick), bytes).unwrap();
        }
    }
}

#[test]
fn without_checksums_what_an_old_brick_has_is_copied_apart_and_said_to_be_doubtful() {
    let Some(mut filled) = Filled::with("--checksums off") else { return };
    filled.change_without("c");
    let (code, said) = filled.salvage("a b c", "out");
    assert_eq!(code, 1, "{said}");
    let whole = filled.whole("out");
    assert!(whole > 0 && whole < filled.files.len(), "{whole}");
    assert!(filled.place.path("out/files/new").exists());
    let text = fs::read_to_string(filled.place.path("out/lost.txt")).unwrap();
    assert!(text.lines().all(|line| line.contains("it may be old")), "{text}");
    // Nothing was changed there, so that they have their bytes all the same.
    for (name, bytes) in &filled.files {
        let apart = filled.place.path("out/incomplete/files").join(name);
        if let Ok(found) = fs::read(&apart) {
            assert!(found == *bytes, "{}", apart.display());
        }
    }
}

#[test]
fn what_an_old_brick_has_is_whole_when_its_checksums_say_so() {
    let Some(mut filled) = Filled::new() else { return };
    filled.change_without("c");
    let (code, said) = filled.salvage("a b c", "out");
    assert_eq!((code, &said["lost"]), (0, &serde_json::json!([])), "{said}");
    assert!(said["notes"].to_string().contains("it missed changes"), "{said}");
    assert_eq!(filled.whole("out"), filled.files.len());
}

#[test]
fn rot_is_copied_as_it_is_and_named() {
    let Some(filled) = Filled::new() else { return };
    let (block, mark) = (9 * 4096, b"a mark that is only here");
    let mut wanted = content(5, 100_000);
    wanted[block + 1000..block + 1024].copy_from_slice(mark);
    filled.place.run("volume mount pool mnt").ok();
    fs::write(filled.place.path("mnt/folder3/marked"), &wanted).unwrap();
    filled.place.run("volume unmount pool").ok();
    let rotten: usize = BRICKS.iter().map(|brick| rot(&filled.place.path(brick), mark)).sum();
    assert_eq!(rotten, 1);
    let (code, said) = filled.salvage("a b c", "out");
    assert_eq!((code, &said["incomplete"]), (1, &serde_json::json!(1)), "{said}");
    let named = serde_json::json!([{ "file": "files/folder3/marked", "ranges": [[block, 4096]] }]);
    assert_eq!(said["rotten"], named);
    let text = fs::read_to_string(filled.place.path("out/lost.txt")).unwrap();
    let line = format!(
        "files/folder3/marked: bytes {block}+4096: not what was written, as their checksum says\n"
    );
    assert_eq!(text, line);
    assert_eq!(filled.whole("out"), filled.files.len());
    let found = fs::read(filled.place.path("out/incomplete/files/folder3/marked")).unwrap();
    let differ: Vec<usize> = (0..wanted.len()).filter(|at| wanted[*at] != found[*at]).collect();
    assert_eq!((found.len(), differ), (wanted.len(), vec![block + 1000]));
    let ran = filled.place.run("volume salvage a b c --into other");
    assert!(ran.out.contains("1 incomplete, of them 1 not as written"), "{}", ran.out);
}

/// The same blocks of both copies: what is whole is right, and what is lost is said. In builds with assertions the database looks
/// at all of itself when it is opened, so there a damaged page that is in use keeps it from that.
#[test]
fn damaged_metadata_gives_what_is_left_and_says_what_is_not() {
    let Some(filled) = Filled::new() else { return };
    let mut opened = 0;
    for seed in 0..12u64 {
        let kept: Vec<Vec<u8>> =
            ["a", "b"].iter().map(|name| fs::read(filled.place.path(name)).unwrap()).collect();
        let block = 8 + seed * 13;
        for brick in ["a", "b"] {
            let (at, bytes) = filled.region(brick);
            assert!(block * 4096 < bytes);
            let file = File::options().write(true).open(filled.place.path(brick)).unwrap();
            file.write_all_at(&content(seed as usize, 4096), at + block * 4096).unwrap();
        }
        let into = format!("out{seed}");
        let ran = filled.place.run(&format!("volume salvage a b c --into {into} --json"));
        // The database may panic of what it finds, on a thread where that is caught and told.
        assert!((0..=2).contains(&ran.code), "{}", ran.err);
        let whole = filled.whole(&into);
        match ran.code {
            0 => assert_eq!(whole, filled.files.len(), "block {block}: {}", ran.out),
            1 => assert!(filled.place.path(&into).join("lost.txt").exists()),
            _ => assert!(ran.err.contains("can be opened"), "{}", ran.err),
        }
        opened += u32::from(ran.code < 2);
        for (name, bytes) in ["a", "b"].iter().zip(kept) {
            fs::write(filled.place.path(name), bytes).unwrap();
        }
    }
    assert!(opened > 0);
}

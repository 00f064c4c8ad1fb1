//! `braid volume salvage --snapshots`: what snapshots show, off bricks that are whole, missing, rotten or damaged.

use crate::checksums::rot;
use crate::snapshots::{Seen, assert_same, change, fill, sync, tree};
use crate::volumes::Scene;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where snapshots are in the folder that is salvaged to, and what each shows.
const PLACES: [&str; 4] =
    [".snapshots/all/home", "home/.snapshots/one", "home/.snapshots/two", ".snapshots/later/home"];
const MARK: &[u8] = b"a mark that only the first snapshots have";

type Tree = BTreeMap<String, Seen>;

/// A volume that is not mounted any more, with what its snapshots show at [`PLACES`], and what is there now.
struct Saved {
    scene: Scene,
    shown: Vec<Tree>,
    now: Tree,
}

impl Saved {
    fn new(options: &str) -> Option<Saved> {
        let scene = Scene::new(&["a", "b", "c"])?;
        scene.run(&format!("create pool a b c --stripe 16K --metadata 4M {options}")).ok();
        scene.run("mount pool mnt").ok();
        let home = scene.file("home");
        fill(&home);
        let mut marked = vec![7; 30_000];
        marked[20_000..20_000 + MARK.len()].copy_from_slice(MARK);
        fs::write(home.join("marked"), &marked).unwrap();
        sync(&home);
        let first = tree(&home);
        scene.run("snapshot mnt all").ok();
        scene.run("snapshot mnt/home one").ok();
        change(&home, 1);
        fs::write(home.join("marked"), vec![8; 30_000]).unwrap();
        sync(&home);
        let second = tree(&home);
        scene.run("snapshot mnt/home two").ok();
        change(&home, 2);
        sync(&home);
        let third = tree(&home);
        scene.run("snapshot mnt later").ok();
        change(&home, 3);
        fs::remove_file(home.join("marked")).unwrap();
        sync(&home);
        let now = tree(&home);
        let whole = PLACES.map(|place| tree(&scene.file(place)));
        let shown = vec![first, tree(&scene.file(PLACES[1])), second, third];
        for (one, other) in whole.iter().zip(&shown) {
            assert_same(one, other);
        }
        assert_same(&shown[1], &shown[0]);
        scene.unmount("pool");
        Some(Saved { scene, shown, now })
    }

    /// Salvages from these bricks; gives the exit code and what was said.
    fn salvage(&self, bricks: &str, into: &str) -> (i32, serde_json::Value) {
        let ran = self.scene.run(&format!("salvage {bricks} --into {into} --snapshots --json"));
        assert!(ran.code < 2, "{}", ran.err);
        (ran.code, serde_json::from_str(&ran.out).unwrap())
    }

    /// Of what snapshots show the files that are whole in a folder, which have their right bytes; and how many there could be.
    fn whole(&self, into: &str) -> (usize, usize) {
        let (mut whole, mut all) = (0, 0);
        for (place, shown) in PLACES.iter().zip(&self.shown) {
            let top = self.scene.place.path(into).join("files").join(place);
            for (name, seen) in shown {
                let path = top.join(name);
                all += 1;
                match fs::symlink_metadata(&path) {
                    Ok(stat) if stat.is_file() => {
                        assert!(fs::read(&path).unwrap() == seen.content, "{}", path.display());
                        whole += 1;
                    }
                    Ok(_) => whole += 1,
                    Err(_) => {}
                }
            }
        }
        (whole, all)
    }
}

#[test]
fn all_that_snapshots_show_is_copied_off_whole_bricks() {
    let Some(saved) = Saved::new("") else { return };
    let (code, said) = saved.salvage("c a b", "out");
    assert_eq!((code, &said["lost"]), (0, &serde_json::json!([])), "{said}");
    assert_eq!(said["snapshots"], 4);
    let top = saved.scene.place.path("out/files");
    for (place, shown) in PLACES.iter().zip(&saved.shown) {
        assert_same(&tree(&top.join(place)), shown);
    }
    let mut now = tree(&top.join("home"));
    now.retain(|name, _| !name.starts_with(".snapshots"));
    assert_same(&now, &saved.now);
    // Nothing of them without being asked.
    let ran = saved.scene.run("salvage a b c --into plain");
    let said = ran.ok();
    assert!(said.contains("4 snapshots not copied: --snapshots"), "{said}");
    assert!(!saved.scene.place.path("plain/files/.snapshots").exists());
    assert_same(&tree(&saved.scene.place.path("plain/files/home")), &saved.now);
}

#[test]
fn without_a_brick_what_snapshots_had_there_is_lost_and_nothing_else() {
    let Some(saved) = Saved::new("") else { return };
    for (bricks, into) in [("a b", "ab"), ("b c", "bc"), ("a", "one")] {
        let (code, said) = saved.salvage(bricks, into);
        assert_eq!((code, &said["snapshots"]), (1, &4.into()), "{said}");
        let (whole, all) = saved.whole(into);
        assert!(whole > 0 && whole < all, "{whole} of {all}");
        let text = fs::read_to_string(saved.scene.place.path(into).join("lost.txt")).unwrap();
        assert!(text.lines().all(|line| line.contains("is not there")), "{text}");
        assert!(text.contains("files/home/.snapshots/one/large: bytes"), "{text}");
    }
}

#[test]
fn rot_that_only_snapshots_have_is_named() {
    let Some(saved) = Saved::new("") else { return };
    let bricks = ["a", "b", "c"].map(|brick| saved.scene.place.path(brick));
    let rotten: usize = bricks.iter().map(|brick| rot(brick, MARK)).sum();
    assert_eq!(rotten, 1);
    let (code, said) = saved.salvage("a b c", "out");
    assert_eq!(code, 1, "{said}");
    let named = |place: &str| {
        let ranges = [[20_000 / 4096 * 4096, 4096]];
        serde_json::json!({ "file": format!("files/{place}/marked"), "ranges": ranges })
    };
    let found = said["rotten"].as_array().unwrap();
    assert_eq!(found.len(), 2, "{said}");
    assert!(found.contains(&named(PLACES[0])) && found.contains(&named(PLACES[1])), "{said}");
    let (whole, all) = saved.whole("out");
    assert_eq!(whole, all - 2);
    assert!(saved.scene.place.path("out/incomplete/files/home/.snapshots/one/marked").exists());
}

/// The same blocks of all copies of the metadata: what is given of a snapshot as whole is what it showed.
#[test]
fn of_damaged_metadata_nothing_wrong_is_given_for_a_snapshot() {
    let Some(saved) = Saved::new("--checksums off") else { return };
    let path = |brick: &str| saved.scene.place.path(brick);
    let regions = ["a", "b", "c"].map(|brick| {
        let said = saved.scene.run(&format!("examine {brick} --json")).ok();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        (path(brick), said[0]["metadata_offset"].as_u64())
    });
    let write = |path: &Path, at: u64, bytes: &[u8]| {
        File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
    };
    let mut opened = 0;
    for seed in 0..12u64 {
        let block = 8 + seed * 17;
        let mut kept = Vec::new();
        for (path, at) in regions.iter().filter_map(|(path, at)| Some((path, (*at)?))) {
            let mut bytes = vec![0; 4096];
            let at = at + block * 4096;
            File::open(path).unwrap().read_exact_at(&mut bytes, at).unwrap();
            write(path, at, &crate::volumes::bytes(4096, seed));
            kept.push((path, at, bytes));
        }
        assert!(!kept.is_empty());
        let into = format!("out{seed}");
        let ran = saved.scene.run(&format!("salvage a b c --into {into} --snapshots --json"));
        // The database may panic of what it finds, on a thread where that is caught and told.
        assert!((0..=2).contains(&ran.code), "{}", ran.err);
        let (whole, all) = saved.whole(&into);
        match ran.code {
            0 => assert_eq!(whole, all, "block {block}: {}", ran.out),
            1 => assert!(saved.scene.place.path(&into).join("lost.txt").exists()),
            _ => assert!(ran.err.contains("can be opened"), "{}", ran.err),
        }
        opened += u32::from(ran.code < 2);
        for (path, at, bytes) in kept {
            write(path, at, &bytes);
        }
    }
    assert!(opened > 0);
}

//! What a plan found is looked at again under the lock that is kept until it is made.

use super::*;
use crate::members::parse_all;
use clap::Parser;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

fn files(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..2).map(|nr| folder.path().join(format!("disk{nr}"))).collect();
    for path in &paths {
        braid_device::file::create_sparse(path, 8 * MIB).unwrap();
    }
    paths
}

fn shape() -> Shape {
    let words = "braid create data -l 1 -n 2 --assume-clean a b";
    let parsed = crate::cli::Cli::try_parse_from(words.split_whitespace()).unwrap();
    let crate::cli::Command::Create(create) = parsed.command else { panic!("create was typed") };
    create.shape
}

fn members(paths: &[PathBuf]) -> Vec<Option<Member>> {
    let texts: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    parse_all(&texts, true).unwrap()
}

fn contents(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

#[test]
fn of_two_that_create_at_once_the_second_is_told() {
    let shards = on_shard::start_shards(1).unwrap();
    let home = shards.remotes().first().unwrap();
    // Also when both insist: what the second one gave up was not this.
    for force in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (paths, shape) = (files(&folder), shape());
        let members = members(&paths);
        let wish = |name| Wish { name, shape: &shape, members: &members, flags: &[], force };
        let look = |wish: &Wish<'_>| look_at_all(home, wish, &mut |_| Ok(())).ok().unwrap();
        let create = |wish: &Wish<'_>, found| {
            let plan = lock(home, wish, create_options(wish).unwrap(), found).ok().unwrap();
            make(home, plan)
        };
        let (first, second) = (wish("first"), wish("second"));
        // Both look before either has locked anything.
        let (one, other) = (look(&first), look(&second));
        create(&first, one).unwrap();
        let before = contents(&paths);
        let error = format!("{:#}", create(&second, other).err().unwrap());
        assert!(error.contains("changed by somebody else"), "{error}");
        assert!(error.contains("disk0") && error.contains("first"), "{error}");
        assert!(contents(&paths) == before, "it was written to");
    }
}

#[test]
fn what_is_overwritten_is_what_is_locked() {
    let shards = on_shard::start_shards(1).unwrap();
    let home = shards.remotes().first().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (paths, shape) = (files(&folder), shape());
    // An ext4 magic number, outside of where the data will be.
    let mut bytes = contents(&paths)[0].clone();
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&paths[0], &bytes).unwrap();
    let members = members(&paths);
    let wish = Wish { name: "data", shape: &shape, members: &members, flags: &[], force: true };
    let plan = plan(home, &wish, &mut |_| Ok(())).ok().unwrap();
    let found = plan.found[0].signatures.clone();
    // Another file has the name by now.
    let moved = folder.path().join("moved");
    std::fs::rename(&paths[0], &moved).unwrap();
    std::fs::write(&paths[0], &bytes).unwrap();
    make(home, plan).unwrap();
    assert!(!found.is_empty());
    assert!(std::fs::read(&paths[0]).unwrap() == bytes, "the other file was written to");
    let made = std::fs::read(&moved).unwrap();
    assert_eq!(made[1080..1082], [0, 0]);
}

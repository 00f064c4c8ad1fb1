//! What becomes a brick is looked at again once it is locked.

use super::*;
use crate::cli::{Cli, Command, volume::Verb};
use clap::Parser;

#[test]
fn a_brick_that_changed_before_its_lock_is_refused() {
    let shards = on_shard::start_shards(1).unwrap();
    let home = shards.remotes().first().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("brick");
    braid_device::file::create_sparse(&path, 64 << 20).unwrap();
    let bricks = [path.display().to_string()];
    let words = ["braid", "volume", "create", "vol", bricks[0].as_str()];
    let Command::Volume(Verb::Create(create)) = Cli::try_parse_from(words).unwrap().command else {
        panic!("create was typed")
    };
    let members = parse_bricks(&bricks).unwrap();
    let mut prepared = prepare(home, "creating", members, false, &NoArrays).unwrap();
    // As if another had made an array on it after the look.
    let magic = 0xa92b_4efc_u32.to_le_bytes();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..4100].copy_from_slice(&magic);
    std::fs::write(&path, &bytes).unwrap();
    let kept = Kept::new(Some(folder.path()));
    let wish = Wish { name: "vol", bricks: &bricks, new: &create.new, dry_run: false };
    let error = format!("{:#}", super::create(home, &wish, &prepared, &kept).err().unwrap());
    assert!(error.contains("changed by somebody else"), "{error}");
    assert!(std::fs::read(&path).unwrap() == bytes, "it was written to");
    // What was found is what is there.
    prepared.before = vec![look(&prepared.bricks[0].0).unwrap()];
    super::create(home, &wish, &prepared, &kept).unwrap();
}

//! Kills in what is about files with two copies: their number is changed, rot is mended, a brick is lost for good or comes
//! back.

use super::begun::{Begun, Rotten};
use super::files::Files;
use super::server::Server;
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Of the blocks of files on a brick one of so many is garbled.
const ROT_EVERY: usize = 16;

/// Copies for a round, in turn.
fn wanted(number: u32) -> &'static str {
    if number.is_multiple_of(2) { "2" } else { "1" }
}

/// Gives all files a copy more, or takes it away.
pub fn change(server: &Server, number: u32) -> Result<Begun> {
    let lines = [vec!["copies", "pool", wanted(number), "--detach"]];
    Ok(Begun { commands: Some(server.give(&lines)), ..Begun::default() })
}

/// All files come to have what was asked for.
pub fn finish_change(server: &Server, number: u32) -> Result<()> {
    server.volume(&["copies", "pool", wanted(number)])?;
    whole(server)
}

/// Nothing is under way, and every file has the copies that it is to have, all of them as they were written.
pub fn whole(server: &Server) -> Result<()> {
    server.wait_until("all copies are there", |says| {
        says["incomplete"] != true && says["job"].is_null()
    })?;
    server.volume(&["scrub", "pool"])
}

/// Garbles blocks of the first files on one brick, and scrubs.
pub fn scrub(server: &Server, files: &Files) -> Result<Begun> {
    let words = files.first_words();
    let path = server.brick(0);
    let brick = File::options().read(true).write(true).open(&path).context(path)?;
    let (mut rotten, mut met, mut at) = (Vec::new(), 0usize, 0);
    let mut bytes = vec![0; 256 * BLOCK];
    // Holes are skipped.
    while let Ok(from) = rustix::fs::seek(&brick, rustix::fs::SeekFrom::Data(at)) {
        let start = from / BLOCK as u64 * BLOCK as u64;
        let len = brick.read_at(&mut bytes, start).context("reading a brick")?;
        for (block, at) in bytes[..len].chunks_exact(BLOCK).zip((start..).step_by(BLOCK)) {
            if !block.first_chunk().is_some_and(|word| words.contains(word)) {
                continue;
            }
            met += 1;
            if met.is_multiple_of(ROT_EVERY) {
                brick.write_all_at(&[0x5a; 512], at + 1024).context("garbling a block")?;
                rotten.push(Rotten { at, was: block.to_vec() });
            }
        }
        at = start + len.max(BLOCK) as u64;
    }
    ensure!(!rotten.is_empty(), "no block of a file was found on a brick");
    server.volume(&["scrub", "pool", "--detach"])?;
    Ok(Begun { rotten, ..Begun::default() })
}

/// A scrub mends what the one before the kill had not come to, and nothing of it is left.
pub fn finish_scrub(server: &Server, rotten: &[Rotten]) -> Result<()> {
    server.volume(&["scrub", "pool"])?;
    let path = server.brick(0);
    let brick = File::open(&path).context(path)?;
    let mut found = vec![0; BLOCK];
    for Rotten { at, was } in rotten {
        brick.read_exact_at(&mut found, *at).context("reading a brick")?;
        ensure!(found == *was, "the block at {at} of a brick was not mended");
    }
    Ok(())
}

/// Mounts the volume without a brick.
pub fn lose(server: &mut Server, brick: u32) -> Result<()> {
    server.end()?;
    fs::rename(server.brick(brick), server.away()).context("taking a brick away")?;
    server.mounted_with = vec!["--degraded"];
    server.mount()
}

/// The number of the brick that is away; a removed one is not given again. `None`: no brick is.
pub fn missing(server: &Server) -> Result<Option<String>> {
    let says = server.says()?;
    let bricks = says["bricks"].as_array().context("a volume without bricks")?;
    let away =
        |brick: &&serde_json::Value| brick["state"] != "data" && brick["state"] != "metadata-only";
    Ok(bricks.iter().find(away).map(|brick| brick["id"].to_string()))
}

/// A brick is lost, and removed: the others get what it had.
pub fn remove_lost(server: &mut Server, speed: &str) -> Result<Begun> {
    lose(server, 3)?;
    server.slow_down(speed)?;
    let brick = missing(server)?.context("no brick is missing")?;
    let lines = [vec!["remove", "pool", &brick, "--detach"]];
    Ok(Begun { commands: Some(server.give(&lines)), ..Begun::default() })
}

/// It is removed, and an empty one is added in its place.
pub fn finish_removal(server: &mut Server) -> Result<()> {
    if let Some(brick) = missing(server)? {
        server.volume(&["remove", "pool", &brick])?;
    }
    whole(server)?;
    fs::remove_file(server.away()).context("removing a brick that was lost")?;
    server.make_brick(3)?;
    server.mounted_with.clear();
    server.volume(&["add", "pool", &server.brick(3)])
}

/// A brick that has missed some files is taken back.
pub fn take_back(server: &mut Server, files: &Files, speed: &str) -> Result<Begun> {
    lose(server, 3)?;
    files.write_some_again()?;
    server.slow_down(speed)?;
    let (number, brick) = (missing(server)?.context("no brick is missing")?, server.brick(3));
    fs::rename(server.away(), &brick).context("bringing a brick back")?;
    server.mounted_with = vec!["--take-back"];
    let lines = [vec!["take-back", "pool", &number, "--device", &brick]];
    Ok(Begun { commands: Some(server.give(&lines)), ..Begun::default() })
}

/// It has what it missed.
pub fn finish_return(server: &mut Server) -> Result<()> {
    server.mounted_with.clear();
    whole(server)
}

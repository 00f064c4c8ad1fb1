//! Kills while a brick takes the place of another, which is there or lost, and while a volume with copies is balanced.

use super::begun::Begun;
use super::copies::{lose, missing, whole};
use super::server::Server;
use anyhow::{Context, Result, ensure};
use std::fs;

/// Bytes that a brick may have less of than the one before it: of files that were removed just before, or were being written
/// when the kill came. Were what lay there spread over all, it would be more.
const LESS_MAX: u64 = 8 << 20;

/// The brick that goes in a round, and the one that comes: the one that went in the round before.
fn pair(number: u32) -> (u32, u32) {
    (number % 4, (number + 3) % 4)
}

/// Bytes in use on the brick at `path`.
fn used(server: &Server, path: &str) -> Result<u64> {
    let says = server.says()?;
    let bricks = says["bricks"].as_array().context("a volume without bricks")?;
    let found = bricks.iter().find(|brick| brick["name"] == path);
    found.and_then(|brick| brick["used"].as_u64()).with_context(|| format!("no brick {path}"))
}

/// A brick is replaced.
pub fn replace(server: &Server, number: u32) -> Result<Begun> {
    let (old, new) = pair(number);
    let (old, new) = (server.brick(old), server.brick(new));
    let used = used(server, &old)?;
    let commands = Some(server.give(&[vec!["replace", "pool", &old, &new, "--detach"]]));
    Ok(Begun { commands, used, ..Begun::default() })
}

/// A brick that is lost is replaced.
pub fn replace_lost(server: &mut Server, number: u32, speed: &str) -> Result<Begun> {
    let (old, new) = pair(number);
    let (path, new) = (server.brick(old), server.brick(new));
    let used = used(server, &path)?;
    lose(server, old)?;
    server.slow_down(speed)?;
    let old = missing(server)?.context("no brick is missing")?;
    let commands = Some(server.give(&[vec!["replace", "pool", &old, &new, "--detach"]]));
    Ok(Begun { commands, used, ..Begun::default() })
}

/// Goes on with a replacement as the documentation says: by removing the old brick where the new one is there, else by
/// replacing it again. One whose command was `answered` has come to its end by itself.
fn go_on(server: &Server, old: Option<&str>, new: &str, answered: bool) -> Result<()> {
    if let Some(old) = old {
        ensure!(!answered, "the replacement of brick {old} was begun, and has not gone on");
        match server.has_brick(new)? {
            true => server.volume(&["remove", "pool", old])?,
            false => server.volume(&["replace", "pool", old, new, "--force"])?,
        }
    }
    whole(server)
}

/// The new brick has all that the old one had, and that is no brick of the volume any more.
fn is_replaced(server: &Server, number: u32, before: u64) -> Result<()> {
    let (old, new) = pair(number);
    let has = used(server, &server.brick(new))?;
    ensure!(
        has + LESS_MAX >= before,
        "{has} bytes are on the new brick, {before} were on the old one"
    );
    ensure!(!server.has_brick(&server.brick(old))?, "the brick that was replaced is still there");
    Ok(())
}

/// All is where it belongs.
fn is_balanced(server: &Server) -> Result<()> {
    ensure!(server.says()?["unbalanced"] == false, "stripes are elsewhere than they belong");
    Ok(())
}

/// All is on the new brick, and what the old one holds is needed no more.
pub fn finish(server: &Server, number: u32, before: u64, answered: bool) -> Result<()> {
    let (old, new) = pair(number);
    let path = server.brick(old);
    let there = server.has_brick(&path)?.then_some(path.as_str());
    go_on(server, there, &server.brick(new), answered)?;
    is_replaced(server, number, before)?;
    is_balanced(server)?;
    server.make_brick(old)?;
    whole(server)
}

/// All that the lost brick had is on the new one. What was written before that was there may be elsewhere than it belongs.
pub fn finish_lost(server: &mut Server, number: u32, before: u64, answered: bool) -> Result<()> {
    let (old, new) = pair(number);
    go_on(server, missing(server)?.as_deref(), &server.brick(new), answered)?;
    is_replaced(server, number, before)?;
    fs::remove_file(server.away()).context("removing a brick that was lost")?;
    server.mounted_with.clear();
    server.make_brick(old)
}

/// A weight is changed, and stripes of which there are two copies move accordingly.
pub fn balance(server: &Server, number: u32) -> Begun {
    // The others have a weight of 1.
    let (brick, weight) = (server.brick(0), (1 + number % 7).to_string());
    let change = vec!["weight", "pool", &brick, &weight, "--no-balance"];
    let commands = Some(server.give(&[change, vec!["balance", "pool", "--detach"]]));
    Begun { commands, ..Begun::default() }
}

/// All copies are where they belong; `answered` of the two commands were.
pub fn finish_balance(server: &Server, answered: usize) -> Result<()> {
    if answered < 2 && server.says()?["unbalanced"] == true {
        server.volume(&["balance", "pool"])?;
    }
    whole(server)?;
    is_balanced(server)
}

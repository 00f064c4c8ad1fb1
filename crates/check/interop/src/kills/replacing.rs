//! Kills while a brick takes the place of another, which is there or lost, and while a volume with copies is balanced.

use super::begun::Begun;
use super::copies::{lose, missing, whole};
use super::server::Server;
use anyhow::{Context, Result, ensure};
use std::fs;

/// The brick that goes in a round, and the one that comes: the one that went in the round before.
fn pair(number: u32) -> (u32, u32) {
    (number % 4, (number + 3) % 4)
}

/// A brick is replaced.
pub fn replace(server: &Server, number: u32) -> Begun {
    let (old, new) = pair(number);
    let (old, new) = (server.brick(old), server.brick(new));
    let commands = Some(server.give(&[vec!["replace", "pool", &old, &new, "--detach"]]));
    Begun { commands, ..Begun::default() }
}

/// A brick that is lost is replaced.
pub fn replace_lost(server: &mut Server, number: u32, speed: &str) -> Result<Begun> {
    let (old, new) = pair(number);
    lose(server, old)?;
    server.slow_down(speed)?;
    let (old, new) = (missing(server)?.context("no brick is missing")?, server.brick(new));
    let commands = Some(server.give(&[vec!["replace", "pool", &old, &new, "--detach"]]));
    Ok(Begun { commands, ..Begun::default() })
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

/// The new brick has what the old one had, which is no brick of the volume any more: of what all have at least half of what is due to
/// each. Were it spread over all, that would be a third.
fn is_replaced(server: &Server, number: u32) -> Result<()> {
    let (old, new) = pair(number);
    let (old, new) = (server.brick(old), server.brick(new));
    ensure!(!server.has_brick(&old)?, "the brick that was replaced is still there");
    let says = server.says()?;
    let bricks = says["bricks"].as_array().context("a volume without bricks")?;
    let used = |brick: &serde_json::Value| brick["used"].as_u64().unwrap_or(0);
    let all: u64 = bricks.iter().map(used).sum();
    let on_new = bricks.iter().find(|brick| brick["name"] == new.as_str()).map_or(0, used);
    ensure!(
        2 * on_new * bricks.len() as u64 >= all,
        "of {all} bytes {on_new} are on the brick that replaced another"
    );
    Ok(())
}

/// All is where it belongs.
fn is_balanced(server: &Server) -> Result<()> {
    ensure!(server.says()?["unbalanced"] == false, "stripes are elsewhere than they belong");
    Ok(())
}

/// All is on the new brick, and what the old one holds is needed no more.
pub fn finish(server: &Server, number: u32, answered: bool) -> Result<()> {
    let (old, new) = pair(number);
    let path = server.brick(old);
    let there = server.has_brick(&path)?.then_some(path.as_str());
    go_on(server, there, &server.brick(new), answered)?;
    is_replaced(server, number)?;
    is_balanced(server)?;
    server.make_brick(old)?;
    whole(server)
}

/// All that the lost brick had is on the new one. What was written before that was there may be elsewhere than it belongs.
pub fn finish_lost(server: &mut Server, number: u32, answered: bool) -> Result<()> {
    let (old, new) = pair(number);
    go_on(server, missing(server)?.as_deref(), &server.brick(new), answered)?;
    is_replaced(server, number)?;
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

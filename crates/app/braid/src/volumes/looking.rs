//! Bricks of a volume are looked for by a command that changes nothing.

use super::finding::find;
use super::kept;
use crate::members::parse_brick;
use crate::on_shard;
use crate::settings::kept::Kept;
use anyhow::{Context, Result, bail};

/// The outcome of a look.
pub enum Looked {
    /// So many bricks.
    There(usize),
    /// It lies on arrays of the server, which commands cannot look into.
    OnArrays,
}

/// Looks for the bricks of the volume `wanted`, a name or UUID, as its mount would.
///
/// # Errors
/// As [`find`]: a brick that was given is none of it, or there is none.
pub fn looked_for(wanted: &str, given: &[String], kept: &Kept) -> Result<Looked> {
    let noted = || kept::named(kept, wanted).into_iter().flat_map(|known| known.bricks).collect();
    let bricks: Vec<String> = if given.is_empty() { noted() } else { given.to_vec() };
    let is_array = |text: &String| parse_brick(text).is_ok_and(|member| member.array().is_some());
    if bricks.iter().any(is_array) {
        return Ok(Looked::OnArrays);
    }
    let shards = on_shard::start_shards(1)?;
    let home = shards.remotes().first().context("one shard was started")?;
    let array = |name: &str| bail!("array {name} is one of the server's");
    let found = find(home, wanted, given, kept, &array)?;
    Ok(Looked::There(found.bricks.len()))
}

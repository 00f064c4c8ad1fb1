//! Kills while snapshots are taken and removed: each shows the files of its moment, or there is none.

use super::begun::{Begun, Shown};
use super::files::{Files, Random};
use super::server::Server;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;

/// Snapshots that are taken in a life, at most.
const TAKEN: u32 = 12;
/// Snapshots that are removed in a life.
const REMOVED: u32 = 3;
/// Files of a snapshot that are read.
const READ: usize = 6;

/// The place of a snapshot.
fn place(server: &Server, name: &str) -> PathBuf {
    server.dir().join(".snapshots").join(name)
}

/// Takes snapshots, one after the other, while files are only added.
pub fn take_some(server: &Server, files: &Files, number: u32) -> Result<Begun> {
    let dir = server.dir().display().to_string();
    let shown = |nr: u32| Shown { name: format!("s{number}-{nr}"), files: files.durable() };
    let snapshots: Vec<Shown> = (0..TAKEN).map(shown).collect();
    let lines: Vec<Vec<&str>> =
        snapshots.iter().map(|one| vec!["snapshot", &dir, one.name.as_str()]).collect();
    Ok(Begun { commands: Some(server.give(&lines)), snapshots, ..Begun::default() })
}

/// A snapshot that is there shows its files as they were.
fn compare(server: &Server, files: &Files, one: &Shown, random: &mut Random) -> Result<()> {
    let compared = files.compare_in(&place(server, &one.name), &one.files, READ, random);
    compared.with_context(|| format!("in snapshot {}", one.name))
}

/// Those whose commands were answered are there, the next may be, and no other; each shows what was there before.
pub fn look_at_taken(
    server: &Server,
    files: &Files,
    snapshots: &[Shown],
    answered: usize,
    random: &mut Random,
) -> Result<()> {
    for (nr, one) in snapshots.iter().enumerate() {
        let is_there = fs::metadata(place(server, &one.name)).is_ok();
        ensure!(is_there || nr >= answered, "snapshot {} was taken, and is not there", one.name);
        ensure!(!is_there || nr <= answered, "snapshot {} is there untaken", one.name);
        if is_there {
            compare(server, files, one, random)?;
        }
    }
    Ok(())
}

/// Takes snapshots with changes between them, and removes them, from the oldest on.
pub fn remove_some(server: &Server, files: &mut Files, number: u32) -> Result<Begun> {
    let dir = server.dir().display().to_string();
    let mut snapshots = Vec::new();
    for nr in 0..REMOVED {
        files.add_some()?;
        let name = format!("r{number}-{nr}");
        server.volume(&["snapshot", &dir, &name])?;
        snapshots.push(Shown { name, files: files.durable() });
        files.remove_every_other()?;
    }
    let line = |one| vec!["snapshot", &dir, one, "--remove", "--yes"];
    let lines: Vec<Vec<&str>> = snapshots.iter().map(|one| line(one.name.as_str())).collect();
    Ok(Begun { commands: Some(server.give(&lines)), snapshots, ..Begun::default() })
}

/// Those whose removal was answered are gone, and those after the next are there, with what they showed.
pub fn look_at_left(
    server: &Server,
    files: &Files,
    snapshots: &[Shown],
    answered: usize,
    random: &mut Random,
) -> Result<()> {
    for (nr, one) in snapshots.iter().enumerate() {
        let is_there = fs::metadata(place(server, &one.name)).is_ok();
        ensure!(!is_there || nr >= answered, "snapshot {} was removed, and is there", one.name);
        ensure!(is_there || nr <= answered, "snapshot {} is gone", one.name);
        if is_there {
            compare(server, files, one, random)?;
        }
    }
    Ok(())
}

/// Removes all that there are, until nothing is held by them.
pub fn remove_all(server: &Server) -> Result<()> {
    let dir = server.dir().display().to_string();
    let there = server.dir().join(".snapshots");
    if there.exists() {
        // The folder goes with the last of them.
        let listed = fs::read_dir(&there).context("listing the snapshots")?;
        for entry in listed.collect::<Result<Vec<_>, _>>().context("listing the snapshots")? {
            let name = entry.file_name().to_string_lossy().into_owned();
            server.volume(&["snapshot", &dir, &name, "--remove", "--yes"])?;
        }
    }
    server.wait_until("all snapshots are gone", |says| {
        says["snapshots"] == 0 && says["snapshot_bytes"] == 0
    })
}

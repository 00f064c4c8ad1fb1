//! `braid volume migrate`: files go to one brick, as one job.

use super::asking::{brick_name, connect, file_name, volume_name};
use super::follow;
use crate::cli::volume::Migrate;
use anyhow::{Context, Result, bail};
use braid_control::protocol::volume::{FileName, VolumeJob};
use std::path::Path;
use std::process::ExitCode;

/// Files that one command may name: their paths have to fit into one request.
const FILES_MAX: usize = 10_000;

/// The files below a directory. Links are left where they are, and what they lead to.
fn below(folder: &Path, files: &mut Vec<FileName>) -> Result<()> {
    let doing = || format!("looking for files in {}", folder.display());
    for entry in std::fs::read_dir(folder).with_context(doing)? {
        let entry = entry.with_context(doing)?;
        let kind = entry.file_type().with_context(doing)?;
        let path = entry.path();
        if kind.is_dir() {
            below(&path, files)?;
        } else if kind.is_file() {
            let text = path.to_str();
            let text = text.with_context(|| format!("{}: its path is no text", path.display()))?;
            files.push(file_name(text)?);
        }
        if files.len() > FILES_MAX {
            bail!("more than {FILES_MAX} files: migrate folders one after the other");
        }
    }
    Ok(())
}

pub fn run(options: Migrate) -> Result<ExitCode> {
    let mut files = Vec::new();
    for typed in &options.files {
        match Path::new(typed).is_dir() {
            true => below(Path::new(typed), &mut files)?,
            false => files.push(file_name(typed)?),
        }
    }
    if files.is_empty() {
        bail!("there is no file in {}: nothing to migrate", options.files.join(", "));
    }
    let mut client = connect(&options.control)?;
    let job = VolumeJob::Migrate { files, brick: brick_name(&options.to) };
    follow::start(&mut client, &volume_name(&options.name), job, options.follow)
}

//! `braid volume …`: one file for each verb but those that only start a job (`whole`). What runs is in the server: these
//! ask it and show what it says.

mod add;
mod check;
mod create;
mod examine;
mod export;
mod follow;
mod host;
mod jobs;
mod list;
mod migrate;
mod mount;
mod pin;
mod proxy;
mod remove;
mod status;
mod unmount;
mod weight;

use crate::cli::Control;
use crate::cli::volume::{GrowMetadata, Verb, WholeVolume};
use crate::client::{Client, member_argument};
use crate::daemon::control_socket::default_path;
use crate::exit::Unreadable;
use crate::protocol::volume::{FileName, VolumeAnswer, VolumeJob, VolumeRequest};
use crate::protocol::{Answer, Request};
use anyhow::{Context, Result};
use braid_nbd::ExportUri;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs a verb.
///
/// # Errors
/// Whatever keeps it from being done.
pub fn run(verb: Verb) -> Result<ExitCode> {
    match verb {
        Verb::Create(options) => create::run(options),
        Verb::Mount(options) => mount::run(options),
        Verb::Unmount(options) => unmount::run(options),
        Verb::List(options) => list::run(&options),
        Verb::Status(options) => status::run(options),
        Verb::Examine(options) => examine::run(&options),
        Verb::Add(options) => add::run(options),
        Verb::Remove(options) => remove::run(options),
        Verb::Balance(options) => whole(options, VolumeJob::Balance),
        Verb::Weight(options) => weight::run(options),
        Verb::GrowMetadata(options) => grow_metadata(options),
        Verb::Migrate(options) => migrate::run(options),
        Verb::Pin(options) => pin::run(options, true),
        Verb::Unpin(options) => pin::run(options, false),
        Verb::Proxy(options) => proxy::run(options),
        Verb::Flush(options) => whole(options, VolumeJob::Flush),
        Verb::Defrag(options) => whole(options, VolumeJob::Defrag),
        Verb::Check(options) => check::run(options),
        Verb::Jobs(options) => jobs::run(options),
        Verb::Export(options) => export::run(options),
        Verb::Host(options) => host::run(&options),
    }
}

/// Starts a job that is about the whole volume: balance, flush, defrag.
fn whole(options: WholeVolume, job: VolumeJob) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    follow::start(&mut client, &volume_name(&options.name), job, options.follow)
}

/// `braid volume grow-metadata`: more room for metadata.
fn grow_metadata(options: GrowMetadata) -> Result<ExitCode> {
    let (volume, size) = (volume_name(&options.name), options.size);
    let mut client = connect(&options.control)?;
    let said = order(&mut client, VolumeRequest::GrowMetadata { volume, size })?;
    crate::commands::say_done(&said, options.json)
}

/// Where the server's socket is.
fn socket(control: &Control) -> PathBuf {
    control.control.clone().unwrap_or_else(default_path)
}

/// Connects to the server that has the volumes.
fn connect(control: &Control) -> Result<Client> {
    let path = socket(control);
    if !Client::is_listening(&path) {
        return Err(Unreadable(format!(
            "no volume is mounted: no server is running with the control socket {}; `braid volume mount NAME DIR` \
             starts one",
            path.display()
        ))
        .into());
    }
    Client::connect(&path)
}

fn about(request: VolumeRequest) -> Request {
    Request::Volume { request: Box::new(request) }
}

/// Asks for something to be done; gives the sentence that says what was.
fn order(client: &mut Client, request: VolumeRequest) -> Result<String> {
    client.order(&about(request))
}

fn ask(client: &mut Client, request: VolumeRequest) -> Result<VolumeAnswer> {
    match client.ask(&about(request))? {
        Answer::Volume { volume } => Ok(volume),
        other => Err(crate::client::unexpected(&other)),
    }
}

/// An answer about volumes that does not belong to the question.
fn unexpected(answer: VolumeAnswer) -> anyhow::Error {
    crate::client::unexpected(&Answer::Volume { volume: answer })
}

/// A file as the server shall look for it.
fn file_name(typed: &str) -> Result<FileName> {
    let path = Path::new(typed);
    let absolute = match path.canonicalize() {
        Ok(found) => found,
        Err(_) => std::path::absolute(path).with_context(|| format!("making {typed} absolute"))?,
    };
    let absolute = absolute
        .to_str()
        .with_context(|| format!("{typed}: its path is no text (UTF-8), which this needs"))?;
    Ok(FileName { typed: typed.to_string(), absolute: absolute.to_string() })
}

/// A volume as it was typed: a directory where one is mounted, made absolute, or a name.
fn volume_name(typed: &str) -> String {
    let path = Path::new(typed);
    if !typed.contains('/') && typed != "." {
        return typed.to_string();
    }
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    absolute.map_or_else(|_| typed.to_string(), |path| path.display().to_string())
}

/// A brick as it was typed: a path that is there made absolute, an NBD URI as bricks are called by it, else a number, a
/// UUID or a kind.
fn brick_name(typed: &str) -> String {
    if ExportUri::is_meant(typed) {
        return member_argument(typed).unwrap_or_else(|_| typed.to_string());
    }
    let path = Path::new(typed);
    match path.exists() {
        true => {
            std::path::absolute(path).map_or(typed.to_string(), |path| path.display().to_string())
        }
        false => typed.to_string(),
    }
}

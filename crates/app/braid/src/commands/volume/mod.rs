//! `braid volume …`: one file for each verb but those that only start a job (`whole`). What runs is in the server: these
//! ask it and show what it says.

mod add;
mod asking;
mod check;
mod copies;
mod create;
mod destroy;
mod examine;
mod export;
mod follow;
mod forget;
mod host;
mod jobs;
mod list;
mod migrate;
mod mount;
mod pin;
mod proxy;
mod quota;
mod remove;
mod rename;
mod replace;
mod salvage;
mod scrub;
mod snapshot;
mod status;
mod take_back;
mod unmount;
mod weight;

use crate::cli::volume::{GrowMetadata, Guard, Verb, WholeVolume};
use anyhow::{Context, Result};
use asking::{connect, order, volume_name};
use braid_control::protocol::volume::{VolumeJob, VolumeRequest};
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
        Verb::Forget(options) => forget::run(&options),
        Verb::Destroy(options) => destroy::run(options),
        Verb::Rename(options) => rename::run(options),
        Verb::List(options) => list::run(&options),
        Verb::Status(options) => status::run(options),
        Verb::Examine(options) => examine::run(&options),
        Verb::Salvage(options) => salvage::run(&options),
        Verb::Add(options) => add::run(options),
        Verb::Remove(options) => remove::run(options),
        Verb::Replace(options) => replace::run(options),
        Verb::Balance(options) => whole(options, VolumeJob::Balance),
        Verb::Weight(options) => weight::run(options),
        Verb::TakeBack(options) => take_back::run(&options),
        Verb::GrowMetadata(options) => grow_metadata(options),
        Verb::Migrate(options) => migrate::run(options),
        Verb::Pin(options) => pin::run(options, true),
        Verb::Unpin(options) => pin::run(options, false),
        Verb::Copies(options) => copies::run(&options),
        Verb::Snapshot(options) => snapshot::run(&options),
        Verb::Quota(options) => quota::run(&options),
        Verb::Proxy(options) => proxy::run(options),
        Verb::Flush(options) => whole(options, VolumeJob::Flush),
        Verb::Defrag(options) => whole(options, VolumeJob::Defrag),
        Verb::Check(options) => check::run(options),
        Verb::Scrub(options) => scrub::run(&options),
        Verb::Jobs(options) => jobs::run(options),
        Verb::Export(options) => export::run(options),
        Verb::Host(options) => host::run(&options),
        Verb::Guard(options) => guard(&options),
    }
}

/// Starts a job that is about the whole volume: balance, flush, defrag.
fn whole(options: WholeVolume, job: VolumeJob) -> Result<ExitCode> {
    let mut client = connect(&options.control)?;
    follow::start(&mut client, &volume_name(&options.name), job, options.follow)
}

/// Beside a mount, until its server ends it or was killed.
fn guard(options: &Guard) -> Result<ExitCode> {
    let Guard { server, thread, connection } = *options;
    braid_fuse::guard(server, thread, connection)
        .with_context(|| format!("guarding FUSE connection {connection} of process {server}"))?;
    Ok(ExitCode::SUCCESS)
}

/// `braid volume grow-metadata`: more room for metadata.
fn grow_metadata(options: GrowMetadata) -> Result<ExitCode> {
    let (volume, size) = (volume_name(&options.name), options.size);
    let mut client = connect(&options.control)?;
    let said = order(&mut client, VolumeRequest::GrowMetadata { volume, size })?;
    crate::commands::done::say_done(&said, options.json)
}

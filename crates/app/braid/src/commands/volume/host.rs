//! `braid volume host`, and `braid volume mount --foreground`: a server that has volumes and no arrays.

use crate::cli::lease::LeaseAt;
use crate::cli::volume::{Host, Mount};
use crate::daemon::control_socket::ControlSocket;
use crate::daemon::running::{Around, Running};
use crate::daemon::scrubs::Scrubs;
use crate::daemon::{End, memory_watch, signals, volumes};
use crate::hosts::Guard;
use crate::memory::Memory;
use crate::on_shard;
use crate::output;
use crate::settings::kept::Kept;
use crate::take_over::giving;
use anyhow::{Context, Result};
use braid_control::protocol::volume::VolumeRequest;
use braid_export::Doors;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// A server that was asked for nothing for so long was forgotten by who started it.
const FIRST_VOLUME_WITHIN: Duration = Duration::from_secs(60);

pub fn run(options: &Host) -> Result<ExitCode> {
    // Away from the terminal of the command that started it; where that was done, there is nothing to do.
    let _ = rustix::process::setsid();
    serve(&options.control.path(), options.state.state_dir.as_deref(), &options.lease, None)
}

/// Serves the volume of `mount` in this process.
pub fn foreground(options: &Mount, request: VolumeRequest) -> Result<ExitCode> {
    let (control, state) = (options.control.path(), options.state.state_dir.as_deref());
    serve(&control, state, &options.lease, Some(request))
}

fn serve(
    path: &Path,
    state: Option<&Path>,
    lease: &LeaseAt,
    first: Option<VolumeRequest>,
) -> Result<ExitCode> {
    let (send_end, ends) = mpsc::channel();
    signals::listen(send_end.clone())?;
    // Clients that wait for the socket are told why there is none.
    let lease = lease.begin()?;
    let socket = ControlSocket::bind(path, None)?;
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(1024);
    let shards = on_shard::start_shards(count)?;
    let (memory, kept) = (Memory::default(), Kept::new(state));
    let around = Around {
        remotes: shards.remotes().to_vec(),
        share_mounts: false,
        scrubs: Arc::new(Scrubs::new(kept.clone())),
        spares: Arc::default(),
        kept,
        memory_max: memory.for_caches(),
        guard: Guard::AUTO,
        lease: lease.clone(),
        door: socket.door(),
        given: Vec::new(),
        sought: None,
        resident: false,
    };
    let running =
        Running::new(Vec::new(), Vec::new(), Doors::default(), around, send_end, volumes::events);
    let served: Result<End> = (|| {
        memory_watch::start(&running, memory)?;
        let waits = first.is_none();
        if let Some(request) = first {
            output::line(running.volume_order(request)?)?;
        }
        socket.serve(running.handler())?;
        if waits {
            match ends.recv_timeout(FIRST_VOLUME_WITHIN) {
                Ok(End::TakeOver(place)) => refuse(&place),
                Ok(end) => return Ok(end),
                Err(RecvTimeoutError::Timeout) if !running.has_volumes() => {
                    return Ok(End::Stopped);
                }
                Err(_) => {}
            }
        }
        loop {
            match ends.recv().context("waiting for the end")? {
                End::TakeOver(place) => refuse(&place),
                end => return Ok(end),
            }
        }
    })();
    let left = running.stop_all()?;
    if let Some(lease) = lease {
        lease.end(left.well);
    }
    drop(socket);
    drop(shards);
    // Without arrays there is nobody to take over: a signal that asks for that is an end as well.
    if matches!(served?, End::Signal | End::Renew) {
        output::note("braid: stopped by a signal; all volumes are unmounted");
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse(place: &Path) {
    giving::refuse(place, "it serves volumes, which are mounted by it; unmount them first");
}

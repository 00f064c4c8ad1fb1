//! `braid serve`: the foreground server from its start to its orderly end.

mod read_only;
mod settings;

use crate::cli::{Serve, Shape};
use crate::creating::{Plan, Refusal, Wish, make, plan};
use crate::daemon::control_socket::{ControlSocket, default_path};
use crate::daemon::grouping::{Group, group};
use crate::daemon::layers::{layer, only};
use crate::daemon::running::{Around, Running};
use crate::daemon::{End, memory_watch, metrics, signals};
use crate::exit::FAILED;
use crate::members::parse_all;
use crate::memory::Memory;
use crate::on_shard;
use crate::output::{self, size};
use crate::settings::ArraySettings;
use crate::settings::kept::Kept;
use anyhow::{Context, Result};
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::assemble::salvage::Salvage;
use braid_array::options::AssembleOptions;
use braid_device::{Opener, Target};
use braid_nbd::serve::Server;
use braid_shard::mailbox::Remote;
use settings::Wanted;
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::{Arc, mpsc};

pub fn run(options: Serve) -> Result<ExitCode> {
    let (send_end, ends) = mpsc::channel();
    // From here on a signal is an orderly end, also while arrays are being assembled.
    signals::listen(send_end.clone())?;
    let socket =
        ControlSocket::bind(&options.control.control.clone().unwrap_or_else(default_path))?;
    let count = shard_count(options.shards);
    let shards = on_shard::start_shards(usize::from(count))?;
    let home = shards.remotes().first().context("at least one shard was started")?;
    let (memory, kept) = (Memory::default(), Kept::new(options.state.state_dir.as_deref()));
    let wanted = Wanted {
        kept: &kept,
        asked: &options.settings,
        shards: count,
        memory_max: memory.for_caches(),
    };
    let groups = match groups(home, &options, &wanted)? {
        Some(groups) => groups,
        None => return Ok(ExitCode::from(FAILED)),
    };
    // All before the first array is started, which writes.
    let groups = groups
        .into_iter()
        .map(|group| {
            Ok(Start { settings: wanted.of(&group)?, memory_max: wanted.memory_max, group })
        })
        .collect::<Result<Vec<Start>>>()?;
    let mut arrays: Vec<Arc<Array>> = Vec::new();
    let mut salvaged: Vec<Arc<Salvage>> = Vec::new();
    // Arrays that were started are stopped again when a later one cannot be.
    let started = if options.read_only {
        read_only::start_all(shards.remotes(), groups, &mut arrays, &mut salvaged)
    } else {
        start_all(shards.remotes(), groups, &options, &mut arrays)
    };
    let server = started.and_then(|below| {
        let running = arrays.iter().map(|array| Arc::clone(array) as Arc<dyn Target>);
        let looked_at = salvaged.iter().map(|array| Arc::clone(array) as Arc<dyn Target>);
        // What another array is made of is not for clients.
        let free = |target: &Arc<dyn Target>| !below.contains(&target.info().name);
        let targets = running.chain(looked_at).filter(free).collect();
        let limits = options.nbd_limits.limits();
        let (shards, addresses) = (shards.remotes(), &options.nbd);
        Ok(Arc::new(Server::start_within(&limits, shards, addresses, targets, None)?))
    });
    let around = Around {
        remotes: shards.remotes().to_vec(),
        kept,
        memory_max: memory.for_caches(),
        door: socket.door(),
    };
    let exporting = server.as_ref().ok().map(Arc::clone);
    let running = Running::new(arrays.clone(), salvaged.clone(), exporting, around, send_end);
    let served = server.and_then(|server| {
        memory_watch::start(&running, memory)?;
        socket.serve(running.handler())?;
        let metrics = options.metrics.metrics.as_ref();
        let metrics = metrics.map(|place| metrics::serve(place, &running)).transpose()?;
        for array in &arrays {
            announce(array, &server)?;
        }
        for array in &salvaged {
            read_only::announce(array, &server)?;
        }
        if let Some(metrics) = &metrics {
            output::line(format!("metrics: {}", metrics.place()))?;
        }
        output::line(format!("control socket: {}", socket.path().display()))?;
        let end = ends.recv().context("waiting for the end")?;
        drop(metrics);
        server.stop();
        Ok(end)
    });
    running.stop_all()?;
    drop(socket);
    drop(shards);
    if served? == End::Signal {
        let state =
            if options.read_only { "nothing was written" } else { "all arrays are marked clean" };
        output::note(format!("braid: stopped by a signal; {state}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// An array that is about to be started.
struct Start {
    group: Group,
    settings: ArraySettings,
    /// Bytes that its caches may take.
    memory_max: u64,
}

impl Start {
    fn options(&self) -> AssembleOptions {
        AssembleOptions {
            name: Some(self.group.name.clone()),
            uuid: Some(self.group.uuid),
            settings: self.settings.path,
            sync_speed: self.settings.sync_speed(),
            memory_max: self.memory_max,
            ..AssembleOptions::default()
        }
    }
}

fn shard_count(asked: Option<u16>) -> u16 {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(1024) as u16;
    asked.unwrap_or_else(cores)
}

/// The members of each array; `None` when they were refused and that has been said.
fn groups(home: &Remote, options: &Serve, wanted: &Wanted<'_>) -> Result<Option<Vec<Group>>> {
    let Some(name) = &options.create else {
        let groups = if options.read_only {
            read_only::groups(home, &options.members)?
        } else {
            let members = parse_all(&options.members, false)?;
            group(home, &members.into_iter().flatten().collect::<Vec<_>>())?
        };
        let (groups, notes) = layer(home, groups, options.stack)?;
        notes.iter().for_each(|note| output::note(format!("note: {note}")));
        return Ok(Some(match &options.uuid {
            Some(uuid) => only(groups, uuid)?,
            None => groups,
        }));
    };
    let shape = Shape::from(options.shape.clone());
    let wish = Wish {
        name: name.as_str(),
        shape: &shape,
        members: &parse_all(&options.members, true)?,
        flags: &[],
        force: options.force,
    };
    let plan: Plan = match plan(home, &wish, &mut output::line) {
        Ok(plan) => plan,
        Err(Refusal::Occupied(why)) => {
            output::note(format!("braid: {why}"));
            return Ok(None);
        }
        Err(Refusal::Other(error)) => return Err(error),
    };
    for warning in &plan.warnings {
        output::note(format!("warning: {warning}"));
    }
    plan.check(&ArraySettings::default().with(wanted.asked)?, wanted.shards, wanted.memory_max)?;
    let openers: Vec<Arc<dyn Opener>> = plan.openers().into_iter().flatten().collect();
    let created = make(home, plan)?;
    Ok(Some(vec![Group::new(created.uuid, name.to_string(), openers)]))
}

/// Starts the arrays in order; gives the names of those that are members of others.
fn start_all(
    remotes: &[Remote],
    starts: Vec<Start>,
    options: &Serve,
    arrays: &mut Vec<Arc<Array>>,
) -> Result<HashSet<String>> {
    let mut below = HashSet::new();
    for start in starts {
        for opener in &start.group.openers {
            for note in opener.notes() {
                output::note(format!("note: {note}"));
            }
        }
        let assemble_options = AssembleOptions {
            force: options.force,
            start_degraded: options.run || start.group.is_as_it_was_left(),
            ..start.options()
        };
        let remotes = remotes.to_vec();
        let home = remotes.first().context("at least one shard was started")?.clone();
        let (openers, as_member) = (start.group.openers, start.group.as_member);
        let array = on_shard::run(&home, move |shard| async move {
            assemble(&on_shard::context(&shard, &remotes), openers, assemble_options).await
        })??;
        if let Some(member) = as_member {
            member.started(Arc::clone(&array) as Arc<dyn Target>);
            below.insert(array.name().to_string());
        }
        arrays.push(array);
    }
    Ok(below)
}

fn announce(array: &Array, server: &Server) -> Result<()> {
    let info = array.info();
    let status = array.control(|control| async move { control.status().await });
    let state = status.as_ref().map(|status| status.state_line()).unwrap_or_default();
    output::line(format!(
        "array {}: {}, {}, {state}",
        array.name(),
        info.description,
        size::human(info.device.size)
    ))?;
    for line in status.iter().flat_map(|status| &status.left_out) {
        output::note(format!("left out of array {}: {line}", array.name()));
    }
    if server.offers(array.name()) {
        for address in server.addresses() {
            output::line(format!("  {}", address.uri(array.name())))?;
        }
    }
    Ok(())
}

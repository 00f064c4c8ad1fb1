//! `braid serve`: the foreground server from its start to its orderly end.

mod announce;
mod doors;
mod looking;
mod passed;
mod read_only;
mod settings;
mod start;
mod starting;

use crate::cli::Serve;
use crate::creating::{Plan, Refusal, Wish, make, plan};
use crate::daemon::control_socket::{ControlSocket, default_path};
use crate::daemon::grouping::{Group, Trouble, group};
use crate::daemon::layers::{layer, only};
use crate::daemon::running::{Around, Running};
use crate::daemon::scrubs::Scrubs;
use crate::daemon::smart_watch::Asking;
use crate::daemon::spares::Spares;
use crate::daemon::{
    End, memory_watch, metrics, scrub_watch, signals, smart_watch, spare_watch, volumes,
};
use crate::exit::{DEGRADED, FAILED};
use crate::md_view::MdView;
use crate::members::{Member, parse_all};
use crate::memory::Memory;
use crate::on_shard;
use crate::output;
use crate::settings::ArraySettings;
use crate::settings::kept::Kept;
use crate::wanted::array::Shape;
use announce::announce;
use anyhow::{Context, Result, anyhow};
use braid_array::salvage::Salvage;
use braid_device::{Opener, Target};
use braid_shard::mailbox::Remote;
use looking::{Looking, Sought};
use starting::{Begun, How, start_all};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The time that requests of clients get to be answered at the end.
const DRAIN_WAIT: Duration = Duration::from_secs(2);

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
    let scrubs = Arc::new(Scrubs::new(kept.clone()));
    let spares = Arc::new(Spares::default());
    let told = (Arc::clone(&scrubs), Arc::clone(&spares));
    let how = How::new(&options, kept.clone(), told, (count, memory.for_caches()));
    let Some(Given { groups, members, troubles }) = given(home, &options, &how)? else {
        return Ok(ExitCode::from(FAILED));
    };
    if groups.is_empty() || how.strict && !troubles.is_empty() {
        let left =
            if groups.is_empty() { "nothing to serve" } else { "nothing is started (--strict)" };
        output::note(format!("braid: {left}: braid examine MEMBER… shows what is on them"));
        return Ok(ExitCode::from(FAILED));
    }
    // All before the first array is started, which writes.
    let starts = how.starts(groups)?;
    let mut begun = Begun::default();
    let mut salvaged: Vec<Arc<Salvage>> = Vec::new();
    // Arrays that were started are stopped again when a later one cannot be.
    let started = if options.read_only {
        let all = shards.remotes();
        let below =
            read_only::start_all(all, (starts, options.force), &mut begun.arrays, &mut salvaged);
        below.map(|below| begun.below = below)
    } else {
        start_all(shards.remotes(), starts, &how, &mut begun)
    };
    let Begun { arrays, below, waiting } = begun;
    let md_view = Arc::new(MdView::default());
    let started = started.and_then(|()| {
        let none = arrays.is_empty() && salvaged.is_empty();
        if none { Err(anyhow!("nothing to serve: no array could be started")) } else { Ok(()) }
    });
    let doors = started.and_then(|()| {
        let running = arrays.iter().map(|array| Arc::clone(array) as Arc<dyn Target>);
        let looked_at = salvaged.iter().map(|array| Arc::clone(array) as Arc<dyn Target>);
        // What another array is made of is not for clients.
        let free = |target: &Arc<dyn Target>| !below.contains(&target.info().name);
        let targets = running.chain(looked_at).filter(free).collect();
        doors::open(&options, shards.remotes(), targets, &md_view)
    });
    let around = Around {
        remotes: shards.remotes().to_vec(),
        kept,
        scrubs,
        spares,
        memory_max: memory.for_caches(),
        guard: options.hosts.guard(),
        door: socket.door(),
        given: members.iter().map(|member| member.name.clone()).collect(),
    };
    let running = Running::new(
        arrays.clone(),
        salvaged.clone(),
        doors.as_ref().ok().cloned().unwrap_or_default(),
        around,
        send_end,
        volumes::events,
    );
    let known = Arc::downgrade(&running);
    md_view.answered_by(Box::new(move |request| known.upgrade()?.ask(request)));
    let served = doors.and_then(|doors| {
        memory_watch::start(&running, memory)?;
        scrub_watch::start(&running)?;
        spare_watch::start(&running)?;
        if options.smart.smart_every > 0 {
            let every = Duration::from_secs(60 * options.smart.smart_every);
            smart_watch::start(&running, Asking { smartctl: options.smart.smartctl, every })?;
        }
        socket.serve(running.handler())?;
        let metrics = options.metrics.metrics.as_ref();
        let metrics = metrics.map(|place| metrics::serve(place, &running)).transpose()?;
        for array in &arrays {
            announce(array, &doors)?;
        }
        for array in &salvaged {
            read_only::announce(array, &doors)?;
        }
        if let Some(metrics) = &metrics {
            output::line(format!("metrics: {}", metrics.place()))?;
        }
        output::line(format!("control socket: {}", socket.path().display()))?;
        let waiting = starting::named(&members, &waiting);
        let sought = Sought { troubles, waiting, how };
        let looking = Looking::begin(&running, sought)?;
        let end = ends.recv().context("waiting for the end")?;
        let missing = looking.end();
        drop(metrics);
        // Clients get the answers to what they have asked for.
        let left = doors.drain(DRAIN_WAIT);
        if left > 0 {
            tracing::warn!(left, "requests of clients are not answered after two seconds");
        }
        doors.stop();
        Ok((end, missing))
    });
    let left = running.stop_all()?;
    // Where something went wrong before, they are open still.
    running.doors().stop();
    drop(socket);
    drop(shards);
    let (end, missing) = served?;
    if end == End::Signal {
        output::note("braid: stopped by a signal");
    }
    left.lines.iter().for_each(|line| output::note(format!("braid: {line}")));
    if !left.well {
        return Ok(ExitCode::from(FAILED));
    }
    if missing {
        output::note("braid: something that was given was missing to the end (exit code 1)");
        return Ok(ExitCode::from(DEGRADED));
    }
    Ok(ExitCode::SUCCESS)
}

/// What was given to be served.
struct Given {
    groups: Vec<Group>,
    /// All members, usable or not.
    members: Vec<Member>,
    troubles: Vec<Trouble>,
}

fn shard_count(asked: Option<u16>) -> u16 {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(1024) as u16;
    asked.unwrap_or_else(cores)
}

/// The members of each array, and those that cannot be used, which are named; `None` when they were refused and that has
/// been said.
fn given(home: &Remote, options: &Serve, how: &How) -> Result<Option<Given>> {
    let Some(name) = &options.create else {
        let (groups, members, troubles) = if options.read_only {
            (read_only::groups(home, &options.members)?, Vec::new(), Vec::new())
        } else {
            let members: Vec<Member> =
                parse_all(&options.members, false)?.into_iter().flatten().collect();
            let (groups, troubles) = group(home, &members);
            (groups, members, troubles)
        };
        starting::say(&troubles, !how.strict && !groups.is_empty());
        if groups.is_empty() {
            return Ok(Some(Given { groups, members, troubles }));
        }
        let (groups, notes) = layer(home, groups, options.stack)?;
        notes.iter().for_each(|note| output::note(format!("note: {note}")));
        let groups = match &options.uuid {
            Some(uuid) => only(groups, uuid)?,
            None => groups,
        };
        return Ok(Some(Given { groups, members, troubles }));
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
    plan.check(&ArraySettings::default().with(&how.asked)?, how.shards, how.memory_max)?;
    let openers: Vec<Arc<dyn Opener>> = plan.openers().into_iter().flatten().collect();
    let created = make(home, plan)?;
    let groups = vec![Group::new(created.uuid, name.to_string(), openers)];
    Ok(Some(Given { groups, members: Vec::new(), troubles: Vec::new() }))
}

//! `braid serve`, and `braid daemon`, which is the same by a configuration: the server from its start to its orderly end.

mod detach;
mod doors;
mod passed;
mod read_only;
mod standby;

use super::{config, start};
use crate::cli::{Serve, Start};
use crate::configuration::{Configuration, Monitor};
use crate::creating::{Plan, Refusal, Wish, make, plan};
use crate::daemon::announce::announce;
use crate::daemon::control_socket::{ControlSocket, default_path};
use crate::daemon::grouping::{Group, Trouble, group};
use crate::daemon::layers::{layer, only};
use crate::daemon::running::{Around, Running};
use crate::daemon::scrubs::Scrubs;
use crate::daemon::smart_watch::Asking;
use crate::daemon::sought::Sought;
use crate::daemon::spares::Spares;
use crate::daemon::starting::{self, Begun, How, start_all};
use crate::daemon::{
    End, away_watch, event_watch, looking, memory_watch, metrics, mounting, scrub_watch,
    service_watch, signals, smart_watch, spare_watch, volumes,
};
use crate::exit::{DEGRADED, FAILED};
use crate::hosts::Guard;
use crate::lease::Session;
use crate::md_view::MdView;
use crate::members::{Member, parse_all};
use crate::memory::Memory;
use crate::monitor::telling::Telling;
use crate::on_shard;
use crate::output;
use crate::scanning::Scanner;
use crate::service;
use crate::settings::ArraySettings;
use crate::settings::group::SpareGroup;
use crate::settings::kept::Kept;
use crate::take_over::giving::{self, Giving, NotTaken};
use crate::take_over::taking::{self, Taking};
use crate::take_over::{Given, successor};
use crate::web::Web;
use crate::web::token::Token;
use anyhow::{Context, Result, anyhow};
use braid_array::salvage::Salvage;
use braid_control::protocol::Detail;
use braid_control::wanted::array::Shape;
use braid_device::{Opener, Target};
use braid_shard::mailbox::Remote;
use braid_shard::threads::Shards;
use standby::Beginning;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// The time that another process gets to let go of members, and between two looks if it has.
const LET_GO_WAIT: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time that requests of clients get to be answered at the end.
const DRAIN_WAIT: Duration = Duration::from_secs(2);
/// The time that an orderly end may take, as the service manager is told: members that do not answer have their own.
const END_WAIT: Duration = Duration::from_secs(120);

pub fn run(options: Serve) -> Result<ExitCode> {
    if options.scan {
        let Serve { run, force, control, .. } = options;
        return start::run(Start {
            words: Vec::new(),
            scan: true,
            run,
            force,
            json: false,
            control,
        });
    }
    if options.detach {
        if !detach::is_detached() {
            return detach::detach(&options.control.path());
        }
        detach::leave_terminal()?;
    }
    // Paths need not be text; then this server is not taken over, which `giving` says.
    run_with(options, taking::arguments().unwrap_or_default())
}

/// The same; `arguments` say so to a server that takes over.
pub(super) fn run_with(options: Serve, mut arguments: Vec<String>) -> Result<ExitCode> {
    let (mut options, mut configuration) = configured(options)?;
    let (send_end, ends) = mpsc::channel();
    // From here on a signal is an orderly end, also while arrays are being assembled.
    signals::listen(send_end.clone())?;
    let place = options.control.control.clone().unwrap_or_else(default_path);
    let mut taking = None;
    if options.take_over {
        let begun = Taking::begin(&place).context("taking over from the running server")?;
        (options, arguments) = begun.options(options)?;
        (options, configuration) = configured(options)?;
        taking = Some(begun);
    }
    if let Some(read) = &configuration {
        service::protect(read.lock_memory);
    }
    let shards = on_shard::start_shards(usize::from(shard_count(options.shards)))?;
    let names = || {
        let mut names = options.members.clone();
        let found = configuration.as_ref().map(|read| scanned(&Scanner::default(), read, &names).0);
        names.extend(found.into_iter().flatten());
        names
    };
    let lease = match standby::begin((&options, names), shards.remotes(), &ends)? {
        Beginning::Plain => None,
        Beginning::Leased(session) => Some(session),
        Beginning::Ended => return Ok(ExitCode::SUCCESS),
    };
    let mut socket = match taking {
        None => Some(match passed::control()? {
            Some(socket) => ControlSocket::activated(socket, options.control.control.as_deref())?,
            None => ControlSocket::bind(&place, options.control_group)?,
        }),
        Some(_) => None,
    };
    // The clients' pause begins here.
    let received = taking.as_mut().map(Taking::receive).transpose();
    let mut given = received.context("taking over from the running server")?;
    loop {
        let socket = match (socket.take(), &given) {
            (None, Some(given)) => {
                let socket = given.control.try_clone().context("keeping the control socket")?;
                ControlSocket::adopt(&place, socket, given.managed)?
            }
            (bound, _) => bound.context("a server has a control socket")?,
        };
        let before = (given.take(), taking.take());
        let wanted = (&options, arguments.as_slice(), configuration.as_ref());
        match serve((wanted, lease.as_ref()), &shards, socket, before, (&send_end, &ends))? {
            Outcome::Ended(code) => return Ok(code),
            Outcome::Given(giving) => match giving.finish() {
                Ok(()) => {
                    output::note("braid: another process has taken over");
                    return Ok(ExitCode::SUCCESS);
                }
                Err(not_taken) => {
                    let NotTaken { error, given: back, members } = *not_taken;
                    output::note(format!(
                        "braid: the process that was to take over did not come up, so this one goes on: {error}",
                        error = crate::output::said(&error)
                    ));
                    options.members = members;
                    options.create = None;
                    options.force = false;
                    given = Some(back);
                }
            },
        }
    }
}

/// The end of serving.
enum Outcome {
    Ended(ExitCode),
    /// Everything is stopped, and another process may have what these arrays are made of.
    Given(Giving),
}

/// The options, the arguments that say so, and the configuration.
type Asked<'a> = (&'a Serve, &'a [String], Option<&'a Configuration>);

/// Serves from the start of the arrays to their end; `given` was another server's, and is this one's as soon as `taking` is
/// done.
fn serve(
    ((options, arguments, configuration), lease): (Asked<'_>, Option<&Arc<Session>>),
    shards: &Shards,
    socket: ControlSocket,
    (mut given, taking): (Option<Given>, Option<Taking>),
    (send_end, ends): (&Sender<End>, &Receiver<End>),
) -> Result<Outcome> {
    let count = shard_count(options.shards);
    let home = shards.remotes().first().context("at least one shard was started")?;
    let (memory, kept) = (Memory::default(), Kept::new(options.state.state_dir.as_deref()));
    let scrubs = Arc::new(Scrubs::new(kept.clone()));
    let spares = Arc::new(Spares::default());
    let told = (Arc::clone(&scrubs), Arc::clone(&spares));
    let guard = Guard { handed_over: given.is_some(), ..options.hosts.guard() };
    let mut how = how(options, kept.clone(), told, (count, memory.for_caches()), guard);
    how.lease = lease.cloned();
    let scanner = Scanner::default();
    let mut names = options.members.clone();
    if let Some(read) = configuration {
        let (more, groups) = scanned(&scanner, read, &names);
        names.extend(more);
        how.groups = groups;
    }
    let resident = configuration.is_some();
    let Some(Found { groups, members, troubles }) =
        members_of(home, (options, &names), &how, given.is_some())?
    else {
        return Ok(Outcome::Ended(ExitCode::from(FAILED)));
    };
    if groups.is_empty() && !resident || how.strict && !troubles.is_empty() {
        let left =
            if groups.is_empty() { "nothing to serve" } else { "nothing is started (--strict)" };
        output::note(format!("braid: {left}: braid examine MEMBER… shows what is on them"));
        return Ok(Outcome::Ended(ExitCode::from(FAILED)));
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
    let Begun { arrays, below, waiting, .. } = begun;
    let md_view = Arc::new(MdView::default());
    let started = started.and_then(|()| {
        let none = arrays.is_empty() && salvaged.is_empty() && !resident;
        if none { Err(anyhow!("nothing to serve: no array could be started")) } else { Ok(()) }
    });
    let doors = started.and_then(|()| {
        let running = arrays.iter().map(|array| Arc::clone(array) as Arc<dyn Target>);
        let looked_at = salvaged.iter().map(|array| Arc::clone(array) as Arc<dyn Target>);
        // What another array is made of is not for clients.
        let free = |target: &Arc<dyn Target>| !below.contains(&target.info().name);
        let targets = running.chain(looked_at).filter(free).collect();
        doors::open(options, shards.remotes(), targets, &md_view, given.as_mut())
    });
    let sought = (!options.read_only).then(|| Sought {
        waiting: starting::named(&members, &waiting),
        troubles,
        configuration: configuration.map(|read| read.path.clone()),
        scanner,
        degraded_after: configuration.and_then(|read| read.degraded_after).map(Duration::from_secs),
        ..Sought::new(how)
    });
    let around = Around {
        remotes: shards.remotes().to_vec(),
        share_mounts: options.shards.is_some(),
        kept,
        scrubs,
        spares,
        memory_max: memory.for_caches(),
        guard,
        lease: lease.cloned(),
        door: socket.door(),
        given: members.iter().map(|member| member.name.clone()).collect(),
        sought,
        resident,
    };
    let running = Running::new(
        arrays.clone(),
        salvaged.clone(),
        doors.as_ref().ok().cloned().unwrap_or_default(),
        around,
        send_end.clone(),
        volumes::events,
    );
    let known = Arc::downgrade(&running);
    md_view.answered_by(Box::new(move |request| known.upgrade()?.ask(request)));
    let is_anothers = taking.is_some();
    // Until the other process has said that it ends, the sockets are its own.
    let doors = doors.and_then(|doors| {
        taking.map(Taking::ready).transpose().context("taking over from the running server")?;
        Ok(doors)
    });
    if is_anothers && doors.is_err() {
        // Whatever goes wrong here, the sockets go on listening.
        let _ = (running.doors().hand_over(), socket.door().give());
    }
    let served = doors.and_then(|doors| {
        for (protocol, client) in given.into_iter().flat_map(|given| given.clients) {
            let target = client.target.clone();
            if let Err(error) = doors.take_client(&protocol, client) {
                tracing::warn!(%error, %protocol, %target, "a client of the other server is disconnected");
            }
        }
        memory_watch::start(&running, memory)?;
        scrub_watch::start(&running)?;
        spare_watch::start(&running)?;
        away_watch::start(&running)?;
        if options.smart.smart_every > 0 {
            let every = Duration::from_secs(60 * options.smart.smart_every);
            smart_watch::start(&running, Asking { smartctl: options.smart.smartctl.clone(), every })?;
        }
        socket.serve(running.handler())?;
        let metrics = options.metrics.metrics.as_ref();
        let metrics = metrics.map(|place| metrics::serve(place, &running)).transpose()?;
        let web = web_view(options, &running)?;
        for array in &arrays {
            announce(array, &doors)?;
        }
        for array in &salvaged {
            read_only::announce(array, &doors)?;
        }
        if let Some(metrics) = &metrics {
            output::line(format!("metrics: {metrics}"))?;
        }
        if let Some(web) = &web {
            output::line(format!("web view: {web}"))?;
        }
        output::line(format!("{}{}", detach::LISTENS, socket.path().display()))?;
        looking::start(&running)?;
        if let Some(read) = configuration {
            // A server that starts after this one may need what is in them.
            mounting::start(&running, read)?.wait();
        }
        service::ready(&running.summary());
        service_watch::start(&running)?;
        watch_events(&running, configuration)?;
        let end = wait_for_end(&running, &socket, arguments, ends)?;
        if !matches!(end, Ending::Given(_)) {
            service::stopping(END_WAIT);
        }
        let missing = running.stop_looking();
        running.mounting.stop();
        drop((metrics, web));
        // Clients get the answers to what they have asked for.
        let left = doors.drain(DRAIN_WAIT);
        if left > 0 {
            tracing::warn!(left, "requests of clients are not answered after two seconds");
        }
        doors.stop();
        Ok((end, missing))
    });
    if matches!(served, Ok((Ending::Given(_), _))) {
        running.hand_over();
    }
    let left = running.stop_all()?;
    // Where something went wrong before, they are open still.
    running.doors().stop();
    drop(socket);
    if let Some(lease) = lease {
        lease.end(left.well);
    }
    let (end, missing) = served?;
    match end {
        Ending::Given(giving) => return Ok(Outcome::Given(giving)),
        Ending::Signal => output::note("braid: stopped by a signal"),
        Ending::Stopped => {}
    }
    left.lines.iter().for_each(|line| output::note(format!("braid: {line}")));
    let code = if !left.well {
        ExitCode::from(FAILED)
    } else if missing && !resident {
        output::note("braid: something that was given was missing to the end (exit code 1)");
        ExitCode::from(DEGRADED)
    } else {
        ExitCode::SUCCESS
    };
    Ok(Outcome::Ended(code))
}

/// The page for browsers, where it is wanted.
fn web_view(options: &Serve, running: &Arc<Running>) -> Result<Option<Web>> {
    let Some(address) = options.web.http else { return Ok(None) };
    let tls = match options.web.http_tls {
        true => Some(options.nbd_limits.server_tls()?),
        false => None,
    };
    let token = match &options.web.http_token {
        Some(file) => Token::read(file)?,
        None => {
            let kept = Kept::new(options.state.state_dir.as_deref());
            Token::kept(kept.folder().context(
                "there is no place to keep the token of --http: HOME is not set; give --http-token",
            )?)?
        }
    };
    let look = options.web.http_look_token.as_deref();
    let look = look.map(|file| Token::second(file, &token)).transpose()?;
    let names = options.web.http_name.clone();
    Web::start(address, tls.as_ref(), (token, look), names, running.handler()).map(Some)
}

/// The options that a configuration stands for, where there is one.
fn configured(options: Serve) -> Result<(Serve, Option<Configuration>)> {
    let Some(path) = &options.config else { return Ok((options, None)) };
    let read = Configuration::read(path)?;
    for ignored in &read.ignored {
        let (path, line) = (ignored.path.display(), ignored.line);
        output::note(format!("note: {path}:{line} is ignored: {}", ignored.why));
    }
    let parsed = config::serve_options(&read)?;
    let control = match options.control.control.is_some() {
        true => options.control,
        false => parsed.control,
    };
    let Serve { members, take_over, config, .. } = options;
    Ok((Serve { members, take_over, config, control, ..parsed }, Some(read)))
}

/// The members that the configuration wants, beside those of `names`, and the spare groups of their arrays.
fn scanned(
    scanner: &Scanner,
    read: &Configuration,
    names: &[String],
) -> (Vec<String>, BTreeMap<[u8; 16], SpareGroup>) {
    let known: Vec<PathBuf> =
        names.iter().map(PathBuf::from).filter(|path| path.is_absolute()).collect();
    let found = scanner.scan(read, &known, &|superblock| read.wants(superblock));
    for note in &found.notes {
        output::note(format!("note: {note}"));
    }
    let name = |path: &PathBuf| Path::display(path).to_string();
    (found.members.iter().map(name).collect(), found.groups)
}

/// The way in which the options want arrays started.
fn how(
    options: &Serve,
    kept: Kept,
    (scrubs, spares): (Arc<Scrubs>, Arc<Spares>),
    (shards, memory_max): (u16, u64),
    guard: Guard,
) -> How {
    How {
        run: options.run,
        force: options.force,
        // A new array has all its members.
        strict: options.strict || options.create.is_some(),
        stack: options.stack,
        uuid: options.uuid.clone(),
        asked: options.asked(),
        kept,
        scrubs,
        spares,
        shards,
        memory_max,
        guard,
        lease: None,
        groups: BTreeMap::new(),
    }
}

/// Events are kept for those who look, and told: by a configuration to everybody, else to who has asked for such lines.
fn watch_events(running: &Arc<Running>, configuration: Option<&Configuration>) -> Result<()> {
    let Some(read) = configuration else {
        let telling = Telling::begin(Monitor::default())?;
        return event_watch::start(running, (telling, false), Box::new(|_| None));
    };
    let telling = Telling::begin(read.monitor.clone())?;
    let read = read.clone();
    let spares = move |detail: &Detail| read.spares_of(&detail.uuid, &detail.full_name);
    event_watch::start(running, (telling, true), Box::new(spares))
}

/// The reason why a server ends.
enum Ending {
    Signal,
    Stopped,
    Given(Giving),
}

/// Waits for an end. What asks for a successor is none when there is none, or when it cannot take over.
fn wait_for_end(
    running: &Arc<Running>,
    socket: &ControlSocket,
    arguments: &[String],
    ends: &Receiver<End>,
) -> Result<Ending> {
    loop {
        match ends.recv().context("waiting for the end")? {
            End::Signal => return Ok(Ending::Signal),
            End::Stopped => return Ok(Ending::Stopped),
            End::Renew => {
                if let Err(error) = successor::start(socket.path()) {
                    output::note(format!(
                        "braid: no new process takes over: {error}",
                        error = crate::output::said(&error)
                    ));
                }
            }
            End::TakeOver(place) => {
                match giving::begin(running, &socket.door(), (arguments, &place)) {
                    Ok(giving) => return Ok(Ending::Given(giving)),
                    Err(error) => output::note(format!(
                        "braid: not taken over: {error}",
                        error = crate::output::said(&error)
                    )),
                }
            }
        }
    }
}

/// The arrays that were found, with the members that were given.
struct Found {
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
fn members_of(
    home: &Remote,
    (options, names): (&Serve, &[String]),
    how: &How,
    anothers: bool,
) -> Result<Option<Found>> {
    let Some(name) = &options.create else {
        let (groups, members, troubles) = if options.read_only {
            (read_only::groups(home, names)?, Vec::new(), Vec::new())
        } else {
            let members: Vec<Member> = parse_all(names, false)?.into_iter().flatten().collect();
            let (groups, troubles) = group_in_time(home, &members, anothers);
            (groups, members, troubles)
        };
        starting::say(&troubles, !how.strict && !groups.is_empty());
        if groups.is_empty() {
            return Ok(Some(Found { groups, members, troubles }));
        }
        let (groups, notes) = layer(home, groups, options.stack)?;
        notes.iter().for_each(|note| output::note(format!("note: {note}")));
        let groups = match &options.uuid {
            Some(uuid) => only(groups, uuid)?,
            None => groups,
        };
        return Ok(Some(Found { groups, members, troubles }));
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
    Ok(Some(Found { groups, members: Vec::new(), troubles: Vec::new() }))
}

/// [`group`]; members that were another process's until now are waited for as long as it may take to end.
fn group_in_time(home: &Remote, members: &[Member], anothers: bool) -> (Vec<Group>, Vec<Trouble>) {
    let end = Instant::now() + LET_GO_WAIT;
    loop {
        let (groups, troubles) = group(home, members);
        // Nobody's process has an export, so waiting for one to end brings none.
        let may_be_let_go = troubles.iter().any(|trouble| !trouble.member.is_remote());
        if !may_be_let_go || !anothers || Instant::now() >= end {
            return (groups, troubles);
        }
        drop(groups);
        std::thread::sleep(LOOK_EVERY);
    }
}

//! `serve --lease`: the lease is got before anything is started, and with `--standby` waited for.

use crate::cli::Serve;
use crate::daemon::End;
use crate::daemon::grouping::{Group, group};
use crate::lease::{Access, Etcd, NotTaken, Session, holder};
use crate::members::{Member, parse_all};
use crate::output;
use crate::service;
use anyhow::{Context, Result, bail};
use braid_shard::mailbox::Remote;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Between two looks at who holds the lease, and at members that were not to be read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const READ_EVERY: Duration = Duration::from_secs(1);
/// etcd gets so long for an answer to a look.
const PATIENCE: Duration = Duration::from_secs(2);
/// A service manager is told again and again that the start takes so much longer.
const LONGER: Duration = Duration::from_secs(60);

/// Arrays, by their UUIDs, with their names.
type Wanted = BTreeMap<[u8; 16], String>;

/// How the server begins.
pub(super) enum Beginning {
    /// Without a lease.
    Plain,
    /// With one.
    Leased(Arc<Session>),
    /// It was to end while it waited.
    Ended,
}

/// See the module's documentation. `names` gives the members.
///
/// # Errors
/// Members that are not understood; without `--standby`, an etcd that gives no lease.
pub(super) fn begin(
    (options, names): (&Serve, impl FnOnce() -> Vec<String>),
    remotes: &[Remote],
    ends: &Receiver<End>,
) -> Result<Beginning> {
    let Some(place) = &options.lease.at.lease else { return Ok(Beginning::Plain) };
    let (seconds, access) = (options.lease.at.lease_ttl, options.lease.at.access(place)?);
    if !options.lease.standby {
        return Ok(Beginning::Leased(Session::begin(place, &access, seconds)?));
    }
    let home = remotes.first().context("at least one shard was started")?;
    let members: Vec<Member> = parse_all(&names(), false)?.into_iter().flatten().collect();
    if members.is_empty() {
        bail!(
            "--standby waits for arrays whose members are named or found by the configuration: there are none"
        );
    }
    let mut waiting = Waiting { ends, said: String::new() };
    let Some(wanted) = waiting.read(home, &members, options.uuid.as_deref())? else {
        return Ok(Beginning::Ended);
    };
    let etcd = Etcd::new(place.clone(), access.clone(), PATIENCE);
    let mut session = None;
    loop {
        let what = match attempt((&etcd, &access, seconds), &mut session, &wanted) {
            Ok(session) => return Ok(Beginning::Leased(session)),
            Err(what) => what,
        };
        if !waiting.pause(LOOK_EVERY, what)? {
            return Ok(Beginning::Ended);
        }
    }
}

/// Takes all of the arrays, or none; says why not.
fn attempt(
    (etcd, access, seconds): (&Etcd, &Access, u32),
    session: &mut Option<Arc<Session>>,
    wanted: &Wanted,
) -> Result<Arc<Session>, String> {
    for (uuid, name) in wanted {
        match holder(etcd, uuid) {
            Ok(None) => {}
            Ok(Some(holder)) => return Err(format!("array {name} is held by {holder}")),
            Err(error) => return Err(error.to_string()),
        }
    }
    let session = match session {
        Some(session) => session,
        None => {
            let begun = Session::begin(etcd.place(), access, seconds);
            session.insert(begun.map_err(|error| output::said(&error))?)
        }
    };
    for (uuid, name) in wanted {
        if let Err(why) = session.take(uuid, name) {
            // Another that waited was faster.
            wanted.keys().for_each(|uuid| session.give_up(uuid));
            return Err(match why {
                NotTaken::Held(holder) => format!("array {name} is held by {holder}"),
                NotTaken::Etcd(error) => format!("array {name}: {error}"),
            });
        }
    }
    Ok(Arc::clone(session))
}

/// The name in its superblocks: it is exported under another only where two have the same.
fn name_of(group: &Group) -> String {
    String::from_utf8_lossy(group.recorded().short()).into_owned()
}

/// A wait that a signal ends.
struct Waiting<'a> {
    ends: &'a Receiver<End>,
    /// What was said last.
    said: String,
}

impl Waiting<'_> {
    /// Says what is waited for where that is news, and waits; false when the wait was ended.
    fn pause(&mut self, time: Duration, what: String) -> Result<bool> {
        if self.said != what {
            output::note(format!("braid: standby: {what}"));
            service::status(&format!("standby: {what}"));
            self.said = what;
        }
        service::starting(LONGER);
        match self.ends.recv_timeout(time) {
            Err(RecvTimeoutError::Timeout) => Ok(true),
            Err(RecvTimeoutError::Disconnected) => bail!("waiting for signals"),
            Ok(_) => {
                output::note("braid: stopped by a signal");
                Ok(false)
            }
        }
    }

    /// The arrays that the members make; they are read until there is one, and let go of.
    fn read(
        &mut self,
        home: &Remote,
        members: &[Member],
        uuid: Option<&str>,
    ) -> Result<Option<Wanted>> {
        let only = uuid.map(braid_format::uuid_text::parse).transpose().context("--uuid")?;
        loop {
            let (groups, troubles) = group(home, members);
            let groups =
                groups.into_iter().filter(|group| only.is_none_or(|only| only == group.uuid));
            let wanted: Wanted = groups.map(|group| (group.uuid, name_of(&group))).collect();
            if !wanted.is_empty() {
                return Ok(Some(wanted));
            }
            let why = troubles
                .first()
                .map_or("none is a member of such an array", |trouble| &trouble.why);
            if !self.pause(READ_EVERY, format!("no array can be read from the members: {why}"))? {
                return Ok(None);
            }
        }
    }
}

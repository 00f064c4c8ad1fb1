//! The lease of a server, and the keys of arrays that it holds by it.
//!
//! One thread renews the lease, another ends the process when that has not succeeded in time ([`super::deadline`]): neither waits
//! for the other, nor for a shard.

use super::access::Access;
use super::deadline::{self, Deadline};
use super::etcd::{Etcd, EtcdError, Found, Made};
use super::place::Place;
use crate::output;
use anyhow::{Context, Result, bail};
use braid_format::uuid_text;
use braid_shard::ring::before_submissions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A request whose answer did not come may have been carried out: it is asked again, so often.
const TRIES: u32 = 3;
/// A member of etcd gets so long for an answer at least.
const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// Who has a key, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The host's name.
    host: String,
    /// The number of its process.
    process: u32,
    /// The name of the array or volume there.
    array: String,
    /// The owner that its heartbeat names.
    owner: String,
    /// Seconds since 1970.
    since: u64,
    /// The token: the revision at which etcd made the key.
    #[serde(default, skip_serializing)]
    token: i64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}, process {}, token {}", self.host, self.process, self.token)
    }
}

/// An array whose key this server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The token.
    pub token: i64,
    /// The owner that its heartbeat is to name.
    pub owner: [u8; 16],
    /// The owner of the heartbeat before, who writes no more.
    pub ended: Option<[u8; 16]>,
}

/// A key that this server has.
struct Held {
    /// `arrays/UUID` or `volumes/UUID`.
    what: String,
    taken: Taken,
}

/// Why an array is not this server's.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// Another has its key.
    #[error("{0} holds its lease: stop it there, or give --standby to wait for it")]
    Held(Holder),
    /// etcd has not given it.
    #[error("taking its lease: {0}")]
    Etcd(#[from] EtcdError),
}

/// See the module's documentation.
pub struct Session {
    etcd: Etcd,
    seconds: u32,
    lease: AtomicI64,
    deadline: Arc<Deadline>,
    held: Mutex<BTreeMap<[u8; 16], Held>>,
}

impl Session {
    /// Gets a lease for `seconds` and keeps it. Whenever something is held by it this process ends at once when that fails.
    ///
    /// # Errors
    /// etcd does not give one, or this process has one already.
    pub fn begin(place: &Place, access: &Access, seconds: u32) -> Result<Arc<Session>> {
        let ttl = Duration::from_secs(u64::from(seconds));
        // All members are asked within a fifth, so that there is time for several tries.
        let members = u32::try_from(place.hosts.len()).unwrap_or(u32::MAX).max(1);
        let etcd = Etcd::new(place.clone(), access.clone(), (ttl / 5 / members).max(PATIENCE_MIN));
        let sent = deadline::now();
        let doing = || format!("getting a lease at {place}");
        let lease = grant(&etcd, seconds).with_context(doing)?;
        let deadline = Arc::new(Deadline::new(sent, ttl, deadline::end_process));
        let checked = Arc::clone(&deadline);
        if !before_submissions(Box::new(move || checked.check())) {
            bail!("this process has a lease already");
        }
        let lease = AtomicI64::new(lease);
        let session = Arc::new(Session { etcd, seconds, lease, deadline, held: Mutex::default() });
        deadline::watch(&session.deadline).with_context(doing)?;
        let keeper = Arc::clone(&session);
        let keep = move || keeper.keep(ttl);
        std::thread::Builder::new().name("lease".to_string()).spawn(keep).with_context(doing)?;
        Ok(session)
    }

    fn lease(&self) -> i64 {
        self.lease.load(Ordering::SeqCst)
    }

    /// Renews the lease until the end.
    fn keep(&self, ttl: Duration) {
        let mut silent = false;
        while !self.deadline.is_over() {
            std::thread::sleep(if silent { ttl / 20 } else { ttl / 5 });
            let mut sent = 0;
            match self.etcd.renew(self.lease(), &mut || sent = deadline::now()) {
                // A shorter one than was asked for is an answer to be careful with.
                Ok(seconds) => {
                    self.deadline.extend(sent, ttl.min(Duration::from_secs(u64::from(seconds))));
                    if silent {
                        output::note("braid: the lease is renewed again");
                    }
                    silent = false;
                }
                Err(_) if self.deadline.is_over() => {}
                Err(EtcdError::Ended) => silent |= self.ended(ttl).is_err(),
                Err(error) => {
                    if !silent {
                        let left = self.deadline.left(deadline::now()).as_secs_f64();
                        output::note(format!(
                            "warning: the lease is not renewed: {error}; unless it is within {left:.1} s, this process ends \
                             where it holds an array"
                        ));
                    }
                    silent = true;
                }
            }
        }
    }

    /// The lease has run out: whoever holds something by it must not write any more, and who does not gets another.
    fn ended(&self, ttl: Duration) -> Result<(), EtcdError> {
        let held = self.held();
        if !held.is_empty() {
            deadline::end_process();
        }
        let sent = deadline::now();
        self.lease.store(grant(&self.etcd, self.seconds)?, Ordering::SeqCst);
        self.deadline.extend(sent, ttl);
        drop(held);
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], Held>> {
        // Every change is a single call.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where etcd is.
    pub fn place(&self) -> &Place {
        self.etcd.place()
    }

    /// The number of the lease, as etcdctl writes it.
    pub fn number(&self) -> String {
        format!("{:x}", self.lease())
    }

    /// The time that is left unless the lease is renewed.
    pub fn left(&self) -> Duration {
        self.deadline.left(deadline::now())
    }

    /// The key of an array or a volume, if it is this server's.
    pub fn taken(&self, uuid: &[u8; 16]) -> Option<Taken> {
        self.held().get(uuid).map(|held| held.taken)
    }

    /// Makes the array this server's. Blocks: not for a shard's thread.
    ///
    /// # Errors
    /// It is another's, or etcd does not answer.
    pub fn take(&self, uuid: &[u8; 16], array: &str) -> Result<Taken, NotTaken> {
        self.take_key(format!("arrays/{}", uuid_text::format(uuid)), uuid, array)
    }

    /// Makes the volume this server's. Blocks: not for a shard's thread.
    ///
    /// # Errors
    /// As [`Session::take`].
    pub fn take_volume(&self, uuid: &[u8; 16], volume: &str) -> Result<Taken, NotTaken> {
        let what = format!("volumes/{}", uuid::Uuid::from_bytes(*uuid));
        self.take_key(what, uuid, volume)
    }

    fn take_key(&self, what: String, uuid: &[u8; 16], name: &str) -> Result<Taken, NotTaken> {
        // Kept until it is entered: the lease is no other one meanwhile.
        let mut held = self.held();
        if let Some(held) = held.get(uuid) {
            return Ok(held.taken);
        }
        let lease = self.lease();
        let owner = uuid::Uuid::new_v4().into_bytes();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let own = Holder {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            process: std::process::id(),
            array: name.to_string(),
            owner: uuid_text::format(&owner),
            since: now.as_secs(),
            token: 0,
        };
        // Names and numbers are always JSON.
        let value = serde_json::to_string(&own).unwrap_or_default();
        let mut tries = 1..=TRIES;
        let made = loop {
            match (self.etcd.make(&what, lease, (&value, &own.owner)), tries.next()) {
                (Err(EtcdError::Silent { .. }), Some(_)) => {}
                (made, _) => break made?,
            }
        };
        let taken = match made {
            Made::Now(token, before) => {
                let before = before.and_then(|text| String::from_utf8(text).ok());
                Taken { token, owner, ended: before.and_then(|text| uuid_text::parse(&text).ok()) }
            }
            // An earlier try was carried out; the beat of the one before is waited for.
            Made::Before(found) if found.lease == lease => {
                Taken { token: found.made, owner, ended: None }
            }
            Made::Before(found) => return Err(NotTaken::Held(holder_of(&found))),
        };
        held.insert(*uuid, Held { what, taken });
        self.deadline.arm(true);
        Ok(taken)
    }

    /// The array has been stopped, or the volume unmounted, or it was not started: others may take it.
    pub fn give_up(&self, uuid: &[u8; 16]) {
        let mut held = self.held();
        let Some(Held { what, .. }) = held.remove(uuid) else { return };
        if let Err(error) = self.etcd.remove(&what, self.lease()) {
            output::note(format!(
                "warning: the lease of {what} is not given up, and runs out when this server has ended: {error}"
            ));
        }
        self.deadline.arm(!held.is_empty());
    }

    /// Nothing is written any more. `gives_up`: others may take what was held at once; else when the lease has run out.
    pub fn end(&self, gives_up: bool) {
        self.deadline.end_in_order();
        if gives_up && let Err(error) = self.etcd.revoke(self.lease()) {
            output::note(format!(
                "warning: the lease is not given up, and runs out by itself: {error}"
            ));
        }
    }
}

/// A lease for so many seconds.
fn grant(etcd: &Etcd, seconds: u32) -> Result<i64, EtcdError> {
    let (lease, granted) = etcd.grant(seconds)?;
    match granted >= seconds {
        true => Ok(lease),
        false => Err(EtcdError::Refused {
            host: etcd.place().to_string(),
            why: format!("it gives a lease of {granted} s, not {seconds} s"),
        }),
    }
}

fn holder_of(found: &Found) -> Holder {
    let known = serde_json::from_slice::<Holder>(&found.value).ok();
    let unknown = || Holder {
        host: "unknown".to_string(),
        process: 0,
        array: String::new(),
        owner: String::new(),
        since: 0,
        token: 0,
    };
    Holder { token: found.made, ..known.unwrap_or_else(unknown) }
}

/// Who has the key of an array now.
///
/// # Errors
/// etcd does not answer.
pub fn holder(etcd: &Etcd, uuid: &[u8; 16]) -> Result<Option<Holder>, EtcdError> {
    Ok(etcd.find(&format!("arrays/{}", uuid_text::format(uuid)))?.as_ref().map(holder_of))
}

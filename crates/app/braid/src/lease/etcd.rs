//! The requests to etcd that a lease needs, over its JSON gateway: HTTP/1.1, keys and values in base64, numbers as text.
//!
//! Each is answered by the members with a majority, or not at all: one that is cut off from the others does not answer.

use super::place::Place;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Why etcd did not do something.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// None of its members has answered.
    #[error(
        "etcd does not answer at {hosts}: {why}; check that it runs, that most of its members reach each other, and that this host reaches one of them"
    )]
    Silent {
        /// All members.
        hosts: String,
        /// The last one's reason.
        why: String,
    },
    /// It refuses.
    #[error("etcd at {host} refuses: {why}")]
    Refused {
        /// The member.
        host: String,
        /// Its words.
        why: String,
    },
    /// It has ended the lease.
    #[error("the lease has ended: etcd does not know it any more")]
    Ended,
}

/// A way to etcd.
pub struct Etcd {
    place: Place,
    agent: ureq::Agent,
    /// The member that answered last.
    first: AtomicUsize,
}

/// A key, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub value: Vec<u8>,
    pub lease: i64,
    /// The revision at which it was made.
    pub made: i64,
}

/// What came of making a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It is there, since this revision. With what the second key had before.
    Now(i64, Option<Vec<u8>>),
    /// It was there.
    Before(Found),
}

#[derive(Deserialize)]
struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: i64,
    #[serde(rename = "TTL", deserialize_with = "number")]
    ttl: i64,
}

#[derive(Deserialize)]
struct Renewed {
    result: Remains,
}

#[derive(Deserialize)]
struct Remains {
    /// Absent once it has ended.
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    ttl: i64,
}

#[derive(Deserialize)]
struct Revision {
    #[serde(deserialize_with = "number")]
    revision: i64,
}

#[derive(Deserialize)]
struct Txn {
    header: Revision,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    response_range: Option<Range>,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    #[serde(default, deserialize_with = "number")]
    create_revision: i64,
    #[serde(default, deserialize_with = "number")]
    lease: i64,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

/// A number, which its JSON has as text.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => text.parse().map_err(serde::de::Error::custom),
        Value::Number(number) => {
            number.as_i64().ok_or_else(|| serde::de::Error::custom("too large"))
        }
        _ => Err(serde::de::Error::custom("a number was expected")),
    }
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

impl From<KeyValue> for Found {
    fn from(found: KeyValue) -> Found {
        // A value that is no base64 is not of this program: nobody's, then.
        let value = STANDARD.decode(found.value).unwrap_or_default();
        Found { value, lease: found.lease, made: found.create_revision }
    }
}

impl Etcd {
    /// At `place`; each member gets so long for an answer.
    pub fn new(place: Place, patience: Duration) -> Etcd {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(patience))
            .http_status_as_error(false)
            .build();
        Etcd { place, agent: config.into(), first: AtomicUsize::new(0) }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// A lease for so many seconds: its number, and the seconds that it really has.
    pub(super) fn grant(&self, seconds: u32) -> Result<(i64, u32), EtcdError> {
        let granted: Granted =
            self.ask("lease/grant", &json!({ "TTL": seconds.to_string() }), &mut || ())?;
        Ok((granted.id, u32::try_from(granted.ttl).unwrap_or(0)))
    }

    /// Renews a lease; gives its seconds from then. `sent` is called each time that the request is about to be sent.
    pub(super) fn renew(&self, lease: i64, sent: &mut dyn FnMut()) -> Result<u32, EtcdError> {
        let renewed: Renewed =
            self.ask("lease/keepalive", &json!({ "ID": lease.to_string() }), sent)?;
        match u32::try_from(renewed.result.ttl) {
            Ok(seconds @ 1..) => Ok(seconds),
            _ => Err(EtcdError::Ended),
        }
    }

    /// Ends a lease, and with it its keys.
    pub(super) fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        self.ask::<Value>("lease/revoke", &json!({ "ID": lease.to_string() }), &mut || ()).map(drop)
    }

    /// Makes the key of `uuid` under `lease` where there is none, and then sets the one beside it.
    pub(super) fn make(
        &self,
        uuid: &str,
        lease: i64,
        (value, used): (&str, &str),
    ) -> Result<Made, EtcdError> {
        let (key, beside) = (encoded(self.place.key(uuid)), encoded(self.place.used(uuid)));
        let body = json!({
            "compare": [{ "result": "EQUAL", "target": "CREATE", "key": key, "create_revision": "0" }],
            "success": [
                { "request_range": { "key": beside } },
                { "request_put": { "key": key, "value": encoded(value), "lease": lease.to_string() } },
                { "request_put": { "key": beside, "value": encoded(used) } },
            ],
            "failure": [{ "request_range": { "key": key } }],
        });
        let done: Txn = self.ask("kv/txn", &body, &mut || ())?;
        let ranges = done.responses.into_iter().filter_map(|part| part.response_range);
        let found = ranges.flat_map(|range| range.kvs).next().map(Found::from);
        match (done.succeeded, found) {
            (true, before) => Ok(Made::Now(done.header.revision, before.map(|found| found.value))),
            (false, Some(found)) => Ok(Made::Before(found)),
            (false, None) => {
                let why = "it says neither that the key was made nor that it was there".to_string();
                Err(EtcdError::Refused { host: self.place.to_string(), why })
            }
        }
    }

    /// Removes the key of `uuid` if it is under `lease`.
    pub(super) fn remove(&self, uuid: &str, lease: i64) -> Result<(), EtcdError> {
        let key = encoded(self.place.key(uuid));
        let body = json!({
            "compare": [{ "result": "EQUAL", "target": "LEASE", "key": key, "lease": lease.to_string() }],
            "success": [{ "request_delete_range": { "key": key } }],
        });
        self.ask::<Value>("kv/txn", &body, &mut || ()).map(drop)
    }

    /// The key of `uuid`.
    pub(super) fn find(&self, uuid: &str) -> Result<Option<Found>, EtcdError> {
        let body = json!({ "key": encoded(self.place.key(uuid)) });
        let found: Range = self.ask("kv/range", &body, &mut || ())?;
        Ok(found.kvs.into_iter().next().map(Found::from))
    }

    /// Asks one member after the other, first the one that answered last.
    fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        sent: &mut dyn FnMut(),
    ) -> Result<T, EtcdError> {
        let hosts = &self.place.hosts;
        let first = self.first.load(Ordering::Relaxed);
        let mut last = String::new();
        for nr in (0..hosts.len()).map(|nr| (first + nr) % hosts.len()) {
            let Some(host) = hosts.get(nr) else { continue };
            sent();
            match self.ask_one(host, path, body) {
                Ok((200, text)) => match serde_json::from_str(&text) {
                    Ok(answer) => {
                        self.first.store(nr, Ordering::Relaxed);
                        return Ok(answer);
                    }
                    Err(error) => {
                        last = format!("{host} says something that is not understood: {error}")
                    }
                },
                Ok((status, text)) => {
                    let why = serde_json::from_str::<Refusal>(&text).map(|refusal| refusal.message);
                    let why = why
                        .ok()
                        .filter(|why| !why.is_empty())
                        .unwrap_or_else(|| format!("status {status}"));
                    if why.contains("requested lease not found") {
                        return Err(EtcdError::Ended);
                    }
                    // Of a member that has lost the others; they may still be a majority.
                    if status < 500 && status != 408 && status != 429 {
                        return Err(EtcdError::Refused { host: host.clone(), why });
                    }
                    last = format!("{host} says: {why}");
                }
                Err(error) => last = format!("{host}: {error}"),
            }
        }
        Err(EtcdError::Silent { hosts: hosts.join(", "), why: last })
    }

    fn ask_one(&self, host: &str, path: &str, body: &Value) -> Result<(u16, String), ureq::Error> {
        let request = self
            .agent
            .post(format!("http://{host}/v3/{path}"))
            .header("Content-Type", "application/json");
        let mut answer = request.send(body.to_string())?;
        let status = answer.status().as_u16();
        Ok((status, answer.body_mut().read_to_string()?))
    }
}

//! The requests to etcd that a lease needs, over its JSON gateway: HTTP/1.1, keys and values in base64, numbers as text.
//!
//! Each is answered by the members with a majority, or not at all: one that is cut off from the others does not answer.

use super::access::Access;
use super::place::Place;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Of a refusal that is no JSON so many characters are shown.
const WORDS_MAX: usize = 200;

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
    access: Access,
    /// The token of the user, until etcd is restarted or has not heard of it for a while.
    token: Mutex<Option<String>>,
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
    pub fn new(place: Place, access: Access, patience: Duration) -> Etcd {
        let mut config = ureq::Agent::config_builder()
            .timeout_global(Some(patience))
            .http_status_as_error(false);
        if let Some(tls) = &access.tls {
            config = config.tls_config(tls.clone()).https_only(true);
        }
        let agent = config.build().into();
        Etcd { place, access, token: Mutex::default(), agent, first: AtomicUsize::new(0) }
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

    /// Makes the key of `what` under `lease` where there is none, and then sets the one beside it.
    pub(super) fn make(
        &self,
        what: &str,
        lease: i64,
        (value, used): (&str, &str),
    ) -> Result<Made, EtcdError> {
        let (key, beside) = (encoded(self.place.key(what)), encoded(self.place.used(what)));
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

    /// Removes the key of `what` if it is under `lease`.
    pub(super) fn remove(&self, what: &str, lease: i64) -> Result<(), EtcdError> {
        let key = encoded(self.place.key(what));
        let body = json!({
            "compare": [{ "result": "EQUAL", "target": "LEASE", "key": key, "lease": lease.to_string() }],
            "success": [{ "request_delete_range": { "key": key } }],
        });
        self.ask::<Value>("kv/txn", &body, &mut || ()).map(drop)
    }

    /// The key of `what`.
    pub(super) fn find(&self, what: &str) -> Result<Option<Found>, EtcdError> {
        let body = json!({ "key": encoded(self.place.key(what)) });
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
            match self.ask_as_user(host, (path, body), sent) {
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
                    let why = why_of(status, &text);
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

    /// Asks one member, as the user where there is one: who is not known there, or not any more, says who it is.
    fn ask_as_user(
        &self,
        host: &str,
        (path, body): (&str, &Value),
        sent: &mut dyn FnMut(),
    ) -> Result<(u16, String), ureq::Error> {
        let known = self.token().is_some();
        if self.access.user.is_none() || known {
            sent();
            let (status, text) = self.ask_one(host, path, body)?;
            if self.access.user.is_none() || !asks_for_user(status, &text) {
                return Ok((status, text));
            }
        }
        let (status, text) = self.log_in(host)?;
        if status != 200 {
            return Ok((status, text));
        }
        sent();
        self.ask_one(host, path, body)
    }

    /// Says who this is, and keeps what is given for that.
    fn log_in(&self, host: &str) -> Result<(u16, String), ureq::Error> {
        #[derive(Deserialize)]
        struct LoggedIn {
            token: String,
        }
        *self.token() = None;
        let Some(user) = &self.access.user else { return Ok((200, String::new())) };
        let body = json!({ "name": user.name, "password": user.password });
        let (status, text) = self.ask_one(host, "auth/authenticate", &body)?;
        // An answer without one is refused by the next request.
        *self.token() = serde_json::from_str::<LoggedIn>(&text).ok().map(|said| said.token);
        Ok((status, text))
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        // Every change is a single call.
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_one(&self, host: &str, path: &str, body: &Value) -> Result<(u16, String), ureq::Error> {
        let scheme = if self.place.tls { "https" } else { "http" };
        let mut request = self
            .agent
            .post(format!("{scheme}://{host}/v3/{path}"))
            .header("Content-Type", "application/json");
        if let Some(token) = &*self.token() {
            request = request.header("Authorization", token);
        }
        let mut answer = request.send(body.to_string())?;
        let status = answer.status().as_u16();
        Ok((status, answer.body_mut().read_to_string()?))
    }
}

/// The reason of a refusal: of etcd as JSON, of the HTTP server before it as a line.
fn why_of(status: u16, text: &str) -> String {
    let said = serde_json::from_str::<Refusal>(text).map(|refusal| refusal.message);
    let line = || text.lines().next().unwrap_or_default().chars().take(WORDS_MAX).collect();
    match said.unwrap_or_else(|_| line()) {
        none if none.trim().is_empty() => format!("status {status}"),
        why => why,
    }
}

/// An answer that says that the user is not known: its token has run out, or users were changed.
fn asks_for_user(status: u16, text: &str) -> bool {
    let words = ["invalid auth token", "user name is empty", "auth store is old"];
    status == 401 || status != 200 && words.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_json_or_a_line() {
        assert_eq!(
            why_of(403, "{\"message\":\"etcdserver: permission denied\"}"),
            "etcdserver: permission denied"
        );
        assert_eq!(why_of(400, "no names at the gateway\n"), "no names at the gateway");
        assert_eq!(why_of(502, ""), "status 502");
        assert_eq!(why_of(502, "{}"), "status 502");
    }

    #[test]
    fn who_is_not_known_any_more_says_again_who_it_is() {
        let says = |why: &str| format!("{{\"error\":\"etcdserver: {why}\",\"code\":3}}");
        assert!(asks_for_user(401, &says("invalid auth token")));
        assert!(asks_for_user(400, &says("user name is empty")));
        assert!(asks_for_user(400, &says("revision of auth store is old")));
        for (status, why) in [(200, "user name is empty"), (403, "permission denied")] {
            assert!(!asks_for_user(status, &says(why)), "{why}");
        }
    }
}

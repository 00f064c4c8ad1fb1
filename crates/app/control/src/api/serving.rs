//! A request of HTTP answered by a handler of requests.

use super::role::Role;
use super::{PREFIX, openapi, paths};
use crate::http::reply::{JSON, Reply};
use crate::http::request::Request as Asked;
use crate::protocol::{Answer, Code, Refusal, Request};

/// Carries out a request: gives answers to the function, which says false when the client is gone.
pub type Handler = dyn Fn(Request, &mut dyn FnMut(Answer) -> bool) + Send + Sync;

/// The path of the document.
const DOCUMENT: &str = "/v1/openapi.json";

/// Answers `asked` by `handler`, if `role` lets it.
pub fn answer(asked: &Asked, role: Role, handler: &Handler, reply: &mut Reply<'_>) {
    if asked.path == DOCUMENT && asked.method == "GET" {
        // The peer may be gone.
        let _ = reply.whole(200, JSON, openapi::document().to_string().as_bytes());
        return;
    }
    let request = paths::request(&asked.method, &asked.path, &asked.query, &asked.body)
        .and_then(|request| role.may(&asked.method).map(|()| request));
    let request = match request {
        Ok(request) => request,
        Err(refusal) => return refuse(refusal, reply),
    };
    tracing::debug!(?request, "control request");
    let mut there = true;
    handler(request, &mut |answer| {
        there = there && send(&answer, reply);
        there
    });
}

/// Refuses.
pub fn refuse(refusal: Refusal, reply: &mut Reply<'_>) {
    send(&Answer::Refused(refusal), reply);
}

/// Refuses a request that could not be read.
pub fn wrong(status: u16, why: &str, reply: &mut Reply<'_>) {
    let refusal = Refusal::new(Code::BadRequest, format!("{why} ({PREFIX} is HTTP/1.1 and JSON)"));
    whole(status, &Answer::Refused(refusal), reply);
}

/// False when the client is gone.
fn send(answer: &Answer, reply: &mut Reply<'_>) -> bool {
    if matches!(answer, Answer::Progress { .. }) || reply.has_lines() {
        return serde_json::to_vec(answer).is_ok_and(|line| reply.line(&line).is_ok());
    }
    let status = match answer {
        Answer::Refused(refusal) => refusal.code.status(),
        _ => 200,
    };
    whole(status, answer, reply)
}

fn whole(status: u16, answer: &Answer, reply: &mut Reply<'_>) -> bool {
    let headers: &[(&str, &str)] = match status {
        401 => &[("WWW-Authenticate", "Bearer")],
        _ => &[],
    };
    let body = serde_json::to_vec(answer);
    body.is_ok_and(|body| reply.with_headers(status, JSON, headers, &body).is_ok())
}

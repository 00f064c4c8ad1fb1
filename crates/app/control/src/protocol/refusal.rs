//! A refusal: a sentence for people, and a word that programs can rely on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// A sentence: what was being done, why it was not, what to do next.
    pub error: String,
    /// The kind of error; such words stay the same within a version of the protocol.
    pub code: Code,
}

/// A kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// It was understood, and cannot be done now, or failed, for another reason than those below.
    Refused,
    /// There is no such array here.
    NoSuchArray,
    /// The array has no such member.
    NoSuchMember,
    /// No such volume is mounted here.
    NoSuchVolume,
    /// Clients, another array or a volume use it.
    InUse,
    /// A job is under way that has to end first.
    JobRuns,
    /// Something may be lost by it: it is done when it is asked for by force.
    NeedsForce,
    /// A device could not be read or written.
    Io,
    /// The request is not understood.
    BadRequest,
    /// There is no such path.
    NotFound,
    /// The path has another method.
    MethodNotAllowed,
    /// The request has no token, or not the right one.
    Unauthorized,
    /// The one who asks may look and not change.
    Forbidden,
    /// It comes from a page of somebody else, or asks for another host.
    WrongHost,
    /// The server has too many connections.
    Busy,
    /// The server ends, and has not looked at the request.
    Ending,
}

impl Code {
    /// The status that HTTP has for it.
    pub fn status(self) -> u16 {
        match self {
            Code::BadRequest => 400,
            Code::Unauthorized => 401,
            Code::Forbidden => 403,
            Code::NoSuchArray | Code::NoSuchMember | Code::NoSuchVolume | Code::NotFound => 404,
            Code::MethodNotAllowed => 405,
            Code::Refused | Code::InUse | Code::JobRuns | Code::NeedsForce => 409,
            Code::Io => 500,
            Code::WrongHost => 421,
            Code::Busy | Code::Ending => 503,
        }
    }

    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Code::Refused => "refused",
            Code::NoSuchArray => "no-such-array",
            Code::NoSuchMember => "no-such-member",
            Code::NoSuchVolume => "no-such-volume",
            Code::InUse => "in-use",
            Code::JobRuns => "job-runs",
            Code::NeedsForce => "needs-force",
            Code::Io => "io",
            Code::BadRequest => "bad-request",
            Code::NotFound => "not-found",
            Code::MethodNotAllowed => "method-not-allowed",
            Code::Unauthorized => "unauthorized",
            Code::Forbidden => "forbidden",
            Code::WrongHost => "wrong-host",
            Code::Busy => "busy",
            Code::Ending => "ending",
        }
    }
}

impl Refusal {
    /// A refusal.
    pub fn new(code: Code, error: impl Into<String>) -> Refusal {
        Refusal { error: error.into(), code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_in_text_in_json_and_in_the_page() {
        let page = include_str!("../../../../../docs/control-api.md");
        for code in [
            Code::Refused,
            Code::NoSuchArray,
            Code::NoSuchMember,
            Code::NoSuchVolume,
            Code::InUse,
            Code::JobRuns,
            Code::NeedsForce,
            Code::Io,
            Code::BadRequest,
            Code::NotFound,
            Code::MethodNotAllowed,
            Code::Unauthorized,
            Code::Forbidden,
            Code::WrongHost,
            Code::Busy,
            Code::Ending,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.word());
            let row = format!("| `{}` | {}", code.word(), code.status());
            assert!(page.contains(&row), "{row}");
        }
    }
}

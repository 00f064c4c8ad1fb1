//! A request as method, path, query and body, and back. Both ways use the one table.

use super::PREFIX;
use super::routes::{Field, Fixed, ROUTES, Route, Segment};
use crate::http::encoding;
use crate::protocol::{Code, Refusal, Request};
use serde_json::{Map, Value};

/// The path that stands for no value: the only one that there is.
const ONLY: &str = "-";
/// The same as a name.
const CALLED_ONLY: &str = "%2D";

/// A request for HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// GET or POST.
    pub method: &'static str,
    /// Path and query.
    pub path: String,
    /// JSON.
    pub body: Option<Vec<u8>>,
}

/// The method, path and body that stand for `request`.
///
/// # Errors
/// A request that is no text, such as one with a path that is not UTF-8.
pub fn target(request: &Request) -> Result<Target, serde_json::Error> {
    let mut fields = match serde_json::to_value(request)? {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let mut verb = take_word(&mut fields, "verb");
    if verb == "volume"
        && let Some(Value::Object(inner)) = fields.remove("request")
    {
        fields = inner;
        verb = format!("volume/{}", take_word(&mut fields, "verb"));
    }
    let route = ROUTES.iter().find(|route| route.verb == verb && suits(route, &fields));
    let Some(route) = route else {
        return Err(serde::de::Error::custom(format!("no path stands for {verb}")));
    };
    let mut path = PREFIX.to_string();
    for segment in route.segments() {
        path.push('/');
        match segment {
            Segment::Word(word) => path.push_str(word),
            Segment::Field(field) => match fields.remove(field.name) {
                Some(Value::String(name)) if name == ONLY => path.push_str(CALLED_ONLY),
                Some(Value::String(name)) => path.push_str(&encoding::encode(&name)),
                _ => path.push_str(ONLY),
            },
        }
    }
    for (name, _) in route.fixed {
        fields.remove(*name);
    }
    let body = match route.method {
        "GET" => {
            let mut sign = '?';
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                path.push_str(&format!("{sign}{name}={}", encoding::encode(&text)));
                sign = '&';
            }
            None
        }
        _ => Some(serde_json::to_vec(&fields)?),
    };
    Ok(Target { method: route.method, path, body })
}

fn take_word(fields: &mut Map<String, Value>, name: &str) -> String {
    match fields.remove(name) {
        Some(Value::String(word)) => word,
        _ => String::new(),
    }
}

fn suits(route: &Route, fields: &Map<String, Value>) -> bool {
    let value = |name: &str| fields.get(name).unwrap_or(&Value::Null);
    let is_fixed = |(name, wanted): &(&str, Fixed)| match wanted {
        Fixed::Null => value(name).is_null(),
        Fixed::Word(word) => value(name) == word,
    };
    let has = |Field { name, optional }: Field| optional || value(name).is_string();
    route.fixed.iter().all(is_fixed) && route.fields().all(has)
}

/// The request that `method`, `path`, `query` and `body` stand for.
///
/// # Errors
/// A path that there is not, or whose method is another; a body or query that says something else than the request needs.
pub fn request(method: &str, path: &str, query: &str, body: &[u8]) -> Result<Request, Refusal> {
    let bad = |why: String| Refusal::new(Code::BadRequest, why);
    let mut fields = Map::new();
    let mut others = Vec::new();
    let found = ROUTES.iter().find(|route| {
        let Some(values) = values(route, path) else { return false };
        if route.method != method {
            others.push(route.method);
            return false;
        }
        fields = values;
        true
    });
    let Some(route) = found else {
        return Err(match others.is_empty() {
            true => Refusal::new(
                Code::NotFound,
                format!("there is no {path} here; /v1/openapi.json has all paths"),
            ),
            false => Refusal::new(
                Code::MethodNotAllowed,
                format!("{path} knows {}, not {method}", others.join(" and ")),
            ),
        });
    };
    for (name, value) in route.fixed {
        let value = match value {
            Fixed::Null => Value::Null,
            Fixed::Word(word) => Value::from(*word),
        };
        fields.insert((*name).to_string(), value);
    }
    let more = match (method, body) {
        ("GET", []) => {
            let pairs = encoding::query(query);
            let pairs = pairs.ok_or_else(|| bad(format!("the query {query:?} is no text")))?;
            pairs.into_iter().map(|(name, value)| (name, of_query(&value))).collect()
        }
        ("GET", _) => return Err(bad("a GET has no body".to_string())),
        _ if !query.is_empty() => {
            return Err(bad("a POST has a body of JSON and no query".to_string()));
        }
        (_, []) => Map::new(),
        (_, body) => serde_json::from_slice(body)
            .map_err(|error| bad(format!("the body is no object of JSON: {error}")))?,
    };
    for (name, value) in more {
        if fields.contains_key(&name) || name == "verb" {
            return Err(bad(format!("{name} is said by the path")));
        }
        fields.insert(name, value);
    }
    let whole = match route.verb.strip_prefix("volume/") {
        Some(verb) => {
            fields.insert("verb".to_string(), verb.into());
            Value::Object(Map::from_iter([
                ("verb".to_string(), "volume".into()),
                ("request".to_string(), Value::Object(fields)),
            ]))
        }
        None => {
            fields.insert("verb".to_string(), route.verb.into());
            Value::Object(fields)
        }
    };
    serde_json::from_value(whole).map_err(|error| bad(format!("not understood: {error}")))
}

/// The fields in `path`, where it is one of that route.
fn values(route: &Route, path: &str) -> Option<Map<String, Value>> {
    let mut parts = path.strip_prefix(PREFIX)?.strip_prefix('/')?.split('/');
    let mut fields = Map::new();
    for segment in route.segments() {
        let part = parts.next()?;
        match segment {
            Segment::Word(word) if word == part => {}
            Segment::Word(_) => return None,
            Segment::Field(Field { name, optional }) => {
                let value = match part {
                    "" => return None,
                    ONLY if optional => Value::Null,
                    part => Value::String(encoding::decode(part)?),
                };
                fields.insert(name.to_string(), value);
            }
        }
    }
    parts.next().is_none().then_some(fields)
}

fn of_query(text: &str) -> Value {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        text => text.parse::<u64>().map_or_else(|_| text.into(), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::volume::{JobDeed, VolumeRequest};
    use crate::protocol::{Flags, NewShape};

    fn volume(request: VolumeRequest) -> Request {
        Request::Volume { request: Box::new(request) }
    }

    fn back(asked: &Target) -> Result<Request, Refusal> {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        request(asked.method, path, query, asked.body.as_deref().unwrap_or_default())
    }

    #[test]
    fn requests_come_back_from_their_paths() {
        let job = |deed| volume(VolumeRequest::Job { volume: None, deed, check: true });
        let some = |name: &str| Some(name.to_string());
        for (request, method, path) in [
            (Request::List, "GET", "/v1/arrays"),
            (Request::Detail { array: None }, "GET", "/v1/arrays/-"),
            (Request::Detail { array: some("-") }, "GET", "/v1/arrays/%2D"),
            (Request::Detail { array: some("..") }, "GET", "/v1/arrays/%2E%2E"),
            (Request::Wait { array: some("a/b c") }, "GET", "/v1/arrays/a%2Fb%20c/wait"),
            (Request::Stop { array: None, force: true }, "POST", "/v1/server/stop"),
            (Request::Stop { array: some("-"), force: false }, "POST", "/v1/arrays/%2D/stop"),
            (
                Request::Add {
                    array: "a".into(),
                    members: vec!["/dev/\u{e9}".into()],
                    force: true,
                    flags: Flags { write_mostly: true, failfast: false },
                },
                "POST",
                "/v1/arrays/a/add",
            ),
            (
                Request::Speed { array: some("a"), min_kib: None, max_kib: Some(u64::MAX) },
                "POST",
                "/v1/arrays/a/speed",
            ),
            (
                volume(VolumeRequest::Status { volume: some("/mnt/x") }),
                "GET",
                "/v1/volumes/%2Fmnt%2Fx",
            ),
            (job(JobDeed::Wait), "GET", "/v1/volumes/-/job/wait?check=true"),
            (job(JobDeed::Speed { bytes: Some(1) }), "POST", "/v1/volumes/-/job"),
        ] {
            let asked = target(&request).unwrap();
            assert_eq!((asked.method, asked.path.as_str()), (method, path));
            assert_eq!(back(&asked).unwrap(), request);
        }
    }

    #[test]
    fn what_is_left_out_has_its_usual_value() {
        let asked = request("POST", "/v1/arrays/a/reshape", "", b"{\"shape\":{\"chunk\":4096}}");
        let shape = NewShape { chunk: Some(4096), ..NewShape::default() };
        assert_eq!(asked, Ok(Request::Reshape { array: "a".into(), shape, dry_run: false }));
        let asked = request("POST", "/v1/arrays/-/scrub", "", b"");
        assert_eq!(asked, Ok(Request::Scrub { array: None, repair: false, parity_only: false }));
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_code() {
        for (method, path, query, body, code) in [
            ("GET", "/v1", "", "", Code::NotFound),
            ("GET", "/v2/arrays", "", "", Code::NotFound),
            ("GET", "/v1/arrays/", "", "", Code::NotFound),
            ("GET", "/v1/arrays/%ff", "", "", Code::NotFound),
            ("GET", "/v1/arrays/a/fail", "", "", Code::MethodNotAllowed),
            ("DELETE", "/v1/arrays/a", "", "", Code::MethodNotAllowed),
            ("POST", "/v1/arrays/a/fail", "", "", Code::BadRequest),
            ("POST", "/v1/arrays/a/fail", "", "[]", Code::BadRequest),
            ("POST", "/v1/arrays/a/fail", "", "{\"members\":[],\"array\":\"b\"}", Code::BadRequest),
            ("POST", "/v1/arrays/a/fail", "", "{\"members\":[],\"verb\":\"x\"}", Code::BadRequest),
            ("POST", "/v1/arrays/a/fail", "", "{\"members\":[],\"colour\":1}", Code::BadRequest),
            ("POST", "/v1/arrays/a/fail", "members=b", "", Code::BadRequest),
            ("GET", "/v1/arrays/a", "colour=red", "", Code::BadRequest),
            ("GET", "/v1/arrays/a", "", "{}", Code::BadRequest),
        ] {
            let refused = request(method, path, query, body.as_bytes()).unwrap_err();
            assert_eq!(refused.code, code, "{method} {path}: {}", refused.error);
        }
    }
}

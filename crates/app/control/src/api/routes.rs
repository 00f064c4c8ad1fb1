//! Which method and path stands for which request.
//!
//! Invariant: each request has a route, and each route stands for one kind of request. Requests that change nothing are asked
//! by GET, all others by POST: roles rest on that.

/// One row of the table.
#[derive(Debug)]
pub struct Route {
    /// GET or POST.
    pub method: &'static str,
    /// Behind the version. `{name}` stands for a field; in `{name?}` a `-` stands for no value: the only array or volume that
    /// there is.
    pub path: &'static str,
    /// The request's verb; of a volume, behind `volume/`.
    pub verb: &'static str,
    /// Fields that are as the path says.
    pub fixed: &'static [(&'static str, Fixed)],
    /// The answers that there may be, beside a refusal.
    pub answers: &'static [&'static str],
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// None.
    Null,
    /// A word.
    Word(&'static str),
}

const DONE: &[&str] = &["done"];
const MEMBERS: &[&str] = &["members"];
const LEVELS: &[&str] = &["reshaping", "relevelling", "level-steps"];
const VOLUME: &[&str] = &["volume"];

const fn get(path: &'static str, verb: &'static str, answers: &'static [&'static str]) -> Route {
    Route { method: "GET", path, verb, fixed: &[], answers }
}

const fn post(path: &'static str, verb: &'static str, answers: &'static [&'static str]) -> Route {
    Route { method: "POST", path, verb, fixed: &[], answers }
}

/// All of them. Where two stand for a request, the first whose fixed fields it has is taken.
pub const ROUTES: &[Route] = &[
    get("/ping", "ping", DONE),
    get("/events", "events", &["events"]),
    post("/server/start", "start", &["started"]),
    Route { fixed: &[("array", Fixed::Null)], ..post("/server/stop", "stop", DONE) },
    post("/server/take-over", "take-over", DONE),
    get("/arrays", "list", &["list"]),
    post("/arrays", "create", &["created"]),
    get("/arrays/{array?}", "detail", &["detail"]),
    get("/arrays/{array?}/stat", "stat", &["stat"]),
    get("/arrays/{array?}/settings", "get", &["settings"]),
    get("/arrays/{array?}/scrubs", "scrubs", &["scrubs"]),
    get("/arrays/{array?}/wait", "wait", &["progress", "idle"]),
    post("/arrays/{array}/fail", "fail", MEMBERS),
    post("/arrays/{array}/remove", "remove", MEMBERS),
    post("/arrays/{array}/replace", "replace", MEMBERS),
    post("/arrays/{array}/add", "add", MEMBERS),
    post("/arrays/{array}/add-journal", "add-journal", MEMBERS),
    post("/arrays/{array}/re-add", "re-add", MEMBERS),
    post("/arrays/{array}/member", "member", DONE),
    post("/arrays/{array}/bitmap", "bitmap", DONE),
    post("/arrays/{array}/resize", "resize", &["resized"]),
    post("/arrays/{array}/ppl", "ppl", DONE),
    post("/arrays/{array}/resync", "resync", DONE),
    post("/arrays/{array}/reshape", "reshape", LEVELS),
    post("/arrays/{array}/level", "level", LEVELS),
    post("/arrays/{array?}/resume", "resume", DONE),
    post("/arrays/{array?}/scrub", "scrub", DONE),
    post("/arrays/{array?}/pause-scrub", "pause-scrub", DONE),
    post("/arrays/{array?}/accept-doubt", "accept-doubt", DONE),
    post("/arrays/{array?}/cancel", "cancel", DONE),
    post("/arrays/{array?}/speed", "speed", DONE),
    post("/arrays/{array}/settings", "set", DONE),
    post("/arrays/{array}/stop", "stop", DONE),
    get("/volumes", "volume/list", VOLUME),
    post("/volumes", "volume/create", VOLUME),
    get("/volumes/{volume?}", "volume/status", VOLUME),
    get("/volumes/{volume}/check", "volume/last-check", VOLUME),
    get("/volumes/{volume}/quotas", "volume/quotas", VOLUME),
    get("/volumes/{volume}/snapshots", "volume/snapshots", VOLUME),
    post("/volumes/{volume}/copies", "volume/copies", VOLUME),
    Route {
        fixed: &[("deed", Fixed::Word("wait"))],
        ..get("/volumes/{volume?}/job/wait", "volume/job", &["progress", "done"])
    },
    post("/volumes/{volume?}/job", "volume/job", DONE),
    post("/volumes/{name}/mount", "volume/mount", DONE),
    post("/volumes/{volume}/destroy", "volume/destroy", DONE),
    post("/volumes/{volume}/rename", "volume/rename", DONE),
    post("/volumes/{volume}/check-unmounted", "volume/check-unmounted", &["progress", "volume"]),
    post("/volumes/{volume}/unmount", "volume/unmount", DONE),
    post("/volumes/{volume}/add", "volume/add", DONE),
    post("/volumes/{volume}/start", "volume/start", DONE),
    post("/volumes/{volume}/weight", "volume/weight", DONE),
    post("/volumes/{volume}/take-back", "volume/take-back", DONE),
    post("/volumes/{volume}/grow-metadata", "volume/grow-metadata", DONE),
    post("/volumes/{volume}/pin", "volume/pin", DONE),
    post("/volumes/{volume}/quota", "volume/quota", DONE),
    post("/volumes/{volume}/snapshot", "volume/snapshot", DONE),
    post("/volumes/{volume}/remove-snapshot", "volume/remove-snapshot", DONE),
    post("/volumes/{volume}/proxy", "volume/proxy", DONE),
    post("/volumes/{volume}/export", "volume/export", DONE),
];

/// A field in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// It may be `-`.
    pub optional: bool,
}

/// A segment of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// As it is.
    Word(&'static str),
    /// The value of a field.
    Field(Field),
}

impl Route {
    /// The path, taken apart.
    pub fn segments(&self) -> impl Iterator<Item = Segment> {
        self.path.split('/').skip(1).map(|segment| {
            let field = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            match field.map(|name| (name, name.strip_suffix('?'))) {
                None => Segment::Word(segment),
                Some((name, None)) => Segment::Field(Field { name, optional: false }),
                Some((_, Some(name))) => Segment::Field(Field { name, optional: true }),
            }
        })
    }

    /// The fields in the path.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        self.segments().filter_map(|segment| match segment {
            Segment::Field(field) => Some(field),
            Segment::Word(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_path() {
        let page = include_str!("../../../../../docs/control-api.md");
        for route in ROUTES {
            assert!(page.contains(&format!("`/v1{}`", route.path)), "{}", route.path);
        }
    }

    #[test]
    fn what_has_progress_is_only_looked_at_but_for_a_check_that_may_repair() {
        let with_progress = ROUTES.iter().filter(|route| route.answers.contains(&"progress"));
        let known: Vec<_> = with_progress.map(|route| (route.method, route.verb)).collect();
        let waits = [("GET", "wait"), ("GET", "volume/job")];
        assert_eq!(known, [&waits[..], &[("POST", "volume/check-unmounted")]].concat());
    }
}

//! The control API as other programs use it: docs/control-api.md with curl, roles, and a server's document.

use crate::support::{Place, Ran};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

/// A user who is nobody on this machine, and a group of the same number.
const NOBODY: &str = "65534";

fn curl(place: &Place, words: &[&str]) -> Ran {
    let socket = place.path("control.sock");
    let all = ["--silent", "--show-error", "--unix-socket", socket.to_str().unwrap()];
    place.tool("curl", &[&all, words].concat())
}

/// Status and body of an answer.
fn ask(place: &Place, words: &[&str]) -> (u16, Value) {
    let said = curl(place, &[&["--write-out", "\n%{http_code}"], words].concat()).ok();
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[test]
fn the_examples_of_the_page_work() {
    let place = Place::new();
    place.members(&["disk0", "disk1", "disk2", "disk3"]);
    place.run("create vault -l 5 -n 3 -c 64K --assume-clean disk0 disk1 disk2").ok();
    let _server = place.serve("disk0 disk1 disk2");
    let page = include_str!("../../../../../docs/control-api.md");
    let script = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let script = script
        .replace("/run/braid/control.sock", place.path("control.sock").to_str().unwrap())
        .replace("/srv/disk3", place.path("disk3").to_str().unwrap())
        .replace("[\"disk2\"]", &format!("[{:?}]", place.path("disk2").to_str().unwrap()))
        .replace("http://braid/", "--write-out '\\n' http://braid/");
    let said = place.tool("bash", &["-e", "-c", &script]).ok();
    let answers: Vec<Value> = said
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = answers.iter().filter_map(|answer| answer["answer"].as_str()).collect();
    let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "progress").collect();
    assert_eq!(
        kinds,
        [
            "list",
            "detail",
            "stat",
            "members",
            "members",
            "members",
            "idle",
            "done",
            "done",
            "scrubs",
            "reshaping",
            "volume",
            "events"
        ],
        "{said}"
    );
    let document = answers.last().unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for answer in &answers {
        // Each kind of answer that came is one that the document has.
        let Some(kind) = answer["answer"].as_str() else { continue };
        assert!(document.to_string().contains(&format!("\"const\":\"{kind}\"")), "{kind}");
    }
    assert_eq!(place.detail("vault")["degraded"], 0, "the rebuild was waited for");
}

#[test]
fn a_refusal_has_a_status_and_a_code() {
    let place = Place::new();
    let _server = place.serve("--create data -l 1 -n 2 --assume-clean ram:16M ram:16M");
    place.members(&["a", "b"]);
    place.run("create below -l 1 -n 2 --assume-clean --start a b").ok();
    place.run("create above -l 0 -n 1 --force --start array:below").ok();
    let other = Place::new();
    other.members(&["a", "b"]);
    other.run("create there -l 1 -n 2 --assume-clean a b").ok();
    let members = ["a", "b"].map(|name| other.path(name));
    let shape = serde_json::json!({"level": "1", "raid_devices": 2});
    let occupied = serde_json::json!({"name": "x", "members": members, "shape": shape}).to_string();
    for (words, status, code) in [
        (&["http://b/v1/arrays/other"][..], 404, "no-such-array"),
        (&["http://b/v1/colours"], 404, "not-found"),
        (&["-X", "DELETE", "http://b/v1/arrays/data"], 405, "method-not-allowed"),
        (&["http://b/v1/arrays/data/fail", "--data", "{"], 400, "bad-request"),
        (
            &["http://b/v1/arrays/data/fail", "--data", "{\"members\":[],\"x\":1}"],
            400,
            "bad-request",
        ),
        (&["http://b/v1/arrays/data/resync", "--data", "{}"], 409, "refused"),
        (&["http://b/v1/volumes/other"], 404, "no-such-volume"),
        (&["http://b/v1/arrays", "--data", &occupied], 409, "needs-force"),
        (&["http://b/v1/arrays/below/stop", "--data", "{}"], 409, "in-use"),
    ] {
        let (found, answer) = ask(&place, words);
        assert_eq!((found, answer["code"].as_str()), (status, Some(code)), "{words:?}: {answer}");
        assert_eq!(answer["answer"], "refused");
        assert!(!answer["error"].as_str().unwrap().is_empty());
    }
    let ran = place.run("detail other --json");
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, said["code"].as_str()), (4, Some("no-such-array")), "{said}");
    let ran = place.run("detail data --control nowhere --json");
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, said["code"].as_str()), (4, Some("unreadable")), "{said}");
}

#[test]
fn the_group_of_the_socket_may_look_and_its_owner_change() {
    assert!(rustix::process::geteuid().is_root(), "it acts as other users (make test-command)");
    let place = Place::new();
    let open = |name: &str| {
        fs::set_permissions(place.path(name), Permissions::from_mode(0o755)).unwrap();
    };
    open("");
    // Where the program was built others may not come.
    fs::copy(env!("CARGO_BIN_EXE_braid"), place.path("braid")).unwrap();
    open("braid");
    let words =
        format!("--create data -l 1 -n 2 --assume-clean ram:16M ram:16M --control-group {NOBODY}");
    let server = place.serve(&words);
    let found = fs::metadata(place.path("control.sock")).unwrap();
    assert_eq!((found.mode() & 0o777, found.gid().to_string().as_str()), (0o660, NOBODY));
    let as_other = |group: &str, line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", group, "--clear-groups"]);
        command.arg(place.path("braid")).args(line.split_whitespace());
        command.env("BRAID_CONTROL", place.path("control.sock")).current_dir(place.path(""));
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    };
    assert!(as_other(NOBODY, "detail data").ok().contains("Raid Level : raid1"));
    assert!(as_other(NOBODY, "status").ok().contains("data"));
    as_other(NOBODY, "stat data").ok();
    as_other(NOBODY, "wait data").ok();
    let may_not = ["65534 may look", "sudo"];
    for line in ["stop data", "check data", "speed data --max 1000", "set data shards=1"] {
        as_other(NOBODY, line).refused(2, &may_not);
    }
    let said = as_other(NOBODY, "stop data --json");
    assert_eq!(serde_json::from_str::<Value>(&said.out).unwrap()["code"], "forbidden");
    // Neither its owner nor of its group.
    as_other("65533", "detail data").refused(4, &["not yours", "--control-group"]);
    place.run("stop data").ok();
    server.ended().ok();
}

//! `serve --http`: the page in a browser, and who gets what of the API over TCP.
//!
//! With BRAID_SCREENSHOTS=FOLDER the pictures stay there (`make screenshots`).

use crate::browser::Browser;
use crate::support::{Place, Server};
use crate::tls::certificates;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Address and token of the page.
fn web(place: &Place, server: &Server) -> (String, String) {
    let line = server.said.lines().find_map(|line| line.strip_prefix("web view: "));
    let line = line.unwrap_or_else(|| panic!("no web view in {}", server.said));
    let (address, file) = line.split_once(", token in ").unwrap();
    assert_eq!(PathBuf::from(file), place.path("state/http-token"));
    let token = fs::read_to_string(file).unwrap();
    (address.trim_end_matches('/').to_string(), token.trim().to_string())
}

/// Status, head and body of an answer.
fn curl(place: &Place, words: &[&str]) -> (u16, String, String) {
    let all = [&["--silent", "--show-error", "--include"], words].concat();
    let said = place.tool("curl", &all).ok();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, head.to_string(), body.to_string())
}

#[test]
fn who_has_no_token_gets_the_page_and_nothing_else() {
    let place = Place::new();
    let server =
        place.serve("--create data -l 1 -n 2 --assume-clean ram:16M ram:16M --http=127.0.0.1:0");
    let (address, token) = web(&place, &server);
    let (api, stop) = (format!("{address}/v1/arrays"), format!("{address}/v1/server/stop"));
    let (api, stop, address) = (api.as_str(), stop.as_str(), address.as_str());
    let right = format!("Authorization: Bearer {token}");
    let right = right.as_str();
    let wrong = format!("Authorization: Bearer {}", token.replace(['0', '1', '2', '3'], "4"));
    let port = address.rsplit_once(':').unwrap().1;
    let (status, head, page) = curl(&place, &[address]);
    assert_eq!(status, 200);
    assert!(head.contains("default-src 'none'; script-src 'self'"), "{head}");
    assert!(head.contains("frame-ancestors 'none'") && head.contains("nosniff"), "{head}");
    assert!(page.contains("<title>braid</title>") && !page.contains("data:text"), "{page}");
    let host = |name: &str| format!("Host: {name}:{port}");
    let origin = |name: &str| format!("Origin: http://{name}:{port}");
    for (words, status, code) in [
        (&[api][..], 401, "unauthorized"),
        (&[api, "-H", &wrong], 401, "unauthorized"),
        (&[api, "-H", &format!("Authorization: Basic {token}")], 401, "unauthorized"),
        (&[stop, "--data", "{}"], 401, "unauthorized"),
        (&[&format!("{address}/v1/openapi.json")], 401, "unauthorized"),
        // A page of somebody else, by a name that has this address, or by this name.
        (&[api, "-H", right, "-H", &host("evil.example")], 421, "wrong-host"),
        (&[address, "-H", &host("evil.example")], 421, "wrong-host"),
        (&[stop, "-H", right, "-H", &origin("evil.example"), "--data", "{}"], 421, "wrong-host"),
        (&[stop, "-H", right, "-H", "Origin: null", "--data", "{}"], 421, "wrong-host"),
        (
            &[stop, "-H", right, "-H", "Origin: http://127.0.0.1:1", "--data", "{}"],
            421,
            "wrong-host",
        ),
    ] {
        let (found, head, body) = curl(&place, words);
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((found, answer["code"].as_str()), (status, Some(code)), "{words:?}: {body}");
        assert!(!head.to_lowercase().contains("access-control-allow"), "{head}");
        assert!(!body.contains(&token), "{body}");
    }
    assert_eq!(curl(&place, &[&format!("{address}/etc/passwd")]).0, 404);
    for more in [&host("localhost"), &origin("127.0.0.1"), &host("[::1]")] {
        let (status, _, body) = curl(&place, &[api, "-H", right, "-H", more]);
        assert_eq!(status, 200, "{more}: {body}");
        assert!(body.contains("\"data\""), "{body}");
    }
    let (status, _, body) = curl(&place, &[stop, "-H", right, "--data", "{}"]);
    assert_eq!(status, 200, "{body}");
    server.ended().ok();
}

#[test]
fn who_has_the_second_token_may_look_and_change_nothing() {
    let place = Place::new();
    let server = place.serve(
        "--create data -l 1 -n 2 --assume-clean ram:16M ram:16M --http=127.0.0.1:0 --http-look-token look",
    );
    let (address, token) = web(&place, &server);
    let look = fs::read_to_string(place.path("look")).unwrap();
    assert_ne!(look.trim(), token);
    let bearer = |token: &str| format!("Authorization: Bearer {}", token.trim());
    let (looks, owns) = (bearer(&look), bearer(&token));
    let (api, stop) = (format!("{address}/v1/arrays/data"), format!("{address}/v1/server/stop"));
    let (status, _, body) = curl(&place, &[&api, "-H", &looks]);
    assert_eq!(status, 200, "{body}");
    let (status, _, body) = curl(&place, &[&stop, "-H", &looks, "--data", "{}"]);
    assert!(status == 403 && body.contains("forbidden"), "{status} {body}");
    let (status, _, body) = curl(&place, &[&stop, "-H", &owns, "--data", "{}"]);
    assert_eq!(status, 200, "{body}");
    server.ended().ok();
}

#[test]
fn other_hosts_need_tls() {
    let place = Place::new();
    certificates(&place);
    place.members(&["a", "b"]);
    place.run("create data -l 1 -n 2 --assume-clean a b").ok();
    place
        .run("serve a b --nbd unix:nbd.sock --http=0.0.0.0:0")
        .refused(2, &["in the clear", "--http-tls", "127.0.0.1"]);
    place
        .run("serve a b --nbd unix:nbd.sock --http --http-tls")
        .refused(2, &["--tls-certificates"]);
    let server = place.serve("a b --http=0.0.0.0:0 --http-tls --tls-certificates .");
    let (address, token) = web(&place, &server);
    assert!(address.starts_with("https://0.0.0.0:"), "{address}");
    let api = format!("{}/v1/arrays/data", address.replace("0.0.0.0", "localhost"));
    let right = format!("Authorization: Bearer {token}");
    let (status, _, body) = curl(&place, &["--cacert", "ca-cert.pem", &api, "-H", &right]);
    assert_eq!(status, 200, "{body}");
    // The certificate is asked for; without TLS there is no answer.
    assert_ne!(place.tool("curl", &["--silent", &api, "-H", &right]).code, 0);
    let plain = api.replace("https", "http");
    assert_ne!(place.tool("curl", &["--silent", &plain, "-H", &right]).code, 0);
    place.run("stop data").ok();
    server.ended().ok();
}

/// Copies something into the array over and over, so that there are rates.
pub fn under_load<T>(place: &Place, work: impl FnOnce() -> T) -> T {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                place.copy_in("content", "vault");
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        // Also when the work has failed.
        let _ends = Ends(&ends);
        work()
    })
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_browser_shows_a_rebuild_and_a_reshape_and_steers_a_check() {
    let place = Place::new();
    let pictures = std::env::var_os("BRAID_SCREENSHOTS").map_or(place.path(""), PathBuf::from);
    fs::create_dir_all(&pictures).unwrap();
    place.members(&["disk0", "disk1", "disk2", "disk3", "disk4", "disk5"]);
    place
        .run("create vault -l 5 -n 4 -x 1 -c 64K --assume-clean disk0 disk1 disk2 disk3 disk4")
        .ok();
    let server = place.serve("disk0 disk1 disk2 disk3 disk4 --http=127.0.0.1:0");
    let (address, token) = web(&place, &server);
    place.data("content", 6 << 20);
    let mut browser = Browser::start();
    browser.window(1200, 900, false);

    browser.open(&address);
    browser.until("!document.getElementById('login').hidden");
    browser.eval("document.getElementById('token').value = 'not the token'");
    browser.click("Look");
    browser.until("document.getElementById('why').textContent === 'That is not the token.'");
    browser.events.clear();

    browser.open(&format!("{address}/#token={token}"));
    browser.until("document.querySelector('#arrays h2').textContent === 'vault'");
    assert_eq!(browser.eval("location.hash"), "", "the token stays in the address");
    browser.until("document.querySelector('.state.good') && document.querySelectorAll('tbody tr').length === 5");
    browser.until("document.getElementById('summary').textContent === '1 array, all well'");

    under_load(&place, || {
        place.run("speed vault --min 1 --max 600").ok();
        place.run("fail vault disk2").ok();
        browser
            .until("document.querySelector('.map i.now') && document.querySelector('.map i.todo')");
        browser.until("document.querySelectorAll('.map i.done').length > 40");
        browser.until("document.body.innerText.includes('rebuilding')");
        browser.until("document.querySelector('progress').value > 0.2");
        browser.until(
            "document.querySelector('polyline.write').getAttribute('points').split(' ').length > 5",
        );
        browser.until("document.getElementById('events').innerText.includes('RebuildStarted')");
        assert!(browser.eval("document.title").as_str().unwrap().starts_with('⚠'));
        let light = browser.eval("getComputedStyle(document.body).backgroundColor");
        browser.picture(&pictures.join("web-rebuild.png"));
        browser.window(390, 844, true);
        let width = browser.eval("document.documentElement.scrollWidth");
        assert!(width.as_u64().unwrap() <= 390, "a telephone has to scroll sideways: {width}");
        assert_ne!(light, browser.eval("getComputedStyle(document.body).backgroundColor"));
        browser.picture(&pictures.join("web-rebuild-phone.png"));
        browser.window(1200, 900, true);
        place.run("speed vault --max 1000000").ok();
        place.run("wait vault").ok();
        place.run("remove vault disk2").ok();
        place.run("add vault disk5").ok();
        place.run("speed vault --min 1 --max 800").ok();
        place.run("grow vault --raid-devices 5").ok();
        browser.until("document.querySelectorAll('.map i.new').length > 50");
        browser.until("document.body.innerText.includes('Stripes: reshape')");
        browser.picture(&pictures.join("web-reshape.png"));
    });
    place.run("speed vault --max 1000000").ok();
    place.run("wait vault").ok();

    browser.eval("document.querySelector('input.rate').value = '0.5'");
    browser.click("Limit MiB/s");
    until("the page limits the speed", || place.detail("vault")["sync_speed_max"] == 512);
    browser.click("Check");
    browser.click("Pause");
    until("the page pauses the check", || place.detail("vault")["scrub"]["state"] == "paused");
    browser.until("document.body.innerText.includes('Stripes: check')");
    browser.click("Resume");
    until("the page resumes it", || place.detail("vault")["scrub"]["state"] == "running");
    browser.click("Cancel check");
    until("the page cancels it", || place.detail("vault")["scrub"].is_null());
    browser.click("Limit MiB/s");
    until("the page ends the limit", || place.detail("vault")["sync_speed_max"].is_null());

    let asked =
        browser.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
    let asked: Vec<&str> =
        asked.filter_map(|event| event["params"]["request"]["url"].as_str()).collect();
    assert!(asked.len() > 50, "{asked:?}");
    let outside = asked.iter().find(|url| !url.starts_with(&address) && **url != "data:,");
    assert_eq!(outside, None, "it asks somebody else");
    let complaints = ["Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"];
    let said = browser
        .events
        .iter()
        .find(|event| complaints.iter().any(|method| event["method"] == *method));
    assert_eq!(said, None, "the browser complains");
    place.run("stop vault --force").ok();
    browser.until("document.getElementById('summary').className === 'lost'");
    server.ended().ok();
}

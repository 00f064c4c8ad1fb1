//! Arrays that are run under a lease of etcd (Debian: etcd-server). Fail-overs are tried with hosts, by `braid-interop fail-overs`.

use crate::support::etcd::Etcd;
use crate::support::{Place, Server};
use rustix::process::Signal;
use std::time::{Duration, Instant};

fn mirror(place: &Place) {
    place.members(&["a", "b"]);
    place.run("create mirror -l 1 -n 2 --assume-clean a b").ok();
}

/// When it has one.
fn lease(place: &Place) -> (i64, u64) {
    let detail = place.detail("mirror");
    let lease = &detail["lease"];
    (lease["token"].as_i64().unwrap(), lease["left_ms"].as_u64().unwrap())
}

/// By a signal, its own; gives what it said.
fn ended_by_itself(server: Server) -> String {
    let ran = server.ended();
    assert_eq!(ran.code, -1, "{}", ran.err);
    ran.err
}

#[test]
fn a_server_with_a_lease_renews_it_shows_its_token_and_gives_it_up() {
    let place = Place::new();
    let etcd = Etcd::start(&place);
    mirror(&place);
    let words = format!("a b --lease {}/racks --lease-ttl 5", etcd.place());
    let server = place.serve(&words);
    let (token, _) = lease(&place);
    assert!(token > 0);
    let said = place.run("detail mirror").ok();
    assert!(said.contains(&format!("/racks, token {token}, ")), "{said}");
    // Longer than it lasts.
    std::thread::sleep(Duration::from_secs(6));
    assert!((1000..=4000).contains(&lease(&place).1), "{:?}", lease(&place));
    let events =
        place.tool("curl", &["-sS", "--unix-socket", "control.sock", "http://braid/v1/events"]);
    assert!(events.ok().contains("LeaseTaken"));
    let refused = place.run("serve --take-over").refused(2, &["cannot be handed over"]);
    assert!(refused.contains("standby"), "{refused}");
    // A stop lets others have it at once, in this server, too.
    place.run("stop mirror").ok();
    assert_eq!(server.ended().code, 0);
    let server = place.serve(&words);
    assert!(lease(&place).0 > token);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code, 0);
}

#[test]
fn a_server_ends_by_its_own_clock_when_etcd_is_silent() {
    let place = Place::new();
    let etcd = Etcd::start(&place);
    mirror(&place);
    let server = place.serve(&format!("a b --lease {} --lease-ttl 3", etcd.place()));
    etcd.signal(Signal::STOP);
    let since = Instant::now();
    let said = ended_by_itself(server);
    let took = since.elapsed();
    assert!(said.contains("the lease was not renewed in time"), "{said}");
    assert!(took < Duration::from_secs(3), "{took:?}: another could have had it by then");
    etcd.signal(Signal::CONT);
    // Its key goes with its lease, which has to run out.
    let words = format!("a b --lease {} --lease-ttl 3 --standby", etcd.place());
    let server = place.serve(&words);
    server.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    server.signal(Signal::CONT);
    ended_by_itself(server);
    place.run("examine a b").ok();
}

#[test]
fn without_an_answer_of_etcd_nothing_is_started() {
    let place = Place::new();
    mirror(&place);
    let before = std::fs::read(place.path("a")).unwrap();
    let words = "serve a b --nbd unix:nbd.sock --lease etcd://127.0.0.1:1";
    place.run(words).refused(2, &["etcd does not answer at 127.0.0.1:1"]);
    assert!(std::fs::read(place.path("a")).unwrap() == before);
    place.run("serve a b --nbd unix:nbd.sock --lease http://x").refused(2, &["etcd://HOST:PORT"]);
    place.run("serve a b --nbd unix:nbd.sock --standby").refused(2, &["--lease"]);
}

/// An authority, a certificate of etcd, which its gateway shows as a client's, too, and one of this host.
fn certificates(place: &Place) {
    let openssl = |line: &str| {
        place.tool("openssl", &line.split_whitespace().collect::<Vec<_>>()).ok();
    };
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("req -x509 {curve} -keyout ca-key.pem -out ca.pem -subj /CN=authority"));
    let both = "serverAuth,clientAuth";
    for (name, usage, subject) in
        [("etcd", both, "CN=etcd"), ("host", "clientAuth", "O=host"), ("named", both, "CN=named")]
    {
        std::fs::write(
            place.path("extensions"),
            format!(
                "subjectAltName=IP:127.0.0.1\nextendedKeyUsage={usage}\nbasicConstraints=CA:FALSE\n"
            ),
        )
        .unwrap();
        openssl(&format!("req {curve} -keyout {name}-key.pem -out {name}.csr -subj /{subject}"));
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 2 -extfile extensions -out {name}.pem"
        ));
    }
}

/// Asks etcd for something by its gateway, as root does who sets it up.
fn ask(place: &Place, etcd: &Etcd, token: Option<&str>, path: &str, body: &str) -> String {
    let url = format!("https://127.0.0.1:{}/v3/{path}", etcd.port);
    let mut words = vec!["-sS", "--fail-with-body", "--cacert", "ca.pem", "--cert", "host.pem"];
    words.extend(["--key", "host-key.pem", "--data", body, &url]);
    let header = token.map(|token| format!("Authorization: {token}"));
    words.extend(header.iter().flat_map(|header| ["-H", header.as_str()]));
    place.tool("curl", &words).ok()
}

#[test]
fn etcd_is_spoken_to_over_tls_with_certificates_and_as_a_user() {
    let place = Place::new();
    certificates(&place);
    let etcd = Etcd::start_with(
        &place,
        "https",
        &[
            "--cert-file=etcd.pem",
            "--key-file=etcd-key.pem",
            "--client-cert-auth",
            "--trusted-ca-file=ca.pem",
            // The token that was given for the password is forgotten soon.
            "--auth-token-ttl=2",
        ],
    );
    let base64 = |text: &str| base64::Engine::encode(&base64::prelude::BASE64_STANDARD, text);
    let root = |path: &str, body: &str| {
        ask(&place, &etcd, None, path, body);
    };
    root("auth/user/add", r#"{"name":"root","password":"r"}"#);
    root("auth/role/add", r#"{"name":"root"}"#);
    root("auth/user/grant", r#"{"user":"root","role":"root"}"#);
    root("auth/user/add", r#"{"name":"rack","password":"it is long"}"#);
    root("auth/role/add", r#"{"name":"racks"}"#);
    let keys = format!(
        r#"{{"name":"racks","perm":{{"permType":"READWRITE","key":"{}","range_end":"{}"}}}}"#,
        base64("racks/"),
        base64("racks0")
    );
    root("auth/role/grant", &keys);
    root("auth/user/grant", r#"{"user":"rack","role":"racks"}"#);
    root("auth/enable", "{}");
    mirror(&place);
    let mode = |file: &str, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(place.path(file), mode).unwrap();
    };
    for (file, text) in [("password", "it is long\n"), ("wrong", "it is not\n")] {
        std::fs::write(place.path(file), text).unwrap();
        mode(file, 0o600);
    }
    let at = format!("127.0.0.1:{}", etcd.port);
    let tls = "--lease-cacert ca.pem --lease-cert host.pem --lease-key host-key.pem";
    let serve = "serve a b --nbd unix:nbd.sock --lease-ttl 5 --lease";
    // Each of these is refused before anything is started, and says why.
    for (words, says) in [
        (format!("etcd://{at}/racks"), "etcd does not answer"),
        (format!("etcd://{at}/racks --lease-cacert ca.pem"), "etcds://"),
        (format!("etcds://{at}/racks"), "etcd does not answer"),
        (format!("etcds://{at}/racks --lease-cacert ca.pem"), "etcd does not answer"),
        (format!("etcds://{at}/racks {tls}"), "user name is empty"),
        (format!("etcds://{at}/racks {}", tls.replace("host", "named")), "CommonName of client"),
        (format!("etcds://{at}/racks {tls} --lease-user rack"), "--lease-password-file"),
        (
            format!("etcds://{at}/racks {tls} --lease-user rack --lease-password-file wrong"),
            "authentication failed",
        ),
        (
            format!("etcds://{at}/other {tls} --lease-user rack --lease-password-file password"),
            "permission denied",
        ),
        (format!("etcds://{at}/racks --lease-cacert none.pem"), "none.pem"),
    ] {
        let said = place.run(&format!("{serve} {words}")).refused(2, &[says]);
        assert!(!said.contains("it is "), "{said}");
    }
    mode("password", 0o644);
    let words =
        format!("etcds://{at}/racks {tls} --lease-user rack --lease-password-file password");
    place.run(&format!("{serve} {words}")).refused(2, &["chmod 600"]);
    mode("password", 0o600);
    let server = place.serve(&format!("a b --lease {words} --lease-ttl 5"));
    let (token, _) = lease(&place);
    let said = place.run("detail mirror").ok();
    assert!(said.contains(&format!("etcds://{at}/racks, token {token}, ")), "{said}");
    // Longer than the lease lasts, and than what etcd gives for a password.
    std::thread::sleep(Duration::from_secs(8));
    assert!((1000..=4000).contains(&lease(&place).1), "{:?}", lease(&place));
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code, 0);
    let server = place.serve(&format!("a b --lease {words} --lease-ttl 5 --standby"));
    assert!(lease(&place).0 > token);
    place.run("stop mirror").ok();
    assert_eq!(server.ended().code, 0);
}

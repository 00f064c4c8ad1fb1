//! TLS as other people's clients see it: accepted, refused, and verified; and clients that never finish a handshake.
//!
//! `make test` installs them (Debian: libnbd-bin, qemu-utils, gnutls-bin, nbdkit, fio); without them these tests fail and say so.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use braid_export::Export;
use braid_nbd::protocol::constants::*;
use braid_nbd::protocol::encode_option;
use braid_nbd::serve::{Limits, TlsMode};
use braid_nbd::{Address, NbdUri};
use support::{Certificates, DISK_BYTES, World};

/// Runs a client; gives what it said, whether it succeeded or not.
fn run(program: &str, package: &str, args: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(program).args(args).output().unwrap_or_else(|error| {
            panic!(
                "{program}: {error}; install it with: apt-get install {package} (make test does)"
            )
        });
    let said = [String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)].concat();
    (status.success(), said)
}

fn ok(program: &str, package: &str, args: &[&str]) -> String {
    let (well, said) = run(program, package, args);
    assert!(well, "{program} {args:?}:\n{said}");
    said
}

fn refused(program: &str, package: &str, args: &[&str]) -> String {
    let (well, said) = run(program, package, args);
    assert!(!well, "{program} {args:?} was let in:\n{said}");
    said
}

fn serving(tls: TlsMode) -> World {
    World::within(&Limits { tls, ..Limits::default() })
}

/// The address as a URI with the name that is in the certificate.
fn nbds(world: &World, certificates: &Certificates) -> String {
    let port = port(world);
    format!("nbds://localhost:{port}/disk?tls-certificates={}", certificates.path())
}

fn port(world: &World) -> u16 {
    let Address::Tcp(place) = world.tcp() else { panic!("not TCP") };
    place.port()
}

#[test]
fn libnbd_is_let_in_with_tls_and_turned_away_without_where_it_is_required() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Require(certificates.load(false)));
    let info = ok("nbdinfo", "libnbd-bin", &[&nbds(&world, &certificates)]);
    for expected in [
        "newstyle-fixed with TLS, using structured packets",
        "export-size: 67108864 (64M)",
        "base:allocation",
        "can_multi_conn: true",
    ] {
        assert!(info.contains(expected), "{expected} is not in\n{info}");
    }
    for uri in [world.tcp().uri("disk"), world.unix().uri("disk")] {
        let said = refused("nbdinfo", "libnbd-bin", &[&uri]);
        assert!(said.contains("TLS"), "{said}");
        refused("nbdinfo", "libnbd-bin", &["--list", &uri]);
    }
    assert!(world.server().locations("disk").iter().all(|place| place.starts_with("nbds")));
    // A client that does not trust this server's authority.
    let others = Certificates::new();
    let said = refused("nbdinfo", "libnbd-bin", &[&nbds(&world, &others)]);
    assert!(said.contains("certificate"), "{said}");
}

#[test]
fn where_tls_is_allowed_both_kinds_are_let_in_and_where_it_is_off_one() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Allow(certificates.load(false)));
    let info = ok("nbdinfo", "libnbd-bin", &[&nbds(&world, &certificates)]);
    assert!(info.contains("with TLS"), "{info}");
    let info = ok("nbdinfo", "libnbd-bin", &[&world.tcp().uri("disk")]);
    assert!(info.contains("without TLS"), "{info}");
    let world = serving(TlsMode::Off);
    refused("nbdinfo", "libnbd-bin", &[&nbds(&world, &certificates)]);
    ok("nbdinfo", "libnbd-bin", &[&world.tcp().uri("disk")]);
}

#[test]
fn only_clients_of_the_authority_are_let_in_where_they_are_verified() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Require(certificates.load(true)));
    let info = ok("nbdinfo", "libnbd-bin", &[&nbds(&world, &certificates)]);
    assert!(info.contains("with TLS"), "{info}");
    // It trusts the server, and has no certificate or one of another authority.
    let authority = fs::read(certificates.folder.path().join("ca-cert.pem")).unwrap();
    for others in [Certificates::of(false), Certificates::of(true)] {
        fs::write(others.folder.path().join("ca-cert.pem"), &authority).unwrap();
        refused("nbdinfo", "libnbd-bin", &[&nbds(&world, &others)]);
    }
    assert_eq!(world.server().clients(), []);
}

#[test]
fn qemu_img_converts_over_tls_and_compares_equal() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Require(certificates.load(true)));
    let source = world.folder.path().join("source");
    let content: Vec<u8> = (0..DISK_BYTES / 4)
        .flat_map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    fs::write(&source, content).unwrap();
    let source = format!("driver=raw,file.driver=file,file.filename={}", source.display());
    let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", certificates.path());
    let port = port(&world);
    let nbd = "driver=raw,file.driver=nbd,file.host=localhost,file.export=disk";
    let target = format!("{nbd},file.port={port},file.tls-creds=tls0");
    let common = ["--object", &object, "--image-opts"];
    let convert = ["convert", "-n", "--target-image-opts", &source, &target];
    ok("qemu-img", "qemu-utils", &[&convert[..1], &common, &convert[1..]].concat());
    ok("qemu-img", "qemu-utils", &[&["compare"], &common[..], &[&source, &target]].concat());
    let without = format!("{nbd},file.port={port}");
    let said = refused("qemu-img", "qemu-utils", &["info", "--image-opts", &without]);
    assert!(said.contains("TLS"), "{said}");
}

#[test]
fn nbdcopy_copies_over_several_connections_with_tls() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Require(certificates.load(false)));
    let (source, back) = (world.folder.path().join("source"), world.folder.path().join("back"));
    let content: Vec<u8> = (0..DISK_BYTES / 8)
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    fs::write(&source, &content).unwrap();
    let uri = nbds(&world, &certificates);
    let connections = ["--connections=4", "--requests=64", "--flush"];
    let (from, to) = (source.to_str().unwrap(), back.to_str().unwrap());
    ok("nbdcopy", "libnbd-bin", &[&connections[..], &[from, &uri]].concat());
    ok("nbdcopy", "libnbd-bin", &[&connections[..], &[&uri, to]].concat());
    assert!(fs::read(&back).unwrap() == content);
}

#[test]
fn fio_verifies_random_writes_of_every_size_over_tls() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Require(certificates.load(false)));
    let (port, folder) = (format!("port={}", port(&world)), certificates.path());
    let folder = format!("tls-certificates={folder}");
    // fio takes no certificates: nbdkit speaks TLS for it.
    let fio = "fio --name=verify --ioengine=nbd --uri=$uri --rw=randwrite --bsrange=512-1m --blockalign=512 \
               --iodepth=32 --size=64m --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randrepeat=1";
    let server = ["hostname=localhost", &port, "export=disk", "tls=require", &folder];
    let args = [&["-U", "-", "nbd"][..], &server, &["--run", fio]].concat();
    let said = ok("nbdkit", "nbdkit", &args);
    assert!(said.contains("err= 0"), "{said}");
}

/// `gnutls-cli`, which asks for TLS when it is told to by a signal.
struct GnuTls(Child);

impl GnuTls {
    fn connect(port: u16, certificates: &Certificates) -> GnuTls {
        let authority = format!("--x509cafile={}/ca-cert.pem", certificates.path());
        let child = Command::new("gnutls-cli")
            .args(["--starttls", "--port", &port.to_string(), &authority, "localhost"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let install = "install it with: apt-get install gnutls-bin (make test does)";
        GnuTls(child.unwrap_or_else(|error| panic!("gnutls-cli: {error}; {install}")))
    }
}

impl Drop for GnuTls {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn gnutls_cli_trusts_the_server_and_sees_its_certificate() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Require(certificates.load(false)));
    let mut client = GnuTls::connect(port(&world), &certificates);
    let mut start = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes().to_vec();
    encode_option(&mut start, OPT_STARTTLS, &[]);
    let mut stdin = client.0.stdin.take().unwrap();
    stdin.write_all(&start).unwrap();
    // Until it shows that the server agrees.
    let (agreed, mut stdout) = (option_reply_head(OPT_STARTTLS), client.0.stdout.take().unwrap());
    let mut said = Vec::new();
    while !said.ends_with(&agreed) {
        said.push(byte_of(&mut stdout).expect("gnutls-cli goes on"));
    }
    let pid = rustix::process::Pid::from_child(&client.0);
    rustix::process::kill_process(pid, rustix::process::Signal::ALARM).unwrap();
    let mut stderr = client.0.stderr.take().unwrap();
    let mut told = Vec::new();
    while !told.ends_with(b"Starting TLS handshake") {
        told.push(byte_of(&mut stderr).expect("gnutls-cli goes on"));
    }
    let mut end = Vec::new();
    encode_option(&mut end, OPT_ABORT, &[]);
    stdin.write_all(&end).unwrap();
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let rest = String::from_utf8_lossy(&rest);
    for expected in [
        "Status: The certificate is trusted.",
        "TLS1.3",
        // In order, not cut off.
        "Peer has closed the GnuTLS connection",
    ] {
        assert!(rest.contains(expected), "{expected} is not in\n{rest}");
    }
    assert!(client.0.wait().unwrap().success());
}

fn byte_of(stream: &mut impl Read) -> Option<u8> {
    let mut byte = [0; 1];
    stream.read_exact(&mut byte).ok().map(|()| byte[0])
}

/// The end of an agreement to an option.
fn option_reply_head(option: u32) -> Vec<u8> {
    let fields = [option.to_be_bytes(), REP_ACK.to_be_bytes(), 0u32.to_be_bytes()];
    [&OPTION_REPLY_MAGIC.to_be_bytes()[..], &fields.concat()].concat()
}

/// A client that has got as far as the server's agreement to begin TLS.
fn agreed(world: &World) -> UnixStream {
    let mut socket = UnixStream::connect(world.socket()).unwrap();
    let mut out = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes().to_vec();
    encode_option(&mut out, OPT_STARTTLS, &[]);
    socket.write_all(&out).unwrap();
    socket.read_exact(&mut [0; 18 + 20]).unwrap();
    socket
}

#[test]
fn options_that_were_sent_before_tls_are_not_taken_for_some_within() {
    let certificates = Certificates::new();
    let world = serving(TlsMode::Require(certificates.load(false)));
    let mut socket = UnixStream::connect(world.socket()).unwrap();
    let mut out = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes().to_vec();
    encode_option(&mut out, OPT_STARTTLS, &[]);
    encode_option(&mut out, OPT_LIST, &[]);
    socket.write_all(&out).unwrap();
    let mut said = Vec::new();
    socket.read_to_end(&mut said).unwrap();
    let text = String::from_utf8_lossy(&said);
    assert!(!text.contains("disk"), "the list of exports: {text}");
    // The greeting, the agreement, and an alert: fatal.
    assert_eq!(said[18 + 20], 21, "{said:?}");
    assert_eq!(said[18 + 20 + 5], 2, "{said:?}");
}

#[test]
fn clients_that_never_finish_a_handshake_cost_others_nothing_and_little_memory() {
    const STALLED: usize = 200;
    let certificates = Certificates::new();
    let world = serving(TlsMode::Allow(certificates.load(false)));
    let before = world.buffers();
    // Silent ones, some that have said what a record is and no more, and some that send one byte now and then.
    let mut stalled: Vec<UnixStream> = (0..STALLED).map(|_| agreed(&world)).collect();
    let hello = [0x16, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    for (number, socket) in stalled.iter_mut().enumerate() {
        socket.write_all(&hello[..number % hello.len()]).unwrap();
    }
    let used = world.buffers() - before;
    assert!(used <= STALLED * ((64 + 128 + 8) << 10), "{used} bytes for {STALLED} clients");
    let info = ok("nbdinfo", "libnbd-bin", &[&nbds(&world, &certificates)]);
    assert!(info.contains("with TLS"), "{info}");
    let end = Instant::now() + Duration::from_secs(20);
    let mut plain = world.plain("disk", false);
    for at in 0..100u64 {
        for socket in stalled.iter_mut().skip(at as usize).step_by(7) {
            // It may be refused by now: what it sends is no handshake.
            let _ = socket.write_all(&[0]);
        }
        let request = braid_nbd::protocol::Request {
            cookie: at,
            command: braid_nbd::protocol::Command::Read,
            flags: 0,
            offset: at * 4096,
            length: 4096,
        };
        plain.send(request, &[]);
        plain.receive::<{ 16 + 4096 }>();
        assert!(Instant::now() < end, "the reads of another client wait");
    }
    drop(stalled);
    while world.server().connections() > 1 {
        assert!(Instant::now() < end, "connections stay");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn ten_thousand_connections_are_turned_away_beyond_the_limit_and_leave_nothing() {
    const CLIENTS: usize = 10_000;
    let certificates = Certificates::new();
    let tls = TlsMode::Require(certificates.load(false));
    let world = World::within(&Limits { connections: 32, tls, ..Limits::default() });
    let mut kept = Vec::new();
    for number in 0..CLIENTS {
        let stream = UnixStream::connect(world.socket()).expect("the server listens");
        // So many stay, the rest leave at once, with the server or before it has seen them.
        if number % 50 == 0 {
            kept.push(stream);
        }
        let used = world.server().connections();
        assert!(used <= 32, "{used} connections");
    }
    assert!(world.buffers() <= 32 * ((64 + 128 + 8) << 10));
    drop(kept);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let (well, said) = run("nbdinfo", "libnbd-bin", &[&nbds(&world, &certificates)]);
        if well {
            break;
        }
        assert!(Instant::now() < end, "{said}");
    }
}

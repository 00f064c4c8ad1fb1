//! Sessions against rustls' own client, without sockets; and folders of certificates, good and bad.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use braid_shard::Pool;
use braid_shard::ring::Bufs;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::{CertificatesError, Session, Tls, TlsError, sealed_bytes};

/// An authority, a server and a client of it, in a folder.
struct Folder {
    folder: tempfile::TempDir,
}

fn signed(name: &str, authority: &CertifiedIssuer<'_, KeyPair>) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

impl Folder {
    fn new() -> Folder {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let files = Folder { folder: tempfile::tempdir().unwrap() };
        files.write("ca-cert.pem", &authority.pem());
        for (whose, name) in [("server", "localhost"), ("client", "guest")] {
            let (cert, key) = signed(name, &authority);
            files.write(&format!("{whose}-cert.pem"), &cert);
            files.write(&format!("{whose}-key.pem"), &key);
        }
        files
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// A client that trusts the authority, with its certificate or without.
    fn client(&self, with: bool, version: &'static SupportedProtocolVersion) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path().join("ca-cert.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots);
        let config = if with {
            let cert = CertificateDer::from_pem_file(self.path().join("client-cert.pem")).unwrap();
            let key = PrivateKeyDer::from_pem_file(self.path().join("client-key.pem")).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        } else {
            builder.with_no_client_auth()
        };
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::new(config), name).unwrap()
    }
}

/// A server's session and a client, and how many bytes the way between them takes at a time.
struct Pair {
    pool: Pool,
    session: Session,
    client: ClientConnection,
    piece: usize,
}

impl Pair {
    fn new(tls: &Tls, client: ClientConnection, piece: usize) -> Pair {
        let pool = Pool::new(0);
        Pair { session: Session::new(tls, &pool).unwrap(), pool, client, piece }
    }

    fn client_gets(&mut self, mut bytes: &[u8]) -> Result<(), rustls::Error> {
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).unwrap();
            self.client.process_new_packets()?;
        }
        Ok(())
    }

    /// The bytes that the client has to send.
    fn client_sends(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn shake_hands(&mut self) -> Result<(), TlsError> {
        for _ in 0..10 {
            for piece in self.client_sends().chunks(self.piece) {
                assert_eq!(self.session.put(piece), piece.len());
                let step = self.session.shake_hands();
                let flight = self.session.take_pending();
                // What the client makes of it, it says with its next bytes.
                let _ = self.client_gets(&flight);
                if step? && !self.client.is_handshaking() {
                    return Ok(());
                }
            }
            if !self.client.is_handshaking() && self.session.shake_hands()? {
                return Ok(());
            }
        }
        panic!("a handshake without end");
    }

    /// Has the client send `plain`; gives what the session makes of it, taken in pieces of `taken` bytes.
    fn send(&mut self, plain: &[u8], taken: usize) -> Vec<u8> {
        let mut got = Vec::new();
        for part in plain.chunks(40_000) {
            self.client.writer().write_all(part).unwrap();
            for piece in self.client_sends().chunks(self.piece) {
                assert_eq!(self.session.put(piece), piece.len());
                loop {
                    let mut into = vec![0; taken];
                    let bytes = self.session.open(&mut into).unwrap().expect("not at its end");
                    got.extend_from_slice(&into[..bytes]);
                    if bytes == 0 {
                        break;
                    }
                }
            }
        }
        got
    }

    /// Has the session send `parts`; gives what the client makes of them.
    fn reply(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let mut bufs: Bufs = parts.iter().map(|part| self.pool.copy_of(part).freeze()).collect();
        let mut got = Vec::new();
        loop {
            let plain = bufs.iter().map(|buf| buf.len()).sum();
            let mut records = vec![0; sealed_bytes(plain)];
            let made = self.session.seal(&mut bufs, &mut records).unwrap();
            if made == 0 {
                return got;
            }
            let mut bytes = &records[..made];
            while !bytes.is_empty() {
                self.client.read_tls(&mut bytes).unwrap();
                self.client.process_new_packets().unwrap();
                let mut plain = vec![0; 64 << 10];
                while let Ok(count @ 1..) = self.client.reader().read(&mut plain) {
                    got.extend_from_slice(&plain[..count]);
                }
            }
        }
    }
}

fn scrambled(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[test]
fn bytes_pass_both_ways_however_the_stream_is_cut() {
    let folder = Folder::new();
    let data = scrambled(300_000);
    for version in VERSIONS {
        for verify in [false, true] {
            let tls = Tls::load(folder.path(), verify).unwrap();
            for (piece, taken) in [(1, 4096), (1000, 28), (70_000, 1 << 20)] {
                let mut pair = Pair::new(&tls, folder.client(verify, version), piece);
                pair.shake_hands().unwrap();
                let sent = if piece == 1 { &data[..20_000] } else { &data[..] };
                assert!(pair.send(sent, taken) == sent, "{version:?} {piece}");
                let (head, rest) = data.split_at(16);
                assert!(pair.reply(&[head, b"", rest, head]) == [&data[..], head].concat());
                assert_eq!(pair.reply(&[]), b"");
            }
        }
    }
}

#[test]
fn a_change_of_keys_in_the_middle_is_answered_before_what_follows() {
    let folder = Folder::new();
    let tls = Tls::load(folder.path(), false).unwrap();
    let mut pair = Pair::new(&tls, folder.client(false, &rustls::version::TLS13), 100);
    pair.shake_hands().unwrap();
    let data = scrambled(50_000);
    for _ in 0..40 {
        pair.client.refresh_traffic_keys().unwrap();
        assert!(pair.send(&data, 1000) == data);
        assert!(pair.reply(&[&data, &data]) == [&data[..], &data].concat());
    }
}

#[test]
fn requests_that_arrive_while_replies_are_made_are_kept() {
    let folder = Folder::new();
    let tls = Tls::load(folder.path(), false).unwrap();
    for version in VERSIONS {
        let mut pair = Pair::new(&tls, folder.client(false, version), 1 << 20);
        pair.shake_hands().unwrap();
        let data = scrambled(40_000);
        pair.client.writer().write_all(&data).unwrap();
        let records = pair.client_sends();
        // Two records and a part of the third.
        assert_eq!(pair.session.put(&records[..36_000]), 36_000);
        assert_eq!(pair.reply(&[b"reply"]), b"reply");
        assert_eq!(pair.session.put(&records[36_000..]), records.len() - 36_000);
        let mut got = vec![0; data.len()];
        assert_eq!(pair.session.open(&mut got).unwrap(), Some(data.len()));
        assert!(got == data);
    }
}

#[test]
fn an_end_is_told_both_ways() {
    let folder = Folder::new();
    let tls = Tls::load(folder.path(), false).unwrap();
    for version in VERSIONS {
        let mut pair = Pair::new(&tls, folder.client(false, version), 1000);
        pair.shake_hands().unwrap();
        assert_eq!(pair.send(b"last", 100), b"last");
        pair.client.send_close_notify();
        let end = pair.client_sends();
        pair.session.put(&end);
        assert_eq!(pair.session.open(&mut [0; 10]).unwrap(), None);
        assert_eq!(pair.reply(&[b"still"]), b"still", "a reply to what was asked before");
        let end = pair.session.close();
        pair.client_gets(&end).unwrap();
        assert_eq!(pair.client.reader().read(&mut [0; 10]).unwrap(), 0);
    }
}

#[test]
fn clients_that_cannot_prove_themselves_are_refused_and_told() {
    let (folder, other) = (Folder::new(), Folder::new());
    let tls = Tls::load(folder.path(), true).unwrap();
    for version in VERSIONS {
        let mut pair = Pair::new(&tls, folder.client(false, version), 100);
        assert!(pair.shake_hands().unwrap_err().to_string().contains("no certificates"));
        // A certificate of another authority, at a client that trusts this one.
        for file in ["client-cert.pem", "client-key.pem"] {
            fs::copy(other.path().join(file), folder.path().join(file)).unwrap();
        }
        let mut pair = Pair::new(&tls, folder.client(true, version), 100);
        let error = pair.shake_hands().unwrap_err().to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
        let refused = pair.client.process_new_packets().unwrap_err().to_string();
        assert!(refused.contains("alert"), "{refused}");
    }
    // A client that does not trust the server.
    let mut pair = Pair::new(&tls, other.client(true, &rustls::version::TLS13), 100);
    assert!(pair.shake_hands().unwrap_err().to_string().contains("alert"));
}

#[test]
fn garbage_is_an_error_at_any_time_and_never_more() {
    let folder = Folder::new();
    let tls = Tls::load(folder.path(), false).unwrap();
    let garbage = [scrambled(2000), vec![0; 2000], vec![0x16; 2000], vec![0xff; 2000]];
    let hello = b"\x16\x03\x01\xff\xff";
    let options = b"IHAVEOPT\0\0\0\x07\0\0\0\0";
    for bytes in garbage.iter().map(Vec::as_slice).chain([&hello[..], options]) {
        let mut session = Session::new(&tls, &Pool::new(0)).unwrap();
        session.put(bytes);
        assert!(session.shake_hands().is_err());
        assert!(session.shake_hands().is_err(), "it stays so");
        let mut pair = Pair::new(&tls, folder.client(false, &rustls::version::TLS13), 1000);
        pair.shake_hands().unwrap();
        pair.session.put(bytes);
        assert!(pair.session.open(&mut [0; 100]).is_err());
        let mut reply = [pair.pool.copy_of(b"reply").freeze()].into_iter().collect();
        assert!(pair.session.seal(&mut reply, &mut [0; 1000]).is_err());
    }
}

#[test]
fn changed_records_of_a_client_are_errors_at_most() {
    let folder = Folder::new();
    let tls = Tls::load(folder.path(), true).unwrap();
    let pool = Pool::new(0);
    let hello = Pair::new(&tls, folder.client(true, VERSIONS[1]), 1).client_sends();
    let mut state = 7u64;
    let mut below = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let (mut failed, mut went_on) = (0, 0);
    for _ in 0..5000 {
        let mut bytes = hello.clone();
        for _ in 0..1 + below(3) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] ^= 1 << below(8),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, 0xff),
            }
        }
        let mut session = Session::new(&tls, &pool).unwrap();
        for piece in bytes.chunks(1 + below(300)) {
            session.put(piece);
            match session.shake_hands() {
                Ok(done) => assert!(!done, "nobody gets in by a hello alone"),
                Err(_) => failed += 1,
            }
            session.take_pending();
        }
        went_on += usize::from(session.shake_hands().is_ok());
        session.close();
    }
    assert!(failed > 1000 && went_on > 100, "{failed} {went_on}");
}

/// Inputs for the next one: more by `BRAID_TLS_INPUTS`.
fn inputs() -> u64 {
    std::env::var("BRAID_TLS_INPUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

/// Records of a handshake and of what follows it, in either version, changed where chance has it: the session gives what the
/// client has said up to there, whole records of it, and then an error; never anything else.
#[test]
fn changed_records_after_a_hello_give_nothing_that_was_not_said() {
    let folder = Folder::new();
    let tls = Tls::load(folder.path(), false).unwrap();
    let (inputs, mut records) = (inputs(), 0u64);
    let mut state = inputs ^ 0x5eed;
    let mut below = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let said = scrambled(3000);
    let (mut refused, mut heard) = (0, 0);
    while records < inputs {
        let client = folder.client(false, VERSIONS[below(2)]);
        let mut pair = Pair::new(&tls, client, 4096);
        // In one of four the change is in the handshake.
        let early = below(4) == 0;
        if !early {
            pair.shake_hands().unwrap();
        }
        let mut stream = Vec::new();
        let mut parts = 0;
        if early {
            let flight = pair.client_sends();
            pair.session.put(&flight);
            pair.session.shake_hands().unwrap();
            let answer = pair.session.take_pending();
            pair.client_gets(&answer).unwrap();
            stream = pair.client_sends();
        } else {
            for part in said.chunks(100) {
                pair.client.writer().write_all(part).unwrap();
                stream.extend(pair.client_sends());
                parts += 1;
            }
        }
        records += parts.max(1);
        for _ in 0..1 + below(3) {
            if stream.is_empty() {
                break;
            }
            let at = below(stream.len());
            match below(5) {
                0 => stream[at] ^= 1 << below(8),
                1 => stream.truncate(at),
                2 => stream.insert(at, below(256) as u8),
                3 => drop(stream.remove(at)),
                _ => {
                    let piece = stream[at..(at + 1 + below(200)).min(stream.len())].to_vec();
                    let to = below(stream.len());
                    stream.splice(to..to, piece);
                }
            }
        }
        let (mut got, mut failed) = (Vec::new(), false);
        'pieces: for piece in stream.chunks(1 + below(2000)) {
            let mut rest = piece;
            while !rest.is_empty() && !failed {
                let put = pair.session.put(rest);
                rest = &rest[put..];
                if early {
                    failed = pair.session.shake_hands().is_err();
                    if failed || !pair.client.is_handshaking() && put > 0 {
                        break;
                    }
                }
                loop {
                    let mut into = [0; 700];
                    match pair.session.open(&mut into) {
                        Ok(Some(0)) => break,
                        Ok(Some(bytes)) => got.extend_from_slice(&into[..bytes]),
                        Ok(None) => break 'pieces,
                        Err(_) => {
                            failed = true;
                            break 'pieces;
                        }
                    }
                }
                assert!(put > 0 || failed, "there is room, or an error");
            }
        }
        assert!(said.starts_with(&got), "something that was not said");
        assert!(got.len() % 100 == 0, "part of a record");
        assert!(!failed || pair.session.open(&mut [0; 10]).is_err(), "it stays so");
        pair.session.close();
        (refused, heard) = (refused + u64::from(failed), heard + got.len());
    }
    assert!(refused > 0 && heard > 0, "{refused} {heard}");
}

#[test]
fn a_handshake_message_without_end_finds_no_room() {
    let folder = Folder::new();
    let tls = Tls::load(folder.path(), false).unwrap();
    let mut session = Session::new(&tls, &Pool::new(0)).unwrap();
    // A client hello that says that it has 65,000 bytes, in records of one byte each.
    let head = [1, 0, 0xfd, 0xe8];
    let record = |byte: u8| [0x16, 3, 1, 0, 1, byte];
    let mut fed = 0;
    for byte in head.into_iter().chain(std::iter::repeat(0)) {
        if session.room().map(|room| session.received(room, 0)).is_none() {
            break;
        }
        fed += session.put(&record(byte));
        // Now and then, as a socket would bring them.
        if fed % (6 << 10) == 0 && session.shake_hands().is_err() {
            break;
        }
        assert!(fed <= 1 << 20, "it takes {fed} bytes");
    }
    assert!(fed <= 128 << 10);
}

#[test]
fn what_is_wrong_with_a_folder_is_said_with_the_file() {
    let folder = Folder::new();
    let said = |verify| Tls::load(folder.path(), verify).unwrap_err();
    let path = |name: &str| folder.path().join(name);
    let good = |name: &str| fs::read_to_string(path(name)).unwrap();
    let (cert, key, authority) =
        (good("server-cert.pem"), good("server-key.pem"), good("ca-cert.pem"));
    folder.write("server-key.pem", &good("client-key.pem"));
    assert!(matches!(said(false), CertificatesError::Pair { .. }), "{}", said(false));
    folder.write("server-key.pem", &cert);
    assert!(said(false).to_string().contains("server-key.pem"), "{}", said(false));
    folder.write("server-key.pem", &key);
    folder.write("server-cert.pem", "");
    assert!(matches!(said(false), CertificatesError::Content { .. }), "{}", said(false));
    fs::remove_file(path("server-cert.pem")).unwrap();
    assert!(matches!(said(false), CertificatesError::Read { .. }), "{}", said(false));
    folder.write("server-cert.pem", &cert);
    fs::remove_file(path("ca-cert.pem")).unwrap();
    Tls::load(folder.path(), false).expect("an authority is for clients that are verified");
    assert!(said(true).to_string().contains("ca-cert.pem"), "{}", said(true));
    folder.write("ca-cert.pem", &authority);
    Tls::load(folder.path(), true).unwrap();
    folder.write("ca-crl.pem", "nothing");
    assert!(said(true).to_string().contains("ca-crl.pem"), "{}", said(true));
}

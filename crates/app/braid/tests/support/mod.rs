//! What the tests of the command share: a folder with members, the program, a server that ends with
//! the test.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod etcd;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Size of a member.
pub const MEMBER: u64 = 16 << 20;

/// A folder of its own for each test; gone afterwards.
pub struct Place {
    folder: TempDir,
}

/// What a run gave.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// It must have succeeded; gives what it printed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    /// It must have failed with this code and with these words on standard error; gives all of them.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) -> String {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }
}

impl Place {
    pub fn new() -> Place {
        Place { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sparse files of [`MEMBER`] bytes.
    pub fn members(&self, names: &[&str]) {
        for name in names {
            File::create_new(self.path(name)).unwrap().set_len(MEMBER).unwrap();
        }
    }

    /// The program with these words, in this folder, with the control socket here.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_braid"));
        command
            .args(words)
            .current_dir(self.folder.path())
            .env("BRAID_CONTROL", self.path("control.sock"))
            .env("BRAID_STATE_DIR", self.path("state"))
            .env("TZ", "UTC")
            .env_remove("BRAID_LOG")
            .stdin(Stdio::null());
        command
    }

    pub fn braid(&self, words: &[&str]) -> Ran {
        Ran::of(self.command(words).output().unwrap())
    }

    /// The same with the words of one line.
    pub fn run(&self, line: &str) -> Ran {
        self.braid(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Starts `braid serve` with these words and waits until it listens.
    #[track_caller]
    pub fn serve(&self, line: &str) -> Server {
        self.serve_logging(line, "warn")
    }

    /// The same with this filter for its log.
    #[track_caller]
    pub fn serve_logging(&self, line: &str, filter: &str) -> Server {
        let mut words = vec!["serve"];
        words.extend(line.split_whitespace());
        words.extend(["--nbd", "unix:nbd.sock", "--shards", "2"]);
        let mut command = self.command(&words);
        command.env("BRAID_LOG", filter);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut server = Server { child, said: String::new() };
        let mut out = BufReader::new(server.child.stdout.take().unwrap());
        loop {
            let before = server.said.len();
            out.read_line(&mut server.said).unwrap();
            if server.said[before..].starts_with("control socket") {
                return server;
            }
            if server.said.len() == before {
                let ran = server.ended();
                panic!("serve ended with {}: {}{}", ran.code, ran.out, ran.err);
            }
        }
    }

    /// The server behind the control socket of this folder.
    pub fn server_pid(&self) -> rustix::process::Pid {
        let socket = rustix::net::SocketAddrUnix::new(self.path("control.sock")).unwrap();
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (unix, stream) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        let fd = rustix::net::socket_with(unix, stream, flags, None).unwrap();
        rustix::net::connect(&fd, &socket).unwrap();
        rustix::net::sockopt::socket_peercred(&fd).unwrap().pid
    }

    /// Another program, with what it printed.
    #[track_caller]
    pub fn tool(&self, program: &str, words: &[&str]) -> Ran {
        let mut command = Command::new(program);
        let output = command.args(words).current_dir(self.folder.path()).env("TZ", "UTC").output();
        Ran::of(
            output
                .unwrap_or_else(|error| panic!("{program} (scripts/setup-packages test): {error}")),
        )
    }

    /// The NBD URI of an export.
    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.path("nbd.sock").display())
    }

    /// A file of `len` bytes that are not all the same.
    pub fn data(&self, name: &str, len: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len as u64)
            .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect();
        fs::write(self.path(name), &bytes).unwrap();
        bytes
    }

    /// Copies a file into an export, or out of it.
    #[track_caller]
    pub fn copy_in(&self, file: &str, export: &str) {
        self.tool("nbdcopy", &["--flush", file, &self.uri(export)]).ok();
    }

    #[track_caller]
    pub fn copy_out(&self, export: &str) -> Vec<u8> {
        self.tool("nbdcopy", &[&self.uri(export), "out"]).ok();
        fs::read(self.path("out")).unwrap()
    }

    /// The array's state as JSON.
    #[track_caller]
    pub fn detail(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.braid(&["detail", "--json", name]).ok()).unwrap()
    }

    /// A field of a superblock, from `examine --json`.
    #[track_caller]
    pub fn examined(&self, member: &str) -> serde_json::Value {
        let text = self.braid(&["examine", "--json", member]).ok();
        serde_json::from_str::<Vec<serde_json::Value>>(&text).unwrap().remove(0)
    }
}

/// A running server.
pub struct Server {
    child: Child,
    /// What it printed while it started.
    pub said: String,
}

impl Server {
    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end; gives what it printed last.
    #[track_caller]
    pub fn ended(mut self) -> Ran {
        let status = self.child.wait().unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Ran { code: status.code().unwrap_or(-1), out: self.said.clone(), err }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Changes one byte of a file.
pub fn damage(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0xff], at).unwrap();
}

/// Writes an image without its zeros; `size`: these are the last bytes of a device of that size.
pub fn write_sparse(path: &Path, bytes: &[u8], size: Option<u64>) {
    let file = File::create(path).unwrap();
    let size = size.unwrap_or(bytes.len() as u64);
    file.set_len(size).unwrap();
    let start = size - bytes.len() as u64;
    for (block, at) in bytes.chunks(4096).zip((start..).step_by(4096)) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at).unwrap();
        }
    }
}

/// Makes the device `name` of an archive of what other programs write, which is put together of all ranges that
/// signatures stand in.
pub fn foreign_image(place: &Place, archive: &[u8], name: &str) {
    let mut tar = tar::Archive::new(lzma_rust2::XzReader::new(archive, false));
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let Some((known, size)) = path.split_once('.') else { continue };
        if known != name {
            continue;
        }
        let size: u64 = size.parse().unwrap();
        let file = File::create(place.path(name)).unwrap();
        file.set_len(size).unwrap();
        for (offset, len) in braid_format::signature::ranges(size) {
            let mut bytes = vec![0; len];
            entry.read_exact(&mut bytes).unwrap();
            file.write_all_at(&bytes, offset).unwrap();
        }
        return;
    }
    panic!("no {name} in the archive");
}

//! Servers of NBD and of vhost-user-blk that have a disk in memory, as children of this process.

use crate::programs::{braid, processor_seconds, tool};
use anyhow::{Context, bail};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the disk.
pub const SIZE: u64 = 1 << 30;
/// The time that a server may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// This program's, with an array of one RAM member.
    Braid,
    /// nbdkit's plugin "memory".
    Nbdkit,
    /// qemu-storage-daemon, with a file on tmpfs: it has no disk in memory that keeps what is written.
    Qemu,
}

impl Which {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Which::Braid => "braid",
            Which::Nbdkit => "nbdkit",
            Which::Qemu => "qemu-storage-daemon",
        }
    }
}

/// The protocol of its clients.
#[derive(Clone, Copy)]
pub enum Offer<'a> {
    /// NBD over a unix socket.
    Nbd,
    /// NBD over TCP, and nobody is let in without TLS; with the certificates in that folder.
    NbdWithTls(&'a Path),
    /// vhost-user-blk, one queue; nbdkit has no such thing.
    Disk,
}

/// Where a server listens.
enum Place {
    Unix(PathBuf),
    /// A socket that is for one front end.
    Disk(PathBuf),
    /// A port of 127.0.0.1.
    Tcp(u16),
}

/// A server that runs; it ends with this value.
pub struct Served {
    which: Which,
    child: Child,
    /// Its export, as libnbd names it, or the path of its socket.
    pub uri: String,
    /// A disk on tmpfs.
    _disk: Option<tempfile::NamedTempFile>,
    /// Its sockets.
    _folder: tempfile::TempDir,
}

impl Served {
    /// Starts it.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(which: Which, offer: Offer<'_>) -> anyhow::Result<Served> {
        let folder = tempfile::tempdir().context("making a folder for a server")?;
        let (place, certificates) = match offer {
            Offer::NbdWithTls(certificates) => (Place::Tcp(free_port()?), Some(certificates)),
            Offer::Nbd => (Place::Unix(folder.path().join("nbd.sock")), None),
            Offer::Disk => (Place::Disk(folder.path().join("disk.sock")), None),
        };
        let disk = match which {
            Which::Qemu => Some(disk_on_tmpfs()?),
            _ => None,
        };
        let mut command = match (which, &disk) {
            (Which::Nbdkit, _) => of_nbdkit(&place, certificates),
            (_, Some(disk)) => of_qemu(&place, certificates, disk.path()),
            (_, None) => of_braid(&place, certificates)?,
        };
        let said = folder.path().join("said");
        let log = std::fs::File::create(&said).context("making a log")?;
        let errors = log.try_clone().context("making a log")?;
        command.current_dir(folder.path()).env("BRAID_CONTROL", folder.path().join("control.sock"));
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().with_context(|| format!("starting {}", which.name()))?;
        let uri = match (&place, certificates) {
            (Place::Tcp(port), Some(_)) => format!("nbds://127.0.0.1:{port}/ram"),
            (Place::Tcp(port), None) => format!("nbd://127.0.0.1:{port}/ram"),
            (Place::Unix(path), _) => format!("nbd+unix:///ram?socket={}", path.display()),
            (Place::Disk(path), _) => path.display().to_string(),
        };
        let mut served = Served { which, child, uri, _disk: disk, _folder: folder };
        let begun = Instant::now();
        while !place.answers() {
            let ended = served.child.try_wait().context("waiting for a server")?;
            if ended.is_some() || begun.elapsed() > PATIENCE {
                let said = std::fs::read_to_string(&said).unwrap_or_default();
                bail!("{} did not come up: {}", which.name(), said.trim());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(served)
    }

    /// Processor time since it started, in seconds.
    ///
    /// # Errors
    /// When it has ended.
    pub fn processor_seconds(&self) -> anyhow::Result<f64> {
        processor_seconds(self.which.name(), &self.child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let since = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if since.elapsed() > PATIENCE {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Place {
    fn answers(&self) -> bool {
        match self {
            Place::Unix(path) => UnixStream::connect(path).is_ok(),
            Place::Disk(path) => path.exists(),
            Place::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
        }
    }
}

fn free_port() -> anyhow::Result<u16> {
    let free = TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(free.local_addr().context("looking for a free port")?.port())
}

fn disk_on_tmpfs() -> anyhow::Result<tempfile::NamedTempFile> {
    let disk = tempfile::NamedTempFile::new_in("/dev/shm").context("making a disk in /dev/shm")?;
    disk.as_file().set_len(SIZE).context("making a disk in /dev/shm")?;
    Ok(disk)
}

fn of_braid(place: &Place, certificates: Option<&Path>) -> anyhow::Result<Command> {
    let mut braid = Command::new(braid()?);
    braid.args(["serve", "--create", "ram", "-l", "0", "-n", "1", "--force", "--shards", "1"]);
    // Room for what stands before the data.
    braid.arg(format!("ram:{}M", (SIZE >> 20) + 16));
    match place {
        Place::Unix(path) => braid.arg("--nbd").arg(format!("unix:{}", path.display())),
        Place::Tcp(port) => braid.args(["--nbd", &format!("tcp:127.0.0.1:{port}")]),
        Place::Disk(path) => braid.arg("--vhost-user").arg(path),
    };
    if let Some(folder) = certificates {
        braid.args(["--tls", "require", "--tls-certificates"]).arg(folder);
    }
    Ok(braid)
}

fn of_nbdkit(place: &Place, certificates: Option<&Path>) -> Command {
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.arg("--foreground");
    match place {
        Place::Unix(path) | Place::Disk(path) => nbdkit.arg("--unix").arg(path),
        Place::Tcp(port) => nbdkit.args(["--ipaddr", "127.0.0.1", "--port", &port.to_string()]),
    };
    if let Some(folder) = certificates {
        nbdkit.arg("--tls=require").arg(format!("--tls-certificates={}", folder.display()));
    }
    nbdkit.args(["memory", &format!("size={SIZE}")]);
    nbdkit
}

fn of_qemu(place: &Place, certificates: Option<&Path>, disk: &Path) -> Command {
    let mut qemu = Command::new("qemu-storage-daemon");
    let file = "driver=file,node-name=disk,cache.direct=off,discard=unmap,filename=";
    qemu.arg("--blockdev").arg(format!("{file}{}", disk.display()));
    let mut server = match place {
        Place::Disk(path) => {
            let export =
                "type=vhost-user-blk,id=ram,node-name=disk,writable=on,addr.type=unix,addr.path=";
            qemu.arg("--export").arg(format!("{export}{}", path.display()));
            return qemu;
        }
        Place::Unix(path) => format!("addr.type=unix,addr.path={}", path.display()),
        Place::Tcp(port) => format!("addr.type=inet,addr.host=127.0.0.1,addr.port={port}"),
    };
    if let Some(folder) = certificates {
        let tls = "tls-creds-x509,id=tls,endpoint=server,verify-peer=off,dir=";
        qemu.arg("--object").arg(format!("{tls}{}", folder.display()));
        server += ",tls-creds=tls";
    }
    qemu.arg("--nbd-server").arg(server);
    qemu.args(["--export", "type=nbd,id=ram,node-name=disk,name=ram,writable=on"]);
    qemu
}

/// Certificates of an authority and a server, made with certtool in `folder`, and the authority's for clients whose home that is.
///
/// # Errors
/// When that cannot be run.
pub fn certificates(folder: &Path) -> anyhow::Result<()> {
    let at = |name: &str| folder.join(name).display().to_string();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).with_context(|| format!("writing {name}"))
    };
    write("ca.info", "cn = bench\nca\ncert_signing_key\n")?;
    let names = "cn = localhost\ndns_name = localhost\nip_address = 127.0.0.1\n";
    write("server.info", &format!("{names}tls_www_server\nsigning_key\n"))?;
    let [ca_key, ca, ca_info] = ["ca-key.pem", "ca-cert.pem", "ca.info"].map(at);
    let [key, certificate, info] = ["server-key.pem", "server-cert.pem", "server.info"].map(at);
    tool("certtool", &["--generate-privkey", "--outfile", &ca_key])?;
    let own = ["--generate-self-signed", "--load-privkey", &ca_key];
    tool("certtool", &[&own[..], &["--template", &ca_info, "--outfile", &ca]].concat())?;
    tool("certtool", &["--generate-privkey", "--outfile", &key])?;
    let authority = ["--load-ca-certificate", &ca, "--load-ca-privkey", &ca_key];
    let server = ["--load-privkey", &key, "--template", &info, "--outfile", &certificate];
    tool("certtool", &[&["--generate-certificate"][..], &authority, &server].concat())?;
    let of_clients = folder.join(".pki/libnbd");
    std::fs::create_dir_all(&of_clients).context("making a folder for clients")?;
    std::fs::copy(&ca, of_clients.join("ca-cert.pem")).context("copying a certificate")?;
    // They are not root.
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder, all).context("letting clients in")?;
    Ok(())
}

//! The hosts: each a namespace with a name, an address, a boot id and a link of its own, and a folder for its server.

use crate::program::{Killed, Program};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The address of the host with the disks, etcd and the clients.
pub(super) const HERE: &str = "10.9.0.1";
/// Whatever is waited for has come by then, or does not.
const PATIENCE: Duration = Duration::from_secs(120);
const GLANCE: Duration = Duration::from_millis(10);

struct Place {
    name: String,
    folder: PathBuf,
    /// The process whose namespaces it is.
    holder: Killed,
}

/// See the module's documentation.
pub(super) struct Hosts {
    all: Vec<Place>,
}

/// Runs a command, which must succeed.
pub(super) fn tool(words: &str) -> Result<()> {
    let mut words = words.split_whitespace();
    let program = words.next().context("a command has a name")?;
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("{program} (scripts/setup-packages test)"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

impl Hosts {
    /// Makes them, with links to a bridge here.
    pub fn make(work: &Path, names: &[&str]) -> Result<Hosts> {
        tool("ip link set lo up")?;
        tool("ip link add eth0 type bridge")?;
        tool("ip link set eth0 up")?;
        tool(&format!("ip address add {HERE}/24 dev eth0"))?;
        let mut all = Vec::new();
        for (nr, name) in names.iter().enumerate() {
            let folder = work.join(name);
            fs::create_dir_all(&folder)?;
            let boot = folder.join("boot_id");
            fs::copy("/proc/sys/kernel/random/uuid", &boot)?;
            let script = "mount --bind \"$1\" /proc/sys/kernel/random/boot_id; hostname \"$2\"; exec sleep infinity";
            let mut holder = Command::new("unshare");
            holder
                .args(["--net", "--uts", "--mount", "bash", "-c", script, "host"])
                .arg(&boot)
                .arg(name);
            let holder = Killed(holder.stdin(Stdio::null()).spawn().context("unshare")?);
            let pid = holder.0.id();
            let place = Place { name: (*name).to_string(), folder, holder };
            let end = Instant::now() + PATIENCE;
            while place.inside("-u", &["hostname"])?.trim() != *name {
                ensure!(Instant::now() < end, "host {name} does not come up");
                std::thread::sleep(GLANCE);
            }
            tool(&format!("ip link add {name} type veth peer name eth0 netns {pid}"))?;
            tool(&format!("ip link set {name} master eth0 up"))?;
            for words in [
                "ip link set lo up",
                "ip link set eth0 up",
                &format!("ip address add {}/24 dev eth0", address(nr)),
            ] {
                place.inside("-n", &words.split(' ').collect::<Vec<_>>())?;
            }
            all.push(place);
        }
        Ok(Hosts { all })
    }

    /// Where clients reach them.
    pub fn addresses(&self) -> Vec<String> {
        (0..self.all.len()).map(|nr| format!("{}:10809", address(nr))).collect()
    }

    /// Cuts the link of a host, or puts it back.
    pub fn link(&self, nr: usize, up: bool) -> Result<()> {
        let up = if up { "up" } else { "down" };
        self.all[nr].inside("-n", &["ip", "link", "set", "eth0", up]).map(drop)
    }

    /// Runs braid on a host; it must succeed. Gives its output.
    pub fn run(&self, nr: usize, braid: &Path, words: &str) -> Result<String> {
        let output = self.command(nr, braid, words).output().context("nsenter")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "braid {words}: {}\n{said}{error}", output.status);
        Ok(said)
    }

    /// Starts braid on a host.
    pub fn start(&self, nr: usize, braid: &Path, words: &str) -> Result<Host> {
        let folder = &self.all[nr].folder;
        let log = (0..).map(|nr| folder.join(format!("log{nr}"))).find(|path| !path.exists());
        let log = log.context("a free name")?;
        let file = File::create(&log).context("making a log")?;
        let errors = file.try_clone().context("making a log")?;
        let mut command = self.command(nr, braid, words);
        let child = command.env_remove("BRAID_LOG").stdout(file).stderr(errors).spawn();
        Ok(Host { nr, log, process: Killed(child.context("nsenter")?), reaped: None })
    }

    fn command(&self, nr: usize, braid: &Path, words: &str) -> Command {
        let place = &self.all[nr];
        let inner = Program::new(braid, &place.folder).command(words);
        let mut command = place.enter("-num");
        command
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(&place.folder)
            .stdin(Stdio::null());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }
}

fn address(nr: usize) -> String {
    format!("10.9.0.{}", nr + 2)
}

impl Place {
    fn enter(&self, which: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg("-t").arg(self.holder.0.id().to_string());
        which.chars().filter(|letter| *letter != '-').for_each(|letter| {
            command.arg(format!("-{letter}"));
        });
        command
    }

    fn inside(&self, which: &str, words: &[&str]) -> Result<String> {
        let output = self.enter(which).args(words).output().context("nsenter")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?} on {}: {error}", self.name);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A server on a host.
pub(super) struct Host {
    nr: usize,
    log: PathBuf,
    process: Killed,
    reaped: Option<ExitStatus>,
}

impl Host {
    /// The host's number.
    pub fn nr(&self) -> usize {
        self.nr
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until its output has these words.
    pub fn wait_for(&mut self, words: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !self.said().contains(words) {
            self.reaped = self.process.0.try_wait().context("waiting for a server")?;
            ensure!(
                self.reaped.is_none() && Instant::now() < end,
                "a server does not say {words:?} ({:?}): {}",
                self.reaped,
                self.said()
            );
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// The token of its lease.
    pub fn token(&self, hosts: &Hosts, braid: &Path) -> Result<i64> {
        let detail = hosts.run(self.nr, braid, "detail disk --json")?;
        let detail: serde_json::Value = serde_json::from_str(&detail).context("detail")?;
        detail["lease"]["token"].as_i64().with_context(|| format!("no token in {detail}"))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.process.0.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has a number")?, signal).context("sending a signal")
    }

    fn end(&mut self) -> Result<ExitStatus> {
        let end = Instant::now() + PATIENCE;
        loop {
            let status =
                self.reaped.map_or_else(|| self.process.0.try_wait(), |status| Ok(Some(status)));
            if let Some(status) = status.context("waiting for a server")? {
                return Ok(status);
            }
            ensure!(Instant::now() < end, "a server does not end: {}", self.said());
            std::thread::sleep(GLANCE);
        }
    }

    /// Somebody has killed it, or it has killed itself.
    pub fn has_been_killed(&mut self) -> Result<()> {
        let status = self.end()?;
        ensure!(status.signal() == Some(9), "a server ended with {status}: {}", self.said());
        Ok(())
    }

    /// It has ended as it should.
    pub fn has_ended_well(&mut self) -> Result<()> {
        let status = self.end()?;
        ensure!(status.success(), "a server ended with {status}: {}", self.said());
        Ok(())
    }
}

//! etcd (Debian: etcd-server), for the tests of leases.

use super::Place;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

/// etcd on ports of its own.
pub struct Etcd {
    process: Child,
    pub port: u16,
}

impl Etcd {
    pub fn start(place: &Place) -> Etcd {
        Etcd::start_with(place, "http", &[])
    }

    pub fn start_with(place: &Place, scheme: &str, more: &[&str]) -> Etcd {
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (one, other) = (free(), free());
        let [port, peers] = [&one, &other].map(|socket| socket.local_addr().unwrap().port());
        drop((one, other));
        let client = format!("{scheme}://127.0.0.1:{port}");
        let peer = format!("http://127.0.0.1:{peers}");
        let mut command = Command::new("etcd");
        command.args(["--heartbeat-interval", "100", "--election-timeout", "500", "--data-dir"]);
        command.arg(place.path("etcd")).args(["--listen-client-urls", &client]);
        command.args(["--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
        command.args(["--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]).args(more);
        command.current_dir(place.path(""));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = process.spawn().unwrap_or_else(|error| {
            panic!("etcd (scripts/setup-packages test): {error}");
        });
        let etcd = Etcd { process, port };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "etcd does not come up");
            std::thread::sleep(GLANCE);
        }
        etcd
    }

    pub fn place(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.process.id() as i32).unwrap(), signal).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

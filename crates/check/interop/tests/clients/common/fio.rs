//! fio, told to verify what it wrote.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Bytes of an array that the jobs of [`verifying`] use.
pub const EXTENT: u64 = 64 << 20;
/// Where the extent of each job ends and the next one's begins: nobody's block, chunk or stripe.
const CUTS: [u64; 5] = [0, (12 << 20) - 512, (40 << 20) + 512, (58 << 20) + 3 * 512, EXTENT];
/// Bytes that the job named "write" writes.
pub const WRITTEN: u64 = CUTS[2] - CUTS[1];

/// Four jobs at once, each at a depth of 32: writes of blocks that were trimmed just before, random
/// writes of every size from 512 B to 1 MiB, smaller writes mixed with reads that verify while
/// writing goes on, and trims only. The first three read all back at the end and compare.
///
/// fio sends a block's write without waiting for the trim of the same block, so in the first job
/// overlapping requests have to be serialized. It must be the first: with an offset fio 3.33 turns
/// `randtrimwrite` into trims only.
pub fn verifying(uri: &str, seed: u64) -> String {
    let mut text = common(uri, seed);
    let jobs = [
        ("trimwrite", "rw=randtrimwrite\nserialize_overlap=1\nbsrange=512-256k\n", true),
        ("write", "rw=randwrite\nbsrange=512-1m\n", true),
        ("mix", "rw=randrw\nrwmixread=30\nverify_backlog=64\nbsrange=512-64k\n", true),
        ("trim", "rw=randtrim\nbsrange=512-1m\n", false),
    ];
    for ((name, what, verifies), ends) in jobs.iter().zip(CUTS.windows(2)) {
        let (from, size) = (ends[0], ends[1] - ends[0]);
        let _ = write!(text, "[{name}]\noffset={from}\nsize={size}\n{what}");
        if *verifies {
            text += VERIFY;
        }
    }
    text
}

/// Reads what the job "write" of [`verifying`] wrote with the same seed, and compares; writes
/// nothing.
pub fn verifying_again(uri: &str, seed: u64) -> String {
    let (from, size) = (CUTS[1], WRITTEN);
    format!(
        "{}[write]\noffset={from}\nsize={size}\nrw=randwrite\nbsrange=512-1m\n{VERIFY}verify_only=1\n",
        common(uri, seed)
    )
}

/// Random writes at a depth of 32 that go on until fio is stopped or gets an error.
pub fn writing_on(uri: &str) -> String {
    format!(
        "{}[endless]\nsize={EXTENT}\nrw=randwrite\nbsrange=512-256k\nnorandommap=1\ntime_based=1\n\
         runtime=600\n",
        common(uri, 1)
    )
}

const VERIFY: &str = "verify=crc32c\nverify_fatal=1\ndo_verify=1\n";

fn common(uri: &str, seed: u64) -> String {
    format!(
        "[global]\nioengine=nbd\nuri={uri}\nthread=1\nblockalign=512\niodepth=32\n\
         randseed={seed}\n\
         verify_state_save=0\nfsync=100\n"
    )
}

/// Starts fio with this job file.
pub fn start(folder: &Path, jobs: &str) -> Running {
    let file = tempfile::Builder::new().prefix("jobs.").suffix(".fio").tempfile_in(folder);
    let file = file.expect("a job file");
    std::fs::write(file.path(), jobs).expect("a job file");
    let child = Command::new("fio")
        .args(["--output-format=normal", "--eta=never"])
        .arg(file.path())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("fio: {error}; install it with: make setup"));
    Running { child, _jobs: file }
}

/// Runs fio with this job file; every byte that it verified was as written.
pub fn run(folder: &Path, jobs: &str) -> Said {
    start(folder, jobs).verified()
}

/// fio at work.
pub struct Running {
    child: Child,
    _jobs: tempfile::NamedTempFile,
}

impl Running {
    /// Waits for the end, whatever it is.
    pub fn ended(self) -> (bool, String) {
        let output = self.child.wait_with_output().expect("fio was started above");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), format!("{out}\n{err}"))
    }

    /// Waits for the end, which must be a good one.
    pub fn verified(self) -> Said {
        let (ok, text) = self.ended();
        let errors = text.lines().filter(|line| line.contains(": err=")).collect::<Vec<_>>();
        assert!(ok && !errors.is_empty(), "fio failed:\n{text}");
        assert!(errors.iter().all(|line| line.contains("err= 0")), "fio failed:\n{text}");
        Said(text)
    }

    /// SIGKILL: no goodbye to the server.
    pub fn kill(mut self) {
        self.child.kill().expect("fio was started above");
        self.child.wait().expect("fio was started above");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("fio was started above").is_none()
    }
}

/// What fio printed.
pub struct Said(pub String);

impl Said {
    /// Reads, writes and trims that the job `name` issued.
    pub fn issued(&self, name: &str) -> [u64; 3] {
        let job = self.0.split_once(&format!("\n{name}: (groupid")).map(|(_, rest)| rest);
        let totals = job.and_then(|job| job.split_once("total=")).map(|(_, rest)| rest);
        let totals = totals.and_then(|rest| rest.split(' ').next());
        let mut totals = totals
            .unwrap_or_else(|| panic!("fio says nothing of {name}:\n{}", self.0))
            .split(',')
            .map(|total| total.parse().expect("a number"));
        std::array::from_fn(|_| totals.next().expect("reads, writes and trims"))
    }
}

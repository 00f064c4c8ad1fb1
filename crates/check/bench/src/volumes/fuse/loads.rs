//! The loads of fio, and of dbench.

use super::figures::Load;
use super::servers::FILE;
use crate::{dbench, fio};
use anyhow::{Context, bail};
use braid_load::Slice;
use std::path::Path;
use std::process::Command;

/// One load of fio on the file of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Fio {
    /// `read`, `write`, `randread`, `randwrite`.
    pub pattern: &'static str,
    /// Bytes of a request.
    pub block: u64,
    /// Requests in flight; `None`: through the page cache, the whole file once, until it is on its device.
    pub depth: Option<u32>,
    /// Bytes of the file.
    pub size: u64,
    /// Milliseconds, where the page cache is passed by.
    pub millis: u64,
}

/// Patterns, blocks and depths.
const LINES: [(&str, u64, Option<u32>); 10] = [
    ("write", 1 << 20, None),
    ("read", 1 << 20, None),
    ("write", 1 << 20, Some(1)),
    ("read", 1 << 20, Some(1)),
    ("write", 1 << 20, Some(16)),
    ("read", 1 << 20, Some(16)),
    ("randwrite", 4 << 10, Some(1)),
    ("randread", 4 << 10, Some(1)),
    ("randwrite", 4 << 10, Some(16)),
    ("randread", 4 << 10, Some(16)),
];

/// All loads.
pub fn all(size: u64, millis: u64) -> impl Iterator<Item = Fio> {
    LINES.into_iter().map(move |(pattern, block, depth)| Fio {
        pattern,
        block,
        depth,
        size,
        millis,
    })
}

impl Fio {
    /// Writes the file once, so that all of it is there.
    pub fn lay_out(size: u64) -> Fio {
        Fio { pattern: "write", block: 1 << 20, depth: None, size, millis: 0 }
    }

    /// In a few words.
    pub fn name(&self) -> String {
        let block = if self.block >= 1 << 20 { "1M" } else { "4K" };
        let pattern = match self.pattern {
            "randread" => "random read",
            "randwrite" => "random write",
            other => other,
        };
        match self.depth {
            None => format!("{block} {pattern}, cached"),
            Some(depth) => format!("{block} {pattern}, direct, depth {depth}"),
        }
    }

    /// Bytes of a request are few enough to count requests.
    pub fn is_small(&self) -> bool {
        self.block < 1 << 20
    }

    fn arguments(&self, file: &Path) -> Vec<String> {
        let mut arguments = vec![
            "--name=mounted".to_owned(),
            format!("--filename={}", file.display().to_string().replace(':', "\\:")),
            format!("--rw={}", self.pattern),
            format!("--bs={}", self.block),
            format!("--size={}", self.size),
            "--allow_file_create=1".to_owned(),
            "--overwrite=0".to_owned(),
            "--norandommap".to_owned(),
            "--randrepeat=0".to_owned(),
            // Caches are dropped before, for all mounts alike.
            "--invalidate=0".to_owned(),
            "--fallocate=none".to_owned(),
            "--thread".to_owned(),
            "--output-format=json".to_owned(),
        ];
        match self.depth {
            None => arguments.extend(["--ioengine=psync".to_owned(), "--end_fsync=1".to_owned()]),
            Some(depth) => {
                let engine = if depth == 1 { "psync" } else { "libaio" };
                arguments.extend([
                    "--direct=1".to_owned(),
                    format!("--ioengine={engine}"),
                    format!("--iodepth={depth}"),
                    "--time_based".to_owned(),
                    format!("--runtime={}ms", self.millis),
                ]);
            }
        }
        arguments
    }
}

/// Has the kernel write everything out and forget all files.
pub fn drop_caches() -> anyhow::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches, which root may")
}

impl Load for Fio {
    fn run(&self, dir: &Path) -> anyhow::Result<Slice> {
        drop_caches()?;
        let output = Command::new("fio").args(self.arguments(&dir.join(FILE))).output();
        let output = output.context("running fio")?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("fio, {}, in {}: {}{text}", self.name(), dir.display(), said.trim());
        }
        fio::parse(&text).map_err(anyhow::Error::msg)
    }
}

/// The file server's mix.
pub struct Dbench {
    /// Clients.
    pub clients: u32,
    /// Seconds.
    pub seconds: u32,
}

impl Load for Dbench {
    fn run(&self, dir: &Path) -> anyhow::Result<Slice> {
        let output = Command::new("dbench")
            .arg("-D")
            .arg(dir)
            .args(["-t", &self.seconds.to_string(), "-c", "/usr/share/dbench/client.txt"])
            .arg(self.clients.to_string())
            .output()
            .context("running dbench")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = dbench::throughput(&text)
            .with_context(|| format!("dbench in {}: {text}", dir.display()))?;
        let bytes = (rate * f64::from(self.seconds)) as u64;
        rustix::fs::sync();
        Ok(Slice { requests: bytes, bytes, seconds: f64::from(self.seconds), latency: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_loads_end_on_the_device_and_direct_ones_after_a_time() {
        let loads: Vec<Fio> = all(1 << 20, 500).collect();
        let of = |load: &Fio| load.arguments(Path::new("/mnt/a:b/file")).join(" ");
        let cached = of(&loads[0]);
        assert!(cached.contains("--end_fsync=1") && !cached.contains("--direct"), "{cached}");
        assert!(cached.contains("--filename=/mnt/a\\:b/file"), "{cached}");
        let direct = of(&loads[9]);
        for part in ["--direct=1", "--iodepth=16", "--runtime=500ms", "--rw=randread", "--bs=4096"]
        {
            assert!(direct.contains(part), "{direct}");
        }
        assert_eq!(loads[9].name(), "4K random read, direct, depth 16");
        assert_eq!(loads[0].name(), "1M write, cached");
    }
}

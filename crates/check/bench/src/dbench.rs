//! dbench on ext4 on an array: the file server's mix of requests, through a real kernel's file system.
//!
//! All of it runs in one guest kernel: this program serves the array there, the guest's own NBD client
//! makes a block device of it, and dbench works on ext4 on that. The height of the stripe cache's lines is
//! changed between the slices, while everything stays mounted.

use crate::tables::{Effort, Row, Table, spread};
use anyhow::{Context, bail};
use braid_interop::session::Session;
use braid_interop::uml::SHARED;
use braid_load::{Absolute, Machine, Measured, Ratio, Report, Slice, by_turns, megabytes};
use std::time::Duration;

/// Heights of a line, as they are set.
const SIZES: [&str; 3] = ["auto", "4K", "64K"];
/// Clients of dbench.
const CLIENTS: u32 = 4;
const ROUNDS: usize = 3;
const LIMIT: Duration = Duration::from_secs(180);

/// The guest keeps no AVX registers, so braid computes without them there.
const SERVE: &str = r#"
set -e
export BRAID_SIMD=scalar
modprobe -d /run/rig/modroot brd rd_nr=4 rd_size=262144
mdadm --create /dev/md0 --run --quiet --assume-clean --level 5 --raid-devices 4 --chunk 64 --name bench /dev/ram[0-3]
mdadm --stop --quiet /dev/md0
mkfifo /tmp/stdin; exec 8<> /tmp/stdin
SHARED/program serve /tmp/nbd.sock /dev/ram[0-3] < /tmp/stdin > /tmp/said 2>&1 8>&- 9>&- &
for wait in $(seq 400); do grep -q serving /tmp/said && break; sleep 0.05; done
name=$(sed -n "s/serving //p" /tmp/said)
[ -n "$name" ] || { cat /tmp/said; exit 1; }
nbd-client -unix /tmp/nbd.sock -N "$name" /dev/nbd0 > /dev/null
mkfs.ext4 -q -F /dev/nbd0
mkdir -p /tmp/mnt
mount /dev/nbd0 /tmp/mnt
(sleep 1000000) > /tmp/stdin &
uname -r
"#;

/// One slice; the server says a line when a setting is made.
const SLICE: &str = r#"
set -e
before=$(wc -l < /tmp/said)
echo "stripe_size=SIZE" > /tmp/stdin
for wait in $(seq 400); do [ $(wc -l < /tmp/said) -gt $before ] && break; sleep 0.05; done
tail -n 1 /tmp/said | grep -q "^set stripe_size=SIZE$" || { cat /tmp/said; exit 1; }
dbench -D /tmp/mnt -t SECONDS -c /usr/share/dbench/client.txt CLIENTS
sync
"#;

/// Measures it.
pub fn table(effort: &Effort) -> anyhow::Result<Table> {
    let mut guest = Session::boot(2560).context("starting the guest kernel")?;
    let program = std::env::current_exe().context("finding this program")?;
    std::fs::copy(program, guest.shared().join("program")).context("copying this program")?;
    let kernel = said(&mut guest, &SERVE.replace("SHARED", SHARED))?;
    let seconds = if effort.quick { 2 } else { 10 };
    let slices = by_turns(&mut SIZES.to_vec(), ROUNDS, |size| {
        let script = SLICE
            .replace("SIZE", size)
            .replace("SECONDS", &seconds.to_string())
            .replace("CLIENTS", &CLIENTS.to_string());
        let text = said(&mut guest, &script)?;
        let rate = throughput(&text).with_context(|| format!("reading dbench's: {text}"))?;
        let bytes = (rate * f64::from(seconds)) as u64;
        anyhow::Ok(Slice { requests: 1, bytes, seconds: f64::from(seconds), latency: None })
    })?;
    let measured: Vec<Measured> = SIZES
        .iter()
        .zip(slices)
        .map(|(size, slices)| Measured { name: (*size).to_owned(), worth: Some(1.0), slices })
        .collect();
    let auto = measured.first().context("no size")?.clone();
    let rows = measured.iter().map(|one| row(one, &auto)).collect();
    Ok(Table {
        title: "dbench on ext4".to_owned(),
        about: format!(
            "dbench 4.0 with {CLIENTS} clients, {seconds} s a slice, on ext4 on RAID5 of four RAM disks of 256 MiB with \
             64 KiB chunks, served by braid to the kernel's own NBD client, all of it in one guest (Linux {kernel}, User \
             Mode Linux, one core, parity by scalar code: the guest keeps no AVX registers). stripe_size is set \
             while the file system is mounted. A system call costs several times what it does elsewhere there, so \
             only the quotient means something. The field's figures for md on four SSDs: 308 MB/s with 64K, 377 \
             MB/s with 4K.",
            kernel = kernel.trim(),
        ),
        headings: vec!["stripe_size", "auto ÷ this", "MB/s"],
        rows,
        plots: Vec::new(),
    })
}

fn row(one: &Measured, auto: &Measured) -> Row {
    let ratio = auto.ratio(one, 1.0);
    let ratios = vec![Ratio { of: auto.name.clone(), by: one.name.clone(), ratio }];
    let rate = one.bytes_per_second();
    let rates = [rate.median, rate.min, rate.max].map(megabytes);
    let report = Report {
        load: format!("dbench {CLIENTS}, stripe_size={}", one.name),
        machine: Machine { parity: "scalar".to_owned(), ..Machine::here() },
        rounds: ROUNDS,
        processor_time: false,
        virtual_time: false,
        ratios,
        absolutes: vec![Absolute::of(one)],
        notes: Vec::new(),
    };
    let [median, min, max] = rates;
    let cells = vec![spread(Some(ratio)), format!("{median} ({min}–{max})")];
    Row { load: one.name.clone(), cells, report }
}

fn said(guest: &mut Session, script: &str) -> anyhow::Result<String> {
    let output = guest.run(script, LIMIT).context("running dbench in the guest")?;
    if output.status != 0 {
        bail!("running dbench in the guest (is it installed?): {}", output.text);
    }
    Ok(output.text)
}

/// Bytes per second of dbench's last line, `Throughput 123.4 MB/sec ...`.
pub fn throughput(text: &str) -> Option<f64> {
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix("Throughput "))?;
    let rate: f64 = line.split(' ').next()?.parse().ok()?;
    Some(rate * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_the_last_line() {
        let text =
            "   4  100  55.00 MB/sec  execute 1 sec\n\nThroughput 2 MB/sec  4 clients  4 procs\n";
        assert_eq!(throughput(text), Some(2_000_000.0));
        assert_eq!(throughput("dbench: error"), None);
    }
}

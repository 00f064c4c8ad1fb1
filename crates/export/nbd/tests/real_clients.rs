//! The server under other people's clients: libnbd's tools, qemu's, and fio.
//!
//! `make test` installs them (Debian: libnbd-bin, qemu-utils, fio); without them these tests fail
//! and say so, so that a machine that lacks them does not pass for one that was tested.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use braid_nbd::NbdUri;
use support::{DISK_BYTES, World};

/// Runs a client and gives its standard output.
fn run(program: &str, package: &str, args: &[&str]) -> String {
    let Output { status, stdout, stderr } =
        Command::new(program).args(args).output().unwrap_or_else(|error| {
            panic!(
                "{program}: {error}; install it with: apt-get install {package} (make test does)"
            )
        });
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{program} {args:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// A file of `bytes` bytes without a pattern that a mistake could hide behind.
fn scrambled_file(path: &Path, bytes: usize) {
    let mut state = 1u64;
    let content: Vec<u8> = (0..bytes / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state ^ (state >> 29)).to_le_bytes()
        })
        .collect();
    fs::write(path, content).expect("a writable folder");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary folder with a plain name")
}

#[test]
fn nbdinfo_sees_size_flags_block_sizes_and_every_export() {
    let world = World::new();
    for address in [world.unix(), world.tcp()] {
        let info = run("nbdinfo", "libnbd-bin", &[&address.uri("disk")]);
        for expected in [
            "newstyle-fixed without TLS, using structured packets",
            "export-size: 67108864 (64M)",
            "description: RAM disk disk",
            "contexts:",
            "base:allocation",
            "is_rotational: false",
            "is_read_only: false",
            "can_df: true",
            "can_fast_zero: true",
            "can_flush: true",
            "can_fua: true",
            "can_multi_conn: true",
            "can_trim: true",
            "can_zero: true",
            "block_size_minimum: 512",
            "block_size_preferred: 4096",
            "block_size_maximum: 33554432",
        ] {
            assert!(info.contains(expected), "{expected} is not in\n{info}");
        }
    }
    let list = run("nbdinfo", "libnbd-bin", &["--list", &world.tcp().uri("")]);
    assert!(list.contains("export=\"disk\"") && list.contains("export=\"fixed\""), "{list}");
    let fixed = run("nbdinfo", "libnbd-bin", &[&world.unix().uri("fixed")]);
    assert!(fixed.contains("is_read_only: true"), "{fixed}");
    let map = run("nbdinfo", "libnbd-bin", &["--map", &world.unix().uri("disk")]);
    assert!(map.contains("data"), "{map}");
}

#[test]
fn nbdcopy_copies_in_over_several_connections_and_out_again() {
    let world = World::new();
    let folder = world.folder.path();
    let (source, back) = (folder.join("source"), folder.join("back"));
    scrambled_file(&source, DISK_BYTES as usize);
    for address in [world.unix(), world.tcp()] {
        let uri = address.uri("disk");
        let connections = ["--connections=4", "--requests=64", "--flush"];
        run("nbdcopy", "libnbd-bin", &[&connections[..], &[text(&source), &uri]].concat());
        run("nbdcopy", "libnbd-bin", &[&connections[..], &[&uri, text(&back)]].concat());
        assert!(fs::read(&source).expect("written above") == fs::read(&back).expect("copied"));
    }
}

#[test]
fn qemu_io_writes_with_fua_zeroes_discards_and_reads_back() {
    let world = World::new();
    for address in [world.unix(), world.tcp()] {
        let commands = [
            "write -P 0x11 0 1M",
            "write -f -P 0x22 1M 64k",
            "aio_write -P 0x33 2M 512",
            "aio_flush",
            "read -P 0x11 0 1M",
            "read -P 0x22 1M 64k",
            "read -P 0x33 2M 512",
            "write -z 0 512k",
            "write -z -u 1M 4k",
            "read -P 0 0 512k",
            "read -P 0x11 512k 512k",
            "read -P 0 1M 4k",
            "read -P 0x22 1028k 60k",
            "discard 8M 8M",
            "flush",
            // Not aligned to the block size: qemu reads, merges and writes whole blocks.
            "write -P 0x44 1000 3000",
            "read -P 0x44 1000 3000",
            "read -P 0 0 1000",
        ];
        let uri = address.uri("disk");
        let mut args = vec!["-f", "raw"];
        args.extend(commands.iter().flat_map(|command| ["-c", *command]));
        args.push(&uri);
        let said = run("qemu-io", "qemu-utils", &args);
        assert!(!said.contains("Pattern verification failed"), "{said}");
        assert!(!said.contains("failed:"), "{said}");
    }
}

#[test]
fn qemu_img_converts_onto_the_export_and_compares_equal() {
    let world = World::new();
    let source = world.folder.path().join("source");
    scrambled_file(&source, 16 << 20);
    // The second half a hole, which qemu-img writes as zeroes.
    let file = fs::OpenOptions::new().write(true).open(&source).expect("written above");
    file.set_len(DISK_BYTES).expect("room for a sparse file");
    let uri = world.unix().uri("disk");
    run(
        "qemu-img",
        "qemu-utils",
        &["convert", "-n", "-f", "raw", "-O", "raw", text(&source), &uri],
    );
    run("qemu-img", "qemu-utils", &["compare", "-f", "raw", "-F", "raw", text(&source), &uri]);
    assert!(run("qemu-img", "qemu-utils", &["info", &uri]).contains("64 MiB"));
}

/// Runs fio against `uri`; gives its output, which has a line on what was issued.
fn fio(uri: &str, args: &[&str]) -> String {
    let uri = format!("--uri={uri}");
    let common = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--bsrange=512-1m",
        "--blockalign=512",
        "--iodepth=32",
        "--size=64m",
        "--fsync=50",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
        // Else it leaves a file where the tests run.
        "--verify_state_save=0",
        "--randrepeat=1",
    ];
    let said = run("fio", "fio", &[&common[..], args].concat());
    assert!(said.contains("err= 0"), "{said}");
    said
}

#[test]
fn fio_verifies_random_writes_of_every_size() {
    let world = World::new();
    for address in [world.unix(), world.tcp()] {
        fio(&address.uri("disk"), &["--rw=randwrite"]);
    }
}

#[test]
fn fio_verifies_writes_over_what_was_just_trimmed() {
    let world = World::new();
    let said = fio(&world.unix().uri("disk"), &["--rw=randtrimwrite"]);
    // Reads, writes and trims, in this order: all three have taken place.
    let totals = said.split("total=").nth(1).and_then(|rest| rest.split(' ').next());
    let totals: Vec<u64> = totals
        .expect("fio says what it issued")
        .split(',')
        .map(|total| total.parse().expect("a number"))
        .collect();
    assert!(totals[1] > 0 && totals[2] > 0, "{said}");
}

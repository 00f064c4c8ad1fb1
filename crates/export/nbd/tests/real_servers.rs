//! The client against somebody else's server: qemu-nbd (Debian: qemu-utils; `make test` installs
//! it), which splits a read of a sparse file into data and holes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use braid_device::{Device, IoSets, Op, Request};
use braid_nbd::Address;
use braid_nbd::client::Client;
use braid_nbd::protocol::{ClientOptions, Headers};
use braid_shard::threads::start;

const BYTES: u64 = 8 << 20;

/// A server that is ended with the test.
struct QemuNbd(Child);

impl QemuNbd {
    fn start(socket: &Path, file: &Path) -> QemuNbd {
        let child = Command::new("qemu-nbd")
            .args(["--persistent", "--format=raw", "--discard=unmap", "--export-name=disk"])
            .arg("--socket")
            .args([socket, file])
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "qemu-nbd: {error}; install it with: apt-get install qemu-utils (make test does)"
                )
            });
        let mut server = QemuNbd(child);
        while !socket.exists() {
            let ended = server.0.try_wait().expect("our own child");
            assert!(ended.is_none(), "qemu-nbd ended: {ended:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Data, holes, writes, zeroes, discards and flushes against qemu-nbd.
fn exchange(headers: Headers) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (socket, path) = (folder.path().join("socket"), folder.path().join("disk"));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("a writable folder");
    file.set_len(BYTES).expect("room for a sparse file");
    // Islands of data between holes, none where a buffer begins or ends.
    for island in 0..20u64 {
        let content = [island as u8 + 1; 8192];
        file.write_all_at(&content, island * 400 * 1024 + 4096).expect("room for a sparse file");
    }
    let mut expected = vec![0; BYTES as usize];
    file.read_exact_at(&mut expected, 0).expect("written above");
    let _server = QemuNbd::start(&socket, &path);
    let shards = start(1).expect("a shard with io_uring");
    let ran = shards.remotes()[0].call_async(move |shard, give| {
        let shard = shard.clone();
        shard.clone().spawn(async move {
            let options = ClientOptions { export: "disk".into(), headers };
            let client = Client::connect(&shard, &Address::Unix(socket), options).await;
            let client = client.expect("qemu-nbd serves");
            assert_eq!(client.info().size, BYTES);
            let structured = client.offer().headers.structured();
            assert_eq!(structured, headers != Headers::Simple, "less is taken, too");
            let sets = IoSets::new(&shard);

            let mut payload = shard.pool().get(3 << 20);
            payload.fill(0xa5);
            expected[4096..4096 + (3 << 20)].fill(0xa5);
            let write = Request::write(4096, payload.freeze(), true);
            assert_eq!(sets.one(&*client, write).await.result, Ok(()));
            expected[1 << 20..2 << 20].fill(0);
            let op = Op::WriteZeroes { len: 1 << 20, unmap: true, fua: true };
            let zero = Request { offset: 1 << 20, op };
            assert_eq!(sets.one(&*client, zero).await.result, Ok(()));
            let discard = Request { offset: BYTES - 4096, op: Op::Discard { len: 4096 } };
            assert_eq!(sets.one(&*client, discard).await.result, Ok(()));
            assert_eq!(sets.one(&*client, Request::flush()).await.result, Ok(()));

            let sizes = [512, (1 << 20) - 512, 4096, (3 << 20) - 4096, 4 << 20];
            // Not zero before, so that a hole that is not filled in shows.
            let dirty = |size: &usize| shard.pool().copy_of(&vec![0xee; *size]);
            let bufs = sizes.iter().map(dirty).collect();
            let outcome = sets.one(&*client, Request { offset: 0, op: Op::Read(bufs) }).await;
            assert_eq!(outcome.result, Ok(()));
            let Op::Read(bufs) = outcome.op else { panic!("{:?}", outcome.op) };
            let mut at = 0;
            for buf in bufs {
                assert!(buf[..] == expected[at..at + buf.len()], "the buffer from {at}");
                at += buf.len();
            }
            give(());
        });
    });
    ran.expect("the exchange went through");
}

#[test]
fn qemu_nbd_with_structured_replies_and_holes() {
    exchange(Headers::Structured);
}

#[test]
fn qemu_nbd_with_simple_replies() {
    exchange(Headers::Simple);
}

/// Before version 8.2 it has none, and the client is content with structured replies.
#[test]
fn qemu_nbd_asked_for_extended_headers() {
    exchange(Headers::Extended);
}

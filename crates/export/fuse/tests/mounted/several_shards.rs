//! A mount that two shards serve.

use crate::lifecycle::LONG;
use crate::support::{cannot_mount, open};
use braid_filesystem::{Ino, Lease, Leased, LeasedRead, Leases};
use braid_fuse::{Front, Mount, MountOptions};
use braid_shard::{BufMut, Shard};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Processes that read at a time. Each waits for its answer.
const READERS: usize = 32;

/// No leases at all: counts the reads that its shard has received.
struct NoLeases(Arc<AtomicUsize>);

impl Leases for NoLeases {
    fn suffice(&self, _: Ino, _: u64, _: usize) -> Leased {
        self.0.fetch_add(1, Ordering::Relaxed);
        Leased::No
    }

    fn read(&self, _: Ino, _: u64, _: usize, _: Option<BufMut>) -> LeasedRead<'_> {
        Box::pin(async { None })
    }

    fn keep(&self, _: Ino, _: Option<Lease>) {}
}

/// The file system in memory answers at once, so that never more than one request is under way: others wait in the kernel.
#[test]
fn another_shard_takes_part_when_requests_wait_in_the_kernel() {
    if cannot_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let shards = braid_shard::threads::start(2).unwrap();
    let [home, other] = shards.remotes() else { panic!("two shards") };
    let received = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&received);
    let leases = move |_: &Shard| Rc::new(NoLeases(counted)) as Rc<dyn Leases>;
    let front = Front { remote: other.clone(), open: Box::new(leases) };
    let mut options = MountOptions::new(dir.path(), "test");
    options.io_uring = false;
    let mount = Mount::start_on(options, home.clone(), vec![front], open, |_| {}).unwrap();
    let path = dir.path().join("f");
    fs::write(&path, vec![1; 1 << 20]).unwrap();

    // One that reads alone has the file system's own shard.
    let read = |file: &File, nr: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, nr % 256 * 4096).unwrap();
        assert_eq!(byte, [1]);
        // The kernel is to ask again.
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    };
    let file = File::open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    // On a busy machine it may have sent its next request before the shard looks for more, which is how a crowd looks, so it
    // is asked for a hundred reads with none elsewhere.
    let begun = Instant::now();
    loop {
        let before = received.load(Ordering::Relaxed);
        (0..100).for_each(|nr| read(&file, nr));
        if received.load(Ordering::Relaxed) == before {
            break;
        }
        assert!(begun.elapsed() < LONG, "the other shard has received what one reads alone");
    }
    let alone = received.load(Ordering::Relaxed);

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..READERS as u64 {
            let (file, done, read) = (&file, &done, &read);
            scope.spawn(move || {
                let mut nr = reader;
                while !done.load(Ordering::Relaxed) {
                    read(file, nr);
                    nr += READERS as u64;
                }
            });
        }
        let begun = Instant::now();
        while received.load(Ordering::Relaxed) == alone && begun.elapsed() < LONG {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(received.load(Ordering::Relaxed) > alone, "the other shard has received nothing");
    drop(file);
    mount.unmount().map_err(|(error, _)| error).unwrap();
}

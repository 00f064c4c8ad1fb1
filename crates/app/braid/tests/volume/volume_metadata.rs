//! The metadata of a mounted volume becomes full, and larger.
//!
//! Without /dev/fuse, or the right to mount, these tests say so and end.

use crate::support::Place;
use std::fs::{self, File};
use std::time::{Duration, Instant};

/// A folder with a mounted volume, unmounted at the end.
struct Mounted {
    place: Place,
}

impl Mounted {
    /// Of these bricks of 128 MiB, with 4 MiB for metadata; `None` where nothing can be mounted.
    fn new(bricks: &str) -> Option<Mounted> {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root || File::options().read(true).write(true).open("/dev/fuse").is_err() {
            // Passing there would say that volumes work.
            assert!(
                !is_root && std::env::var_os("CI").is_none(),
                "mounting needs root and /dev/fuse"
            );
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let place = Place::new();
        for brick in bricks.split(' ') {
            File::create(place.path(brick)).unwrap().set_len(128 << 20).unwrap();
        }
        fs::create_dir(place.path("mnt")).unwrap();
        place.run(&format!("volume create pool {bricks} --metadata 4M")).ok();
        place.run("volume mount pool mnt").ok();
        Some(Mounted { place })
    }

    /// Makes empty files from number `from` on until there is no room; says how many.
    fn fill(&self, from: usize) -> usize {
        for number in from.. {
            match File::create(self.place.path(&format!("mnt/f{number}"))) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                    return number - from;
                }
            }
        }
        0
    }

    fn metadata_size(&self) -> u64 {
        let status = self.place.run("volume status pool --json").ok();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["metadata_size"].as_u64().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let ran = self.place.run("volume unmount pool --lazy");
        let until = Instant::now() + Duration::from_secs(30);
        while ran.code == 0 && self.place.path("control.sock").exists() {
            assert!(Instant::now() < until, "the server has not ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn full_metadata_is_told_grows_under_way_and_stays_so() {
    let Some(mounted) = Mounted::new("a b") else { return };
    let place = &mounted.place;
    let data = vec![7; 3_000_000];
    fs::write(place.path("mnt/data"), &data).unwrap();
    let made = mounted.fill(0);
    assert!(made > 1000, "{made}");
    let status = place.run("volume status pool").ok();
    assert!(status.contains("braid volume grow-metadata pool --size"), "{status}");
    let log = fs::read_to_string(place.path("control.log")).unwrap();
    assert!(log.contains("braid volume grow-metadata"), "{log}");
    let before = mounted.metadata_size();
    place.run("volume grow-metadata pool --size 1M").refused(2, &["give a larger size"]);
    place.run("volume grow-metadata pool --size 1T").refused(2, &["choose a smaller size"]);
    let said = place.run("volume grow-metadata pool --size 12M").ok();
    assert!(said.contains("the metadata of volume pool has"), "{said}");
    assert!(mounted.metadata_size() > before + (6 << 20));
    let more = mounted.fill(made);
    assert!(more > made, "{more} after {made}");
    place.run("volume check pool").ok();
    place.run("volume unmount pool").ok();
    place.run("volume mount pool mnt").ok();
    assert_eq!(fs::read_dir(place.path("mnt")).unwrap().count(), made + more + 1);
    assert!(fs::read(place.path("mnt/data")).unwrap() == data);
    let said = place.run("volume grow-metadata pool --size 16M --json").ok();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(said.to_string().contains("pool has"), "{said}");
    place.run("volume check pool").ok();
}

//! fio in a guest (User Mode Linux) that has the servers' disks.
//!
//! The guest has one processor and is an ordinary process here. It is asked by files in a folder that both see.

use crate::fio::{arguments, parse};
use anyhow::{Context, bail};
use braid_interop::outcome::{GuestError, Output};
use braid_interop::uml::{LOAD_DISKS, SHARED, run_with_disks};
use braid_load::{RawLoad, Slice, Until};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// MiB of the guest's memory.
const MEMORY: u32 = 512;
/// The time that it may live, and that it may take to boot and for a slice.
const LIFE: Duration = Duration::from_secs(1800);
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at the folder.
const LOOK: Duration = Duration::from_millis(2);

/// Slice after slice: `go.N` has fio's arguments, and its output is there before `done.N` is.
const SCRIPT: &str = r#"
set -e
LOAD_DISKS
for disk in DISKS; do
  for try in $(seq 400); do [ -b $disk ] && break; sleep 0.05; done
  [ -b $disk ]
done
echo > SHARED/ready
for nr in $(seq 0 100000); do
  until [ -e SHARED/go.$nr ]; do sleep 0.01; done
  [ -s SHARED/go.$nr ] || exit 0
  fio $(cat SHARED/go.$nr) > SHARED/out.$nr 2> SHARED/said.$nr || echo failed >> SHARED/said.$nr
  echo > SHARED/done.$nr
done
"#;

/// See the module's documentation. It ends with this value.
pub struct Guest {
    folder: tempfile::TempDir,
    thread: Option<JoinHandle<Result<Output, GuestError>>>,
    slices: u32,
}

/// The name of a disk in the guest.
fn disk(nr: usize) -> String {
    format!("/dev/vd{}", char::from(b'a' + nr as u8))
}

impl Guest {
    /// Boots it with the disks at these sockets.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(sockets: Vec<PathBuf>) -> anyhow::Result<Guest> {
        let folder = tempfile::tempdir_in("/var/tmp").context("making a folder for a guest")?;
        let disks: Vec<String> = (0..sockets.len()).map(disk).collect();
        let script = SCRIPT
            .replace("LOAD_DISKS", LOAD_DISKS)
            .replace("DISKS", &disks.join(" "))
            .replace("SHARED", SHARED);
        let shared = folder.path().to_path_buf();
        let thread = std::thread::spawn(move || {
            let sockets: Vec<&Path> = sockets.iter().map(PathBuf::as_path).collect();
            run_with_disks(&script, &shared, MEMORY, LIFE, &sockets)
        });
        let mut guest = Guest { folder, thread: Some(thread), slices: 0 };
        guest.wait_for("ready")?;
        Ok(guest)
    }

    fn wait_for(&mut self, name: &str) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !self.folder.path().join(name).exists() {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                bail!("the guest has ended: {}", self.end());
            }
            if begun.elapsed() > PATIENCE {
                bail!("the guest does not come to {name} within {PATIENCE:?}");
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Runs fio on the disk with that number, whose first `size` bytes it uses.
    ///
    /// # Errors
    /// When it fails there.
    pub fn slice(
        &mut self,
        nr: usize,
        size: u64,
        load: &RawLoad,
        until: Until,
    ) -> anyhow::Result<Slice> {
        let mut words = arguments(load, until);
        words.extend([
            format!("--filename={}", disk(nr)),
            format!("--size={size}"),
            "--ioengine=libaio".to_owned(),
            "--direct=1".to_owned(),
        ]);
        let slice = self.slices;
        self.slices += 1;
        self.ask(slice, &words.join(" "))?;
        self.wait_for(&format!("done.{slice}"))?;
        let read = |name: &str| {
            std::fs::read_to_string(self.folder.path().join(format!("{name}.{slice}")))
                .with_context(|| format!("reading what fio said in slice {slice}"))
        };
        let (text, said) = (read("out")?, read("said")?);
        if said.contains("failed") {
            bail!("fio in the guest: {said}{text}");
        }
        parse(&text).map_err(anyhow::Error::msg)
    }

    fn ask(&self, slice: u32, words: &str) -> anyhow::Result<()> {
        let doing = || format!("asking the guest for slice {slice}");
        let path = self.folder.path().join("next");
        std::fs::write(&path, words).with_context(doing)?;
        let place = self.folder.path().join(format!("go.{slice}"));
        std::fs::rename(&path, place).with_context(doing)
    }

    /// Ends it; gives what it has said.
    fn end(&mut self) -> String {
        // It has ended otherwise.
        let _ = self.ask(self.slices, "");
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(output))) => output.text,
            Some(Ok(Err(error))) => error.to_string(),
            Some(Err(_)) | None => String::new(),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_doors::vhost::VhostUser;
    use braid_doors::{Rig, Shape};

    #[test]
    fn fio_in_a_guest_is_asked_for_slices_of_its_disks() {
        let rigs = [1, 2].map(|_| Rig::of(&VhostUser, Shape { size: 8 << 20, ..Shape::default() }));
        let mut guest = Guest::boot(rigs.iter().map(Rig::socket).collect()).unwrap();
        let load =
            RawLoad { block: 4096, depth: 8, reads: 0, random: true, members: 1, factor: None };
        let slice = guest.slice(1, 8 << 20, &load, Until::Requests(100)).unwrap();
        assert_eq!((slice.requests, slice.bytes), (100, 100 * 4096));
        assert!(slice.seconds > 0.0);
        assert_eq!((rigs[0].disk.changes(), rigs[1].disk.changes()), (0, 100));
        let nothing = RawLoad { block: 4095, ..load };
        assert!(guest.slice(0, 8 << 20, &nothing, Until::Requests(100)).is_err());
        assert_eq!(guest.end(), "");
    }
}

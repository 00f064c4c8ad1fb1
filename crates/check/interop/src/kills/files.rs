//! Files whose content follows from their name, so that nothing has to be kept to compare them.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Files that the volume holds before the first kill.
pub const FIRST: u64 = 24;
/// Bytes of those.
const FIRST_BYTES: u64 = 2 << 20;
/// Files from which the oldest of the later ones are removed between two kills.
const KEPT_MAX: usize = 64;
/// Files that are added before a flush.
const MORE: u64 = 16;
/// Longest file that is written meanwhile, in bytes.
pub const BYTES_MAX: u64 = 1 << 20;

/// Numbers from a seed (splitmix64, public domain).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Decides what files hold: a seed, and the most bytes of those that are written meanwhile.
#[derive(Clone, Copy)]
struct Contents {
    seed: u64,
    bytes_max: u64,
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Its fsync was answered: it is there.
    Durable,
    /// It was being written or removed: it is there or not, and holds a beginning of its bytes.
    Open,
}

/// The files of one volume.
pub struct Files {
    dir: PathBuf,
    contents: Contents,
    next: u64,
    known: BTreeMap<u64, Known>,
}

/// What a writer knows at its end.
pub struct Written {
    next: u64,
    known: BTreeMap<u64, Known>,
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("f{number}"))
}

impl Contents {
    /// The bytes of file `number`.
    fn of(self, number: u64) -> Vec<u8> {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let bytes = if number < FIRST { FIRST_BYTES } else { 1 + random.next() % self.bytes_max };
        let words = bytes.div_ceil(8);
        let mut all: Vec<u8> = (0..words).flat_map(|_| random.next().to_le_bytes()).collect();
        all.truncate(bytes as usize);
        all
    }
}

fn write_file(dir: &Path, contents: Contents, number: u64) -> std::io::Result<()> {
    let mut file = File::create(path(dir, number))?;
    for part in contents.of(number).chunks(100_000) {
        file.write_all(part)?;
    }
    file.sync_all()
}

impl Files {
    /// None yet; those that are written meanwhile have up to `bytes_max` bytes.
    pub fn new(dir: &Path, seed: u64, bytes_max: u64) -> Files {
        let contents = Contents { seed, bytes_max };
        Files { dir: dir.to_path_buf(), contents, next: 0, known: BTreeMap::new() }
    }

    /// Writes the first files.
    pub fn fill(&mut self) -> Result<()> {
        for number in 0..FIRST {
            write_file(&self.dir, self.contents, number).context("filling the volume")?;
            self.known.insert(number, Known::Durable);
        }
        self.next = FIRST;
        Ok(())
    }

    /// Writes some files more.
    pub fn add_some(&mut self) -> Result<()> {
        for number in self.next..self.next + MORE {
            write_file(&self.dir, self.contents, number).context("adding files")?;
            self.known.insert(number, Known::Durable);
        }
        self.next += MORE;
        Ok(())
    }

    /// Writes over some of the first files, where they are, with what they hold.
    pub fn write_some_again(&self) -> Result<()> {
        for number in (0..FIRST).step_by(3) {
            let file = File::options().write(true).open(path(&self.dir, number));
            let mut file = file.context("writing over a file")?;
            file.write_all(&self.contents.of(number)).context("writing over a file")?;
            file.sync_all().context("writing over a file")?;
        }
        Ok(())
    }

    /// Removes every other of the later files, so that those that stay lie apart.
    pub fn remove_every_other(&mut self) -> Result<()> {
        let later: Vec<u64> = self.known.keys().copied().filter(|nr| *nr >= FIRST).collect();
        for number in later.into_iter().step_by(2) {
            fs::remove_file(path(&self.dir, number)).context("removing a file")?;
            self.known.remove(&number);
        }
        Ok(())
    }

    /// The files that are there and stay as they are until one is removed.
    pub fn durable(&self) -> Vec<u64> {
        let durable = self.known.iter().filter(|(_, known)| **known == Known::Durable);
        durable.map(|(number, _)| *number).collect()
    }

    /// The first words of all blocks of 4096 bytes of the first files, which stay.
    pub fn first_words(&self) -> HashSet<[u8; 8]> {
        let mut words = HashSet::new();
        for number in 0..FIRST {
            let content = self.contents.of(number);
            words.extend(content.chunks(4096).filter_map(|block| block.first_chunk()));
        }
        words
    }

    /// A folder shows all of these files, and `some` of them hold what was written.
    pub fn compare_in(
        &self,
        dir: &Path,
        numbers: &[u64],
        some: usize,
        random: &mut Random,
    ) -> Result<()> {
        for number in numbers {
            let path = path(dir, *number);
            fs::metadata(&path).with_context(|| format!("{} is to be there", path.display()))?;
        }
        for _ in 0..some.min(numbers.len()) {
            let number = numbers[random.next() as usize % numbers.len()];
            let path = path(dir, number);
            let found = fs::read(&path).with_context(|| path.display().to_string())?;
            ensure!(found == self.contents.of(number), "{}: other bytes", path.display());
        }
        Ok(())
    }

    /// The path in the volume of one of the first files.
    pub fn some_name(&self, number: u32) -> String {
        format!("/f{}", u64::from(number) % FIRST)
    }

    /// Starts to write files, each with an fsync, until `stop` or an error; with `removes` every other step removes
    /// one.
    pub fn write_on(
        &self,
        stop: Arc<AtomicBool>,
        removes: bool,
        seed: u64,
    ) -> Result<JoinHandle<Written>> {
        // By the mount itself: once that was taken away, the path leads to the folder below it, which would take files.
        let root = File::open(&self.dir).context("opening the mount point")?;
        let dir = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        let contents = self.contents;
        let (mut next, mut known) = (self.next, self.known.clone());
        let mut random = Random::new(seed);
        Ok(std::thread::spawn(move || {
            let _root = root;
            while !stop.load(Ordering::Acquire) {
                let removable: Vec<u64> =
                    known.keys().copied().filter(|number| *number >= FIRST).collect();
                if removes && removable.len() > 4 && random.next().is_multiple_of(2) {
                    let number = removable[random.next() as usize % removable.len()];
                    known.insert(number, Known::Open);
                    if fs::remove_file(path(&dir, number)).is_err() {
                        break;
                    }
                    continue;
                }
                let number = next;
                next += 1;
                known.insert(number, Known::Open);
                if write_file(&dir, contents, number).is_err() {
                    break;
                }
                known.insert(number, Known::Durable);
            }
            Written { next, known }
        }))
    }

    /// Learns what a writer has done.
    pub fn take_back(&mut self, writer: JoinHandle<Written>) -> Result<()> {
        let Ok(written) = writer.join() else { bail!("the writer panicked") };
        self.next = written.next;
        self.known = written.known;
        Ok(())
    }

    /// Reads every file; those that may be gone or cut off are removed afterwards. Gives how many were compared.
    pub fn compare(&mut self) -> Result<u64> {
        let mut compared = 0;
        for (number, known) in std::mem::take(&mut self.known) {
            let path = path(&self.dir, number);
            let expected = self.contents.of(number);
            let mut found = Vec::new();
            let opened = File::open(&path).and_then(|mut file| file.read_to_end(&mut found));
            match (known, opened) {
                (Known::Durable, Ok(_)) => {
                    if found != expected {
                        let at = found.iter().zip(&expected).position(|(a, b)| a != b);
                        bail!(
                            "{}: {} of {} bytes, the first wrong one at {at:?}",
                            path.display(),
                            found.len(),
                            expected.len()
                        );
                    }
                    self.known.insert(number, known);
                    compared += 1;
                }
                (Known::Durable, Err(error)) => {
                    return Err(error)
                        .with_context(|| format!("{}, which was durable", path.display()));
                }
                (Known::Open, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                (Known::Open, Err(error)) => {
                    return Err(error).with_context(|| path.display().to_string());
                }
                (Known::Open, Ok(_)) => {
                    // Bytes that were never written read as zero; no others may show.
                    let foreign = found.iter().zip(&expected).position(|(a, b)| a != b && *a != 0);
                    if let Some(at) = foreign.filter(|_| found.len() <= expected.len()) {
                        bail!("{}: a byte that was never written, at {at}", path.display());
                    }
                    fs::remove_file(&path).with_context(|| path.display().to_string())?;
                    compared += 1;
                }
            }
        }
        Ok(compared)
    }

    /// Removes the oldest of the later files, so that the volume does not fill up.
    pub fn thin_out(&mut self) -> Result<()> {
        while self.known.len() > KEPT_MAX {
            let Some(number) = self.known.keys().copied().find(|number| *number >= FIRST) else {
                break;
            };
            fs::remove_file(path(&self.dir, number)).context("removing an old file")?;
            self.known.remove(&number);
        }
        Ok(())
    }
}

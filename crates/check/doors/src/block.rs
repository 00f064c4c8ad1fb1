//! A client of a disk of this machine, open for direct I/O. Requests are calls, each on a thread of its own.

use crate::{Answer, Client, Command, Failure, Properties};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Buffers of direct I/O begin at multiples of this.
const ALIGN: usize = 4096;
/// Between two looks whether the disk is still there.
const LOOK: Duration = Duration::from_millis(20);

/// See the module's documentation.
pub struct BlockDevice {
    file: Arc<File>,
    name: String,
    send: Sender<(u32, Result<Vec<u8>, Failure>)>,
    receive: Receiver<(u32, Result<Vec<u8>, Failure>)>,
}

impl BlockDevice {
    /// Opens the disk behind a link, for reading only where it cannot be written. `None` when it is not there.
    #[must_use]
    pub fn open(link: &Path) -> Option<BlockDevice> {
        let name = std::fs::read_link(link).ok()?.file_name()?.to_str()?.to_string();
        let open = |writable| {
            let flags = OFlags::DIRECT.bits().cast_signed();
            OpenOptions::new().read(true).write(writable).custom_flags(flags).open(link)
        };
        let file = open(true).or_else(|_| open(false)).ok()?;
        let (send, receive) = channel();
        Some(BlockDevice { file: Arc::new(file), name, send, receive })
    }

    fn attribute(&self, name: &str) -> u64 {
        let path = format!("/sys/block/{}/{name}", self.name);
        let text = std::fs::read_to_string(&path).expect(&path);
        text.trim().parse().expect("a number")
    }
}

impl Client for BlockDevice {
    fn properties(&mut self) -> Properties {
        Properties {
            size: self.attribute("size") * 512,
            block: self.attribute("queue/logical_block_size"),
            largest: self.attribute("queue/max_hw_sectors_kb") << 10,
            read_only: self.attribute("ro") == 1,
            discards: self.attribute("queue/discard_max_bytes") > 0,
            zeroes: self.attribute("queue/write_zeroes_max_bytes") > 0,
        }
    }

    fn submit(&mut self, tag: u32, command: Command) {
        let (file, name, send) = (Arc::clone(&self.file), self.name.clone(), self.send.clone());
        std::thread::spawn(move || {
            let result = call(&file, &name, command);
            // The file is closed before the answer is there: a client that is dropped then has left.
            drop(file);
            // The client may have left before it had the answer.
            let _ = send.send((tag, result));
        });
    }

    fn answer(&mut self, within: Duration) -> Answer {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.receive.recv_timeout(left.min(LOOK)) {
                Ok((tag, result)) => return Answer::Done(tag, result),
                Err(_) if !Path::new("/sys/block").join(&self.name).exists() => {
                    return Answer::Disconnected;
                }
                Err(_) if left.is_zero() => return Answer::Nothing,
                Err(_) => {}
            }
        }
    }
}

fn call(file: &File, name: &str, command: Command) -> Result<Vec<u8>, Failure> {
    match command {
        Command::Read { offset, length } => {
            let mut memory = vec![0; length as usize + ALIGN];
            let bytes = aligned(&mut memory, length as usize);
            let read = rustix::io::pread(file, &mut *bytes, offset).map_err(failure)?;
            // A disk ends like a file: there is less to read, or nothing.
            if read as u64 == length { Ok(bytes.to_vec()) } else { Err(Failure::Refused) }
        }
        Command::Write { offset, data, fua } => {
            let mut memory = vec![0; data.len() + ALIGN];
            let bytes = aligned(&mut memory, data.len());
            bytes.copy_from_slice(&data);
            let flags = if fua { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let written = rustix::io::pwritev2(file, &[IoSlice::new(bytes)], offset, flags);
            match written.map_err(failure)? {
                written if written == data.len() => Ok(Vec::new()),
                _ => Err(Failure::Refused),
            }
        }
        Command::Flush => rustix::fs::fsync(file).map(|()| Vec::new()).map_err(failure),
        Command::Zero { offset, length } => {
            let zeroed = rustix::fs::fallocate(file, FallocateFlags::ZERO_RANGE, offset, length);
            zeroed.map(|()| Vec::new()).map_err(failure)
        }
        Command::Discard { offset, length } => discard(name, offset, length),
    }
}

/// There is no safe call for it.
fn discard(name: &str, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
    let output = std::process::Command::new("blkdiscard")
        .args(["--verbose", "--offset", &offset.to_string(), "--length", &length.to_string()])
        .arg(format!("/dev/{name}"))
        .output()
        .expect("blkdiscard");
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        // It shortens what goes beyond the end, and says how much is left.
        true => {
            match String::from_utf8_lossy(&output.stdout).contains(&format!(" {length} bytes ")) {
                true => Ok(Vec::new()),
                false => Err(Failure::Refused),
            }
        }
        false if said.contains("Input/output error") => Err(Failure::Io),
        false => Err(Failure::Refused),
    }
}

fn aligned(memory: &mut [u8], length: usize) -> &mut [u8] {
    let from = memory.as_ptr().align_offset(ALIGN);
    &mut memory[from..from + length]
}

fn failure(error: Errno) -> Failure {
    if error == Errno::IO { Failure::Io } else { Failure::Refused }
}

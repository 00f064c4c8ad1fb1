//! The FUSE view, whose clients are processes with a file open. The kernel stands in between: it sends no garbage, there is no
//! socket, a process that ends waits for its requests, and all openings of a file are one client. Needs root and /dev/fuse.

use braid_device::Target;
use braid_doors::{Adapter, Answer, Client, Command, Failure, Properties};
use braid_export::{Export, Listening};
use braid_filesystem::Errno;
use braid_shard::mailbox::Remote;
use braid_view::{Door, Limits, Listed, Texts};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno as OsError, ReadWriteFlags};
use std::fs::File;
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// The largest request of the kernel.
const LARGEST: u64 = 1 << 20;
/// The block of the suite's usual disk.
const BLOCK: u64 = 512;

struct View;

braid_doors::conformance!(View,
    content: every_byte_is_written_and_read_back, the_largest_request_goes_through_whole,
        data_survives_a_storm_of_requests, clients_see_each_others_writes,
        a_discard_harms_no_neighbour, zeroes_read_back_as_zeroes;
    bounds: requests_beyond_the_end_are_refused, a_read_only_target_takes_no_write,
        errors_of_the_device_reach_the_client_and_nobody_else,
        a_target_that_grows_is_used_to_its_new_end;
    durability: a_fua_write_survives_a_power_cut, a_flush_covers_what_was_answered,
        a_flush_covers_what_other_clients_wrote, what_is_not_flushed_is_old_or_new,
        a_flush_covers_zeroes;
    lifecycle: a_drain_answers_what_was_taken, a_target_that_is_withdrawn_loses_its_clients,
        a_target_in_use_is_not_taken_away;
);

/// No texts.
struct Bare;

impl Texts for Bare {
    fn list(&self, folder: &str) -> Result<Vec<Listed>, Errno> {
        if folder.is_empty() { Ok(Vec::new()) } else { Err(Errno::NotFound) }
    }

    fn read(&self, _: &str) -> Result<String, Errno> {
        Err(Errno::NotFound)
    }

    fn write(&self, _: &str, _: &str) -> Result<(), Errno> {
        Err(Errno::NotFound)
    }
}

impl Adapter for View {
    fn protocol(&self) -> &'static str {
        "fuse"
    }

    fn start(&self, place: &Path, shards: &[Remote], target: Arc<dyn Target>) -> Arc<dyn Export> {
        std::fs::create_dir(place).expect("a folder to mount at");
        let texts: Arc<dyn Texts> = Arc::new(Bare);
        let door = Door::start(&Limits::default(), &shards[0], place, &texts, &[target]);
        Arc::new(door.expect("a mount; it takes root and /dev/fuse"))
    }

    fn adopt(&self, _: Vec<Listening>, _: &[Remote], _: Arc<dyn Target>) -> Arc<dyn Export> {
        panic!("a mount is not handed over")
    }

    fn connect(&self, place: &Path) -> Option<Box<dyn Client>> {
        let path = place.join("disk/data");
        let metadata = std::fs::metadata(&path).ok()?;
        let read_only = metadata.permissions().mode() & 0o200 == 0;
        let file = File::options().read(true).write(!read_only).open(path).ok()?;
        let (send, answers) = mpsc::channel();
        Some(Box::new(Process { file: Arc::new(file), read_only, send, answers }))
    }

    fn garbage(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn tells_refusals(&self) -> bool {
        true
    }
}

struct Process {
    file: Arc<File>,
    read_only: bool,
    send: Sender<(u32, Result<Vec<u8>, Failure>)>,
    answers: Receiver<(u32, Result<Vec<u8>, Failure>)>,
}

fn failure(error: std::io::Error) -> Failure {
    if OsError::from_io_error(&error) == Some(OsError::IO) { Failure::Io } else { Failure::Refused }
}

fn carry_out(file: &File, command: Command) -> Result<Vec<u8>, Failure> {
    let done = |result: std::io::Result<()>| result.map(|()| Vec::new()).map_err(failure);
    let allocate = |flags, offset, length| {
        done(fallocate(file, flags | FallocateFlags::KEEP_SIZE, offset, length).map_err(Into::into))
    };
    match command {
        Command::Read { offset, length } => {
            let mut data = vec![0; length as usize];
            file.read_exact_at(&mut data, offset).map_err(failure)?;
            Ok(data)
        }
        Command::Write { offset, data, fua: false } => done(file.write_all_at(&data, offset)),
        Command::Write { offset, data, fua: true } => {
            let written =
                rustix::io::pwritev2(file, &[IoSlice::new(&data)], offset, ReadWriteFlags::DSYNC);
            match written {
                Ok(bytes) if bytes == data.len() => Ok(Vec::new()),
                Ok(_) => Err(Failure::Refused),
                Err(error) => Err(failure(error.into())),
            }
        }
        Command::Flush => done(file.sync_data()),
        Command::Discard { offset, length } => allocate(FallocateFlags::PUNCH_HOLE, offset, length),
        Command::Zero { offset, length } => allocate(FallocateFlags::ZERO_RANGE, offset, length),
    }
}

impl Client for Process {
    fn properties(&mut self) -> Properties {
        let size = self.file.metadata().expect("an open file").len();
        Properties {
            size,
            block: BLOCK,
            largest: LARGEST,
            read_only: self.read_only,
            discards: true,
            zeroes: true,
        }
    }

    fn submit(&mut self, tag: u32, command: Command) {
        let (file, send) = (Arc::clone(&self.file), self.send.clone());
        std::thread::spawn(move || {
            let result = carry_out(&file, command);
            drop(file);
            // Nobody asks any more.
            let _ = send.send((tag, result));
        });
    }

    fn answer(&mut self, within: Duration) -> Answer {
        match self.answers.recv_timeout(within) {
            Ok((tag, result)) => Answer::Done(tag, result),
            Err(RecvTimeoutError::Timeout) if self.file.metadata().is_err() => Answer::Disconnected,
            Err(_) => Answer::Nothing,
        }
    }
}

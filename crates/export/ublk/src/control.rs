//! Commands to the driver.
//!
//! They are operations of a shard's ring, which a worker of the kernel carries out; whoever asks from another thread waits.

use crate::abi::command::{self, NO_DEVICE};
use crate::abi::info::{FLAGS, INFO_BYTES, Info};
use crate::abi::params::PARAMS_BYTES;
use crate::raw;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::ring::RingOp;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

const FILE: &str = "/dev/ublk-control";
/// The time that a command may take. Those that start a disk read its partition table, which takes what members take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command to the driver failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no driver.
    #[error(
        "opening {FILE}: there is none; ublk needs the kernel's driver (Linux 6.5 or later, this is {0}): modprobe ublk_drv"
    )]
    NoDriver(String),
    /// The user may not.
    #[error(
        "opening {FILE}: {0}; run braid as root, or with CAP_SYS_ADMIN and the right to write to this file"
    )]
    NotAllowed(Errno),
    /// It could not be opened otherwise.
    #[error("opening {FILE}: {0}; see what the kernel says of ublk_drv (dmesg)")]
    Open(Errno),
    /// The kernel's io_uring has no commands.
    #[error(
        "ublk needs an io_uring that takes commands to drivers, as Linux has it from 6.1 on, and this is {0}"
    )]
    NoCommands(String),
    /// The driver is older than what is used of it.
    #[error(
        "the kernel's ublk driver is too old: it lacks UBLK_F_USER_COPY, which Linux has from 6.5 on, and this is {0}; use another \
         door (--nbd), or a newer kernel"
    )]
    TooOld(String),
    /// The number of a new device is taken.
    #[error("making /dev/ublkb{0}: that number is taken; choose another, or none")]
    Taken(u32),
    /// The driver refused a command.
    #[error("{what} /dev/ublkb{device}: {source}; see what the kernel says of it (dmesg)")]
    Refused {
        /// The step that failed.
        what: &'static str,
        /// The device's number.
        device: u32,
        /// The driver's answer.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error(
        "{what} /dev/ublkb{device}: the kernel has not answered within {PATIENCE:?}; a member may not answer"
    )]
    Silent {
        /// The step that failed.
        what: &'static str,
        /// The device's number.
        device: u32,
    },
}

/// A command, about the device of that number.
#[derive(Clone, Debug)]
struct Asked {
    what: &'static str,
    code: u32,
    device: u32,
    bytes: Vec<u8>,
    number: u64,
}

/// The driver's control file. Its methods block, and must not be called on a shard's thread.
pub struct Control {
    file: OwnedFd,
    /// By whose ring commands go.
    home: Remote,
    features: u64,
}

impl Control {
    /// Opens it; commands go by the ring of `home`.
    ///
    /// # Errors
    /// No driver, no rights, and one that lacks something.
    pub fn open(home: &Remote) -> Result<Control, ControlError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(FILE, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT | Errno::NXIO | Errno::NODEV => ControlError::NoDriver(release()),
            Errno::ACCESS | Errno::PERM => ControlError::NotAllowed(error),
            other => ControlError::Open(other),
        })?;
        let takes = |shard: &Shard| shard.ring().is_some_and(|ring| ring.takes_commands());
        if home.call(takes) != Some(true) {
            return Err(ControlError::NoCommands(release()));
        }
        let mut control = Control { file, home: home.clone(), features: 0 };
        control.features = control.ask_features()?;
        if control.features & FLAGS != FLAGS {
            return Err(ControlError::TooOld(release()));
        }
        Ok(control)
    }

    /// The flags that the driver knows.
    pub fn features(&self) -> u64 {
        self.features
    }

    fn ask_features(&self) -> Result<u64, ControlError> {
        let what = "asking what the driver can do with";
        let asked = Asked {
            what,
            code: command::GET_FEATURES,
            device: NO_DEVICE,
            bytes: vec![0; 8],
            number: 0,
        };
        match self.ask(asked) {
            Ok(bytes) => Ok(bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))),
            // A driver that does not know the command is older than the flag that is asked for.
            Err(ControlError::Refused { source, .. })
                if is(&source, &[Errno::OPNOTSUPP, Errno::INVAL]) =>
            {
                Ok(0)
            }
            Err(ControlError::Refused { source, .. }) if is(&source, &[Errno::PERM]) => {
                Err(ControlError::NotAllowed(Errno::PERM))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a device; gives what became of the description.
    ///
    /// # Errors
    /// A number that is taken, and what the driver refuses.
    pub fn add(&self, info: &Info) -> Result<Info, ControlError> {
        let bytes = info.encode().to_vec();
        let asked =
            Asked { what: "making", code: command::ADD_DEV, device: info.number, bytes, number: 0 };
        match self.ask(asked) {
            Ok(bytes) => described(&bytes, "making", info.number),
            Err(ControlError::Refused { source, .. }) if is(&source, &[Errno::EXIST]) => {
                Err(ControlError::Taken(info.number))
            }
            Err(error) => Err(error),
        }
    }

    /// The description of a device.
    ///
    /// # Errors
    /// No such device, or one that is none of ours to see.
    pub fn info(&self, device: u32) -> Result<Info, ControlError> {
        let what = "asking about";
        let bytes = vec![0; INFO_BYTES];
        let asked = Asked { what, code: command::GET_DEV_INFO, device, bytes, number: 0 };
        described(&self.ask(asked)?, what, device)
    }

    /// Says what the disk is like.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn set_params(&self, device: u32, params: &[u8; PARAMS_BYTES]) -> Result<(), ControlError> {
        let (what, bytes) = ("describing", params.to_vec());
        self.ask(Asked { what, code: command::SET_PARAMS, device, bytes, number: 0 }).map(drop)
    }

    /// The properties that its disk has.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn params(&self, device: u32) -> Result<[u8; PARAMS_BYTES], ControlError> {
        let what = "asking for the properties of";
        let mut bytes = vec![0; PARAMS_BYTES];
        bytes[..4].copy_from_slice(&(PARAMS_BYTES as u32).to_ne_bytes());
        let asked = Asked { what, code: command::GET_PARAMS, device, bytes, number: 0 };
        let bytes = self.ask(asked)?;
        bytes.first_chunk().copied().ok_or_else(|| short(what, device))
    }

    /// Carries out a command that has nothing but perhaps this process as its number.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn plain(&self, what: &'static str, code: u32, device: u32) -> Result<(), ControlError> {
        let by_us = [command::START_DEV, command::END_USER_RECOVERY].contains(&code);
        let number = if by_us { u64::from(std::process::id()) } else { 0 };
        self.ask(Asked { what, code, device, bytes: Vec::new(), number }).map(drop)
    }

    /// The numbers of all devices that there are.
    pub fn devices() -> Vec<u32> {
        let names = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let number = |entry: std::fs::DirEntry| {
            entry.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok()
        };
        let mut all: Vec<u32> = names.filter_map(number).collect();
        all.sort_unstable();
        all
    }

    fn ask(&self, asked: Asked) -> Result<Vec<u8>, ControlError> {
        let (what, device) = (asked.what, asked.device);
        let refused = |source| ControlError::Refused { what, device, source };
        let file = self.file.try_clone().map_err(refused)?;
        let (send, receive) = mpsc::sync_channel(1);
        self.home.run(move |shard| {
            let here = shard.clone();
            shard.spawn(async move {
                // Whoever asked may not wait any more.
                let _ = send.send(perform(&here, file, asked).await);
            });
        });
        match receive.recv_timeout(PATIENCE) {
            Ok(done) => done.map_err(refused),
            Err(_) => Err(ControlError::Silent { what, device }),
        }
    }

    /// Tells a disk's new size, from a task of a shard. `file` is a descriptor of the control file.
    ///
    /// # Errors
    /// The driver's answer.
    pub async fn update_size(
        shard: &Shard,
        file: OwnedFd,
        device: u32,
        sectors: u64,
    ) -> io::Result<()> {
        let what = "telling the new size of";
        let asked =
            Asked { what, code: command::UPDATE_SIZE, device, bytes: Vec::new(), number: sectors };
        perform(shard, file, asked).await.map(drop)
    }

    /// Another descriptor of it.
    ///
    /// # Errors
    /// The system call's.
    pub fn file(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }
}

/// The kernel's version, for people.
fn release() -> String {
    format!("Linux {}", rustix::system::uname().release().to_string_lossy())
}

async fn perform(shard: &Shard, file: OwnedFd, asked: Asked) -> io::Result<Vec<u8>> {
    let Asked { code, device, bytes, number, .. } = asked;
    let memory = (!bytes.is_empty()).then(|| shard.pool().copy_of(&bytes));
    let op = raw::control(Rc::new(file), code, device, memory, number);
    match shard.perform(op).await {
        Some((result, RingOp::Command(command))) if result >= 0 => {
            let memory = command.into_memory();
            Ok(memory.first().map(|memory| memory.to_vec()).unwrap_or_default())
        }
        Some((result, _)) => Err(io::Error::from_raw_os_error(result.wrapping_neg())),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

fn described(bytes: &[u8], what: &'static str, device: u32) -> Result<Info, ControlError> {
    bytes.first_chunk().map(Info::decode).ok_or_else(|| short(what, device))
}

fn short(what: &'static str, device: u32) -> ControlError {
    ControlError::Refused { what, device, source: io::ErrorKind::UnexpectedEof.into() }
}

/// True if it is one of these.
pub fn is(error: &io::Error, all: &[Errno]) -> bool {
    all.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

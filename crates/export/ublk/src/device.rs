//! One device: made, or taken back from a server that has ended; started; removed, or left to the next server.
//!
//! The driver keeps a number of ours with each device (`ublksrv_flags`). It has a mark of braid's and 48 bits of what the target
//! is for ever, so that the next server knows the device by asking the driver; no file says anything that could be stale.

use crate::abi::command;
use crate::abi::info::{F_UPDATE_SIZE, FLAGS, Info, LIVE, QUIESCED};
use crate::abi::params;
use crate::abi::request::SECTOR;
use crate::control::{Control, ControlError, is};
use crate::in_use::InUse;
use crate::limits::Limits;
use crate::link::Link;
use crate::queue::{Queue, Start};
use braid_device::Target;
use braid_export::{Figures, Register};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Requests of a queue that may be under way.
const DEPTH: u16 = 128;
/// The upper 16 bits of our number of a device: "br".
const MARK: u64 = 0x6272 << 48;
/// The time that the kernel may take to see that a server has ended, and to give its requests back.
const RECOVERY_WAIT: Duration = Duration::from_secs(20);
/// The time that requests of a device which was stopped may take to end.
const END_WAIT: Duration = Duration::from_secs(10);
/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(5);
/// Nanoseconds between looks at the size of the target, which may have grown.
const SIZE_NANOS: u64 = 1_000_000_000;
/// Where devices have their targets' names.
const LINKS: &str = "/dev/braid";

/// A device could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The driver refused something.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Its own file could not be used.
    #[error("using /dev/ublkc{device}: {source}")]
    File {
        /// The device's number.
        device: u32,
        /// The error.
        source: io::Error,
    },
    /// Another server has it.
    #[error("process {server} serves it as /dev/ublkb{device}; stop that server first")]
    Served {
        /// The device's number.
        device: u32,
        /// The process.
        server: i32,
    },
    /// A shard has ended.
    #[error("a shard has ended")]
    NoShard,
}

/// The parts that all devices of a door share.
pub(crate) struct Common {
    pub control: Control,
    pub shards: Vec<Remote>,
    pub limits: Limits,
    pub register: Arc<Register>,
    pub in_use: InUse,
}

/// A device that runs. Dropping it leaves it as it is.
pub(crate) struct Device {
    pub number: u32,
    pub figures: Vec<Arc<Figures>>,
    alive: Arc<()>,
    link: Option<Link>,
}

/// The number that the driver keeps for a target: over restarts and changes of its size the same.
fn mark(target: &dyn Target) -> u64 {
    let name = target.info().name;
    let uuid = target.uuid();
    let bytes = uuid.as_ref().map_or(name.as_bytes(), |bytes| &bytes[..]);
    // FNV-1a (RFC 9923).
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    MARK | hash >> 16
}

impl Device {
    /// Takes back the device that the target had, or makes one, with that number if there is one.
    pub fn open(
        common: &Common,
        target: &Arc<dyn Target>,
        number: Option<u32>,
    ) -> Result<Device, DeviceError> {
        let own = mark(&**target);
        if let Some(known) = find(&common.control, own)
            && let Some(device) = Device::take_back(common, target, known)?
        {
            return Ok(device);
        }
        let info = Info {
            queues: u16::try_from(common.shards.len()).unwrap_or(u16::MAX),
            depth: DEPTH,
            request_bytes: common.limits.request_bytes,
            number: number.unwrap_or(command::NO_DEVICE),
            flags: FLAGS,
            own,
            ..Info::default()
        };
        let made = common.control.add(&info)?;
        let started = Device::describe_and_start(common, target, &made);
        if started.is_err() {
            // It was of no use to anybody.
            let _ = common.control.plain("stopping", command::STOP_DEV, made.number);
            delete(&common.control, made.number);
        }
        started
    }

    fn describe_and_start(
        common: &Common,
        target: &Arc<dyn Target>,
        made: &Info,
    ) -> Result<Device, DeviceError> {
        let params = params::encode(&target.info(), made.request_bytes);
        common.control.set_params(made.number, &params)?;
        let mut device = Device::run(common, target, made)?;
        common.control.plain("starting", command::START_DEV, made.number)?;
        device.settle(common, target, params::size(&params));
        Ok(device)
    }

    /// `None` when the target is no longer what the device shows; it was removed then.
    fn take_back(
        common: &Common,
        target: &Arc<dyn Target>,
        known: Info,
    ) -> Result<Option<Device>, DeviceError> {
        let number = known.number;
        let params = common.control.params(number)?;
        let info = target.info();
        let device = &info.device;
        let fits = params::size(&params) <= device.size
            && params::is_read_only(&params) == info.read_only
            && params::logical_block(&params) == device.logical_block.max(512);
        if !fits {
            tracing::warn!(
                "/dev/ublkb{number} waits for a server, but array {} has shrunk, has other blocks or is no longer \
                 written to as before: it is removed, and a new device made",
                info.name
            );
            remove(&common.control, number, &Arc::new(()));
            return Ok(None);
        }
        recover(&common.control, number)?;
        let mut device = Device::run(common, target, &known)?;
        common.control.plain("taking back", command::END_USER_RECOVERY, number)?;
        tracing::info!("/dev/ublkb{number} goes on with array {}", target.info().name);
        device.settle(common, target, params::size(&params));
        Ok(Some(device))
    }

    /// Has each queue wait for requests, on the shards in turn.
    fn run(common: &Common, target: &Arc<dyn Target>, info: &Info) -> Result<Device, DeviceError> {
        let number = info.number;
        let failed = |source| DeviceError::File { device: number, source };
        let path = format!("/dev/ublkc{number}");
        let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| failed(error.into()))?;
        let alive = Arc::new(());
        let mut figures = Vec::new();
        for (queue, remote) in (0..info.queues).zip(common.shards.iter().cycle()) {
            let of_queue = Arc::new(Figures::default());
            figures.push(Arc::clone(&of_queue));
            let start = Start {
                file: file.try_clone().map_err(failed)?,
                number: queue,
                depth: info.depth,
                target: Arc::clone(target),
                figures: of_queue,
                memory: common.limits.memory_of_a_shard(common.shards.len()),
                register: Arc::clone(&common.register),
                alive: Arc::clone(&alive),
            };
            let started = remote.call(move |shard| Queue::start(shard, start));
            started.ok_or(DeviceError::NoShard)?.map_err(failed)?;
        }
        Ok(Device { number, figures, alive, link: None })
    }

    /// Gives the disk its name, and watches the size of its target.
    fn settle(&mut self, common: &Common, target: &Arc<dyn Target>, size: u64) {
        let (number, name) = (self.number, target.info().name);
        match Link::make(Path::new(LINKS), &name, Path::new(&format!("/dev/ublkb{number}"))) {
            Ok(link) => self.link = Some(link),
            Err(error) => tracing::warn!(%error, "/dev/ublkb{number} has no link {LINKS}/{name}"),
        }
        let can = common.control.features() & F_UPDATE_SIZE != 0;
        let file = common.control.file().ok().filter(|_| can);
        let (target, alive) = (Arc::clone(target), Arc::downgrade(&self.alive));
        if let Some(home) = common.shards.first() {
            home.run(move |shard| {
                let here = shard.clone();
                shard.spawn(
                    async move { watch_size(&here, file, number, target, alive, size).await },
                );
            });
        }
    }

    /// Where users find it: the disk, and its name.
    pub fn places(&self) -> Vec<String> {
        let disk = format!("/dev/ublkb{}", self.number);
        let link = self.link.iter().map(|link| link.path().display().to_string());
        std::iter::once(disk).chain(link).collect()
    }

    /// Takes it away, from whoever has it.
    pub fn remove(self, control: &Control) {
        drop(self.link);
        remove(control, self.number, &self.alive);
    }

    /// Leaves it to the next server.
    pub fn leave(self) {
        if let Some(link) = self.link {
            link.leave();
        }
    }
}

/// The device with that number of ours.
fn find(control: &Control, own: u64) -> Option<Info> {
    // One that is gone by now, or another user's, is not the one.
    let known = |number| control.info(number).ok();
    Control::devices().into_iter().filter_map(known).find(|info| {
        let is_recoverable = [LIVE, QUIESCED].contains(&info.state);
        info.own == own && info.flags & FLAGS == FLAGS && is_recoverable
    })
}

/// Makes a device wait for queues again, as soon as the kernel has seen the end of its server.
fn recover(control: &Control, number: u32) -> Result<(), DeviceError> {
    let end = Instant::now() + RECOVERY_WAIT;
    loop {
        let info = control.info(number)?;
        let lives = |server: i32| server > 0 && Path::new(&format!("/proc/{server}")).exists();
        if info.state == LIVE && lives(info.server) {
            return Err(DeviceError::Served { device: number, server: info.server });
        }
        let asked = control.plain("taking back", command::START_USER_RECOVERY, number);
        match asked {
            Err(ControlError::Refused { source, .. })
                if is(&source, &[Errno::BUSY]) && Instant::now() < end =>
            {
                std::thread::sleep(LOOK);
            }
            asked => return Ok(asked?),
        }
    }
}

fn remove(control: &Control, number: u32, alive: &Arc<()>) {
    if let Err(error) = control.plain("stopping", command::STOP_DEV, number) {
        tracing::warn!(%error, "a device may not be gone");
    }
    // The driver keeps a device as long as our file of it is open.
    let end = Instant::now() + END_WAIT;
    while Arc::strong_count(alive) > 1 && Instant::now() < end {
        std::thread::sleep(LOOK);
    }
    delete(control, number);
}

fn delete(control: &Control, number: u32) {
    let deleted = match control.plain("removing", command::DEL_DEV_ASYNC, number) {
        Err(ControlError::Refused { source, .. })
            if is(&source, &[Errno::OPNOTSUPP, Errno::INVAL]) =>
        {
            control.plain("removing", command::DEL_DEV, number)
        }
        done => done,
    };
    if let Err(error) = deleted {
        tracing::warn!(%error, "a device may not be gone");
    }
}

/// Tells the kernel when the target has grown, as long as the device lives; without a `file` it says that it cannot.
async fn watch_size(
    shard: &Shard,
    file: Option<OwnedFd>,
    number: u32,
    target: Arc<dyn Target>,
    alive: Weak<()>,
    mut known: u64,
) {
    loop {
        shard.sleep(SIZE_NANOS).await;
        if alive.strong_count() == 0 {
            return;
        }
        let size = target.info().device.size;
        if size <= known {
            continue;
        }
        known = size;
        let Some(file) = &file else {
            tracing::warn!(
                "array {} has grown; this kernel cannot make /dev/ublkb{number} larger while it is there (Linux 6.16 can): \
                 stop the array and start it again",
                target.info().name
            );
            continue;
        };
        let told = match file.try_clone() {
            Ok(file) => Control::update_size(shard, file, number, size / SECTOR).await,
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            tracing::warn!(%error, "telling the new size of /dev/ublkb{number}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::{DeviceInfo, OpenError, TargetInfo};
    use std::rc::Rc;

    struct Named(&'static str, Option<[u8; 16]>);

    impl Target for Named {
        fn info(&self) -> TargetInfo {
            let device = DeviceInfo::plain(self.0, 1 << 20);
            TargetInfo { name: self.0.into(), description: String::new(), device, read_only: false }
        }

        fn open(&self, _: &Shard) -> Result<Rc<dyn braid_device::Device>, OpenError> {
            Err(OpenError { name: self.0.into(), why: "nobody opens it".into() })
        }

        fn uuid(&self) -> Option<[u8; 16]> {
            self.1
        }
    }

    #[test]
    fn a_device_is_known_by_what_its_target_is_for_ever() {
        let of = |name, identity| mark(&Named(name, identity));
        assert_eq!(of("a", Some([7; 16])), of("renamed", Some([7; 16])));
        assert_ne!(of("a", Some([7; 16])), of("a", Some([8; 16])));
        assert_eq!(of("a", None), of("a", None));
        assert_ne!(of("a", None), of("b", None));
        assert_eq!(of("a", None) >> 48, 0x6272);
    }
}

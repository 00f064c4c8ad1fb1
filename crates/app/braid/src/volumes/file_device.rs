//! A file of a volume as a block device, on the volume's shard.
//!
//! Invariant: the file never grows. What was asked beyond the end of a file that was cut short is refused.

use super::here;
use braid_device::{
    Completion, Device, DeviceInfo, IoError, IoErrorKind, Op, OpenError, Request, Target,
    TargetInfo,
};
use braid_filesystem::{Allocate, Errno, FileSystem, Ino};
use braid_shard::Shard;
use braid_volume::Volume;
use std::cell::Cell;
use std::rc::Rc;

/// A file that is offered.
pub struct FileTarget {
    /// What clients are told.
    pub info: TargetInfo,
    /// The volume's number on its shard.
    pub key: u64,
    /// The file, which is kept open.
    pub ino: Ino,
}

impl Target for FileTarget {
    fn info(&self) -> TargetInfo {
        self.info.clone()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let here = here::find(shard, self.key).ok_or_else(|| OpenError {
            name: self.info.name.clone(),
            why: "its volume is being unmounted".to_string(),
        })?;
        Ok(Rc::new(FileDevice {
            shard: shard.clone(),
            volume: Rc::clone(&here.volume),
            info: self.info.device.clone(),
            read_only: self.info.read_only,
            ino: self.ino,
            told: Rc::new(Cell::new(here.volume.losses_told(self.ino))),
        }))
    }
}

/// The description of a file of `size` bytes; what is behind the last whole sector is left out.
pub fn device_info(name: &str, size: u64) -> DeviceInfo {
    let mut info = DeviceInfo::plain(name, size - size % 512);
    info.volatile_cache = true;
    info
}

struct FileDevice {
    shard: Shard,
    volume: Rc<Volume>,
    info: DeviceInfo,
    read_only: bool,
    ino: Ino,
    /// Losses of acknowledged writes that this client was told of.
    told: Rc<Cell<u64>>,
}

impl Device for FileDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let (volume, ino, read_only) = (Rc::clone(&self.volume), self.ino, self.read_only);
        let told = Rc::clone(&self.told);
        self.shard.spawn(async move {
            let Request { offset, mut op } = request;
            let result = match &op {
                Op::Read(_) | Op::Flush => carry_out(&volume, ino, &told, offset, &mut op).await,
                _ if read_only => Err(IoError::new(IoErrorKind::Refused)),
                _ => carry_out(&volume, ino, &told, offset, &mut op).await,
            };
            done.finish(result, op);
        });
    }
}

async fn carry_out(
    volume: &Volume,
    ino: Ino,
    told: &Cell<u64>,
    offset: u64,
    op: &mut Op,
) -> Result<(), IoError> {
    match op {
        Op::Read(bufs) => {
            let mut at = offset;
            for buf in bufs {
                let found = volume.read(ino, at, buf.len()).await.map_err(io_error)?;
                if found.len() != buf.len() {
                    return Err(IoError::new(IoErrorKind::Invalid));
                }
                buf.copy_from_slice(&found);
                at += found.len() as u64;
            }
            Ok(())
        }
        Op::Write { bufs, fua } => {
            let mut at = offset;
            let end = offset + bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
            within(volume, ino, end).await?;
            for buf in bufs.iter() {
                volume.write_exported(ino, at, buf.clone()).await.map_err(io_error)?;
                at += buf.len() as u64;
            }
            if *fua { sync(volume, ino, told).await } else { Ok(()) }
        }
        Op::Flush => sync(volume, ino, told).await,
        Op::Discard { len } => {
            within(volume, ino, offset + *len).await?;
            volume.allocate_exported(ino, Allocate::PunchHole, offset, *len).await.map_err(io_error)
        }
        Op::WriteZeroes { len, unmap, fua } => {
            within(volume, ino, offset + *len).await?;
            let how =
                if *unmap { Allocate::PunchHole } else { Allocate::ZeroRange { keep_size: true } };
            volume.allocate_exported(ino, how, offset, *len).await.map_err(io_error)?;
            if *fua { sync(volume, ino, told).await } else { Ok(()) }
        }
    }
}

/// A flush of one client: an error that means a loss is told to each once, and to each user of the file beside.
async fn sync(volume: &Volume, ino: Ino, told: &Cell<u64>) -> Result<(), IoError> {
    volume.fsync_since(ino, true, told).await.map_err(io_error)
}

/// Refuses what is beyond the end of the file as it is now.
async fn within(volume: &Volume, ino: Ino, end: u64) -> Result<(), IoError> {
    let attr = volume.attr(ino).await.map_err(io_error)?;
    if end <= attr.size { Ok(()) } else { Err(IoError::new(IoErrorKind::Invalid)) }
}

fn io_error(errno: Errno) -> IoError {
    IoError::new(match errno {
        Errno::NoSpace => IoErrorKind::NoSpace,
        Errno::ReadOnly | Errno::NotPermitted | Errno::Access => IoErrorKind::Refused,
        Errno::Invalid => IoErrorKind::Invalid,
        _ => IoErrorKind::Medium,
    })
}

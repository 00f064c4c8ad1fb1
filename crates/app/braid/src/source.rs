//! The bytes of a device that is looked at, whoever has it open: a file's or block device's by ordinary calls, those of an export
//! of another server through a shard.
//!
//! Takes no lock and writes nothing. Does not know what the bytes mean.

use crate::members::Member;
use crate::on_shard;
use anyhow::{Context, Result, bail};
use braid_device::file::Mode;
use braid_device::{IoError, IoErrorKind, IoSets, Op, Opener, Request};
use braid_shard::mailbox::Remote;
use std::fs::File;
use std::io::{Error, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are asked of an export at once.
const PIECE: usize = 1 << 20;

/// See the module's documentation.
pub enum Source {
    /// A file or block device.
    File(File),
    /// A device that is reached through a shard.
    Device {
        /// The shard.
        home: Remote,
        /// The device.
        opener: Arc<dyn Opener>,
        /// Its bytes.
        size: u64,
        /// Offsets and lengths are multiples of so many bytes.
        block: usize,
    },
}

impl Source {
    /// A file or block device.
    ///
    /// # Errors
    /// When it is not there or may not be read.
    pub fn file(path: &Path) -> Result<Source> {
        let doing = || format!("opening {}", path.display());
        let file = File::open(path).with_context(doing)?;
        if file.metadata().with_context(doing)?.is_dir() {
            bail!("{} is a directory; name a file in it, or a block device", path.display());
        }
        Ok(Source::File(file))
    }

    /// The source of `member`, which `home` opens where it has no path.
    ///
    /// # Errors
    /// When it is not there or does not answer.
    pub fn of(home: &Remote, member: &Member) -> Result<Source> {
        match member.path() {
            Some(path) => Source::file(path),
            None => Source::opened(home, &member.prepare(Mode::ReadOnly)?),
        }
    }

    /// A device that is open already.
    ///
    /// # Errors
    /// When it cannot be opened on the shard.
    pub fn opened(home: &Remote, opener: &Arc<dyn Opener>) -> Result<Source> {
        let asked = Arc::clone(opener);
        let info = on_shard::run(home, move |shard| async move {
            asked.open(&shard).map(|device| device.info().clone())
        })??;
        let block = info.logical_block.max(1) as usize;
        Ok(Source::Device {
            home: home.clone(),
            opener: Arc::clone(opener),
            size: info.size,
            block,
        })
    }

    /// Its bytes.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn size(&self) -> std::io::Result<u64> {
        match self {
            Source::File(file) => (&mut &*file).seek(SeekFrom::End(0)),
            Source::Device { size, .. } => Ok(*size),
        }
    }

    /// Fills `buf` with the bytes from `offset` on.
    ///
    /// # Errors
    /// When they cannot be read, or it has fewer.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        let (home, opener, size, block) = match self {
            Source::File(file) => return file.read_exact_at(buf, offset),
            Source::Device { home, opener, size, block } => (home, opener, *size, *block),
        };
        let mut at = offset;
        for piece in buf.chunks_mut(PIECE) {
            let before = (at % block as u64) as usize;
            let len = (before + piece.len()).next_multiple_of(block);
            let start = at - before as u64;
            if start.checked_add(len as u64).is_none_or(|end| end > size) {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let bytes = read(home, opener, start, len)?;
            let wanted = bytes.get(before..before + piece.len());
            piece.copy_from_slice(wanted.ok_or(ErrorKind::UnexpectedEof)?);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

fn read(
    home: &Remote,
    opener: &Arc<dyn Opener>,
    offset: u64,
    len: usize,
) -> std::io::Result<Vec<u8>> {
    let opener = Arc::clone(opener);
    let read = on_shard::run(home, move |shard| async move {
        let device = opener.open(&shard).map_err(Error::other)?;
        let request = Request::read(offset, shard.pool().get(len));
        let outcome = IoSets::new(&shard).one(&*device, request).await;
        outcome.result.map_err(Error::other)?;
        match outcome.op {
            Op::Read(bufs) => Ok(bufs.iter().flat_map(|buf| buf.iter().copied()).collect()),
            _ => Err(Error::other(IoError::new(IoErrorKind::Invalid))),
        }
    });
    read.map_err(Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::blocks::Blocks;
    use braid_device::ram::Ram;

    #[test]
    fn any_bytes_of_a_device_with_large_blocks_are_read() {
        let ram = Ram::new("r", 4 << 20);
        let expected: Vec<u8> = (0..4u64 << 20).map(|at| (at * 7 / 13) as u8).collect();
        let shards = on_shard::start_shards(1).unwrap();
        let home = shards.remotes().first().unwrap().clone();
        let opener: Arc<dyn Opener> = Arc::new(Blocks::new(Arc::new(ram), 4096));
        let (asked, content) = (Arc::clone(&opener), expected.clone());
        on_shard::run(&home, move |shard| async move {
            let device = asked.open(&shard).unwrap();
            let request = Request::write(0, shard.pool().copy_of(&content).freeze(), false);
            IoSets::new(&shard).one(&*device, request).await.result.unwrap();
        })
        .unwrap();
        let source = Source::opened(&home, &opener).unwrap();
        assert_eq!(source.size().unwrap(), 4 << 20);
        for (offset, len) in
            [(0, 512), (4608, 512), (511, 9000), (5, (2 << 20) + 77), ((4 << 20) - 3, 3)]
        {
            let mut buf = vec![0; len];
            source.read_exact_at(&mut buf, offset).unwrap();
            assert!(buf == expected[offset as usize..offset as usize + len], "{len} at {offset}");
        }
        for (offset, len) in [((4 << 20) - 3, 4), (4 << 20, 1), (u64::MAX - 1, 1)] {
            assert!(source.read_exact_at(&mut vec![0; len], offset).is_err(), "{len} at {offset}");
        }
    }
}

//! Reads what can be read of a file some of whose bricks have failed.

use braid_filesystem::{Attr, Errno, FileSystem, Ino, Kind};
use braid_format::volume::BLOCK;
use std::ops::Range;

/// Bytes, zeroes where they could not be read, and where that is.
pub type Readable = (Vec<u8>, Vec<Range<u64>>);

/// Attributes, and the bytes of a range as far as they go.
///
/// # Errors
/// Those of the file system, other than [`Errno::Io`] of reads.
pub async fn look_at<F: FileSystem>(
    fs: &F,
    ino: Ino,
    start: u64,
    end: u64,
) -> Result<(Attr, Readable), Errno> {
    let attr = fs.attr(ino).await?;
    let (mut bytes, mut unread) = (Vec::new(), Vec::new());
    while attr.kind == Kind::File && start + (bytes.len() as u64) < end.min(attr.size) {
        let at = start + bytes.len() as u64;
        let len = (end.min(attr.size) - at).min(1 << 20) as usize;
        let (more, not) = read_blocks(fs, ino, at, len).await?;
        if more.is_empty() {
            break;
        }
        bytes.extend_from_slice(&more);
        unread.extend(not);
    }
    Ok((attr, (bytes, unread)))
}

/// Reads a range; where that fails, block by block.
///
/// # Errors
/// Those of the file system, other than [`Errno::Io`].
pub async fn read_blocks<F: FileSystem>(
    fs: &F,
    ino: Ino,
    start: u64,
    len: usize,
) -> Result<Readable, Errno> {
    match fs.read(ino, start, len).await {
        Err(Errno::Io) => {}
        other => return Ok((other?.to_vec(), Vec::new())),
    }
    let (mut bytes, mut unread) = (Vec::with_capacity(len), Vec::new());
    let (mut at, end) = (start, start + len as u64);
    while at < end {
        let next = ((at / BLOCK + 1) * BLOCK).min(end);
        match fs.read(ino, at, (next - at) as usize).await {
            Ok(some) => {
                bytes.extend_from_slice(&some);
                if some.len() as u64 != next - at {
                    break;
                }
            }
            Err(Errno::Io) => {
                bytes.resize((next - start) as usize, 0);
                unread.push(at..next);
            }
            Err(errno) => return Err(errno),
        }
        at = next;
    }
    Ok((bytes, unread))
}

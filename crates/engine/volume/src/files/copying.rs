//! A range of a file is copied to another place (copy_file_range).
//!
//! Whole stripes, and the last one of a file, get the extents of the source, which are common from then on; a write to either side
//! gives it its own again. What does not fall on stripes alike, and what cannot be shared now, is read and written.

use super::part::{Files, SIZE_MAX};
use crate::namespace::Inode;
use braid_filesystem::{Errno, Writing};
use braid_format::volume::snapshot::snapshot_of;
use std::rc::Rc;

/// Bytes that are read and written at a time.
const PIECE: u64 = 1 << 20;
/// Bytes after which a request ends that had to read and write them, and all the same: who asks, asks again for the rest.
const COPIED_MAX: u64 = 16 << 20;
const BYTES_MAX: u64 = 1 << 30;

/// A file, and a byte of it.
type At<'a> = (&'a Rc<Inode>, u64);

impl Files {
    /// See [`braid_filesystem::FileSystem::copy_range`].
    pub async fn copy_range(
        &self,
        (from, from_at): At<'_>,
        (to, to_at): At<'_>,
        len: u64,
    ) -> Result<u64, Errno> {
        let end = |at: u64| at.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::TooBig);
        let (from_end, to_end) = (end(from_at)?, end(to_at)?);
        if from.ino() == to.ino() && from_at < to_end && to_at < from_end {
            return Err(Errno::Invalid);
        }
        self.transactions.may_grow().await?;
        let (mut done, mut copied) = (0, 0);
        while done < len.min(BYTES_MAX) && copied < COPIED_MAX {
            let here = ((from, from_at + done), (to, to_at + done));
            let step = self.copy_some(here.0, here.1, len - done).await;
            match step {
                Ok((0, _)) => break,
                Ok((bytes, is_shared)) => {
                    done += bytes;
                    copied += if is_shared { 0 } else { bytes };
                }
                // The error comes again with the next request, if it stays.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            self.transactions.room().await;
        }
        Ok(done)
    }

    /// Copies a part of at most `len` bytes: gives its size, and whether it is shared.
    async fn copy_some(
        &self,
        (from, from_at): At<'_>,
        (to, to_at): At<'_>,
        len: u64,
    ) -> Result<(u64, bool), Errno> {
        let stripe = self.geometry.stripe;
        let left = len.min(from.size().saturating_sub(from_at));
        if left == 0 {
            return Ok((0, false));
        }
        let within = from_at % stripe;
        let is_alike = within == to_at % stripe;
        let bytes = left.min(stripe);
        let is_whole = bytes == stripe || from_at + bytes == from.size();
        // A file in a snapshot stays as it is, also where it says which extents are common.
        if is_alike && within == 0 && is_whole && snapshot_of(from.ino()) == 0 {
            let (source, target) = ((from, from_at / stripe), (to, to_at / stripe));
            if self.share_stripe(source, target, bytes).await? {
                return Ok((bytes, true));
            }
        }
        let to_next = if is_alike { stripe - within } else { PIECE };
        let piece = left.min(PIECE).min(to_next) as usize;
        let data = self.read_file(from.ino(), from_at, piece, None).await?;
        let bytes = data.len() as u64;
        let how = Writing::default();
        self.write_file(to, to_at, data, how).await?;
        Ok((bytes, false))
    }
}

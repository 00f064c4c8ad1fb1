//! Setting space aside, holes, zeroes (fallocate).

use super::stripes::{Piece, down};
use super::write::SIZE_MAX;
use crate::inode::Inode;
use crate::volume::Volume;
use braid_filesystem::{Allocate, Errno, Ino};
use braid_format::volume::BLOCK;
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::place::Place;
use std::rc::Rc;

impl Volume {
    /// See [`braid_filesystem::FileSystem::allocate`].
    pub(crate) async fn allocate_file(
        &self,
        ino: Ino,
        how: Allocate,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let inode = self.file(ino).await?;
        let end = offset.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Errno::TooBig)?;
        if len == 0 {
            return Err(Errno::Invalid);
        }
        match how {
            Allocate::PunchHole => {
                self.writable()?;
                self.punch(&inode, offset, end).await?;
            }
            Allocate::ZeroRange { keep_size } => {
                self.may_grow().await?;
                self.check_room(end - offset)?;
                if !keep_size {
                    self.settle_end(&inode, end).await?;
                }
                self.punch(&inode, offset, end).await?;
                self.set_aside(&inode, offset, end, keep_size).await?;
            }
            Allocate::Reserve { keep_size } => {
                self.may_grow().await?;
                self.check_room(end - offset)?;
                if !keep_size {
                    self.settle_end(&inode, end).await?;
                }
                self.set_aside(&inode, offset, end, keep_size).await?;
            }
        }
        let grows = !matches!(
            how,
            Allocate::PunchHole
                | Allocate::ZeroRange { keep_size: true }
                | Allocate::Reserve { keep_size: true }
        );
        if grows && end > inode.size() {
            self.edit(&inode, true, |record| record.size = record.size.max(end));
        }
        self.touch(&inode, true);
        Ok(())
    }

    /// Refuses at once what cannot fit, before a part of it is set aside.
    fn check_room(&self, bytes: u64) -> Result<(), Errno> {
        let bricks = self.bricks.borrow();
        let usable = bricks.values().filter(|brick| {
            brick.is_there() && matches!(brick.state(), BrickState::Data | BrickState::Proxy)
        });
        let free: u64 = usable.map(|brick| brick.space.blocks() - brick.space.used()).sum();
        // What the range holds already is asked for twice; a whole file over again is let through.
        if bytes / BLOCK > free.saturating_mul(2).saturating_add(free) {
            Err(Errno::NoSpace)
        } else {
            Ok(())
        }
    }

    async fn set_aside(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        end: u64,
        keep_size: bool,
    ) -> Result<(), Errno> {
        let stripe = self.geometry.stripe;
        for piece in self.geometry.pieces(offset..end) {
            let start = piece.stripe * stripe;
            let _held = inode.locks.exclusive(start..start + stripe).await;
            let needed = self.geometry.blocks_to(piece.to);
            let file_end = if keep_size { inode.size() } else { end };
            self.ensure_place(inode, piece.stripe, needed, file_end.max(start + piece.to)).await?;
            self.transactions.room().await;
        }
        Ok(())
    }

    /// The range reads as zero from now on, and whole granules of it take no space.
    async fn punch(&self, inode: &Rc<Inode>, offset: u64, end: u64) -> Result<(), Errno> {
        let stripe = self.geometry.stripe;
        // Only stripes that have a place are looked at: a hole of 16 TiB is punched in no time.
        let mut next = offset / stripe / 64;
        loop {
            let groups = self.groups_from(inode, next).await?;
            let Some(last) = groups.last().copied() else { return Ok(()) };
            for group in groups {
                // A group beyond the largest file is damage, and beyond any end.
                let first = group.checked_mul(64 * stripe);
                if first.is_none_or(|first| first >= end) {
                    return Ok(());
                }
                let places = self.places(inode, group).await?;
                for (number, _) in places.placed() {
                    let at = number * stripe;
                    if at >= end || at + stripe <= offset {
                        continue;
                    }
                    let piece = Piece {
                        stripe: number,
                        from: offset.saturating_sub(at),
                        to: (end - at).min(stripe),
                    };
                    self.punch_stripe(inode, piece).await?;
                }
                self.transactions.room().await;
            }
            next = last + 1;
        }
    }

    async fn punch_stripe(&self, inode: &Rc<Inode>, piece: Piece) -> Result<(), Errno> {
        let start = piece.stripe * self.geometry.stripe;
        let _held = inode.locks.exclusive(start..start + self.geometry.stripe).await;
        let (places, place) = self.place(inode, piece.stripe).await?;
        if place.is_hole() {
            return Ok(());
        }
        // After the end of the file nothing is read, so the last granule may go as a whole.
        let to = if start + piece.to >= inode.size() { self.geometry.stripe } else { piece.to };
        let gone = self.geometry.covered(piece.from, to);
        let left = place.written & !gone;
        self.zero_edges(inode, piece, to, left).await?;
        self.prepare_free(place).await?;
        if left == 0 {
            self.set_place(inode, &places, piece.stripe, Place::HOLE);
            self.free_blocks(place);
        } else if left != place.written {
            self.set_place(inode, &places, piece.stripe, Place { written: left, ..place });
        }
        Ok(())
    }

    /// Zeroes the parts of a punched range that share a granule with something else.
    async fn zero_edges(
        &self,
        inode: &Rc<Inode>,
        piece: Piece,
        to: u64,
        left: u32,
    ) -> Result<(), Errno> {
        let (geometry, base) = (self.geometry, piece.stripe * self.geometry.stripe);
        let mut at = piece.from;
        while at < to {
            let next = (down(at, geometry.granule) + geometry.granule).min(to);
            if left >> (at / geometry.granule) & 1 == 1 {
                self.zero_written(inode, base + at, base + next).await?;
            }
            at = next;
        }
        Ok(())
    }
}

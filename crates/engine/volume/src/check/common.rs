//! Common extents: which blocks they take, and whether those are their owners that are recorded as such.

use super::one::Halt;
use super::walk::Walk;
use crate::extents::{Naming, Owner};
use braid_filesystem::Errno;
use braid_format::volume::extent::{Extent, PER_GROUP, Place};
use braid_format::volume::keys;

impl Walk {
    /// Names the blocks of common extents. In the `first` pass each is held against its owners, too.
    pub(super) async fn name_common(&self, first: bool) -> Result<(), Halt> {
        if !self.on.record.has_common() {
            return Ok(());
        }
        let (mut cursor, end) = (Some(b"E".to_vec()), keys::after(b"E"));
        let (mut wrong, mut ownerless) = (Vec::new(), Vec::new());
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &end).await?;
            // In one step with the reading: what is freed after that is told.
            for (key, value) in &pairs {
                if let Some((at, None)) = keys::owner_of(key) {
                    self.name_one(at, value);
                }
            }
            for (key, _) in &pairs {
                match keys::owner_of(key) {
                    Some((at, None)) => {
                        if first && self.on.extents.is_ownerless(at).await? {
                            ownerless.push(at);
                        }
                    }
                    Some((at, Some(owner))) if first => {
                        if self.on.extents.names(at, owner).await? != Naming::Rightly {
                            wrong.push((at, owner));
                        }
                    }
                    Some(_) => {}
                    None => self.problem(false, "the key of a common extent is damaged".into()),
                }
            }
            cursor = next;
        }
        for (at, owner) in wrong {
            self.judge_owner(at, owner).await?;
        }
        for at in ownerless {
            self.judge_ownerless(at).await?;
        }
        Ok(())
    }

    fn name_one(&self, (brick, start): Place, value: &[u8]) {
        let Some(blocks) = keys::common_blocks(value) else {
            let text = format!("the common extent at block {start} of brick {brick} is damaged");
            return self.problem(false, text);
        };
        let extent = Extent { start, blocks, brick, ..Extent::HOLE };
        if self.on.bricks.get(brick).is_none() || self.on.extents.is_outside(&extent) {
            let text =
                format!("the common extent at block {start} of brick {brick} is beyond its end");
            return self.problem(false, text);
        }
        self.watch.extents.borrow_mut().bits.name_kept(&extent);
    }

    /// An owner does not have its extent as it should, or did not a moment ago. Changes wait meanwhile.
    async fn judge_owner(&self, at: Place, owner: Owner) -> Result<(), Halt> {
        let _shut = self.on.gate.shut().await;
        // The commit saves for snapshots the extents that files have let go since the last one.
        self.on.commits.sync_all().await?;
        if !self.on.extents.is_owner(at, owner).await? {
            return Ok(());
        }
        let (ino, number) = owner;
        let what = format!("stripe {number} of file {ino}");
        match self.on.extents.names(at, owner).await? {
            Naming::Rightly => {}
            Naming::Not => {
                self.problem(
                    true,
                    format!("{what} does not have the extent that it is recorded for"),
                );
                if self.repair {
                    self.on.extents.drop_owner(at, owner);
                }
            }
            Naming::AsItsOwn => {
                self.problem(
                    true,
                    format!("{what} takes an extent for its own that others have, too"),
                );
                if self.repair {
                    self.mark_common(at, owner).await?;
                }
            }
        }
        Ok(())
    }

    async fn mark_common(&self, at: Place, (ino, number): Owner) -> Result<(), Errno> {
        let inode = match self.on.inodes.get(ino).await {
            Err(Errno::Stale) => return Ok(()),
            other => other?,
        };
        let group = self.on.extents.group(&inode.extents, number / PER_GROUP).await?;
        let extent = group.get(number);
        if !extent.is_hole() && extent.place() == at {
            self.on.extents.set_common(&group, number);
        }
        Ok(())
    }

    /// An extent has no owners, and nobody is to find that out, or was not a moment ago.
    async fn judge_ownerless(&self, at: Place) -> Result<(), Halt> {
        let _shut = self.on.gate.shut().await;
        if self.on.extents.is_ownerless(at).await? {
            let (brick, start) = at;
            let text = format!("nobody has the common extent at block {start} of brick {brick}");
            self.problem(true, text);
            if self.repair {
                self.on.extents.look_at(at);
            }
        }
        Ok(())
    }

    /// A stripe has a common extent and may not be recorded for it. Changes wait meanwhile.
    pub(super) async fn judge_common(&self, owner: Owner) -> Result<(), Halt> {
        let _shut = self.on.gate.shut().await;
        let (ino, number) = owner;
        let inode = match self.on.inodes.get(ino).await {
            Err(Errno::Stale) => return Ok(()),
            other => other?,
        };
        let group = self.on.extents.group(&inode.extents, number / PER_GROUP).await?;
        let extent = group.get(number);
        if !extent.common || self.on.extents.is_owner(extent.place(), owner).await? {
            return Ok(());
        }
        let text =
            format!("stripe {number} of file {ino} has a common extent and is not recorded for it");
        self.problem(true, text);
        if self.repair {
            self.on.extents.record_owner(extent, owner);
        }
        Ok(())
    }
}

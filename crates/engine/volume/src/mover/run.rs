//! A walk over all recorded extents, and the moves under way.
//!
//! The walk goes over the records of extents in the order of their keys. Each stripe that is to be elsewhere becomes a
//! task; so many run at a time that every brick that is concerned has something to do. The cursor in the job's record
//! is the oldest group that has a move under way.

use super::part::Mover;
use super::running::{Running, Stop};
use crate::extents::Owner;
use crate::files::Moved;
use crate::namespace::Inode;
use crate::pace::{FIRST_LOOK_NANOS, STEP_NANOS};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::extent::{Extent, PER_GROUP, copy_of, groups_of_copy, stripe_of};
use braid_format::volume::job::{JobKind, JobRecord};
use braid_format::volume::snapshot::{file_of, snapshot_of};
use braid_format::volume::space::GROUP_BLOCKS;
use braid_format::volume::{BLOCK, keys};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Records of extents that are looked at together.
pub(super) const AT_ONCE: usize = 64;
/// Bytes moved after which the cursor is recorded.
const RECORD_EVERY: u64 = 64 << 20;
/// Walks over everything before a removal gives up on what does not move.
pub(super) const WALKS_MAX: u32 = 8;
/// The number of times that a move waits for a commit to make room.
const ROOM_WAITS: u32 = 32;

/// A stripe to be moved.
#[derive(Clone)]
pub(super) struct Move {
    pub(super) inode: Rc<Inode>,
    pub(super) stripe: u64,
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) bytes: u64,
}

impl Mover {
    /// Runs `job` from its cursor to its end.
    pub(super) async fn run_job(self: &Rc<Self>, running: &Rc<Running>) -> Result<(), Stop> {
        let (shard, state) = (self.shard.clone(), Rc::clone(running));
        self.shard.spawn(async move {
            // Bricks that answer late would otherwise have few moves to do until the first of them has ended.
            shard.sleep(FIRST_LOOK_NANOS + 1).await;
            state.look_again();
        });
        let mut walks = 0;
        loop {
            let moved = running.done.get();
            self.walk(running).await?;
            walks += 1;
            let job = running.record.get();
            let brick = job.brick.and_then(|id| self.bricks.get(id));
            let Some(brick) = brick.filter(|_| job.kind == JobKind::Remove) else { break };
            if brick.space.used() == 0 {
                break;
            }
            if walks == WALKS_MAX || running.done.get() == moved {
                let left = brick.space.used() * BLOCK;
                let errors = running.errors.get();
                return Err(Stop::Failed(format!(
                    "{left} bytes are still on brick {}: {errors} stripes could not be read or found no room; see: \
                     braid volume check",
                    brick.id
                )));
            }
            running.set_cursor((0, 0));
        }
        let is_copies = running.record.get().kind == JobKind::Copies;
        match running.errors.get() {
            0 => Ok(()),
            errors if is_copies => Err(Stop::Failed(format!(
                "{errors} stripes could not get all their copies: a brick is away, has failed or is full; see: braid volume \
                 status"
            ))),
            errors => Err(Stop::Failed(format!(
                "{errors} stripes could not be moved: a brick failed or is full; see: braid volume status"
            ))),
        }
    }

    /// One walk over all extents from the cursor on.
    async fn walk(self: &Rc<Self>, running: &Rc<Running>) -> Result<(), Stop> {
        let mut recorded = running.done.get();
        let job = running.record.get();
        let mut short = Vec::new();
        let mut cursor = Some(first_key(&job, job.cursor));
        while let Some(from) = cursor.take() {
            let (groups, next) = self.some_groups(&job, &from).await.map_err(Stop::errno)?;
            for (ino, group) in groups {
                let moves = self.moves_of(&job, ino, group).await.map_err(Stop::errno)?;
                running.walked.set((ino, group));
                if job.kind == JobKind::Defrag {
                    short.extend(self.short_extents(ino, group).await.map_err(Stop::errno)?);
                }
                for one in moves {
                    self.start_move(running, one).await?;
                }
                if running.done.get() >= recorded + RECORD_EVERY {
                    recorded = running.done.get();
                    self.record_job(running);
                }
            }
            cursor = next;
        }
        self.gather(running, short).await?;
        running.idle().await;
        self.walk_versions(running).await?;
        running.idle().await;
        running.check()
    }

    /// The extents of a group that are shorter than a stripe: brick, start, file and stripe.
    async fn short_extents(
        &self,
        ino: Ino,
        group: u64,
    ) -> Result<Vec<(u16, u64, Ino, u64)>, Errno> {
        let inode = match self.inodes.get(ino).await {
            Err(Errno::Stale) => return Ok(Vec::new()),
            other => other?,
        };
        let placed = self.extents.group(&inode.extents, group).await?.placed();
        let short = placed.into_iter().filter(|(_, extent)| {
            u64::from(extent.blocks) < self.geometry.blocks()
                && self.bricks.get(extent.brick).is_some_and(|brick| brick.is_there())
        });
        Ok(short.map(|(stripe, extent)| (extent.brick, extent.start, ino, stripe)).collect())
    }

    /// Puts short extents together, those that lie worst first, so that whole stripes find room between them.
    async fn gather(
        self: &Rc<Self>,
        running: &Rc<Running>,
        mut short: Vec<(u16, u64, Ino, u64)>,
    ) -> Result<(), Stop> {
        self.extents.rewind_short();
        short.sort_by_key(|(brick, start, ..)| {
            (*brick, start / GROUP_BLOCKS, Reverse(start % GROUP_BLOCKS))
        });
        for (brick, start, ino, stripe) in short {
            let inode = match self.inodes.get(ino).await {
                Err(Errno::Stale) => continue,
                other => other.map_err(Stop::errno)?,
            };
            let (_, extent) =
                self.extents.get(&inode.extents, stripe).await.map_err(Stop::errno)?;
            if (extent.brick, extent.start) == (brick, start) && !extent.is_hole() {
                self.start_move(running, self.a_move(&inode, stripe, extent, brick)).await?;
            }
        }
        Ok(())
    }

    /// Groups of extents from `from` on, and where to go on.
    pub(super) async fn some_groups(
        &self,
        job: &JobRecord,
        from: &[u8],
    ) -> Result<(Vec<(Ino, u64)>, Option<Vec<u8>>), Errno> {
        let (pairs, next) = self.transactions.scanned(from, &groups_end(job), AT_ONCE).await?;
        let groups = pairs
            .iter()
            .filter_map(|(key, _)| Some((keys::ino_of(key)?, keys::second_of(key)?)))
            .collect();
        Ok((groups, next))
    }

    /// The moves that one group needs.
    pub(super) async fn moves_of(
        &self,
        job: &JobRecord,
        ino: Ino,
        group: u64,
    ) -> Result<Vec<Move>, Errno> {
        let inode = match self.inodes.get(ino).await {
            // It was removed meanwhile.
            Err(Errno::Stale) => return Ok(Vec::new()),
            other => other?,
        };
        let extents = self.extents.group(&inode.extents, group).await?;
        let mut placed = extents.placed();
        if job.kind == JobKind::Copies {
            return self.copies_missing(&inode, group, &placed).await;
        }
        if job.kind == JobKind::Defrag {
            placed.retain(|(_, extent)| u64::from(extent.blocks) == self.geometry.blocks());
            return Ok(self.scattered(&inode, &placed));
        }
        let held = inode.with(|record| record.held);
        if held > 1 && group < groups_of_copy(1) {
            // Copies of one stripe move one after the other: else each copy of a large file would keep some bricks busy, and all
            // together in the end the others.
            for copy in 1..held {
                let other =
                    self.extents.group(&inode.extents, group + groups_of_copy(copy)).await?;
                placed.extend(other.placed());
            }
            placed.sort_by_key(|(stripe, _)| (stripe_of(*stripe), copy_of(*stripe)));
        }
        let mut moves = Vec::new();
        for (stripe, extent) in placed {
            if self.is_led_elsewhere(job, (ino, stripe), extent).await? {
                continue;
            }
            let all = self.files.stripe(&inode, stripe_of(stripe)).await?;
            if let Some(to) = self.wanted(job, &inode, (stripe, extent), &all) {
                moves.push(self.a_move(&inode, stripe, extent, to));
            }
        }
        Ok(moves)
    }

    /// The extent is common, and this job looks at it where another stripe has it. Whoever tells where a file is to be moves it for
    /// all.
    pub(super) async fn is_led_elsewhere(
        &self,
        job: &JobRecord,
        owner: Owner,
        extent: Extent,
    ) -> Result<bool, Errno> {
        let is_told = job.kind == JobKind::Migrate;
        Ok(!is_told && self.extents.is_led_elsewhere(extent.place(), owner).await?)
    }

    pub(super) fn a_move(&self, inode: &Rc<Inode>, stripe: u64, extent: Extent, to: u16) -> Move {
        let bytes = self.geometry.written_bytes(extent);
        Move { inode: Rc::clone(inode), stripe, from: extent.brick, to, bytes }
    }

    /// The stripes of a group that lie on a brick in so many parts that they are worth putting together.
    fn scattered(&self, inode: &Rc<Inode>, placed: &[(u64, Extent)]) -> Vec<Move> {
        let bricks: BTreeSet<u16> = placed.iter().map(|(_, extent)| extent.brick).collect();
        let mut moves = Vec::new();
        for brick in bricks {
            let here: Vec<&(u64, Extent)> =
                placed.iter().filter(|(_, extent)| extent.brick == brick).collect();
            let parts = here.windows(2).filter(|pair| {
                let (before, after) = (pair[0].1, pair[1].1);
                before.start + u64::from(before.blocks) != after.start
            });
            if parts.count() * 4 >= here.len().max(2)
                && self.bricks.get(brick).is_some_and(|brick| brick.is_there())
            {
                moves.extend(
                    here.iter().map(|(stripe, extent)| self.a_move(inode, *stripe, *extent, brick)),
                );
            }
        }
        // In the order of the file, so that they are put down in it.
        moves.sort_by_key(|one| (one.from, one.stripe));
        moves
    }

    /// Waits until a further move may be under way, and starts it.
    pub(super) async fn start_move(
        self: &Rc<Self>,
        running: &Rc<Running>,
        one: Move,
    ) -> Result<(), Stop> {
        loop {
            running.check()?;
            let now = self.shard.now();
            // Copies that are made again are read from all bricks and written to all.
            let spread = if self.bricks.is_there(one.from) { 1 } else { 3 };
            let heads = || self.bricks.has_heads();
            if running.under_way() >= self.pace.moves(now, self.geometry.stripe, spread, heads) {
                running.wait_change().await;
                continue;
            }
            match self.pace.wait(now, one.bytes) {
                0 => break,
                wait => self.shard.sleep(wait.min(STEP_NANOS)).await,
            }
        }
        let group = (one.inode.ino(), one.stripe / PER_GROUP);
        running.begin(group);
        let (own, state) = (Rc::clone(self), Rc::clone(running));
        self.shard.spawn(async move {
            match own.carry_out(&state.record.get(), &one).await {
                Ok(Moved::Yes(bytes)) => state.done.set(state.done.get() + bytes),
                Ok(Moved::NotThere) => {}
                Err(error) => {
                    tracing::warn!(
                        ino = one.inode.ino(),
                        stripe = one.stripe,
                        "moving a stripe: {error}"
                    );
                    state.errors.set(state.errors.get() + 1);
                }
            }
            state.end(group);
        });
        Ok(())
    }

    pub(super) async fn carry_out(&self, job: &JobRecord, one: &Move) -> Result<Moved, Errno> {
        let mut to = self.bricks.get(one.to).ok_or(Errno::NoSpace)?;
        for _ in 0..ROOM_WAITS {
            let _gate = self.gate.enter().await;
            if job.kind == JobKind::Copies {
                return match snapshot_of(one.inode.ino()) {
                    0 => self.files.make_copies(&one.inode, one.stripe).await,
                    _ => self.files.make_copies_seen(file_of(one.inode.ino()), one.stripe).await,
                };
            }
            let avoid = self.files.others_of(&one.inode, one.stripe).await?;
            if avoid.contains(&to.id) {
                // Two copies on one brick would be one.
                if !matches!(job.kind, JobKind::Remove | JobKind::Flush) {
                    return Ok(Moved::NotThere);
                }
                let other = self.instead(job, &one.inode, one.stripe, &avoid);
                to = other.and_then(|id| self.bricks.get(id)).ok_or(Errno::NoSpace)?;
            }
            match self.files.move_stripe(&one.inode, one.stripe, one.from, &to).await {
                Err(Errno::NoSpace) => {}
                other => return other,
            }
            drop(_gate);
            if job.kind == JobKind::Defrag {
                // An extent that finds no better one is well where it is.
                return Ok(Moved::NotThere);
            }
            if to.space.settling() > 0 {
                self.transactions.settle().await?;
                continue;
            }
            // A file goes where it was told to, or stays; what must leave goes where there is room.
            if job.kind != JobKind::Remove {
                return Err(Errno::NoSpace);
            }
            let other = self.instead(job, &one.inode, one.stripe, &avoid);
            self.record.note_unbalanced();
            to = other.and_then(|id| self.bricks.get(id)).ok_or(Errno::NoSpace)?;
        }
        Err(Errno::NoSpace)
    }
}

/// The key of the first group that a walk has to look at.
pub(super) fn first_key(job: &JobRecord, cursor: (Ino, u64)) -> Vec<u8> {
    let (ino, group) = if job.kind == JobKind::Migrate { cursor.max((job.ino, 0)) } else { cursor };
    keys::extents(ino, group)
}

/// The key behind the last group that a walk has to look at.
pub(super) fn groups_end(job: &JobRecord) -> Vec<u8> {
    match job.kind {
        JobKind::Migrate if job.ino != 0 => keys::after(&keys::extents(job.ino, u64::MAX)),
        _ => keys::after(b"P"),
    }
}

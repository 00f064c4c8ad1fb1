//! Every recorded place, and which blocks they take.

use super::{CheckReport, Lost};
use crate::brick::Brick;
use crate::data::Geometry;
use crate::volume::Volume;
use braid_filesystem::{Errno, Ino};
use braid_format::volume::brick_record::BrickState;
use braid_format::volume::place::{PER_GROUP, Place, parse};
use braid_format::volume::space::{GROUP_BLOCKS, WORDS};
use braid_format::volume::{BLOCK, keys};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The blocks of a brick that places name.
struct Named {
    brick: Rc<Brick>,
    /// A bit for each block of the groups that have any.
    groups: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl Named {
    fn new(brick: Rc<Brick>) -> Named {
        Named { brick, groups: BTreeMap::new() }
    }

    /// Names a block; false: it was named already.
    fn name(&mut self, block: u64) -> bool {
        let words = self.groups.entry(block / GROUP_BLOCKS).or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = Named::place(block);
        let fresh = words[word] >> bit & 1 == 0;
        words[word] |= 1 << bit;
        fresh
    }

    fn has(&self, block: u64) -> bool {
        let (word, bit) = Named::place(block);
        self.groups.get(&(block / GROUP_BLOCKS)).is_some_and(|words| words[word] >> bit & 1 == 1)
    }

    /// Word and bit of a block in its group.
    fn place(block: u64) -> (usize, u64) {
        ((block % GROUP_BLOCKS / 64) as usize, block % 64)
    }
}

impl Volume {
    /// Checks places against the `files` that there are, each with the blocks that it says to take, and against the
    /// free space of the bricks.
    pub(super) async fn check_places(
        &self,
        repair: bool,
        files: &BTreeMap<Ino, u64>,
        report: &mut CheckReport,
    ) -> Result<(), Errno> {
        let mut named: BTreeMap<u16, Named> =
            self.bricks().into_iter().map(|brick| (brick.id, Named::new(brick))).collect();
        let mut taken: BTreeMap<Ino, u64> = BTreeMap::new();
        let mut orphaned = Vec::new();
        let geometry = self.geometry;
        let walked = self.each_pair(b"P", |key, value| {
            let (Some(ino), Some(group)) = (keys::ino_of(key), keys::second_of(key)) else {
                return;
            };
            let list = match parse(ino, group, geometry.stripe, value) {
                Ok(list) => list,
                Err(error) => return report.problem(false, error.to_string()),
            };
            if !files.contains_key(&ino) {
                orphaned.push(key.to_vec());
                return report
                    .problem(repair, format!("places of file {ino}, which does not exist"));
            }
            for (place, number) in
                list.iter().zip(group * PER_GROUP..).filter(|(place, _)| !place.is_hole())
            {
                *taken.entry(ino).or_default() += u64::from(place.blocks);
                name_place(&mut named, ino, number, place, geometry, report);
            }
        });
        walked.await?;
        if repair {
            for key in orphaned {
                self.transactions.set(key, None);
            }
        }
        for (ino, said) in files {
            let found = taken.get(ino).copied().unwrap_or(0);
            if found != *said {
                report.problem(
                    repair,
                    format!("file {ino} says that it takes {said} blocks, its places take {found}"),
                );
                if repair {
                    let inode = self.inode(*ino).await?;
                    self.edit(&inode, true, |record| record.blocks = found);
                }
            }
        }
        let mut recorded: BTreeMap<u16, BTreeSet<u64>> = BTreeMap::new();
        let walked = self.each_pair(b"A", |key, _| {
            if let Some((brick, group)) = keys::brick_and_group(key) {
                recorded.entry(brick).or_default().insert(group.into());
            }
        });
        walked.await?;
        for (id, named) in &named {
            // Of a large brick most groups may be empty.
            let mut groups = recorded.remove(id).unwrap_or_default();
            groups.extend(named.groups.keys().copied());
            groups.extend(named.brick.space.groups_in_use());
            self.check_space(repair, named, groups, report).await?;
        }
        Ok(())
    }

    /// Holds the blocks that places name against those that are recorded as in use, in these groups.
    async fn check_space(
        &self,
        repair: bool,
        named: &Named,
        groups: BTreeSet<u64>,
        report: &mut CheckReport,
    ) -> Result<(), Errno> {
        let brick = &named.brick;
        if brick.state() == BrickState::Lost {
            return Ok(());
        }
        let (mut leaked, mut unmarked) = (0, 0);
        for group in groups {
            let start = group.saturating_mul(GROUP_BLOCKS);
            let end = start.saturating_add(GROUP_BLOCKS).min(brick.space.blocks());
            if start >= end {
                // A record of a group that the brick does not have says nothing of any block.
                continue;
            }
            let loaded = brick.space.load_for(&self.transactions, start, 1).await;
            if let Err(error) = loaded {
                report.problem(false, error.to_string());
                continue;
            }
            for block in start..end {
                match (named.has(block), brick.space.is_used(block)) {
                    (false, true) => {
                        leaked += 1;
                        if repair {
                            brick.space.free(block, 1);
                        }
                    }
                    (true, false) => {
                        unmarked += 1;
                        if repair {
                            brick.space.mark_named(block);
                        }
                    }
                    _ => {}
                }
            }
        }
        let name = brick.name();
        report.leaked_blocks += leaked;
        if leaked > 0 {
            report.problem(
                repair,
                format!("{name}: {leaked} blocks are in use and no file has them"),
            );
        }
        if unmarked > 0 {
            report.problem(
                repair,
                format!("{name}: {unmarked} blocks of files are recorded as free"),
            );
        }
        Ok(())
    }
}

fn name_place(
    named: &mut BTreeMap<u16, Named>,
    ino: Ino,
    stripe: u64,
    place: &Place,
    geometry: Geometry,
    report: &mut CheckReport,
) {
    report.stripes += 1;
    report.bytes += u64::from(place.blocks) * BLOCK;
    let range = (stripe * geometry.stripe, (stripe + 1) * geometry.stripe);
    let Some(on) = named.get_mut(&place.brick) else {
        report.problem(
            false,
            format!(
                "stripe {stripe} of file {ino} is on brick {}, which does not exist",
                place.brick
            ),
        );
        return lose(report, ino, range);
    };
    let end = place.start.checked_add(u64::from(place.blocks));
    if end.is_none_or(|end| end > on.brick.space.blocks()) {
        report.problem(
            false,
            format!("stripe {stripe} of file {ino} is beyond the end of {}", on.brick.name()),
        );
        return lose(report, ino, range);
    }
    let twice = (0..u64::from(place.blocks)).filter(|at| !on.name(place.start + at)).count();
    if twice > 0 {
        let name = on.brick.name();
        report.problem(
            false,
            format!("stripe {stripe} of file {ino} shares {twice} blocks of {name} with another"),
        );
    }
    if !on.brick.is_there() {
        // What was only set aside reads as zero, wherever it is.
        for (run, is_written) in geometry.runs(*place, 0, geometry.stripe) {
            if is_written {
                lose(report, ino, (range.0 + run.start, range.0 + run.end));
            }
        }
    }
}

fn lose(report: &mut CheckReport, ino: Ino, range: (u64, u64)) {
    match report.lost.last_mut().filter(|lost| lost.ino == ino) {
        Some(lost) => match lost.ranges.last_mut().filter(|last| last.1 == range.0) {
            Some(last) => last.1 = range.1,
            None => lost.ranges.push(range),
        },
        None => report.lost.push(Lost { ino, path: String::new(), ranges: vec![range] }),
    }
}

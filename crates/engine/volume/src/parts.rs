//! The parts that files, jobs and checks are made over, made from the lowest up.

use crate::commit::Commits;
use crate::extents::{Brick, Bricks, ExtentMap, MapOf, NoteLost};
use crate::gate::Gate;
use crate::namespace::{Clock, Inodes, Namespace, Orphans};
use crate::pace::Pace;
use crate::projects::Projects;
use crate::record::Record;
use crate::snapshots::{Recorded, Snapshots};
use crate::stripes::Geometry;
use crate::sums::Sums;
use crate::transactions::{Part, Transactions};
use crate::watch::Watches;
use braid_format::volume::project::ProjectRecord;
use braid_format::volume::volume_record::VolumeRecord;
use braid_layout::buckets::Buckets;
use braid_shard::Shard;
use std::collections::BTreeMap;
use std::rc::Rc;

/// One of each part of a volume, up to its names.
#[derive(Clone)]
pub struct Parts {
    /// The shard that all live on.
    pub shard: Shard,
    /// The sizes of the volume.
    pub geometry: Geometry,
    /// Changes of metadata.
    pub transactions: Rc<Transactions>,
    /// The volume's own record.
    pub record: Rc<Record>,
    /// Told of changes.
    pub watches: Rc<Watches>,
    /// The devices.
    pub bricks: Rc<Bricks>,
    /// Where stripes lie.
    pub extents: Rc<ExtentMap>,
    /// Snapshots of folders.
    pub snapshots: Rc<Snapshots>,
    /// What the files of projects take.
    pub projects: Rc<Projects>,
    /// Checksums of blocks.
    pub sums: Rc<Sums>,
    /// The files in memory.
    pub inodes: Rc<Inodes>,
    /// Makes changes durable.
    pub commits: Rc<Commits>,
    /// The files to be removed.
    pub orphans: Rc<Orphans>,
    /// Names.
    pub namespace: Rc<Namespace>,
    /// Every change goes through it.
    pub gate: Rc<Gate>,
    /// The pace of jobs and checks.
    pub pace: Rc<Pace>,
}

impl Parts {
    /// Of the volume with this `record`, as it is in `transactions`, over `bricks`.
    pub fn new(
        shard: &Shard,
        transactions: Rc<Transactions>,
        (record, projects, snapshots): (VolumeRecord, BTreeMap<u32, ProjectRecord>, Recorded),
        buckets: Buckets,
        bricks: BTreeMap<u16, Rc<Brick>>,
        note_lost: NoteLost,
        clock: Clock,
    ) -> Parts {
        let geometry = Geometry::new(record.stripe);
        let sums = Rc::new(Sums::new(shard, Rc::clone(&transactions), record.checksums));
        let record = Rc::new(Record::new(record));
        let snapshots = Rc::new(Snapshots::new(shard, Rc::clone(&transactions), snapshots));
        let watches = Rc::new(Watches::default());
        let bricks = Rc::new(Bricks::new(shard, geometry, bricks, note_lost));
        let extents = Rc::new(ExtentMap::new(MapOf {
            shard: shard.clone(),
            geometry,
            transactions: Rc::clone(&transactions),
            record: Rc::clone(&record),
            watches: Rc::clone(&watches),
            bricks: Rc::clone(&bricks),
            snapshots: Rc::clone(&snapshots),
            buckets,
        }));
        let projects = Rc::new(Projects::new(
            Rc::clone(&transactions),
            Rc::clone(&record),
            Rc::clone(&watches),
            projects,
        ));
        let inodes = Rc::new(Inodes::new(
            shard,
            Rc::clone(&transactions),
            Rc::clone(&extents),
            Rc::clone(&projects),
            Rc::clone(&snapshots),
            clock,
        ));
        let losers = Rc::downgrade(&inodes);
        bricks.tell_lost_writes(Rc::new(move || {
            if let Some(inodes) = losers.upgrade() {
                inodes.lose_uncommitted();
            }
        }));
        let copies = Rc::downgrade(&sums);
        bricks.tell_lost_copies(Rc::new(move |brick| {
            if let Some(sums) = copies.upgrade() {
                sums.lost(brick);
            }
        }));
        let changed: Vec<Rc<dyn Part>> = vec![
            Rc::clone(&inodes) as _,
            Rc::clone(&extents) as _,
            Rc::clone(&projects) as _,
            Rc::clone(&sums) as _,
            Rc::clone(&record) as _,
        ];
        let commits = Commits::new(
            Rc::clone(&transactions),
            Rc::clone(&bricks),
            Rc::clone(&record),
            Rc::clone(&snapshots),
            changed,
        );
        let orphans = Rc::new(Orphans::new(Rc::clone(&transactions)));
        let namespace = Rc::new(Namespace::new(
            shard,
            geometry,
            Rc::clone(&transactions),
            Rc::clone(&record),
            Rc::clone(&watches),
            Rc::clone(&inodes),
            Rc::clone(&orphans),
        ));
        Parts {
            shard: shard.clone(),
            geometry,
            transactions,
            record,
            watches,
            bricks,
            extents,
            snapshots,
            projects,
            sums,
            inodes,
            commits: Rc::new(commits),
            orphans,
            namespace,
            gate: Gate::new(shard),
            pace: Rc::new(Pace::default()),
        }
    }
}

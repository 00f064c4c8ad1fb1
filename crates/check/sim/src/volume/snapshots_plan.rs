//! The plan of a run with snapshots, drawn from its seed.

use crate::rng::Rng;

/// Snapshots in a run.
#[derive(Clone, Debug)]
pub struct SnapshotsPlan {
    /// Of 1000 steps of a round, before how many one is taken.
    pub taken_often: u64,
    /// … one is removed.
    pub removed_often: u64,
    /// … one is looked into.
    pub seen_often: u64,
    /// The most that there are at a time.
    pub most: usize,
    /// Also of folders below the root.
    pub folders: bool,
}

impl SnapshotsPlan {
    /// Files have copies, too, in the run of `seed`.
    pub fn with_copies(seed: u64) -> bool {
        Rng::new(seed, 64).percent(40)
    }

    /// Something fails in the run of `seed`.
    pub fn with_faults(seed: u64) -> bool {
        Rng::new(seed, 65).percent(25)
    }

    /// Those of `seed`. Where something may fail, or there is no room for metadata, whoever makes a folder ready for snapshots
    /// may come halfway.
    pub fn of(seed: u64, may_come_halfway: bool) -> SnapshotsPlan {
        let rng = Rng::new(seed, 63);
        SnapshotsPlan {
            taken_often: *rng.pick(&[5, 15, 40]),
            removed_often: *rng.pick(&[3, 10, 40]),
            seen_often: *rng.pick(&[1, 4]),
            most: *rng.pick(&[1, 2, 4]),
            folders: rng.percent(60) && !may_come_halfway,
        }
    }

    /// In a few words.
    pub fn describe(&self) -> String {
        let of = if self.folders { "of folders, too" } else { "of all" };
        format!(", up to {} snapshots {of}", self.most)
    }
}

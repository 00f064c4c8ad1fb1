//! The list of a volume's bricks in each brick's superblock: the ids of all, and those that were missing.
//!
//! Invariant: both lists are sorted and have no duplicates.

use super::raw::{MAX_AWAY, MAX_RUNS, RawAway, RawRun};

/// The ids of a volume's bricks, as runs of consecutive ids. Empty if there would be more than [`MAX_RUNS`] runs: then the
/// superblock does not list the ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrickIds {
    /// First id and number of ids.
    runs: Vec<(u16, u16)>,
}

impl BrickIds {
    /// Builds the list from these ids, in any order.
    pub fn new(ids: impl IntoIterator<Item = u16>) -> BrickIds {
        let mut ids: Vec<u16> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for id in ids {
            match runs.last_mut() {
                Some((first, count)) if u32::from(*first) + u32::from(*count) == u32::from(id) => {
                    *count += 1;
                }
                _ => runs.push((id, 1)),
            }
        }
        if runs.len() > MAX_RUNS {
            runs.clear();
        }
        BrickIds { runs }
    }

    /// True if the superblock lists the ids.
    pub fn are_told(&self) -> bool {
        !self.runs.is_empty()
    }

    /// True for an id among them.
    pub fn contains(&self, id: u16) -> bool {
        let within =
            |&(first, count): &(u16, u16)| id.checked_sub(first).is_some_and(|after| after < count);
        self.runs.iter().any(within)
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        // Runs end at or before the last id.
        self.runs.iter().flat_map(|&(first, count)| (0..count).map(move |more| first + more))
    }

    pub(super) fn to_raw(&self) -> ([RawRun; MAX_RUNS], u16) {
        let mut raw = [RawRun::default(); MAX_RUNS];
        for (place, &(first, count)) in raw.iter_mut().zip(&self.runs) {
            *place = RawRun { first: first.into(), count: count.into() };
        }
        (raw, self.runs.len() as u16)
    }

    /// `None` if the runs are not in the form that [`BrickIds::new`] builds.
    pub(super) fn of_raw(raw: &[RawRun; MAX_RUNS], len: u16) -> Option<BrickIds> {
        let (used, rest) = raw.split_at_checked(len.into())?;
        let mut free_from = 0;
        for run in used {
            let (first, count) = (u32::from(run.first.get()), u32::from(run.count.get()));
            if count == 0 || first < free_from || first + count > u32::from(u16::MAX) {
                return None;
            }
            // Adjacent runs would have been merged into one.
            free_from = first + count + 1;
        }
        if rest.iter().any(|run| *run != RawRun::default()) {
            return None;
        }
        Some(BrickIds { runs: used.iter().map(|run| (run.first.get(), run.count.get())).collect() })
    }
}

/// A brick of the volume that was missing when the superblock was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Away {
    /// Its id.
    pub brick_id: u16,
    /// The last generation that was written to it, or that was about to be.
    pub generation: u64,
}

pub(super) fn away_to_raw(away: &[Away]) -> ([RawAway; MAX_AWAY], u16) {
    let mut raw = [RawAway::default(); MAX_AWAY];
    for (place, away) in raw.iter_mut().zip(away) {
        *place = RawAway {
            generation: away.generation.into(),
            brick_id: away.brick_id.into(),
            pad: [0; 6],
        };
    }
    (raw, away.len().min(MAX_AWAY) as u16)
}

/// `None` if they are not sorted, or bytes that must be zero are not.
pub(super) fn away_of_raw(raw: &[RawAway; MAX_AWAY], len: u16) -> Option<Vec<Away>> {
    let (used, rest) = raw.split_at_checked(len.into())?;
    let zeros = rest.iter().all(|away| *away == RawAway::default());
    let padded = used.iter().all(|away| away.pad == [0; 6]);
    let of =
        |raw: &RawAway| Away { brick_id: raw.brick_id.get(), generation: raw.generation.get() };
    let away: Vec<Away> = used.iter().map(of).collect();
    let sorted = away.is_sorted_by(|one, two| one.brick_id < two.brick_id);
    (zeros && padded && sorted).then_some(away)
}

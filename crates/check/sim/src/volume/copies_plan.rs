//! The plan of a run with copies, drawn from its seed.

use crate::rng::Rng;

/// Copies in a run.
#[derive(Clone, Debug)]
pub struct CopiesPlan {
    /// The copies of files that are not told otherwise.
    pub default: u8,
    /// The fewest that a file is told to have.
    pub least: u8,
    /// Of 1000 steps of a round, before how many a file or a folder is told.
    pub told_often: u64,
    /// The only brick that fails. It comes back, at a later mount or while mounted, with what it had made durable, and whatever it missed, all
    /// that is said to be durable is there. Without it bricks that are gone stay away.
    pub victim: Option<usize>,
    /// Of 1000 steps of a round, before how many it is taken back while the volume is mounted, when it is lost.
    pub returns: u64,
}

impl CopiesPlan {
    /// Bricks of a run of `seed`.
    pub fn bricks(seed: u64) -> usize {
        Rng::new(seed, 56).range(2..6) as usize
    }

    /// Those of `seed`, where there are so many bricks, and so many faults in 1000 steps.
    pub fn of(seed: u64, bricks: usize, faults: u64) -> CopiesPlan {
        let rng = Rng::new(seed, 57);
        let default = (*rng.pick(&[1, 2, 2, 2, 3])).min(bricks as u8);
        let one = faults > 0 && default > 1 && rng.percent(70);
        let victim = one.then(|| rng.below(bricks));
        let least = if one { 2 } else { 1 };
        let told_often = *rng.pick(&[0, 0, 3, 20]);
        let returns = *rng.pick(&[0, 5, 20, 100]);
        CopiesPlan { default, least, told_often, victim, returns }
    }

    /// In a few words.
    pub fn describe(&self) -> String {
        let one = self.victim.map_or(String::new(), |victim| format!(", only b{victim} fails"));
        format!(", {} copies{one}", self.default)
    }
}

//! The arrays whose servers are killed, and the changes that go on meanwhile, as a table.

/// Slots that most of them have, and devices that are there at first.
pub(super) const MEMBERS: usize = 4;

/// An array that is killed.
#[derive(Clone, Debug)]
pub struct Victim {
    /// Its name on the command line.
    pub name: &'static str,
    /// The words of `create`, without members.
    pub(super) words: &'static str,
    /// Slots at first, and spares.
    pub(super) slots: usize,
    pub(super) spares: usize,
    /// Devices beside the first four; those without a slot at first are added later, or hold the journal.
    pub(super) more: usize,
    /// Devices that `serve` is given before anything changes; `None`: all.
    pub(super) at_first: Option<usize>,
    /// Commands that begin the change before the first write.
    pub(super) begin: &'static [&'static str],
    /// Commands that are given between two writes; after the kill they are given again.
    pub(super) meanwhile: &'static [&'static str],
    /// The level at the end, in the words of `detail`, where it changes.
    pub(super) becomes: Option<&'static str>,
    /// Options of `serve` after the kill: a slot that holds nothing but parity may be empty yet, or a copy missing.
    pub(super) after: &'static str,
    /// The policy closes the write hole.
    pub(super) closed: Closed,
}

/// The extent to which a policy closes the write hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    No,
    /// But for what was being written on a member that is missing.
    ButTheMissing,
    All,
}

const PLAIN: Victim = Victim {
    name: "",
    words: "",
    slots: MEMBERS,
    spares: 0,
    more: 0,
    at_first: None,
    begin: &[],
    meanwhile: &[],
    becomes: None,
    after: "",
    closed: Closed::No,
};

const RAID5: &str = "--level 5 --chunk 64K --bitmap none";
const RAID6: &str = "--level 6 --chunk 64K --bitmap none";
const RAID4: &str = "--level 4 --chunk 64K --bitmap none";
const RAID10: &str = "--level 10 --chunk 64K --bitmap none";
const RAID0: &str = "--level 0 --chunk 64K";
/// A slot without its member yet makes an unclean array start with `--force` alone.
const FORCED: &str = " --run --force";

const fn policy(name: &'static str, words: &'static str) -> Victim {
    Victim { name, words, ..PLAIN }
}

const fn journal(name: &'static str, words: &'static str) -> Victim {
    Victim { name, words, more: 1, closed: Closed::All, ..PLAIN }
}

/// A change of the level by commands that are given under writes.
const fn level(
    name: &'static str,
    words: &'static str,
    meanwhile: &'static [&'static str],
    becomes: &'static str,
) -> Victim {
    Victim { name, words, meanwhile, becomes: Some(becomes), ..PLAIN }
}

/// All of them.
pub const VICTIMS: &[Victim] = &[
    // Policies.
    policy("resync", RAID5),
    policy("resync-raid4", RAID4),
    policy("raid6", RAID6),
    policy("resync-raid1", "--level 1 --bitmap none"),
    policy("resync-raid10", RAID10),
    policy("bitmap", "--level 5 --chunk 64K --bitmap internal --bitmap-chunk 64K"),
    policy("bitmap-raid4", "--level 4 --chunk 64K --bitmap internal --bitmap-chunk 64K"),
    policy("bitmap-raid6", "--level 6 --chunk 64K --bitmap internal --bitmap-chunk 64K"),
    policy("raid1", "--level 1 --bitmap internal --bitmap-chunk 64K"),
    policy("bitmap-raid10", "--level 10 --chunk 64K --bitmap internal --bitmap-chunk 64K"),
    Victim {
        closed: Closed::ButTheMissing,
        ..policy("ppl", "--level 5 --chunk 64K --consistency-policy ppl")
    },
    journal("journal", "--level 5 --chunk 64K --write-journal m4"),
    journal("journal-raid4", "--level 4 --chunk 64K --write-journal m4"),
    journal("journal-raid6", "--level 6 --chunk 64K --write-journal m4"),
    policy("none-raid0", RAID0),
    policy("none-linear", "--level linear"),
    // Reshapes.
    Victim {
        more: 1,
        spares: 1,
        begin: &["grow data --raid-devices 5"],
        ..policy("more-members", RAID5)
    },
    Victim {
        more: 1,
        slots: 5,
        begin: &["grow data --array-size 12M", "grow data --raid-devices 4"],
        // Room to move the data in.
        ..policy("fewer-members", "--level 5 --chunk 64K --bitmap none --size 6M")
    },
    Victim { begin: &["grow data --chunk 128K"], ..policy("chunk", RAID5) },
    Victim { begin: &["grow data --layout right-symmetric"], ..policy("layout", RAID5) },
    Victim {
        more: 1,
        spares: 1,
        begin: &["grow data --raid-devices 5"],
        ..policy("more-copies", RAID10)
    },
    Victim {
        more: 1,
        slots: 5,
        begin: &["grow data --array-size 10M", "grow data --raid-devices 4"],
        ..policy("fewer-copies", "--level 10 --chunk 64K --bitmap none --size 6M")
    },
    Victim { begin: &["grow data --chunk 128K"], ..policy("chunk-raid10", RAID10) },
    Victim { begin: &["grow data --layout o2"], ..policy("near-to-offset", RAID10) },
    Victim {
        begin: &["grow data --layout n2"],
        ..policy("offset-to-near", "--level 10 --layout o2 --chunk 64K --bitmap none")
    },
    Victim {
        meanwhile: &["grow data --size max"],
        ..policy("larger", "--level 5 --chunk 64K --bitmap none --size 5M")
    },
    // Levels.
    Victim {
        more: 1,
        spares: 1,
        after: FORCED,
        ..level("5-to-6", RAID5, &["grow data --level 6"], "raid6")
    },
    level("6-to-5", RAID6, &["grow data --level 5"], "raid5"),
    level("5-to-4", RAID5, &["grow data --level 4"], "raid4"),
    level("4-to-5", RAID4, &["grow data --level 5"], "raid5"),
    Victim {
        more: 1,
        spares: 1,
        after: FORCED,
        ..level("4-to-6", RAID4, &["grow data --level 6"], "raid6")
    },
    level("6-to-4", RAID6, &["grow data --level 4"], "raid4"),
    Victim {
        more: 1,
        at_first: Some(MEMBERS),
        after: FORCED,
        ..level("0-to-4", RAID0, &["grow data --level 4", "add data m4"], "raid4")
    },
    Victim {
        more: 1,
        at_first: Some(MEMBERS),
        after: FORCED,
        ..level("0-to-5", RAID0, &["grow data --level 5", "add data m4"], "raid5")
    },
    Victim {
        more: 2,
        at_first: Some(MEMBERS),
        after: FORCED,
        ..level("0-to-6", RAID0, &["grow data --level 6", "add data m4", "add data m5"], "raid6")
    },
    Victim {
        more: 4,
        at_first: Some(MEMBERS),
        after: FORCED,
        ..level(
            "0-to-10",
            RAID0,
            &["grow data --level 10", "add data m4", "add data m5", "add data m6", "add data m7"],
            "raid10",
        )
    },
    Victim { after: " --run", ..level("10-to-0", RAID10, &["grow data --level 0"], "raid0") },
    Victim { after: " --run", ..level("4-to-0", RAID4, &["grow data --level 0"], "raid0") },
    Victim { after: " --run", ..level("5-to-0", RAID5, &["grow data --level 0"], "raid0") },
    Victim { after: " --run", ..level("6-to-0", RAID6, &["grow data --level 0"], "raid0") },
    Victim {
        slots: 2,
        ..level("1-to-5", "--level 1 --bitmap none", &["grow data --level 5"], "raid5")
    },
    Victim { slots: 2, ..level("5-to-1", RAID5, &["grow data --level 1"], "raid1") },
    // Members.
    Victim {
        more: 1,
        spares: 1,
        begin: &["replace data m0 --with m4"],
        ..policy("replacement", RAID5)
    },
    Victim {
        more: 3,
        at_first: Some(MEMBERS + 1),
        begin: &["fail data m0 m2", "remove data m0 m2", "add data m5 m6"],
        closed: Closed::No,
        ..journal("two-rebuilt", "--level 6 --chunk 64K --write-journal m4")
    },
];

impl Victim {
    /// The one of this name.
    ///
    /// # Errors
    /// There is none; the names that there are.
    pub fn named(name: &str) -> Result<Victim, String> {
        let found = VICTIMS.iter().find(|victim| victim.name == name).cloned();
        found.ok_or_else(|| {
            let names: Vec<&str> = VICTIMS.iter().map(|victim| victim.name).collect();
            format!("there is none of that name; these are: {}", names.join(", "))
        })
    }

    /// It closes the write hole: a member may be missing after the kill.
    pub(super) fn may_miss(&self) -> bool {
        self.closed != Closed::No
    }

    /// It is another array after one kill.
    pub(super) fn changes(&self) -> bool {
        !self.begin.is_empty() || !self.meanwhile.is_empty()
    }

    /// Members agree with each other at the end, so that a check can be asked for.
    pub(super) fn is_redundant(&self) -> bool {
        let level = self.becomes.unwrap_or(self.words);
        level != "raid0" && !level.starts_with("--level 0") && !level.starts_with("--level linear")
    }

    /// A number of its own, for its random numbers.
    pub(super) fn number(&self) -> u64 {
        self.name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = VICTIMS.iter().map(|victim| victim.name).collect();
        assert_eq!(names.len(), VICTIMS.len());
        let numbers: BTreeSet<u64> = VICTIMS.iter().map(Victim::number).collect();
        assert_eq!(numbers.len(), VICTIMS.len());
        assert!(Victim::named("nothing").unwrap_err().contains("5-to-6"));
    }

    #[test]
    fn level_0_has_nothing_to_check() {
        let redundant = |name| Victim::named(name).unwrap().is_redundant();
        assert!(redundant("0-to-5") && redundant("raid6") && redundant("resync-raid10"));
        assert!(!redundant("10-to-0") && !redundant("none-raid0") && !redundant("none-linear"));
    }
}

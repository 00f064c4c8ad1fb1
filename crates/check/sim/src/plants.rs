//! The table of bugs that are planted on purpose in the engines and devices, one at a time, to show that runs find them.
//!
//! A name stands here and, as `planted("name")`, once or more in the code of an engine, or of a device. A bug is of the class of
//! a real one that was found otherwise, or that nothing but a simulator would find.
//!
//! Owns no way to plant them: `braid_shard::plant` has that. `canaries` looks for each.

use crate::seeds::Kind;

/// One planted bug.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    /// As the engine asks for it.
    pub name: &'static str,
    /// The kind of run that must find it.
    pub kind: Kind,
    /// The kind of fault.
    pub class: &'static str,
    /// The engine with this bug does this.
    pub does: &'static str,
}

const fn plant(kind: Kind, class: &'static str, name: &'static str, does: &'static str) -> Plant {
    Plant { name, kind, class, does }
}

const fn array(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Array, class, name, does)
}

const fn stack(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Stack, class, name, does)
}

const fn volume(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Volume, class, name, does)
}

const fn calls(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Calls, class, name, does)
}

const fn copied(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Copies, class, name, does)
}

const fn snapshots(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Snapshots, class, name, does)
}

const fn common(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Common, class, name, does)
}

const fn levels(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Levels, class, name, does)
}

const fn growing(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Growing, class, name, does)
}

const fn journaled(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Journaled, class, name, does)
}

const fn short(class: &'static str, name: &'static str, does: &'static str) -> Plant {
    plant(Kind::Short, class, name, does)
}

const FLUSH: &str = "lost flushes";
const ORDER: &str = "order on disk";
const STALE: &str = "stale members";
const COPIES: &str = "copies apart";
const PARITY: &str = "parity";
const CACHE: &str = "stripe cache";
const JOBS: &str = "jobs";
const DAMAGE: &str = "damaged metadata";
const SIZES: &str = "sizes";
const LIVENESS: &str = "liveness and bounds";
const ERRORS: &str = "errors";
const CUTS: &str = "cut files";
const NAMES: &str = "names";
const SPACE: &str = "space";
const RIGHTS: &str = "rights";
const SNAPSHOTS: &str = "snapshots";
const CHECKS: &str = "blind checks";

/// All of them: arrays, then stacks, then volumes.
#[rustfmt::skip]
pub const PLANTS: &[Plant] = &[
    array(FLUSH, "flush-failure-ignored", "takes a member's failed flush for success where there is redundancy"),
    array(FLUSH, "loss-told-to-none", "takes a member's failed flush for success where there is no redundancy"),
    array(FLUSH, "loss-told-to-one", "tells what a failed flush has lost to the connection that flushed and to no other"),
    array(FLUSH, "flushed-before-record", "answers a flush with success while a failed one is not recorded yet"),
    array(FLUSH, "suspect-still-read", "reads from a member that has failed a flush until that is recorded"),
    array(FLUSH, "failure-after-reply", "replies before a member's failure is recorded"),
    array(FLUSH, "flush-leaves-out-rebuilt", "does not flush a member that is being rebuilt"),
    array(FLUSH, "bits-cleared-unflushed", "clears bits of the bitmap without flushing the members first"),
    array(FLUSH, "clean-unflushed", "marks the array clean without flushing the members first"),
    array(FLUSH, "second-rebuilt-as-first", "gives the second of two members that are rebuilt in one pass what the first gets"),
    array(FLUSH, "rebuilt-unflushed", "calls a rebuilt member in sync without flushing it first"),
    array(FLUSH, "parity-without-fua", "writes parity of a FUA write without FUA"),
    array(ORDER, "failure-unrecorded", "does not write the superblocks when a member fails"),
    array(ORDER, "bit-after-data", "writes data before the bit that covers it is durable"),
    array(ORDER, "active-unrecorded", "writes before the superblocks say that the array is active"),
    array(ORDER, "bad-block-unrecorded", "does not record a bad block before the reply"),
    array(ORDER, "logged-after-data", "writes data and parity before their partial parity is in the log"),
    array(ORDER, "log-reused-unflushed", "writes the next unit of a log before what the last was for is durable"),
    short(ORDER, "log-in-use-too-early", "takes the log into use before redundancy holds everywhere"),
    array(ORDER, "replay-skips-one", "leaves out the first entry of each log in a replay"),
    array(ORDER, "journaled-after-data", "writes data and parity before they are in the journal"),
    array(ORDER, "journal-forgets-under-way", "uses places of the journal again whose writes are under way"),
    array(ORDER, "journal-cleared-unflushed", "uses places of the journal again before what they were for is durable"),
    journaled(ORDER, "journal-not-drained", "counts what jobs have made while the journal has what was written before"),
    array(ORDER, "journal-replay-skips-one", "leaves out the first row of the journal in a replay"),
    array(ORDER, "journal-tail-kept", "goes on after a replay with a tail that still stands at the old log"),
    journaled(ORDER, "degraded-not-journaled", "leaves writes out of the journal whose parity has no member"),
    array(ORDER, "journal-loss-ignored", "goes on writing, without logging it, when the journal has failed"),
    array(ORDER, "journal-added-unflushed", "adds a journal before what was written without one is durable"),
    array(ORDER, "started-without-journal", "starts for writing without its journal"),
    array(ORDER, "journal-given-up-unsynced", "goes on without its journal and resyncs nothing"),
    levels(STALE, "late-member-in-old-slot", "does not renumber the slots of a member that missed the change between levels 0 and 10"),
    levels(STALE, "old-slot-kept", "gives members no other slots when level 0 becomes 10, or the other way round"),
    array(STALE, "log-of-new-member-kept", "gives a member a slot without emptying its log"),
    array(STALE, "read-past-recovery", "reads from a rebuilding member beyond what has been rebuilt"),
    array(STALE, "two-behind", "accepts a member that is two updates behind"),
    array(STALE, "oldest-first", "takes the oldest of the stale members by force rather than the newest"),
    array(STALE, "retired-unmarked", "leaves the superblock of a member that has left as it was, so that it can be started alone"),
    array(STALE, "events-cleared-not-raised", "clears bits without raising events_cleared, so that a stale member is re-added"),
    array(STALE, "target-left-out", "leaves a rebuilding member out of writes beyond the last known cursor"),
    array(COPIES, "reads-in-turn", "reads copies in turn before the resync after a crash"),
    array(COPIES, "copies-unlocked", "writes overlapping requests to the copies without the lock that orders them"),
    array(COPIES, "window-unlocked", "resyncs and rebuilds without locking the window"),
    array(PARITY, "parity-of-a-segment", "leaves parity of a small write at the start of a chunk as it was"),
    array(PARITY, "mended-with-its-neighbours", "mends an unreadable block together with readable ones of its chunk, from parity"),
    array(PARITY, "check-blind-to-q", "does not count where Q differs"),
    array(CACHE, "stale-line", "does not put new parity into the stripe cache"),
    array(CACHE, "repair-keeps-cache", "leaves the stripe cache as it was when a repair writes past it"),
    array(JOBS, "replacement-not-written", "does not write to a member's replacement what it writes to the member"),
    array(JOBS, "replacement-unlogged", "does not write to a replacement's partial parity log what it writes to the member's"),
    array(JOBS, "replacement-skips-unreadable", "leaves out of a replacement what the old member cannot read"),
    array(JOBS, "replacement-unflushed", "gives a replacement its slot before what was copied to it is durable"),
    array(JOBS, "promoted-as-whole", "takes a half-filled replacement for whole when the member that it replaces fails"),
    journaled(JOBS, "replacement-behind-journal", "writes what a journal has to members alone, and leaves their replacements as they are"),
    array(STALE, "beat-over-another", "beats over another host's heartbeat and goes on"),
    array(STALE, "beat-of-own-host-ignored", "takes another process of its host that uses the array for one that has ended"),
    array(STALE, "beat-not-waited-for", "starts an array that another host says it uses, without waiting for its next beat"),
    array(JOBS, "resync-leaves-replacement", "lets a resync leave a replacement different from the member that it replaces"),
    array(JOBS, "resync-without-missing-data", "passes over rows in a resync that lack a data block, and counts them as done"),
    array(JOBS, "scrub-forgets-flight", "has an interrupted check go on behind windows that had not ended"),
    array(JOBS, "parity-only-asks", "has a repair of parity only write data that the others say is wrong"),
    array(DAMAGE, "unread-as-free", "takes a device whose superblock cannot be read for one that belongs to no array"),
    array(DAMAGE, "unread-left-out", "starts without a member whose superblock cannot be read, and says nothing"),
    array(DAMAGE, "bad-list-as-empty", "takes a list of bad blocks that cannot be read for an empty one"),
    array(DAMAGE, "lost-bitmap-as-clear", "starts without a resync when no bitmap can be read"),
    array(SIZES, "position-before-data", "records that a window of a reshape has moved before it has"),
    array(SIZES, "moved-unflushed", "records that a window of a reshape has moved while that is in caches"),
    array(SIZES, "window-not-locked", "lets clients write to a window of a reshape while it moves"),
    array(SIZES, "moved-parts-unlocked", "lets clients write to what a reshape has moved and not recorded"),
    array(SIZES, "border-stays", "goes on reading and writing where the data was before a window of a reshape has moved"),
    array(SIZES, "reshape-overtakes", "writes over what a reshape still needs"),
    array(SIZES, "cut-stripe-whole", "writes a stripe that the border of a reshape cuts in two as if all of it had its geometry"),
    array(SIZES, "new-chunk-unrecorded", "ends a reshape without saying so of the chunks"),
    array(SIZES, "new-layout-unrecorded", "takes another level over without saying so of the layout"),
    array(SIZES, "size-not-recorded", "uses more of the members without saying so in the superblocks"),
    array(SIZES, "grown-part-in-sync", "takes what is new of larger components for redundant"),
    growing(SIZES, "grown-part-not-in-bitmap", "gives a larger array a bitmap that does not say that what is new has to be resynced"),
    array(LIVENESS, "waiter-forgotten", "forgets to wake a request that waited for a range, now and then"),
    array(LIVENESS, "recovered-by-any-shard", "recovers what cannot be read on a shard that does not own the stripe"),
    array(LIVENESS, "buffer-leaked", "leaks a buffer for each read that needs redundancy"),
    stack(ERRORS, "array-too-degraded", "goes on as if nothing was with a member array that has lost too much"),
    stack(ERRORS, "lost-as-medium", "says of an array that has lost too much that single blocks cannot be read"),
    stack(FLUSH, "flush-of-too-degraded", "lets a flush of an array succeed that has lost too much"),
    volume(ORDER, "metadata-before-data", "commits metadata before the data that it names is durable"),
    volume(FLUSH, "kept-not-flushed", "flushes a brick without writing out the small writes that it keeps in memory"),
    volume(CACHE, "lease-outlives-change", "does not tell readers on other shards that a file changes"),
    volume(CACHE, "kept-not-read", "reads from a brick what small writes in memory have replaced"),
    volume(CACHE, "read-ahead-not-forgotten", "answers with what was read ahead before it was written over"),
    volume(ORDER, "early-reuse", "gives freed blocks away again before the commit that frees them"),
    volume(FLUSH, "fsync-without-data", "answers fsync and fdatasync without flushing the bricks"),
    volume(FLUSH, "fsync-without-commit", "answers fsync without waiting for the commit of what changed"),
    volume(CUTS, "cut-keeps-bytes", "does not take away what lies behind the new end of a file that is cut"),
    volume(CUTS, "tail-not-zeroed", "lets a file grow over what a cut left in its last sub-block"),
    volume(NAMES, "replaced-name-moves", "gives a name that a rename replaces another place in its directory"),
    volume(SPACE, "reservation-leaked", "keeps the reservation of a move that is not worth it"),
    volume(SPACE, "full-too-early", "says that a volume is full when an eighth of it is in use"),
    volume(JOBS, "move-unlocked", "moves a stripe without the lock that keeps writers away"),
    volume(STALE, "generation-without-holder", "goes on with the superblocks when no brick with the metadata takes them"),
    volume(STALE, "minority-goes-on", "goes on with the superblocks when one of three bricks with the metadata takes them"),
    volume(STALE, "minority-is-believed", "takes the metadata of one of three bricks for the newest"),
    volume(STALE, "returned-at-once", "calls a brick that is taken back away no more before it is as new as the others"),
    volume(STALE, "returned-in-one-step", "gives a brick that is taken back while mounted the generation of the others in one step"),
    calls(NAMES, "unnamed-forgotten", "does not note that a file made without a name is to be removed"),
    calls(NAMES, "unnamed-for-ever", "lets a file that was made without a name get one after it has lost its last"),
    calls(RIGHTS, "immutable-cut", "cuts a file that is immutable"),
    calls(RIGHTS, "default-list-stays", "gives the files made in a directory nothing of its default list"),
    calls(RIGHTS, "list-keeps-mode", "changes a mode and leaves the list that it is a part of"),
    calls(SPACE, "trimmed-while-given", "discards free space that a file may be given meanwhile"),
    calls(SPACE, "limit-ignored", "lets files of a project take more than its limit"),
    calls(SPACE, "use-forgets-removed", "counts a file that is removed on as one of its project"),
    calls(CHECKS, "check-blind-to-projects", "takes what projects are recorded to take for right"),
    copied(COPIES, "copy-not-written", "takes the copies of a stripe other than the first for written without writing them"),
    copied(COPIES, "copies-not-made-equal", "leaves copies that may differ after a crash as they are"),
    copied(COPIES, "two-copies-one-brick", "moves a copy of a stripe to a brick that has another"),
    copied(STALE, "stale-copy-read", "reads a copy that has missed a write"),
    copied(STALE, "missed-write-not-noted", "does not note that a copy has missed a write"),
    copied(STALE, "mark-not-made", "does not mark the copies of which a brick has lost what it had not made durable"),
    copied(STALE, "returned-taken-for-whole", "takes a brick that is back while the volume is mounted for one that has lost nothing"),
    volume(CHECKS, "agreeing-not-written", "gives what an array finds by its checksum and leaves what has rotten as it is"),
    copied(CHECKS, "mend-not-written", "reads another copy for one that has rotten, and leaves that as it is"),
    common(SNAPSHOTS, "common-freed", "frees what other files still have when a file lets it go"),
    common(SNAPSHOTS, "common-moved-for-one", "moves an extent for one of the files that have it"),
    snapshots(SNAPSHOTS, "names-not-saved", "does not save names for a snapshot before they change"),
    snapshots(SNAPSHOTS, "snapshot-written-over", "writes over what a snapshot has, too"),
    snapshots(SNAPSHOTS, "snapshot-freed", "frees what a snapshot still has when a file lets it go"),
    snapshots(SNAPSHOTS, "seen-copies-left-out", "makes no copies of what only snapshots have"),
    snapshots(SNAPSHOTS, "moved-version-not-noted", "leaves out what a job moves for a snapshot that is being removed"),
    snapshots(SNAPSHOTS, "last-listed-as-now", "lists the last entry of a page in a snapshot as it is now"),
    snapshots(SNAPSHOTS, "snapshot-in-doubt", "takes a snapshot before what a crash has left is put right"),
    snapshots(SNAPSHOTS, "snapshot-without-sums", "takes a snapshot before checksums of what was written are recorded"),
    volume(ORDER, "no-intent", "writes over blocks before it is noted that their checksums may be of before"),
    volume(CHECKS, "sums-not-read", "does not hold what a brick gives against the checksums"),
    volume(CHECKS, "check-blind-to-leaks", "does not report blocks in use that are no file's"),
    volume(CHECKS, "check-blind-to-links", "takes the number of names that a file says it has for right"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The names that the sources below `folder` ask for.
    fn asked(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                asked(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let names =
                    text.split("planted(\"").skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(names.map(str::to_string));
            }
        }
    }

    #[test]
    fn the_table_has_each_planted_bug_once_and_no_other() {
        let mut found = BTreeSet::new();
        for part in ["engine/array", "engine/volume", "runtime/device", "runtime/shard"] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            asked(&root.join(part).join("src"), &mut found);
        }
        let names: BTreeSet<String> = PLANTS.iter().map(|plant| plant.name.to_string()).collect();
        assert_eq!(names.len(), PLANTS.len());
        assert_eq!(names, found);
    }
}

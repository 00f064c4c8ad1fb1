//! Why creating, examining, assembling or changing an array was refused. Every message names what
//! was being done, to which member, and what to do next.

mod creating;

pub use creating::CreateError;

use crate::options::MemberSelector;
use crate::state::in_doubt::InDoubt;
use crate::status::JobKind;
use braid_device::{IoError, OpenError};
use braid_format::superblock::SuperblockError;
use braid_layout::{LayoutError, Level};

/// Why a member's superblock could not be examined.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExamineError {
    /// It did not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its superblock could not be read.
    #[error(
        "reading the superblock of {name} at byte {offset}: {error}; the device fails, try again or leave it out"
    )]
    Read {
        /// The member.
        name: String,
        /// Where.
        offset: u64,
        /// The device's error.
        error: IoError,
    },
    /// There is a superblock that cannot be used.
    #[error("{name}: {error}")]
    Superblock {
        /// The member.
        name: String,
        /// The defect.
        error: SuperblockError,
    },
}

/// Why an array was not assembled. No byte was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AssembleError {
    /// No member was given.
    #[error("assembling: no member was given; name the array's devices")]
    NoMember,
    /// A member could not be examined.
    #[error("assembling: {0}")]
    Examine(#[from] ExamineError),
    /// A member did not open on one of the shards.
    #[error("assembling: {0}")]
    Open(#[from] OpenError),
    /// A device is no member of any array.
    #[error(
        "assembling: {name} has no md superblock; leave it out, or `braid create` an array on it first"
    )]
    NoSuperblock {
        /// The device.
        name: String,
    },
    /// None of the members belongs to the array asked for.
    #[error("assembling: none of the members belongs to array {uuid}; they belong to: {found}")]
    NotThatArray {
        /// The array asked for.
        uuid: String,
        /// The arrays found, a line for each.
        found: String,
    },
    /// Members of several arrays.
    #[error(
        "assembling: the members belong to different arrays:\n{found}\ngive those of one array, or say which with --uuid"
    )]
    SeveralArrays {
        /// A line per array: its uuid, its name and its members.
        found: String,
    },
    /// Two devices claim to be the same member.
    #[error(
        "assembling: {first} and {second} are the same member ({what}): one is a copy of the other, or the same \
         device by another path; leave one out"
    )]
    SameMember {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// The identity that they share.
        what: String,
    },
    /// Members disagree about what the array is.
    #[error(
        "assembling: {name} disagrees with {other} about the array's {what}; its superblock is damaged or stale, leave it out"
    )]
    Disagree {
        /// The member that has other numbers.
        name: String,
        /// A member with the freshest superblock.
        other: String,
        /// Which number.
        what: &'static str,
    },
    /// A level that is not supported.
    #[error("assembling {array}: its level number is {level}, which braid does not run; use mdadm")]
    Level {
        /// The array.
        array: String,
        /// md's number.
        level: i32,
    },
    /// A feature that is not supported yet.
    #[error("assembling {array}: it {what}, which braid does not handle yet; use mdadm")]
    Unsupported {
        /// The array.
        array: String,
        /// The feature.
        what: String,
    },
    /// The numbers in the superblock describe no array.
    #[error("assembling {array}: {source}")]
    Layout {
        /// The array.
        array: String,
        /// The reason.
        source: LayoutError,
    },
    /// A member's component is smaller than the array needs.
    #[error(
        "assembling {array}: {name} has {have} bytes for data and {need} are needed; its superblock is damaged, leave it out"
    )]
    MemberTooSmall {
        /// The array.
        array: String,
        /// The member.
        name: String,
        /// Bytes it has.
        have: u64,
        /// Bytes needed.
        need: u64,
    },
    /// A member's blocks are larger than the array's layout allows.
    #[error(
        "assembling {array}: {name} has blocks of {block} bytes, and {what} of {bytes} bytes is no multiple of that; \
         use a device with smaller blocks"
    )]
    NotAligned {
        /// The array.
        array: String,
        /// The member.
        name: String,
        /// Its block in bytes.
        block: u32,
        /// The value that does not fit.
        what: &'static str,
        /// Its value.
        bytes: u64,
    },
    /// Members that were written while they took each other for lost.
    #[error(
        "assembling {array}: its members ran apart: each side lists the others as lost, so each may hold data that the \
         others lack, or be left from long ago. The superblocks do not say which: look at each alone \
         (braid serve --read-only), keep one and give the others up{sides}"
    )]
    RanApart {
        /// The array.
        array: String,
        /// The sides.
        sides: crate::state::apart::Sides,
    },
    /// Not enough members.
    #[error(
        "assembling {array}: {have} of {raid_disks} members are usable, and {level} cannot run with that; \
         {missing}{}\ngive the missing members too: braid assemble {given} MEMBER…{}",
        list(.left_out), offer(.by_force)
    )]
    NotEnough {
        /// The array.
        array: String,
        /// Usable members.
        have: usize,
        /// Slots.
        raid_disks: usize,
        /// The level.
        level: Level,
        /// The slots without a usable member, as a sentence: "slot 2 is missing".
        missing: Box<str>,
        /// Members that were given and cannot be used, with the reason.
        left_out: Vec<String>,
        /// Stale members with which it would start if they were taken by force, with what they lack.
        by_force: Box<[String]>,
        /// The members given, as text.
        given: Box<str>,
    },
    /// Degraded, and the caller did not want that.
    #[error(
        "assembling {array}: {missing}{}; give the missing members too, or allow a degraded start with --run",
        list(.left_out)
    )]
    Degraded {
        /// The array.
        array: String,
        /// The slots without a usable member, as a sentence: "slot 2 is missing".
        missing: String,
        /// Members that were given and cannot be used, with the reason.
        left_out: Vec<String>,
    },
    /// Degraded and dirty, on a parity level.
    #[error(
        "assembling {array}: it was not stopped cleanly and {missing}{}; parity may not match \
         what was being written at that moment, so blocks of the missing members near those writes may come back \
         wrong (the write hole); {in_doubt}. Give the missing members too, or accept that with --force: then checks \
         list those places until you say --accept-doubt",
        list(.left_out)
    )]
    DirtyDegraded {
        /// The array.
        array: String,
        /// The slots without a usable member, as a sentence: "slot 2 is missing".
        missing: String,
        /// Members that were given and cannot be used, with the reason.
        left_out: Vec<String>,
        /// The blocks that may come back wrong.
        in_doubt: Box<InDoubt>,
    },
    /// An array with this uuid runs already.
    #[error("assembling {array}: it is running already; stop it first")]
    Running {
        /// The array.
        array: String,
    },
    /// Another host uses it.
    #[error(
        "assembling {array}: {host} uses it, by its heartbeat on {name}; stop it there first (nothing was written)"
    )]
    UsedElsewhere {
        /// The array.
        array: String,
        /// The host, with the word.
        host: String,
        /// The member on which its heartbeat was seen.
        name: String,
    },
    /// Another host holds the reservation of a member's disk.
    #[error(
        "assembling {array}: {name} is reserved for another host, which no heartbeat of the array names; stop what uses it \
         there first (nothing was written). If nothing does any more, end the reservation (blkpr, sg_persist --clear, \
         nvme resv-acquire)"
    )]
    ReservedElsewhere {
        /// The array.
        array: String,
        /// The member.
        name: String,
    },
    /// A superblock was written by somebody else while this host asked for the array.
    #[error(
        "assembling {array}: another host has stopped it at this very moment and changed the superblock of {name}; \
         assemble it again"
    )]
    ChangedMeanwhile {
        /// The array.
        array: String,
        /// The member.
        name: String,
    },
    /// No member takes a heartbeat.
    #[error(
        "assembling {array}: none of its members takes a heartbeat (only members with superblocks of version 1.2 have a \
         place for one, unless something else stands before the superblock); serve it with --heartbeat off, and from \
         one host only"
    )]
    NoHeartbeat {
        /// The array.
        array: String,
    },
    /// The partial parity log or the journal could not be replayed.
    #[error(
        "assembling array {array}: replaying its {log}: {doing} {name}: {error}; check that device, or \
         assemble without it (nothing is lost: the log is replayed again from the start)"
    )]
    Replay {
        /// The array.
        array: String,
        /// `partial parity log` or `journal`.
        log: &'static str,
        /// The action that failed.
        doing: &'static str,
        /// The member.
        name: String,
        /// The member's error.
        error: IoError,
    },
    /// A superblock could not be written at the start, and the level cannot do without the member.
    #[error("assembling {array}: writing the superblocks: {why}; the array was not started")]
    Start {
        /// The array.
        array: String,
        /// The cause.
        why: String,
    },
}

/// The way on with stale members, where there is one.
fn offer(by_force: &[String]) -> String {
    match by_force {
        [] => String::new(),
        lines => format!(
            "\nor go on with members that it went on without, which lack what was written since: --force takes{}\ntry that with \
             --read-only --force first, which writes nothing",
            list(lines)
        ),
    }
}

fn list(left_out: &[String]) -> String {
    left_out.iter().map(|line| format!("\n  {line}")).collect()
}

/// Why a running array refused a command.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ControlError {
    /// The array is being stopped.
    #[error("{doing} on array {array}: it is being stopped")]
    Stopping {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
    },
    /// No such member.
    #[error("{doing}: array {array} has no member {selector}; it has: {known}")]
    NoSuchMember {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
        /// The selector given.
        selector: MemberSelector,
        /// Its members.
        known: String,
    },
    /// The level has no redundancy.
    #[error(
        "{doing} on array {array}: {level} has no redundancy, so there is nothing to do that with"
    )]
    NoRedundancy {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
        /// The level.
        level: Level,
    },
    /// The array would not survive without the member.
    #[error(
        "failing {member}: array {array} would lose data without it; add a spare and wait for its recovery first"
    )]
    LastRedundancy {
        /// The array.
        array: String,
        /// The member.
        member: String,
    },
    /// Nothing is written to a faulty member any more.
    #[error(
        "{doing} on array {array}: {member} is faulty; remove it, and give the flags when it is added again"
    )]
    FaultyMember {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
        /// The member.
        member: String,
    },
    /// The consistency policy cannot be changed as things are.
    #[error("{doing}: array {array}: {why}")]
    ConsistencyPolicy {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
        /// Why not, and what to do.
        why: String,
    },
    /// The bitmap cannot be added or removed as things are.
    #[error("{doing} on array {array}: {why}")]
    Bitmap {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A member cannot be replaced.
    #[error("array {array}: {member} cannot be replaced: {why}")]
    CannotReplace {
        /// The array.
        array: String,
        /// The member.
        member: String,
        /// The reason, and what to do.
        why: String,
    },
    /// The array cannot be given that size, or shape.
    #[error("{doing} on array {array}: {why}")]
    Shape {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
        /// Why not, and what would be possible.
        why: String,
    },
    /// Only faulty members and spares can be removed.
    #[error(
        "removing {member} from array {array}: it is in use ({state}); fail it first: braid fail {array} {member}"
    )]
    NotRemovable {
        /// The array.
        array: String,
        /// The member.
        member: String,
        /// Its current state.
        state: String,
    },
    /// Nothing may be written.
    #[error(
        "{doing} on array {array}: it is read-only; stop it, and assemble it without --read-only"
    )]
    ReadOnly {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
    },
    /// Too many members have failed.
    #[error(
        "{doing} on array {array}: too many of its members have failed; stop it and assemble it again from those that work"
    )]
    Failed {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
    },
    /// Another job is running.
    #[error(
        "starting a {asked} of array {array}: a {running} is running; wait for it or cancel it first"
    )]
    Busy {
        /// The array.
        array: String,
        /// The job that was refused.
        asked: JobKind,
        /// The job that is running.
        running: JobKind,
    },
    /// Nothing lies between where a check or repair would begin and end.
    #[error(
        "starting a {asked} of array {array}: nothing lies between byte {min} (sync_min, or where it goes on) and \
         {max} (sync_max); `braid set` changes both"
    )]
    NothingToScrub {
        /// The array.
        array: String,
        /// The job that was refused.
        asked: JobKind,
        /// The byte where it would begin.
        min: u64,
        /// The byte where it would end.
        max: u64,
    },
    /// A part of an array that ends where it begins, or before.
    #[error(
        "setting the part of array {array} that checks and repairs go through: sync_max, {max} bytes, must be above \
         sync_min, {min} bytes"
    )]
    SyncRange {
        /// The array.
        array: String,
        /// Where they would begin.
        min: u64,
        /// Where they would end.
        max: u64,
    },
    /// A new member could not be examined.
    #[error("adding to array {array}: {source}")]
    Examine {
        /// The array.
        array: String,
        /// The reason.
        source: ExamineError,
    },
    /// A new member did not open.
    #[error("adding to array {array}: {source}")]
    Open {
        /// The array.
        array: String,
        /// The reason.
        source: OpenError,
    },
    /// The new member is one already.
    #[error(
        "adding {member} to array {array}: it is a member already, as {other}; remove that one first"
    )]
    AlreadyMember {
        /// The array.
        array: String,
        /// The device.
        member: String,
        /// The member's name.
        other: String,
    },
    /// The new member belongs to another array.
    #[error(
        "adding {member} to array {array}: it is a member of array {other}; if its data is not needed any more, add it with --force"
    )]
    OtherArray {
        /// The array.
        array: String,
        /// The device.
        member: String,
        /// The array that it belongs to.
        other: String,
    },
    /// The new member is of a half that was written apart from this one.
    #[error(
        "adding {member} to array {array}: it ran apart from this array: it lists this array's members as lost \
         (its last update is number {events}, {updated}), and may hold data that is nowhere else; look at it alone \
         (braid serve --read-only {member}), and to give its data up: braid add {array} {member} --force"
    )]
    RanApart {
        /// The array.
        array: String,
        /// The device.
        member: String,
        /// Updates that its superblock has seen.
        events: u64,
        /// The time of the last one, as text.
        updated: String,
    },
    /// The command has taken effect, and is not in the superblocks of all members yet.
    #[error(
        "{doing} of array {array}: {member} is asked nothing any more, but that is not recorded yet: {} not answered; it is \
         recorded as soon as that is over. See `braid detail {array}`, and fail what does not answer where the array can \
         do without it",
        waits_for(.waits)
    )]
    NotRecorded {
        /// The command.
        doing: &'static str,
        /// The array.
        array: String,
        /// The member that the command is about.
        member: String,
        /// Members that have requests under way.
        waits: Vec<String>,
    },
    /// A former member cannot be brought up to date by the bitmap.
    #[error(
        "re-adding {member} to array {array}: {why}; add it as a spare: braid add {array} {member}"
    )]
    CannotReAdd {
        /// The array.
        array: String,
        /// The device.
        member: String,
        /// Why not.
        why: String,
    },
    /// The device has not completed what it was asked when it was a member before.
    #[error(
        "{doing} {member} of array {array}: {requests} requests that were given up are still under way in it, and what \
         they write would come after what is written now; try again when it has ended them, or use another device"
    )]
    UnderWay {
        /// The operation that was refused.
        doing: &'static str,
        /// The array.
        array: String,
        /// The device.
        member: String,
        /// Number of requests.
        requests: u32,
    },
    /// The new member is too small, or its blocks are too large.
    #[error("adding {member} to array {array}: {why}")]
    Unfit {
        /// The array.
        array: String,
        /// The device.
        member: String,
        /// The value that does not fit, and one that would.
        why: String,
    },
    /// A member could not be read or written.
    #[error("{doing} {member} of array {array}: {error}; check the device")]
    Io {
        /// The array.
        array: String,
        /// Doing what.
        doing: &'static str,
        /// The member.
        member: String,
        /// The device's error.
        error: IoError,
    },
    /// Settings that do not suit the array.
    #[error("array {array}: {why}")]
    Setting {
        /// The array.
        array: String,
        /// Why not.
        why: crate::settings::SettingError,
    },
    /// Settings that would move stripes under a job.
    #[error(
        "changing stripe_size or shards of array {array}: a {job} is running; wait for it (braid wait {array}), \
             then set it"
    )]
    SettingDuring {
        /// The array.
        array: String,
        /// The job.
        job: crate::status::JobKind,
    },
    /// A speed that cannot be.
    #[error(
        "setting the speed of background jobs of array {array}: {min} KiB/s at least and {max} at most cannot be; \
             give a maximum of at least 1 that is not below the minimum"
    )]
    Speed {
        /// The array.
        array: String,
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
}

/// `a and b have`, `a has`.
fn waits_for(members: &[String]) -> String {
    match members {
        [] => "another member has".to_string(),
        [one] => format!("{one} has"),
        many => format!("{} have", many.join(" and ")),
    }
}

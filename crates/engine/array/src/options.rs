//! The choices of the caller of `create` and `assemble`, and the means that it provides: shards, wall clock,
//! random numbers. The engine itself has no clock but its shard's and no randomness.

use crate::settings::Settings;
use crate::state::flags::MemberFlags;
use braid_format::heartbeat::Process;
use braid_format::superblock::Version;
use braid_layout::Level;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::sync::Arc;

/// Chunk of a new array in bytes when none is asked for: mdadm's.
pub const DEFAULT_CHUNK: u64 = 512 << 10;
/// An idle array is marked clean after this many milliseconds: md's.
pub const DEFAULT_SAFE_MODE_DELAY_MS: u64 = 200;

/// Where an array lives and what of the outside world it may use.
#[derive(Clone)]
pub struct Context {
    /// The home shard: number 0, the one that the caller runs on.
    pub shard: Shard,
    /// All shards in order, the home shard first.
    pub remotes: Vec<Remote>,
    /// Seconds since 1970, for the times in superblocks.
    pub wall_clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// 16 random bytes, for the uuids of arrays and members.
    pub new_uuid: Arc<dyn Fn() -> [u8; 16] + Send + Sync>,
    /// A process of this host has ended for certain, by the kernel's word; false where that cannot be told. Must not block.
    pub has_ended: Arc<dyn Fn(&Process) -> bool + Send + Sync>,
}

/// The choice of a write-intent bitmap for a new array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CreateBitmap {
    /// As mdadm decides: levels with redundancy whose components use more than 100 GiB get one.
    #[default]
    Default,
    /// None: after an unclean stop everything is resynced.
    None,
    /// One on each member.
    Internal {
        /// Bytes for each bit, a power of two; `None`: 64 MiB, or what fits.
        chunk: Option<u64>,
    },
}

/// The array to create. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// The array's name, without a host name.
    pub name: String,
    /// Put before the name with a colon, as mdadm does.
    pub homehost: Option<String>,
    /// The level.
    pub level: Level,
    /// md's layout number ([`braid_layout::layout_number`]); `None`: the level's default.
    pub layout: Option<u32>,
    /// Chunk; `None`: [`DEFAULT_CHUNK`] where the level has chunks.
    pub chunk_size: Option<u64>,
    /// Number of slots: the first so many members.
    pub raid_disks: usize,
    /// Number of spares: the members after those.
    pub spares: usize,
    /// Use only this much of each member; `None`: what the smallest has.
    pub size: Option<u64>,
    /// Start the data at this byte of each member; `None`: where mdadm would.
    pub data_offset: Option<u64>,
    /// The members hold matching redundancy already (or it does not matter): no first resync.
    pub assume_clean: bool,
    /// The write-intent bitmap.
    pub bitmap: CreateBitmap,
    /// Keep a partial parity log; level 5 only, and without a bitmap.
    pub ppl: bool,
    /// Keep a write journal on the last of the devices given, which comes after the spares; levels 4, 5 and 6 only, and
    /// without a bitmap or partial parity log.
    pub write_journal: bool,
    /// Give members a bad-block log where there is room for one, as mdadm does; never with version 0.90.
    pub bad_block_log: bool,
    /// Where the superblock stands.
    pub version: Version,
    /// Flags of the members, in their order; those beyond the end have none.
    pub flags: Vec<MemberFlags>,
}

impl CreateOptions {
    /// An array with defaults for everything but these.
    pub fn new(name: impl Into<String>, level: Level, raid_disks: usize) -> CreateOptions {
        CreateOptions {
            name: name.into(),
            homehost: None,
            level,
            layout: None,
            chunk_size: None,
            raid_disks,
            spares: 0,
            size: None,
            data_offset: None,
            assume_clean: false,
            bitmap: CreateBitmap::Default,
            ppl: false,
            write_journal: false,
            bad_block_log: true,
            version: Version::V1_2,
            flags: Vec::new(),
        }
    }
}

/// Limits of background jobs, in KiB per second and member, as md's `sync_speed_min` and
/// `sync_speed_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSpeed {
    /// Below this rate a job gives no way to foreground I/O.
    pub min_kib: u64,
    /// Never faster than this; `u64::MAX`: no limit.
    pub max_kib: u64,
}

impl Default for SyncSpeed {
    fn default() -> SyncSpeed {
        SyncSpeed { min_kib: 1000, max_kib: u64::MAX }
    }
}

/// The part of an array that checks and repairs go through: md's `sync_min` and `sync_max`, in bytes of each component,
/// of the array at levels 1 and 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncRange {
    /// They begin here.
    pub min: u64,
    /// They end here; `u64::MAX`: at the end.
    pub max: u64,
}

impl Default for SyncRange {
    fn default() -> SyncRange {
        SyncRange { min: 0, max: u64::MAX }
    }
}

/// A check or repair, whole or the rest of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    /// Correct what does not match: the member that is wrong where P and Q, or most copies, name one; else parity
    /// from data, and other copies from the first.
    pub repair: bool,
    /// A repair asks nobody who is wrong, as md's: parity is computed from the data, and copies are those of the first.
    pub parity_only: bool,
    /// Go on from this byte, as [`Scrubbed::position`](crate::status::Scrubbed::position) says it; 0: from the beginning.
    pub position: u64,
    /// Sectors that were found not to match below.
    pub mismatches: u64,
}

/// The time between two beats of an array's heartbeat unless another is asked for, in milliseconds.
pub const DEFAULT_HEARTBEAT_MS: u32 = 2000;

/// The host that the process runs on, as other hosts are told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its name; empty: not known.
    pub name: String,
    /// Identifies the running kernel; zeroes: not known.
    pub boot: [u8; 16],
    /// The own process; `None`: not known.
    pub process: Option<Process>,
    /// All members are locked against other processes under this kernel, so whoever used the array under it does not any more.
    pub locks: bool,
}

/// The options of an assembly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembleOptions {
    /// The name to run under; `None`: the one in the superblock, without its host name.
    pub name: Option<String>,
    /// Take the members of this array only; `None`: all members must belong to one array.
    pub uuid: Option<[u8; 16]>,
    /// Write no byte to any member.
    pub read_only: bool,
    /// Start a parity array that is both degraded and was not stopped cleanly: blocks that were being
    /// written when it stopped may come back wrong.
    pub force: bool,
    /// Take members that the array went on without, where it cannot start otherwise: what was written since is missing on them.
    pub take_stale: bool,
    /// Start although members are missing, as long as the level can do without them.
    pub start_degraded: bool,
    /// An idle array is marked clean after this many milliseconds.
    pub safe_mode_delay_ms: u64,
    /// Limits of background jobs.
    pub sync_speed: SyncSpeed,
    /// The part of the array that checks and repairs go through.
    pub sync_range: SyncRange,
    /// Milliseconds between two rounds of clearing bits of a bitmap; `None`: what the bitmap says.
    pub bitmap_daemon_sleep_ms: Option<u64>,
    /// Milliseconds between two beats by which other hosts see that the array is in use; `None`: there are none, and only
    /// those of others are looked at.
    pub heartbeat_ms: Option<u32>,
    /// With a heartbeat, members' disks that can are reserved for this host, so that they refuse the writes of any other.
    pub reservations: bool,
    /// Another process of this host has handed the array over to this one
    /// ([`Control::hand_over`](crate::control::Control::hand_over)): its heartbeat goes on, and with it its reservations.
    pub handed_over: bool,
    /// The host that uses it.
    pub host: Host,
    /// The owner that its heartbeat names; `None`: a new one.
    pub owner: Option<[u8; 16]>,
    /// The owner of a heartbeat of whom the caller knows for certain that he writes no more: his last beat is not waited for.
    pub ended: Option<[u8; 16]>,
    /// Settings of the write path.
    pub settings: Settings,
    /// Bytes that the array's caches may take at most: settings beyond are refused.
    pub memory_max: u64,
    /// Collect, sort and merge what goes to members, and what comes for one stripe. False only to see what
    /// that is worth.
    pub aggregate: bool,
}

impl Default for AssembleOptions {
    fn default() -> AssembleOptions {
        AssembleOptions {
            name: None,
            uuid: None,
            read_only: false,
            force: false,
            take_stale: false,
            start_degraded: true,
            safe_mode_delay_ms: DEFAULT_SAFE_MODE_DELAY_MS,
            sync_speed: SyncSpeed::default(),
            sync_range: SyncRange::default(),
            bitmap_daemon_sleep_ms: None,
            heartbeat_ms: None,
            reservations: true,
            handed_over: false,
            host: Host::default(),
            owner: None,
            ended: None,
            settings: Settings::default(),
            memory_max: u64::MAX,
            aggregate: true,
        }
    }
}

/// Which member of a running array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSelector {
    /// By its number in [`MemberStatus::nr`](crate::status::MemberStatus::nr).
    Nr(crate::state::view::MemberNr),
    /// By its name, as it was opened.
    Name(String),
}

impl std::fmt::Display for MemberSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemberSelector::Nr(nr) => write!(f, "number {nr}"),
            MemberSelector::Name(name) => f.write_str(name),
        }
    }
}

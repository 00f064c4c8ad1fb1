//! What may be typed: the verbs, their options and their help, in the words of mdadm.
//!
//! Owns the definitions only; what a verb does is in `commands`.

mod bench;
mod changes;
mod common;
mod figures;
mod hosts;
pub mod lease;
mod mdadm;
mod monitor;
pub mod nbd;
mod new_members;
pub mod nvme;
mod resume;
mod scrub;
mod service;
mod settings;
mod smart;
#[cfg(test)]
mod tests;
mod top;
pub mod ublk;
pub mod vhost;
pub mod volume;
pub mod web;

pub use bench::{Bench, Seconds, Way};
pub use changes::{Remove, Replace, SomeMembers};
pub use common::Control;
use common::EXIT_CODES;
pub use figures::{Iostat, Metrics, Stat};
pub use hosts::Hosts;
pub use lease::Lease;
pub use mdadm::verb_for;
pub use monitor::Monitor;
pub use new_members::NewMembers;
pub use resume::Resume;
pub use scrub::{Check, Repair, Scrub};
pub use service::{Completions, Config, ConfigCheck, Daemon, Incremental, Manual, Start};
pub use settings::{Get, Set, State};
pub use smart::Smart;
pub use top::Top;

use crate::settings::Assignment;
use crate::settings::group::SpareGroup;
use braid_control::array_name::ArrayName;
use braid_control::wanted::array::{BitmapPlace, ConsistencyPolicy, Shape};
use braid_control::wanted::size::{WantedSize, kib_or_size, wanted_size};
use braid_control::wanted::stack::StackPolicy;
use braid_format::superblock::Version;
use braid_layout::Level;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Software RAID in user space, served over NBD, on disk what Linux md writes.
#[derive(Debug, Parser)]
#[command(name = "braid", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    Create(Create),
    #[command(visible_alias = "assemble")]
    Serve(Box<Serve>),
    Daemon(Daemon),
    Start(Start),
    Incremental(Incremental),
    /// Check the configuration.
    #[command(subcommand)]
    Config(Config),
    /// Show what the superblocks of members say.
    Examine(Examine),
    /// Show the state of a running array.
    Detail(Detail),
    /// One line for each array and volume that runs, in the colour of its state.
    Status(Status),
    /// Mark members of a running array as faulty; spares take over.
    Fail(SomeMembers),
    Member(Member),
    Remove(Remove),
    Replace(Replace),
    /// Add members as spares; they take over at once where one is missing. A member that was away is
    /// taken back as by re-add, where that can be.
    Add(Add),
    /// Take back a member that was away: what the bitmap says was written meanwhile is copied to it.
    ReAdd(SomeMembers),
    Grow(Grow),
    Check(Check),
    Repair(Repair),
    /// Wait until no resync, rebuild or check is running, and show its progress.
    Wait(Wait),
    /// Limit the speed of background jobs of a running array.
    Speed(Speed),
    Set(Set),
    /// Show the settings of a running array, and what auto means at the moment.
    Get(Get),
    Stat(Stat),
    Top(Top),
    Monitor(Box<Monitor>),
    Iostat(Iostat),
    Resume(Resume),
    /// Stop a running array: its members are marked clean, and read back to see that they are.
    Stop(Stop),
    Bench(Box<Bench>),
    /// Logical volumes of files over many bricks: create, mount, add and remove bricks, balance, proxy.
    #[command(subcommand)]
    Volume(volume::Verb),
    /// Print what completes this command line in a shell.
    Completions(Completions),
    /// Write the pages of the manual.
    #[command(hide = true)]
    Manual(Manual),
    /// Show all of it: an array of files, a file system, a lost member, a rebuild, every byte compared.
    Demo(Demo),
}

/// Make an array: write superblocks to its members.
#[derive(Debug, Args)]
#[command(
    long_about = "Make an array: write superblocks to its members.\n\n\
    First it shows what it found on each member, and refuses when there is anything (a file system, a \
    partition table, a member of another array) unless --force is given. The array is not running \
    afterwards: `braid serve` runs it. The first resync starts then; the array can be used at once.\n\n\
    A member may be an array itself: array:NAME is one that a running server has and no client uses. \
    That server makes the new array, runs it and exports it in place of those below it.",
    after_help = EXIT_CODES
)]
pub struct Create {
    /// The array's name: letters, digits and . _ -
    pub name: ArrayName,
    #[command(flatten)]
    pub members: NewMembers,
    #[command(flatten)]
    pub shape: Shape,
    /// Height of a line of the stripe cache, in bytes or with K, kept for every `braid serve`
    /// [default: auto]; `braid set` changes it.
    #[arg(long, value_name = "SIZE", value_parser = settings::stripe_size)]
    pub stripe_size: Option<Assignment>,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
    /// Check everything and show the result, write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Have the running server make it, run it and offer it to clients at once.
    #[arg(long)]
    pub start: bool,
    /// Accepted as mdadm does: braid asks no questions.
    #[arg(short = 'R', long, visible_alias = "yes")]
    pub run: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Assemble arrays from their members and serve them, in the foreground, until stopped.
#[derive(Debug, Args)]
#[command(
    long_about = "Assemble arrays from their members and serve them, in the foreground, until stopped.\n\n\
    The members are sorted into arrays by what their superblocks say, so those of several arrays may be \
    given in any order. Each array is exported under its name at every --nbd address, and may be a disk of virtual machines \
    (--vhost-user) or of this one (--ublk), a namespace of NVMe hosts (--nvme) or a file (--fuse). SIGTERM, SIGINT and \
    `braid stop` end it in order and say what the superblocks say then. Signals within two seconds are one.",
    after_help = EXIT_CODES
)]
pub struct Serve {
    /// The members of one or more arrays.
    #[arg(required_unless_present_any = ["take_over", "config", "scan"], value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Where NBD clients connect: unix:PATH or tcp:ADDR:PORT, or systemd for the sockets that a service manager passes
    /// (LISTEN_FDS). May be given several times.
    #[arg(
        long,
        required_unless_present_any = ["vhost_user", "ublk", "nvme", "fuse", "take_over", "config", "scan"],
        value_name = "ADDRESS"
    )]
    pub nbd: Vec<nbd::NbdPlace>,
    #[command(flatten)]
    pub nbd_limits: nbd::NbdLimits,
    #[command(flatten)]
    pub vhost: vhost::Vhost,
    #[command(flatten)]
    pub ublk: ublk::Ublk,
    #[command(flatten)]
    pub nvme: nvme::Nvme,
    /// Mount a tree at DIR, an empty directory: DIR/mdstat is what /proc/mdstat is for md, DIR/NAME/md has the attributes
    /// of an array as /sys/block/mdN/md has, and DIR/NAME/data is the array as a file.
    #[arg(long, value_name = "DIR")]
    pub fuse: Option<PathBuf>,
    /// Take over from the server that runs at the control socket, without an error for its clients: for an upgrade, or to
    /// change an option. Clients wait for less than a second; those of NBD stay connected. Without MEMBER the
    /// arguments of that server hold, and what is given here is added. When this server does not come up, the other goes on.
    #[arg(long, conflicts_with_all = ["create", "lease"])]
    pub take_over: bool,
    /// The configuration of `braid daemon`, which is this with --config.
    #[arg(long, value_name = "FILE", hide = true)]
    pub config: Option<PathBuf>,
    /// Start all arrays that the configuration of the running server wants, there; as `braid start --scan`.
    #[arg(short, long, conflicts_with_all = ["members", "take_over", "create", "read_only", "config"])]
    pub scan: bool,
    /// Go on in the background: the command ends when clients can connect. What the server says then is in a file beside
    /// the control socket, with the ending .log.
    #[arg(long, conflicts_with_all = ["take_over", "config"])]
    pub detach: bool,
    /// Number of threads that carry out requests [default: one for each core].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: Option<u16>,
    /// Write nothing to any member, and refuse writes of clients.
    #[arg(short = 'o', long, visible_alias = "readonly", conflicts_with_all = ["create", "lease"])]
    pub read_only: bool,
    /// Serve only the array with this UUID.
    #[arg(short, long, conflicts_with = "create")]
    pub uuid: Option<String>,
    /// Start even when members are missing that were there when the array was last written.
    #[arg(short = 'R', long)]
    pub run: bool,
    /// Start nothing when a member cannot be used or an array cannot be started. Otherwise the rest is served, and
    /// what is missing is looked for every few seconds.
    #[arg(long, conflicts_with = "read_only")]
    pub strict: bool,
    /// With --create: overwrite what is on the members. Otherwise: start an array that is degraded
    /// and was not stopped cleanly, although blocks written at that moment may come back wrong; and take members that
    /// an array went on without where it cannot start otherwise, as few as it needs, the newest first: what was written
    /// since is missing there. With --read-only that writes nothing: try it first.
    #[arg(short, long)]
    pub force: bool,
    /// First create the array NAME from the members, as `braid create` does: for ram: and model:
    /// members, which are gone when the process ends.
    #[arg(long, value_name = "NAME", conflicts_with = "lease")]
    pub create: Option<ArrayName>,
    /// When an array holds members of another: run that one too and export it instead. auto does so when
    /// one of its members was given, or when it was created on this machine; an array that is exported to
    /// another machine may hold arrays of that one.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        conflicts_with = "create"
    )]
    pub stack: StackPolicy,
    /// A setting for this run, before what is kept for the array. May be given several times;
    /// `braid set` changes what is kept.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<Assignment>,
    /// The arrays share their spares: one that an array does not need goes to another of the group that lacks a member.
    /// The same as --set spare_group=NAME.
    #[arg(long, value_name = "NAME")]
    pub spare_group: Option<SpareGroup>,
    #[command(flatten)]
    pub metrics: Metrics,
    #[command(flatten)]
    pub web: web::Web,
    /// The group, by name or number, whose users may look at this server by the control socket: `detail`, `status`, `top`,
    /// GET of its API. Its own user and root may change something.
    #[arg(long, value_name = "GROUP", value_parser = nbd::group)]
    pub control_group: Option<u32>,
    #[command(flatten)]
    pub hosts: Hosts,
    #[command(flatten)]
    pub lease: Lease,
    #[command(flatten)]
    pub smart: Smart,
    #[command(flatten)]
    pub state: State,
    #[command(flatten, next_help_heading = "With --create")]
    pub shape: ServeShape,
    #[command(flatten)]
    pub control: Control,
}

impl Serve {
    /// Something says where clients connect.
    pub fn has_door(&self) -> bool {
        self.config.is_some() || self.has_a_place()
    }

    /// An option says where clients connect.
    pub fn has_a_place(&self) -> bool {
        let others = !self.ublk.places().is_empty() || self.fuse.is_some();
        !self.nbd.is_empty()
            || !self.vhost.vhost_user.is_empty()
            || !self.nvme.nvme.is_empty()
            || others
    }

    /// The settings of the command line.
    pub fn asked(&self) -> Vec<Assignment> {
        let group = self
            .spare_group
            .as_ref()
            .map(|group| Assignment { name: "spare_group".to_string(), value: group.to_string() });
        self.settings.iter().cloned().chain(group).collect()
    }
}

/// The shape of an array that `serve --create` makes.
#[derive(Debug, Clone, Args)]
pub struct ServeShape {
    /// linear, 0, 1, 4, 5, 6 or 10.
    #[arg(short, long, requires = "create")]
    pub level: Option<Level>,
    /// Number of slots: the first so many members.
    #[arg(short = 'n', long, value_name = "N", requires = "create")]
    pub raid_devices: Option<usize>,
    /// Number of spares: the members after those.
    #[arg(short = 'x', long, value_name = "N", requires = "create")]
    pub spare_devices: Option<usize>,
    /// Chunk; a bare number is in KiB [default: 512K].
    #[arg(short, long, value_name = "SIZE", value_parser = kib_or_size, requires = "create")]
    pub chunk: Option<u64>,
    /// Layout, as for `braid create`.
    #[arg(short = 'p', long, value_name = "NAME", requires = "create")]
    pub layout: Option<String>,
    /// Skip the first resync: the members hold matching data, as new ram: members do.
    #[arg(long, requires = "create")]
    pub assume_clean: bool,
    /// A write-intent bitmap, as for `braid create`.
    #[arg(short, long, value_enum, value_name = "WHERE", requires = "create")]
    pub bitmap: Option<BitmapPlace>,
    /// Bytes for each bit of the bitmap; a bare number is in KiB.
    #[arg(long, value_name = "SIZE", value_parser = kib_or_size, requires = "create")]
    pub bitmap_chunk: Option<u64>,
}

impl From<ServeShape> for Shape {
    fn from(shape: ServeShape) -> Shape {
        Shape {
            level: shape.level,
            raid_devices: shape.raid_devices,
            spare_devices: shape.spare_devices.unwrap_or(0),
            chunk: shape.chunk,
            layout: shape.layout,
            metadata: Version::V1_2,
            recorded_name: None,
            homehost: None,
            size: None,
            data_offset: None,
            assume_clean: shape.assume_clean,
            bitmap: shape.bitmap,
            bitmap_chunk: shape.bitmap_chunk,
            consistency_policy: None,
            write_journal: None,
            force: false,
        }
    }
}

/// `braid examine`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Examine {
    /// Files or block devices; they may be in use.
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<PathBuf>,
    /// One ARRAY line for each array, as mdadm.conf has it.
    #[arg(short, long, conflicts_with_all = ["export", "json"])]
    pub brief: bool,
    /// As --brief.
    #[arg(short, long, conflicts_with_all = ["export", "json"])]
    pub scan: bool,
    /// With --brief: level, number of slots and devices too.
    #[arg(short, long)]
    pub verbose: bool,
    /// MD_* variables, one a line.
    #[arg(short = 'Y', long, conflicts_with = "json")]
    pub export: bool,
    /// What each array would start with, who is stale and by how much, and what would have to be said for it. Writes nothing.
    #[arg(long, conflicts_with_all = ["brief", "scan", "export", "verbose"])]
    pub assemble: bool,
    /// The blocks that are recorded as bad on each member, in its sectors.
    #[arg(long, alias = "examine-badblocks", conflicts_with_all = ["assemble", "brief", "scan", "export", "json"])]
    pub badblocks: bool,
    /// The write-intent bitmap of each member, or of files that hold one, and how many bits are set.
    #[arg(
        short = 'X',
        long,
        alias = "examine-bitmap",
        conflicts_with_all = ["assemble", "badblocks", "brief", "scan", "export", "json"]
    )]
    pub bitmap: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// `braid detail`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Detail {
    /// The array: its name or UUID. Not needed when only one is running.
    pub name: Option<String>,
    /// Say with the exit code: 0 fine, 1 degraded, 2 not usable, 4 no such array or server.
    #[arg(short, long)]
    pub test: bool,
    /// Entries as /etc/braid/braid.toml has them: [[array]], and [[volume]] of mounted volumes. NAME may be a volume's.
    #[arg(long, conflicts_with_all = ["brief", "scan", "export", "json"])]
    pub toml: bool,
    /// An ARRAY line, as mdadm.conf has it.
    #[arg(short, long, conflicts_with_all = ["export", "json"])]
    pub brief: bool,
    /// As --brief.
    #[arg(short, long, conflicts_with_all = ["export", "json"])]
    pub scan: bool,
    /// With --brief: level, number of slots and devices too.
    #[arg(short, long)]
    pub verbose: bool,
    /// MD_* variables, one a line.
    #[arg(short = 'Y', long, conflicts_with = "json")]
    pub export: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid status`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Status {
    /// Say with the exit code how the worst of them is: 0 good, 1 degraded, 2 not usable.
    #[arg(short, long)]
    pub test: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid add`.
#[derive(Debug, Args)]
pub struct Add {
    /// The array: its name or UUID.
    pub name: String,
    /// The new members.
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Add one device, as the write journal of an array that has lost its own, or of one without.
    #[arg(long, conflicts_with_all = ["write_mostly", "failfast"])]
    pub journal: bool,
    /// Overwrite what is on them.
    #[arg(short, long)]
    pub force: bool,
    /// Level 1: read it only where there is no other. It is kept in its superblock.
    #[arg(short = 'W', long)]
    pub write_mostly: bool,
    /// Levels 1 and 10: its first error fails it, unless it is the last that has the data. It is kept in its
    /// superblock.
    #[arg(long)]
    pub failfast: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Set or clear flags of a member: write-mostly, failfast.
#[derive(Debug, Args)]
#[command(
    long_about = "Set or clear flags of a member of a running array. They are kept in its superblock, where Linux \
    md finds them too: they are writemostly and failfast of its state there."
)]
#[group(id = "flags", required = true, multiple = true, args = ["write_mostly", "failfast"])]
pub struct Member {
    /// The array: its name or UUID.
    pub name: String,
    /// The member: its path, the name that `braid detail` shows, or its number there.
    pub member: String,
    /// Level 1: read it only where there is no other.
    #[arg(short = 'W', long, value_enum, value_name = "WHETHER")]
    pub write_mostly: Option<Whether>,
    /// Levels 1 and 10: its first error fails it, unless it is the last that has the data.
    #[arg(long, value_enum, value_name = "WHETHER")]
    pub failfast: Option<Whether>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// A flag is to be set, or cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Whether {
    /// Set it.
    On,
    /// Clear it.
    Off,
}

/// Change a running array: give it more members, use more of each, give it a write-intent bitmap or a partial parity
/// log, or take that away.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("change").required(true).multiple(true).args([
        "raid_devices", "chunk", "layout", "level", "bitmap", "consistency_policy", "size", "array_size"
    ])),
    group(ArgGroup::new("one").args(["bitmap", "consistency_policy", "size", "array_size"])),
    long_about = "Change a running array, as mdadm --grow does: one thing at a time.\n\n\
    --raid-devices, --chunk and --layout, together or by themselves, give an array of level 4, 5 or 6 another shape: all data is moved to a place a little before the old \
    one, or behind it, window by window, while the array is used. It goes on after a crash, and in the hands of Linux md. More \
    members get the slots of spares, and clients see the larger array when it is done (those of NBD when they connect again). With fewer, users have to see less of \
    it first (--array-size), and those that lose their slots are spares when it is done. Fewer members, and the others \
    where there is no room before the data, need some room behind it (--size).\n\n\
    --level changes the level without moving anything, as far as that can be: 0 to 4, 5, 6 or 10 and back, 4, 5 and 6 to each other, \
    and 1 of two members to 5 and back. From 10 to 0 one member of each two leaves the array, from 4, 5 and 6 to 0 those with parity, and with them a bitmap and \
    spares; where parity is on all members, it is moved to the last ones before. New slots are for spares, which are rebuilt; without any the array is degraded. \
    Level 6 is left with Q on its last member, and level 0 leads to parity there: --layout moves the data afterwards, and \
    goes before the way back.\n\n\
    --size uses more of each member, when they have been replaced by larger ones or their devices have become \
    larger: at levels 1, 4, 5, 6 and 10 without far copies. The array is larger at once; what is new is resynced, and \
    clients see it, those of NBD when they connect again. Less is refused unless users see less of the array already.\n\n\
    --array-size shows users less of the array, until it is stopped: what is done first when components are to become \
    smaller. Nobody may have it open then.\n\n\
    --bitmap gives it a write-intent bitmap, or takes it away, and --consistency-policy also a partial parity log. With a bitmap an unclean stop, or a member's absence, costs only what was being written. It is put where the \
    members have room for it; what was being written when it came is not known, so that all bits are set at first. \
    Without one everything is resynced after an unclean stop. With a partial parity log (level 5, instead of a bitmap) \
    nothing is, and nothing is lost beside what was being written, also when a member is missing then; small writes \
    cost more. A resync or recovery has to be waited for."
)]
pub struct Grow {
    /// The array: its name or UUID.
    pub name: String,
    /// internal gives it one, none takes it away.
    #[arg(short, long, value_enum, value_name = "WHERE")]
    pub bitmap: Option<BitmapPlace>,
    /// Bytes for each bit of the bitmap; a bare number is in KiB [default: 64M, or what fits].
    #[arg(long, value_name = "SIZE", value_parser = kib_or_size)]
    pub bitmap_chunk: Option<u64>,
    /// Number of slots: more than there are, the new ones for spares, or fewer.
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "one")]
    pub raid_devices: Option<usize>,
    /// Bytes of a chunk; a bare number is in KiB.
    #[arg(short, long, value_name = "SIZE", value_parser = kib_or_size, conflicts_with = "one")]
    pub chunk: Option<u64>,
    /// Layout, as for `braid create`, or normalise: no member for Q alone; with --level also preserve: nothing is moved.
    #[arg(short = 'p', long, value_name = "NAME", conflicts_with = "one")]
    pub layout: Option<String>,
    /// Level 0, 1, 4, 5, 6 or 10; with what else is wanted, in as many steps as it takes.
    #[arg(short, long, conflicts_with = "one")]
    pub level: Option<Level>,
    /// Accepted as mdadm does: braid needs no backup file, and writes none.
    #[arg(long, value_name = "FILE")]
    pub backup_file: Option<PathBuf>,
    /// What is used of each component: max is all that the smallest has; a bare number is in KiB.
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = wanted_size)]
    pub size: Option<WantedSize>,
    /// What users see of the array, until it is stopped: max is all that there is; a bare number is in KiB.
    #[arg(short = 'Z', long, value_name = "SIZE", value_parser = wanted_size)]
    pub array_size: Option<WantedSize>,
    /// Check everything and say what would be, change nothing. For sizes and shapes.
    #[arg(long, conflicts_with_all = ["bitmap", "consistency_policy"])]
    pub dry_run: bool,
    /// resync takes a bitmap or a log away; bitmap is --bitmap internal; ppl gives it a partial parity log.
    #[arg(short = 'k', long, value_enum, value_name = "POLICY")]
    pub consistency_policy: Option<ConsistencyPolicy>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid wait`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Wait {
    /// The array: its name or UUID. Not needed when only one is running.
    pub name: Option<String>,
    /// Say with the exit code whether the array is whole afterwards, as `braid detail --test`.
    #[arg(short, long)]
    pub test: bool,
    /// Answer in JSON; progress is a line of JSON each.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid speed`.
#[derive(Debug, Args)]
pub struct Speed {
    /// The array: its name or UUID. Not needed when only one is running.
    pub name: Option<String>,
    /// Below this rate jobs give no way to clients: KiB per second and member, as md's sync_speed_min.
    #[arg(long, value_name = "KIB")]
    pub min: Option<u64>,
    /// Jobs are never faster: KiB per second and member, as md's sync_speed_max; "none" for no limit.
    #[arg(long, value_name = "KIB", value_parser = limit)]
    pub max: Option<u64>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid stop`.
#[derive(Debug, Args)]
pub struct Stop {
    /// The array: its name or UUID. Not needed when only one is running.
    pub name: Option<String>,
    /// Stop all arrays of this server. It ends with its last array.
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
    /// Cut off the clients that still use it, rather than refuse and name them.
    #[arg(long)]
    pub force: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Where the members are made [default: the system's folder for temporary files].
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
    /// About how much data to copy in, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=4096))]
    pub data: u64,
    /// Do without mounting: copy one large file with an NBD client, as where not root.
    #[arg(long)]
    pub no_mount: bool,
}

fn limit(text: &str) -> Result<u64, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| format!("{text:?} is neither a number of KiB per second nor \"none\""))
}

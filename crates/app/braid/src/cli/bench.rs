//! The options of `braid bench`.

use braid_control::wanted::size::kib_or_size;
use braid_device::spec::{MemberSpec, parse_size};
use braid_layout::Level;
use braid_load::Pattern;
use clap::{Args, ValueEnum};

/// Measure an array against its bare members, in this process or over NBD.
#[derive(Debug, Args)]
#[command(
    long_about = "Measure an array against its bare members, in this process or over NBD.\n\n\
    An array is made of the members, which lose what they hold; the load runs on it and, in turn in the \
    same run, on its members by themselves (raw), on a loop that only copies and computes parity (bare; \
    members in memory) and on one plain device in memory. The quotients are printed first: they mean \
    something on other machines, the absolute rates do not."
)]
pub struct Bench {
    /// linear, 0, 1, 4, 5, 6 or 10.
    #[arg(short, long, default_value = "5")]
    pub level: Level,
    /// Number of members, when one --member stands for all.
    #[arg(short = 'n', long, value_name = "N")]
    pub raid_devices: Option<usize>,
    /// A member, or the pattern for all of them.
    #[arg(short, long = "member", value_name = "MEMBER", default_value = "ram:256M")]
    pub members: Vec<MemberSpec>,
    /// Chunk; a bare number is in KiB.
    #[arg(short, long, value_name = "SIZE", value_parser = kib_or_size, default_value = "64K")]
    pub chunk: u64,
    /// A write-intent bitmap, all bits clear at the start.
    #[arg(long)]
    pub bitmap: bool,
    /// A partial parity log.
    #[arg(long, conflicts_with = "bitmap")]
    pub ppl: bool,
    /// Bytes for each bit of the bitmap; a bare number is in KiB.
    #[arg(long, value_name = "SIZE", value_parser = kib_or_size, requires = "bitmap")]
    pub bitmap_chunk: Option<u64>,
    /// Layout, as for `braid create`.
    #[arg(short = 'p', long, value_name = "NAME")]
    pub layout: Option<String>,
    /// read, write, randread, randwrite, rw:N or randrw:N with N percent reads. May be given several
    /// times [default: read and write of 1M, randread and randwrite of 4K].
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Vec<Pattern>,
    /// Size of a request. May be given several times [default: 64K].
    #[arg(short, long, value_name = "SIZE", value_parser = size)]
    pub block: Vec<u64>,
    /// Requests in flight, over all shards.
    #[arg(short, long, default_value_t = 32)]
    pub depth: u32,
    /// Threads of the engine.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub shards: u16,
    /// Members failed before the load starts.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub failed: usize,
    /// Seconds that each contender runs in all rounds together.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.5, conflicts_with_all = ["bytes", "requests"])]
    pub seconds: f64,
    /// Bytes that each contender moves, instead of seconds.
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "requests")]
    pub bytes: Option<u64>,
    /// Requests that each contender does, instead of seconds.
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// Rounds that the run is cut into, the contenders in turn.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub rounds: u64,
    /// Where the random offsets start from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Every write is on stable storage before it counts.
    #[arg(long)]
    pub fua: bool,
    /// A flush after so many writes; 0: none.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub flush_every: u32,
    /// The way to the array.
    #[arg(long, value_enum, default_value_t = Way::Engine)]
    pub over: Way,
    /// What seconds are seconds of.
    #[arg(long, value_enum, default_value_t = Seconds::Auto)]
    pub clock: Seconds,
    /// Note how long requests take.
    #[arg(long)]
    pub latency: bool,
    /// Measure the array only.
    #[arg(long)]
    pub alone: bool,
    /// Overwrite what is on the members.
    #[arg(short, long)]
    pub force: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// The way to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// None: the load runs on the array's shards.
    Engine,
    /// NBD on a unix socket in this process.
    Nbd,
}

/// What seconds are seconds of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Seconds {
    /// Processor time where nothing ever waits, else the wall clock.
    Auto,
    /// The wall clock.
    Wall,
    /// Processor time of the shards.
    Processor,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

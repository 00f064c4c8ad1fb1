//! What load is to be run: the words of `braid bench`, typed.
//!
//! Owns parsing and printing of patterns. Does not run anything.

use braid_array::options::CreateBitmap;
use braid_device::spec::{MemberSpec, show_size};
use braid_layout::{LayoutError, Level};
use std::fmt;
use std::str::FromStr;

/// Order and direction of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Reads one after the other.
    Read,
    /// Writes one after the other.
    Write,
    /// Reads anywhere.
    RandRead,
    /// Writes anywhere.
    RandWrite,
    /// Reads and writes anywhere: so many percent reads.
    RandMix(u8),
    /// Reads and writes one after the other: so many percent reads.
    Mix(u8),
}

impl Pattern {
    /// Percent of requests that read.
    pub fn reads(self) -> u8 {
        match self {
            Pattern::Read | Pattern::RandRead => 100,
            Pattern::Write | Pattern::RandWrite => 0,
            Pattern::RandMix(reads) | Pattern::Mix(reads) => reads.min(100),
        }
    }

    /// Offsets are random.
    pub fn random(self) -> bool {
        matches!(self, Pattern::RandRead | Pattern::RandWrite | Pattern::RandMix(_))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Read => f.pad("read"),
            Pattern::Write => f.pad("write"),
            Pattern::RandRead => f.pad("randread"),
            Pattern::RandWrite => f.pad("randwrite"),
            Pattern::RandMix(reads) => f.pad(&format!("randrw:{reads}")),
            Pattern::Mix(reads) => f.pad(&format!("rw:{reads}")),
        }
    }
}

/// A pattern that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "pattern {0:?} was not understood; give read, write, randread, randwrite, or rw:N or randrw:N for a \
     mix with N percent reads"
)]
pub struct PatternError(String);

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        let refused = || PatternError(text.to_owned());
        let percent = |number: &str| {
            number.parse::<u8>().ok().filter(|reads| *reads <= 100).ok_or_else(refused)
        };
        Ok(match text.split_once(':') {
            None => match text {
                "read" => Pattern::Read,
                "write" => Pattern::Write,
                "randread" => Pattern::RandRead,
                "randwrite" => Pattern::RandWrite,
                "rw" => Pattern::Mix(50),
                "randrw" => Pattern::RandMix(50),
                _ => return Err(refused()),
            },
            Some(("rw", reads)) => Pattern::Mix(percent(reads)?),
            Some(("randrw", reads)) => Pattern::RandMix(percent(reads)?),
            Some(_) => return Err(refused()),
        })
    }
}

/// How long each contender runs in all rounds together, the warm-up not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Seconds on the wall clock.
    Seconds(f64),
    /// Bytes of payload.
    Bytes(u64),
    /// Requests.
    Requests(u64),
}

/// The way from the generator to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// None: the generator runs on the array's shards.
    Engine,
    /// An NBD server on a unix socket in the same process; generators on shards of their own.
    Nbd,
}

/// What seconds are seconds of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Processor time where nothing ever waits (members in memory, one shard, no socket), else the
    /// wall clock.
    Auto,
    /// The wall clock.
    Wall,
    /// Processor time of the shards' threads: leaves out when the machine ran something else.
    Processor,
}

/// What is measured besides the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The members themselves through the same code.
    pub raw: bool,
    /// A loop that only copies and computes parity; for members in memory.
    pub bare: bool,
    /// One plain device in memory under the same load.
    pub device: bool,
}

/// A load on an array. Sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The array's level.
    pub level: Level,
    /// md's layout number; `None`: the level's default.
    pub layout: Option<u32>,
    /// Its members.
    pub members: Vec<MemberSpec>,
    /// Its chunk; ignored at level 1.
    pub chunk: u64,
    /// Its write-intent bitmap.
    pub bitmap: CreateBitmap,
    /// It keeps a partial parity log.
    pub ppl: bool,
    /// Members failed before the load starts.
    pub failed: usize,
    /// Size of a request.
    pub block: u64,
    /// Order and direction.
    pub pattern: Pattern,
    /// Requests in flight, over all shards.
    pub depth: u32,
    /// Threads of the engine, and generators.
    pub shards: u16,
    /// How long.
    pub length: Length,
    /// Rounds that it is cut into.
    pub rounds: usize,
    /// Where the random offsets start from.
    pub seed: u64,
    /// Every write is on stable storage at completion.
    pub fua: bool,
    /// A flush after so many writes of each generator; 0: none.
    pub flush_every: u32,
    /// Bytes of buffers that each generator uses in turn; at least a block per request in flight.
    pub payload: u64,
    /// The way to the array.
    pub over: Over,
    /// What seconds mean.
    pub clock: Clock,
    /// Note how long each request takes: two looks at the clock per request.
    pub latency: bool,
    /// What is measured in turn with the array.
    pub beside: Beside,
}

/// Buffers that do not fit a second-level cache.
pub const PAYLOAD: u64 = 8 << 20;

impl Options {
    /// A load of `pattern` in blocks of `block` bytes on `members`, with defaults for the rest.
    pub fn new(level: Level, members: Vec<MemberSpec>, pattern: Pattern, block: u64) -> Options {
        Options {
            level,
            layout: None,
            members,
            chunk: 64 << 10,
            bitmap: CreateBitmap::None,
            ppl: false,
            failed: 0,
            block,
            pattern,
            depth: 32,
            shards: 1,
            length: Length::Seconds(2.5),
            rounds: 5,
            seed: 1,
            fua: false,
            flush_every: 0,
            payload: PAYLOAD,
            over: Over::Engine,
            clock: Clock::Auto,
            latency: false,
            beside: Beside { raw: true, bare: true, device: true },
        }
    }

    /// All members are in memory and take no time of their own.
    pub fn in_memory(&self) -> bool {
        self.members.iter().all(|member| matches!(member, MemberSpec::Ram(_)))
    }

    /// [`Clock::Auto`] resolved: seconds are processor time.
    pub fn processor_time(&self) -> bool {
        match self.clock {
            Clock::Wall => false,
            Clock::Processor => true,
            Clock::Auto => self.in_memory() && self.shards == 1 && self.over == Over::Engine,
        }
    }

    /// Checks what no part of the run could give a better message for.
    ///
    /// # Errors
    /// [`OptionsError`] says which number to change.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.block == 0 || !self.block.is_multiple_of(512) || self.block > 1 << 30 {
            return Err(OptionsError::Block(self.block));
        }
        let shards = u32::from(self.shards);
        if shards == 0 || self.depth < shards || self.depth > 1 << 16 {
            return Err(OptionsError::Depth { depth: self.depth, shards: self.shards });
        }
        if self.members.len() < self.level.min_slots() {
            return Err(OptionsError::Members { level: self.level, given: self.members.len() });
        }
        let endless = match self.length {
            Length::Seconds(seconds) => !(seconds > 0.0 && seconds < 1e6),
            Length::Bytes(count) | Length::Requests(count) => count == 0,
        };
        if endless {
            return Err(OptionsError::Length);
        }
        Ok(())
    }

    /// The load in one line, for the head of a table.
    pub fn describe(&self) -> String {
        let mut text = format!(
            "{} {}, depth {}, on {} of {}",
            self.pattern,
            show_size(self.block),
            self.depth,
            self.level,
            members_text(&self.members),
        );
        if self.level != Level::Raid1 {
            text.push_str(&format!(", chunk {}", show_size(self.chunk)));
        }
        if let CreateBitmap::Internal { chunk } = self.bitmap {
            let chunk =
                chunk.map_or(String::new(), |bytes| format!(" of {} a bit", show_size(bytes)));
            text.push_str(&format!(", bitmap{chunk}"));
        }
        if self.ppl {
            text.push_str(", partial parity log");
        }
        text.push_str(&match self.shards {
            1 => ", 1 shard".to_owned(),
            n => format!(", {n} shards"),
        });
        if self.failed > 0 {
            text.push_str(&format!(", {} failed", self.failed));
        }
        if self.fua {
            text.push_str(", FUA");
        }
        if self.flush_every > 0 {
            text.push_str(&format!(", a flush every {} writes", self.flush_every));
        }
        if self.over == Over::Nbd {
            text.push_str(", over NBD");
        }
        text
    }
}

/// `5 × ram:256M`, or the members one by one when they differ.
pub fn members_text(members: &[MemberSpec]) -> String {
    match members.first() {
        Some(first) if members.len() > 1 && members.iter().all(|member| member == first) => {
            format!("{} × {first}", members.len())
        }
        Some(MemberSpec::Path(_)) => format!("{} files or devices", members.len()),
        _ => members.iter().map(MemberSpec::to_string).collect::<Vec<_>>().join(" "),
    }
}

/// Why a load cannot be run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OptionsError {
    /// A block that no device takes.
    #[error("a block of {0} bytes: give a multiple of 512, at most 1G")]
    Block(u64),
    /// Too few or too many requests in flight.
    #[error("depth {depth} on {shards} shards: give at least one request per shard, at most 65536")]
    Depth {
        /// Requests in flight.
        depth: u32,
        /// Shards.
        shards: u16,
    },
    /// Too few members.
    #[error("{given} members for {level}: it needs at least {}", level.min_slots())]
    Members {
        /// The level.
        level: Level,
        /// How many were given.
        given: usize,
    },
    /// No length.
    #[error("the length of the run is zero: give seconds, bytes or requests")]
    Length,
    /// The array is too small.
    #[error(
        "the array of {size} bytes is too small for {shards} shards with blocks of {block} bytes: give larger \
         members or smaller blocks"
    )]
    TooSmall {
        /// Bytes of the array or member.
        size: u64,
        /// Generators.
        shards: u16,
        /// Bytes of a block.
        block: u64,
    },
    /// The level does not survive it.
    #[error("{failed} failed members: {level} of {members} survives {tolerance}")]
    Failed {
        /// Members to fail.
        failed: usize,
        /// The level.
        level: Level,
        /// Members.
        members: usize,
        /// What it survives.
        tolerance: usize,
    },
    /// The numbers make no array.
    #[error("the array that the load is for: {0}")]
    Layout(#[from] LayoutError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_back_as_printed() {
        for text in ["read", "write", "randread", "randwrite", "rw:30", "randrw:100"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        assert_eq!("randrw".parse(), Ok(Pattern::RandMix(50)));
        for text in ["", "reads", "rw:101", "rw:", "randread:3"] {
            let error = text.parse::<Pattern>().unwrap_err().to_string();
            assert!(error.contains("randwrite"), "{error}");
        }
    }

    #[test]
    fn impossible_loads_are_refused_with_what_would_do() {
        let members = vec![MemberSpec::Ram(64 << 20); 5];
        let good = Options::new(Level::Raid5, members, Pattern::Write, 4096);
        assert_eq!(good.check(), Ok(()));
        for (bad, word) in [
            (Options { block: 100, ..good.clone() }, "multiple of 512"),
            (Options { depth: 1, shards: 2, ..good.clone() }, "one request per shard"),
            (Options { members: vec![MemberSpec::Ram(1)], ..good.clone() }, "at least"),
            (Options { length: Length::Seconds(f64::NAN), ..good.clone() }, "seconds"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}

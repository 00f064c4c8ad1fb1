//! The kinds of modelled devices, their parameters, and the notation for both.
//!
//! The numbers are those that data sheets and reviews give for a usual device of the kind, not those of
//! any product.

use crate::size::{SizeError, parse_size, show_size};
use braid_shard::Nanos;
use std::fmt;

const MICRO: Nanos = 1_000;
const MILLI: Nanos = 1_000_000;
const MEGABYTE: u64 = 1_000_000;

/// A usual device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A SATA SSD: 550 and 520 MB/s, 95,000 requests per second, NCQ 32.
    SataSsd,
    /// An NVMe SSD on four lanes of PCIe 3: 3.5 and 3 GB/s, 650,000 requests per second.
    Nvme,
    /// A disk with 7200 rpm: 180 MB/s, about 80 random requests per second.
    Hdd,
}

impl Kind {
    const ALL: [(&'static str, Kind); 3] =
        [("sata-ssd", Kind::SataSsd), ("nvme", Kind::Nvme), ("hdd", Kind::Hdd)];

    fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Its parameters.
    pub fn parameters(self) -> Parameters {
        match self {
            Kind::SataSsd => Parameters {
                read_rate: 550 * MEGABYTE,
                write_rate: 520 * MEGABYTE,
                read_latency: 80 * MICRO,
                write_latency: 30 * MICRO,
                cost: 10_500,
                depth: 32,
                ..Parameters::IDEAL
            },
            Kind::Nvme => Parameters {
                read_rate: 3_500 * MEGABYTE,
                write_rate: 3_000 * MEGABYTE,
                read_latency: 60 * MICRO,
                write_latency: 15 * MICRO,
                cost: 1_500,
                depth: 1024,
                ..Parameters::IDEAL
            },
            Kind::Hdd => Parameters {
                read_rate: 180 * MEGABYTE,
                write_rate: 180 * MEGABYTE,
                cost: 100 * MICRO,
                depth: 32,
                // One turn at 7200 rpm. A seek over a third of the disk takes 9.1 ms.
                seek: Some(Seek { shortest: MILLI, longest: 15 * MILLI, turn: 8_333_333 }),
                ..Parameters::IDEAL
            },
        }
    }
}

/// The parameters of a modelled device. Times in nanoseconds, rates in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Data rate of reads.
    pub read_rate: u64,
    /// Data rate of writes.
    pub write_rate: u64,
    /// Time from the transfer of the last byte to the completion of a read. Other requests are served meanwhile.
    pub read_latency: Nanos,
    /// The same for a write.
    pub write_latency: Nanos,
    /// Time of the controller for each request. It serves one request at a time.
    pub cost: Nanos,
    /// Queue depth: requests that the device works on at the same time. Further ones wait.
    pub depth: u32,
    /// Additional time of a flush, or of a write with FUA; other than 0 means that there is a volatile cache.
    pub flush: Nanos,
    /// The head's movement, for a disk.
    pub seek: Option<Seek>,
    /// With a seed, latencies vary by up to a quarter. It also decides the rotational delays of a disk.
    pub seed: Option<u64>,
}

impl Parameters {
    /// No limits at all, until options set some.
    const IDEAL: Parameters = Parameters {
        read_rate: u64::MAX,
        write_rate: u64::MAX,
        read_latency: 0,
        write_latency: 0,
        cost: 0,
        depth: 1024,
        flush: 0,
        seek: None,
        seed: None,
    };
}

/// The head's movement, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seek {
    /// Seek to the next track.
    pub shortest: Nanos,
    /// Seek from the first to the last byte.
    pub longest: Nanos,
    /// One revolution.
    pub turn: Nanos,
}

/// A modelled member was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A word is neither a kind nor a size.
    #[error(
        "there is no modelled kind {0:?}; there are sata-ssd, nvme, hdd, or give read=RATE,write=RATE,latency=TIME"
    )]
    UnknownKind(String),
    /// No option has this name.
    #[error(
        "there is no option {0:?}; there are read, write, latency, read-latency, write-latency, cost, depth, flush, seed"
    )]
    UnknownOption(String),
    /// The value is not one that the option accepts.
    #[error("{option}={value} was not understood; give {wanted}")]
    Value {
        /// The option.
        option: String,
        /// As written.
        value: String,
        /// The accepted values.
        wanted: &'static str,
    },
    /// A size was not understood.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// No size was given.
    #[error("the size is missing; give it as in model:nvme,1G")]
    NoSize,
    /// Neither a kind nor an option is given, so it would not differ from ram.
    #[error("neither a kind nor an option is given; name sata-ssd, nvme or hdd")]
    NoKind,
}

/// A modelled member as the user wrote it: the part after `model:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSpec {
    /// Bytes.
    pub size: u64,
    /// The kind, whose parameters apply unless an option overrides them.
    pub kind: Option<Kind>,
    options: Vec<(Name, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Read,
    Write,
    Latency,
    ReadLatency,
    WriteLatency,
    Cost,
    Depth,
    Flush,
    Seed,
}

const NAMES: [(&str, Name); 9] = [
    ("read", Name::Read),
    ("write", Name::Write),
    ("latency", Name::Latency),
    ("read-latency", Name::ReadLatency),
    ("write-latency", Name::WriteLatency),
    ("cost", Name::Cost),
    ("depth", Name::Depth),
    ("flush", Name::Flush),
    ("seed", Name::Seed),
];

impl ModelSpec {
    /// A device of `kind` with `size` bytes.
    pub fn new(kind: Kind, size: u64) -> ModelSpec {
        ModelSpec { size, kind: Some(kind), options: Vec::new() }
    }

    /// Parses the text that follows `model:`.
    ///
    /// # Errors
    /// When a part of it was not understood; the message names the part and the values that it may have.
    pub fn parse(text: &str) -> Result<ModelSpec, ModelError> {
        let (mut size, mut kind, mut options) = (None, None, Vec::new());
        for part in text.split(',') {
            if let Some((option, value)) = part.split_once('=') {
                let known = NAMES.iter().find(|(name, _)| *name == option);
                let Some((_, name)) = known else {
                    return Err(ModelError::UnknownOption(option.to_string()));
                };
                options.push((*name, name.parse(option, value)?));
            } else if let Some((_, known)) = Kind::ALL.iter().find(|(name, _)| *name == part) {
                kind = Some(*known);
            } else if part.starts_with(|first: char| first.is_ascii_digit()) {
                size = Some(parse_size(part)?);
            } else {
                return Err(ModelError::UnknownKind(part.to_string()));
            }
        }
        if kind.is_none() && options.is_empty() {
            return Err(ModelError::NoKind);
        }
        Ok(ModelSpec { size: size.ok_or(ModelError::NoSize)?, kind, options })
    }

    /// The parameters: those of the kind, overridden by the options in order.
    pub fn parameters(&self) -> Parameters {
        let mut all = self.kind.map_or(Parameters::IDEAL, Kind::parameters);
        for (name, value) in &self.options {
            let value = *value;
            match name {
                Name::Read => all.read_rate = value,
                Name::Write => all.write_rate = value,
                Name::Latency => (all.read_latency, all.write_latency) = (value, value),
                Name::ReadLatency => all.read_latency = value,
                Name::WriteLatency => all.write_latency = value,
                Name::Cost => all.cost = value,
                Name::Depth => all.depth = value as u32,
                Name::Flush => all.flush = value,
                Name::Seed => all.seed = Some(value),
            }
        }
        all
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.kind {
            write!(f, "{},", kind.name())?;
        }
        write!(f, "{}", show_size(self.size))?;
        for (name, value) in &self.options {
            let text = NAMES.iter().find(|(_, known)| known == name).map_or("", |(text, _)| text);
            write!(f, ",{text}={}", name.show(*value))?;
        }
        Ok(())
    }
}

impl Name {
    fn parse(self, option: &str, value: &str) -> Result<u64, ModelError> {
        let (parsed, wanted) = match self {
            Name::Read | Name::Write => {
                (parse_size(value).ok().filter(|rate| *rate > 0), "bytes per second, such as 500M")
            }
            Name::Latency | Name::ReadLatency | Name::WriteLatency | Name::Cost | Name::Flush => {
                (parse_time(value), "a time of at most an hour, such as 500ns, 50us, 2ms or 1s")
            }
            Name::Depth => (
                value.parse().ok().filter(|depth| (1..=65536).contains(depth)),
                "a number from 1 to 65536",
            ),
            Name::Seed => (value.parse().ok(), "a whole number"),
        };
        parsed.ok_or_else(|| ModelError::Value {
            option: option.to_string(),
            value: value.to_string(),
            wanted,
        })
    }

    fn show(self, value: u64) -> String {
        match self {
            Name::Read | Name::Write => show_size(value),
            Name::Latency | Name::ReadLatency | Name::WriteLatency | Name::Cost | Name::Flush => {
                show_time(value)
            }
            Name::Depth | Name::Seed => value.to_string(),
        }
    }
}

const TIMES: [(&str, Nanos); 4] = [("s", 1_000_000_000), ("ms", MILLI), ("us", MICRO), ("ns", 1)];
const TIME_MAX: Nanos = 3_600_000_000_000;

fn parse_time(text: &str) -> Option<Nanos> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, nanos) = TIMES.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*nanos).filter(|time| *time <= TIME_MAX)
}

fn show_time(time: Nanos) -> String {
    let (unit, nanos) =
        TIMES.iter().find(|(_, nanos)| time.is_multiple_of(*nanos)).unwrap_or(&("ns", 1));
    format!("{}{unit}", time / nanos)
}

//! Members as the user writes them: `ram:256M`, `model:sata-ssd,1G`, or a path.
//!
//! It does not look at the path; [`MemberSpec::prepare`] does.
//!
//! Invariant: what `Display` writes, [`MemberSpec::parse`] reads back as the same.

use crate::file::{FileMember, Mode};
use crate::model::{Model, ModelError, ModelSpec};
use crate::ram::Ram;
use crate::target::{OpenError, Opener};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// The kinds that a word before a colon may name.
const KINDS: &str =
    "ram:SIZE, model:KIND,SIZE, or a path (write ./NAME for a file whose name starts like a kind)";

/// Why a member was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing was given.
    #[error("an empty member; give {KINDS}")]
    Empty,
    /// The word before the colon is no kind.
    #[error("member {text:?}: there is no kind {kind:?}; give {KINDS}")]
    UnknownKind {
        /// The member as written.
        text: String,
        /// The word.
        kind: String,
    },
    /// A size was not understood.
    #[error(
        "size {0:?} was not understood; give a number with K, M, G, T or P, such as 256M (1M is 1024 × 1024 bytes; MiB says the same)"
    )]
    Size(String),
    /// A modelled device was not understood.
    #[error("modelled member: {0}")]
    Model(#[from] ModelError),
}

/// A member as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSpec {
    /// Memory of so many bytes; gone with the process.
    Ram(u64),
    /// Memory that takes as long as a disk would.
    Model(ModelSpec),
    /// A regular file or block device.
    Path(PathBuf),
}

impl MemberSpec {
    /// Understands `text`.
    ///
    /// # Errors
    /// Says which part was not understood and what may stand there.
    pub fn parse(text: &str) -> Result<MemberSpec, SpecError> {
        if text.is_empty() {
            return Err(SpecError::Empty);
        }
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| is_word(kind)) else {
            return Ok(MemberSpec::Path(PathBuf::from(text)));
        };
        match kind {
            "model" => Ok(MemberSpec::Model(ModelSpec::parse(rest)?)),
            "ram" => Ok(MemberSpec::Ram(parse_size(rest)?)),
            _ => Err(SpecError::UnknownKind { text: text.to_string(), kind: kind.to_string() }),
        }
    }

    /// Opens it for reading and writing, ready to make devices on any shard.
    ///
    /// # Errors
    /// When it is not there, is in use, or there is not enough memory.
    pub fn prepare(&self) -> Result<Arc<dyn Opener>, OpenError> {
        self.prepare_as(Mode::ReadWrite)
    }

    /// Opens it as `mode` says; for members in memory the mode has no meaning.
    ///
    /// # Errors
    /// When it is not there, is in use, or there is not enough memory.
    pub fn prepare_as(&self, mode: Mode) -> Result<Arc<dyn Opener>, OpenError> {
        Ok(match self {
            MemberSpec::Ram(size) => Arc::new(Ram::try_new(self.to_string(), *size)?),
            MemberSpec::Model(spec) => Arc::new(Model::new(spec)?),
            MemberSpec::Path(path) => Arc::new(FileMember::open(path, mode)?),
        })
    }
}

impl FromStr for MemberSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<MemberSpec, SpecError> {
        MemberSpec::parse(text)
    }
}

impl fmt::Display for MemberSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberSpec::Ram(size) => write!(f, "ram:{}", show_size(*size)),
            MemberSpec::Model(spec) => write!(f, "model:{spec}"),
            MemberSpec::Path(path) => path.display().fmt(f),
        }
    }
}

fn is_word(kind: &str) -> bool {
    !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Bytes in a size such as `4096`, `64K`, `256M`, `1GiB`. All units are powers of 1024.
///
/// # Errors
/// When it is not a whole number with such a unit, or does not fit 63 bits.
pub fn parse_size(text: &str) -> Result<u64, SpecError> {
    let refused = || SpecError::Size(text.to_string());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refused())?;
    let unit = unit.strip_suffix("iB").unwrap_or(unit);
    let shift = match unit {
        "" if text.len() == digits => 0,
        "B" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        "p" | "P" => 50,
        _ => return Err(refused()),
    };
    number.checked_mul(1 << shift).filter(|size| *size <= i64::MAX as u64).ok_or_else(refused)
}

/// A size as [`parse_size`] reads it, in the largest unit that loses nothing.
pub fn show_size(size: u64) -> String {
    for (shift, unit) in [(50, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')] {
        if size != 0 && size.trailing_zeros() >= shift {
            return format!("{}{unit}", size >> shift);
        }
    }
    size.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_read_back_as_the_same() {
        for text in [
            "ram:256M",
            "ram:4097",
            "model:sata-ssd,1G",
            "model:nvme,512M,seed=3",
            "model:hdd,2T,depth=1,flush=5ms",
            "model:1G,read=500M,write=400M,latency=50us",
            "model:1G,read-latency=1s,write-latency=1500us,cost=999ns",
            "/dev/sda",
            "./ram:1",
            "/dev/disk/by-path/pci-0000:00:1f.2",
        ] {
            let spec = MemberSpec::parse(text).unwrap();
            assert_eq!(spec.to_string(), text);
            assert_eq!(MemberSpec::parse(&spec.to_string()), Ok(spec));
        }
    }

    #[test]
    fn sizes_are_binary_however_they_are_written() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("1k", 1024),
            ("3MiB", 3 << 20),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in
            ["", "G", "1.5G", "1GB", "1iB", "-1", "1 G", "99999999P", "18446744073709551616"]
        {
            assert_eq!(parse_size(text), Err(SpecError::Size(text.to_string())), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_answered_with_what_there_is() {
        for (text, answer) in [
            ("", "ram:SIZE, model:KIND,SIZE, or a path"),
            ("rom:1G", "ram:SIZE, model:KIND,SIZE, or a path"),
            ("ram:lots", "such as 256M"),
            ("model:floppy,1G", "sata-ssd, nvme, hdd"),
            ("model:1G", "sata-ssd, nvme or hdd"),
            ("model:nvme", "the size is missing"),
            ("model:nvme,1G,speed=3", "read, write, latency"),
            ("model:nvme,1G,latency=3", "50us"),
            ("model:nvme,1G,depth=0", "from 1 to 65536"),
            ("model:nvme,1G,read=0", "bytes per second"),
        ] {
            let error = MemberSpec::parse(text).unwrap_err().to_string();
            assert!(error.contains(answer), "{text}: {error}");
        }
    }

    #[test]
    fn more_memory_than_there_can_be_is_an_error() {
        for text in ["ram:4000P", "model:nvme,4000P", "ram:0", "ram:4095"] {
            let refused = MemberSpec::parse(text).unwrap().prepare().err().unwrap();
            assert!(refused.to_string().starts_with(&format!("opening {text}: ")), "{refused}");
        }
    }
}

//! Members as the user writes them: `ram:256M`, `model:sata-ssd,1G`, or a path.
//!
//! Parsing does not access the path; [`MemberSpec::prepare`] does.
//!
//! Invariant: [`MemberSpec::parse`] of the text that `Display` writes gives an equal value.

use crate::file::{FileMember, Mode};
use crate::model::{Model, ModelError, ModelSpec};
use crate::ram::Ram;
use crate::size::SizeError;
use crate::target::{OpenError, Opener};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

pub use crate::size::{parse_size, show_size};

/// The kinds that a word before a colon may name.
const KINDS: &str =
    "ram:SIZE, model:KIND,SIZE, or a path (write ./NAME for a file whose name starts like a kind)";

/// A member was not understood.
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
    #[error(transparent)]
    Size(#[from] SizeError),
    /// A modelled device was not understood.
    #[error("modelled member: {0}")]
    Model(#[from] ModelError),
}

/// A member as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberSpec {
    /// Memory of so many bytes, which is lost when the process ends.
    Ram(u64),
    /// Memory that takes as long as a disk would.
    Model(ModelSpec),
    /// A regular file or block device.
    Path(PathBuf),
}

impl MemberSpec {
    /// Parses `text`.
    ///
    /// # Errors
    /// When a part of it was not understood; the message names the part and the values that it may have.
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

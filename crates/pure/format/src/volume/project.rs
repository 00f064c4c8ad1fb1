//! What a project takes, and its limits: 48 bytes. A project that has no files, no limits and no folder has no record.

use super::RecordError;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Stands for "no limit".
pub const UNLIMITED: u64 = u64::MAX;

/// A project's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProjectRecord {
    /// Blocks that its files may take; [`UNLIMITED`] for any number.
    pub blocks_max: u64,
    /// Files, directories and other inodes that it may have; [`UNLIMITED`] for any number.
    pub files_max: u64,
    /// Blocks that its files take.
    pub blocks: u64,
    /// Its files, directories and other inodes.
    pub files: u64,
    /// The directory that got the project when a limit was set for it; 0: it was given to files one by one.
    pub folder: u64,
    /// While what is below `folder` is being given to another project: the two.
    pub moving: Option<Moving>,
}

/// Files below a folder go from one project to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// Those that have this one go. It is 0 for files without a project.
    pub from: u32,
    /// To this one.
    pub to: u32,
}

impl Default for ProjectRecord {
    fn default() -> ProjectRecord {
        ProjectRecord {
            blocks_max: UNLIMITED,
            files_max: UNLIMITED,
            blocks: 0,
            files: 0,
            folder: 0,
            moving: None,
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    blocks_max: U64,
    files_max: U64,
    blocks: U64,
    files: U64,
    folder: U64,
    from: U32,
    to: U32,
}

const _: () = assert!(size_of::<Raw>() == 48);

impl ProjectRecord {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let Moving { from, to } = self.moving.unwrap_or(Moving { from: 0, to: 0 });
        let raw = Raw {
            blocks_max: self.blocks_max.into(),
            files_max: self.files_max.into(),
            blocks: self.blocks.into(),
            files: self.files.into(),
            folder: self.folder.into(),
            from: from.into(),
            to: to.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// Reads the record of project `id`.
    ///
    /// # Errors
    /// When its length is wrong.
    pub fn parse(id: u32, bytes: &[u8]) -> Result<ProjectRecord, RecordError> {
        let wrong = |why| RecordError::new(format!("project {id}"), why);
        let raw = Raw::read_from_bytes(bytes).map_err(|_| wrong("wrong length"))?;
        let moving = Moving { from: raw.from.get(), to: raw.to.get() };
        Ok(ProjectRecord {
            blocks_max: raw.blocks_max.get(),
            files_max: raw.files_max.get(),
            blocks: raw.blocks.get(),
            files: raw.files.get(),
            folder: raw.folder.get(),
            moving: (moving.from != moving.to).then_some(moving),
        })
    }

    /// It says nothing.
    pub fn is_empty(&self) -> bool {
        *self == ProjectRecord::default()
    }
}

//! The states of a brick, of its metadata region and of its volume, and their numbers on disk.

use std::fmt;

/// The use of a brick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrickState {
    /// It takes its share of new stripes.
    Data,
    /// It takes no new stripes; those that it has are being moved to the others.
    Removing,
    /// It takes new stripes first; a flush moves them to the others.
    Proxy,
    /// It holds metadata and no stripes.
    MetadataOnly,
}

impl BrickState {
    pub(super) fn of_number(number: u16) -> Option<BrickState> {
        Some(match number {
            1 => BrickState::Data,
            2 => BrickState::Removing,
            3 => BrickState::Proxy,
            4 => BrickState::MetadataOnly,
            _ => return None,
        })
    }

    pub(super) fn number(self) -> u16 {
        match self {
            BrickState::Data => 1,
            BrickState::Removing => 2,
            BrickState::Proxy => 3,
            BrickState::MetadataOnly => 4,
        }
    }
}

/// `data`, `removing`, `proxy` or `metadata-only`.
impl fmt::Display for BrickState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            BrickState::Data => "data",
            BrickState::Removing => "removing",
            BrickState::Proxy => "proxy",
            BrickState::MetadataOnly => "metadata-only",
        })
    }
}

/// The state of a metadata region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MetadataState {
    /// The region is not used (or there is none).
    #[default]
    Unused,
    /// It holds the metadata of its generation and takes every commit.
    InSync,
    /// It missed commits, or is still being filled: it must not be read.
    OutOfSync,
}

impl MetadataState {
    pub(super) fn of_number(number: u16) -> Option<MetadataState> {
        Some(match number {
            0 => MetadataState::Unused,
            1 => MetadataState::InSync,
            2 => MetadataState::OutOfSync,
            _ => return None,
        })
    }

    pub(super) fn number(self) -> u16 {
        match self {
            MetadataState::Unused => 0,
            MetadataState::InSync => 1,
            MetadataState::OutOfSync => 2,
        }
    }
}

/// The state in which the volume was left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VolumeState {
    /// It was unmounted cleanly, or never mounted.
    #[default]
    Clean,
    /// It is mounted, or was mounted at a crash.
    Mounted,
    /// The volume is being made, or this brick is being added to it: no part of a volume yet.
    Creating,
}

impl VolumeState {
    pub(super) fn of_number(number: u32) -> Option<VolumeState> {
        Some(match number {
            0 => VolumeState::Clean,
            1 => VolumeState::Mounted,
            2 => VolumeState::Creating,
            _ => return None,
        })
    }

    pub(super) fn number(self) -> u32 {
        match self {
            VolumeState::Clean => 0,
            VolumeState::Mounted => 1,
            VolumeState::Creating => 2,
        }
    }
}

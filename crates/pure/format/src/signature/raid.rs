//! Members of other arrays: md 1.x and 0.90, Intel IMSM, SNIA DDF.
//!
//! Source of the latter two: mdadm `super-intel.c` and `super-ddf.c`, SNIA's Common RAID DDF specification.

use super::areas::Device;
use super::found::{Signature, Text};
use crate::superblock::{READ_LEN, Superblock, SuperblockError, candidates};
use crate::{SECTOR, uuid_text};

pub(super) fn probe(device: &Device<'_>, found: &mut Vec<Signature>) {
    md(device, found);
    found.extend(imsm(device));
    found.extend(ddf(device));
}

const KIND: &str = "linux_raid_member";
const IMSM: &str = "isw_raid_member";
const DDF: &str = "ddf_raid_member";

/// A metadata format that is shared with firmware or a RAID controller. Its arrays live in a container of disks, and a
/// program outside the kernel (mdmon) must keep the metadata up to date while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// Intel Matrix Storage Manager (RST, VROC).
    Imsm,
    /// SNIA Disk Data Format.
    Ddf,
}

impl Container {
    /// The container that a signature of this kind belongs to.
    pub fn of_kind(kind: &str) -> Option<Container> {
        match kind {
            IMSM => Some(Container::Imsm),
            DDF => Some(Container::Ddf),
            _ => None,
        }
    }
}

/// The name in mdadm: `imsm` or `ddf`.
impl std::fmt::Display for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Container::Imsm => "imsm",
            Container::Ddf => "ddf",
        })
    }
}

/// A disk that belongs to a container and therefore cannot be used as a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}: its arrays are described by {container} metadata, which braid does not write and so must not touch; \
     assemble them with mdadm --assemble --scan (mdmon keeps the metadata), or copy the data off and create a new array"
)]
pub struct ContainerError {
    /// The container that it belongs to.
    pub container: Container,
    /// Description of the signature.
    pub what: String,
}

/// Refuses a disk that belongs to a container: `signatures` are what [`super::detect`] found on it. A disk that
/// also has an md superblock is refused too: one of the two is stale, and writing would ruin the other.
///
/// # Errors
/// The first container found.
pub fn refuse_container(signatures: &[Signature]) -> Result<(), ContainerError> {
    for signature in signatures {
        if let Some(container) = Container::of_kind(signature.kind) {
            return Err(ContainerError { container, what: signature.what.clone() });
        }
    }
    Ok(())
}

fn md(device: &Device<'_>, found: &mut Vec<Signature>) {
    let sectors = device.bytes / SECTOR as u64;
    for (version, sector) in candidates(sectors) {
        let at = sector * SECTOR as u64;
        let room = usize::try_from(device.bytes - at).unwrap_or(READ_LEN).min(READ_LEN);
        let Some(bytes) = device.areas.get(at, room) else { continue };
        let text = match Superblock::parse(bytes, version, sector, sectors) {
            Ok(sb) => {
                let text = Text::new(format!("member of an md array (metadata {version})"))
                    .named("name", sb.set_name.as_text().unwrap_or(&sb.set_name.escaped()));
                text.add(level(sb.level, sb.raid_disks))
                    .add(format!("uuid {}", uuid_text::format(&sb.set_uuid)))
            }
            Err(SuperblockError::NoMagic { .. } | SuperblockError::TooShort { .. }) => continue,
            Err(SuperblockError::ByteSwapped { .. }) => match big_endian(device, at) {
                Some(text) => text,
                None => continue,
            },
            Err(error) => {
                Text::new(format!("unusable md superblock (metadata {version}): {error}"))
            }
        };
        found.push(text.at(KIND, at, 4));
    }
}

fn level(level: i32, raid_disks: u32) -> String {
    match level {
        -1 => format!("linear of {raid_disks}"),
        level => format!("raid{level} of {raid_disks}"),
    }
}

/// A 0.90 superblock from a machine of the other byte order. It cannot be used, but its words are enough to name the array.
fn big_endian(device: &Device<'_>, at: u64) -> Option<Text> {
    let word = |index: u64| device.areas.u32_be(at + 4 * index);
    let uuid = format!("{:08x}:{:08x}:{:08x}:{:08x}", word(5)?, word(13)?, word(14)?, word(15)?);
    let text = Text::new("member of an md array (metadata 0.90, big-endian)");
    Some(text.add(level(word(7)?.cast_signed(), word(10)?)).add(format!("uuid {uuid}")))
}

/// Intel's anchor, in the last but one logical block.
fn imsm(device: &Device<'_>) -> Option<Signature> {
    const MAGIC: &[u8] = b"Intel Raid ISM Cfg Sig. ";
    [512u64, 4096].iter().find_map(|block| {
        let at = (device.bytes & !(block - 1)).checked_sub(2 * block)?;
        device.areas.has(at, MAGIC).then_some(())?;
        let version = device.areas.get(at + 24, 6)?;
        let version: String =
            version.iter().filter(|b| b.is_ascii_graphic()).map(|&b| char::from(b)).collect();
        let text = Text::new("member of an Intel Matrix Storage array").named("version", &version);
        Some(text.at(IMSM, at, MAGIC.len() as u64))
    })
}

/// The DDF anchor header in the last logical block.
fn ddf(device: &Device<'_>) -> Option<Signature> {
    [512u64, 4096].iter().find_map(|block| {
        let at = (device.bytes & !(block - 1)).checked_sub(*block)?;
        (device.areas.u32_be(at)? == 0xde11_de11).then_some(())?;
        // The GUID begins with the vendor's name.
        let vendor = String::from_utf8_lossy(device.areas.get(at + 8, 8)?);
        let text = Text::new("member of a DDF array").named("vendor", vendor.trim());
        Some(text.at(DDF, at, 4))
    })
}

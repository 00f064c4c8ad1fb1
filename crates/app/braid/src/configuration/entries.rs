//! The entries for an array, and for those who are told of events: in `braid.toml` and in `mdadm.conf`.

use crate::settings::group::SpareGroup;
use braid_format::superblock::{Name, Superblock};
use serde::Deserialize;
use std::path::PathBuf;

/// An array that is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArrayEntry {
    /// Its UUID.
    pub uuid: Option<[u8; 16]>,
    /// Its name, with a host's or without.
    pub name: Option<String>,
    /// Its members are looked for here, and not among `devices`.
    pub devices: Vec<String>,
    /// The group in which it shares its spares.
    pub spare_group: Option<SpareGroup>,
    /// The number of spares that it is to have.
    pub spares: Option<usize>,
    /// It is started.
    pub start: bool,
}

/// Those who are told of events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Monitor {
    /// Addresses that get a mail.
    #[serde(deserialize_with = "one_or_more")]
    pub mail: Vec<String>,
    /// The sender of it.
    pub mail_from: Option<String>,
    /// The program that sends it.
    pub sendmail: Option<PathBuf>,
    /// A program that is run with the event, the array and the member.
    pub program: Option<PathBuf>,
    /// URLs that get a POST of JSON.
    #[serde(deserialize_with = "one_or_more")]
    pub webhook: Vec<String>,
}

impl Monitor {
    /// Nobody is told.
    pub fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.program.is_none() && self.webhook.is_empty()
    }
}

impl ArrayEntry {
    /// It names the array of this superblock: all that it says of it is so.
    pub fn names(&self, superblock: &Superblock) -> bool {
        let by_uuid = self.uuid.is_none_or(|uuid| uuid == superblock.set_uuid);
        let by_name = self.name.as_deref().is_none_or(|name| is_called(&superblock.set_name, name));
        by_uuid && by_name && (self.uuid.is_some() || self.name.is_some())
    }
}

fn is_called(recorded: &Name, name: &str) -> bool {
    recorded.bytes() == name.as_bytes() || recorded.short() == name.as_bytes()
}

/// A text, or a list of texts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Words {
    One(String),
    More(Vec<String>),
}

/// A text, or a list of texts.
pub(super) fn one_or_more<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Vec<String>, D::Error> {
    Ok(match Words::deserialize(from)? {
        Words::One(one) => vec![one],
        Words::More(all) => all,
    })
}

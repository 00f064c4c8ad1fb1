//! A volume whose metadata is damaged: it is mounted, walked, changed, checked and repaired, and whatever comes of that
//! ends, with errors or without.
//!
//! An input is what is changed in the records of a sample volume: 16 bytes for each change, of which at most
//! [`CHANGES_MAX`] count; see [`Damage`].

mod doing;
mod uses;
mod world;

use super::target::{PLAIN, Target, Verdict};
use crate::mutate::{Field, le};
use braid_kv::Change;
use braid_kv::model::Snapshot;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// The volume.
pub const VOLUME: Target = Target {
    name: "volume",
    what: "volume with damaged metadata: mounted, used, checked, repaired",
    fields: FIELDS,
    run,
    memory: 1 << 30,
    peak: 256 << 20,
    slowness: 500,
    ..PLAIN
};

/// More changes leave nothing that would be accepted.
const CHANGES_MAX: usize = 6;
/// Bytes of a change.
const CHANGE: usize = 16;

const FIELDS: &[Field] = &[
    le(0, 2),
    le(2, 1),
    le(4, 4),
    le(8, 8),
    le(16, 2),
    le(18, 1),
    le(20, 4),
    le(24, 8),
    le(32, 2),
    le(34, 1),
    le(36, 4),
    le(40, 8),
];

thread_local! {
    /// The records of the sample volume, which are the same in every run.
    static SAMPLE: OnceCell<Snapshot> = const { OnceCell::new() };
}

/// One change.
struct Damage {
    /// Which record, counted from the first; all are counted around.
    record: usize,
    /// What becomes of it.
    how: u8,
    /// How many bytes.
    len: usize,
    /// Where in it.
    at: usize,
    /// What stands there then.
    value: u64,
}

impl Damage {
    fn of(bytes: &[u8; CHANGE]) -> Damage {
        let [r0, r1, how, len, a0, a1, a2, a3, v0, v1, v2, v3, v4, v5, v6, v7] = *bytes;
        Damage {
            record: usize::from(u16::from_le_bytes([r0, r1])),
            how,
            len: usize::from(len),
            // Of 32 bits.
            at: u32::from_le_bytes([a0, a1, a2, a3]) as usize,
            value: u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]),
        }
    }

    /// A key and its new value, after the changes that were made before.
    fn apply(
        &self,
        pairs: &[(&Vec<u8>, &Vec<u8>)],
        before: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Option<Change> {
        let (key, value) = *pairs.get(self.record % pairs.len().max(1))?;
        let changed = before.get(key).cloned().flatten();
        let (mut key, mut value) = (key.clone(), changed.unwrap_or_else(|| value.clone()));
        let at = self.at % value.len().max(1);
        let mut put = |len: usize| {
            let bytes = self.value.to_le_bytes();
            value.iter_mut().skip(at).zip(&bytes[..len]).for_each(|(byte, new)| *byte = *new);
        };
        match self.how % 10 {
            0 => return Some((key, None)),
            1 => value.truncate(at),
            // The lowest byte.
            2 => value.extend(std::iter::repeat_n(self.value as u8, self.len)),
            3 => value.clone_from(pairs.get(self.at % pairs.len())?.1),
            4 => {
                let alike: Vec<_> = pairs.iter().filter(|pair| pair.0[0] == key[0]).collect();
                value.clone_from(alike.get(self.at % alike.len())?.1);
            }
            5 => put(8),
            6 => put(4),
            7 => put(2),
            8 => put(1),
            // A record where none should be.
            _ => {
                let at = self.at % key.len();
                key[at] = self.value as u8;
                if pairs.iter().any(|pair| *pair.0 == key) {
                    return None;
                }
            }
        }
        Some((key, Some(value)))
    }
}

fn run(input: &[u8]) -> Result<Verdict, String> {
    let sample = SAMPLE.with(|sample| sample.get_or_init(world::sample).clone());
    let pairs: Vec<_> = sample.pairs().iter().collect();
    let (damages, _) = input.as_chunks::<CHANGE>();
    let mut changes = BTreeMap::new();
    for damage in damages.iter().take(CHANGES_MAX).map(Damage::of) {
        changes.extend(damage.apply(&pairs, &changes));
    }
    let keys: Vec<String> = changes.keys().map(|key| key.escape_ascii().to_string()).collect();
    let used = world::use_damaged(&sample, changes.into_iter().collect());
    match used {
        Ok(true) => Ok(Verdict::Accepted),
        Ok(false) => Ok(Verdict::Refused),
        Err(why) => Err(format!("{why}; damaged: {keys:?}")),
    }
}

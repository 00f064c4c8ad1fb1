//! The paths of a file.

use super::one::Halt;
use super::report::CheckReport;
use super::walk::Walk;
use braid_filesystem::{Ino, ROOT};
use braid_format::volume::entry::ByName;
use braid_format::volume::keys;
use braid_format::volume::snapshot::{file_of, snapshot_of};
use std::collections::{BTreeMap, BTreeSet};

/// Directories above a name, at most: a damaged tree may go round.
const DEPTH_MAX: usize = 4096;

impl Walk {
    /// Gives the files that have lost something their paths.
    pub(super) async fn name_lost(&self) -> Result<(), Halt> {
        let mut wanted: BTreeSet<Ino> = {
            let report = self.report.borrow();
            let named = report.lost.iter().chain(&report.rotten).chain(&report.mended);
            named.map(|lost| file_of(lost.ino)).collect()
        };
        if wanted.is_empty() {
            return Ok(());
        }
        let mut names: BTreeMap<Ino, (Ino, Vec<u8>)> = BTreeMap::new();
        // Each walk finds the names of one level more; most trees are not deep.
        for _ in 0..DEPTH_MAX {
            let mut found = Vec::new();
            let walked = self.each_pair((b"D".to_vec(), keys::after(b"D")), |key, value| {
                if let (Some(parent), Some(name), Ok(entry)) =
                    (keys::ino_of(key), keys::name_of(key), ByName::parse(value))
                    && wanted.contains(&entry.ino)
                {
                    found.push((entry.ino, parent, name.to_vec()));
                }
            });
            walked.await?;
            wanted = BTreeSet::new();
            for (ino, parent, name) in found {
                if parent != ROOT && !names.contains_key(&parent) {
                    wanted.insert(parent);
                }
                names.entry(ino).or_insert((parent, name));
            }
            if wanted.is_empty() {
                break;
            }
        }
        let mut report = self.report.borrow_mut();
        let CheckReport { lost, rotten, mended, .. } = &mut *report;
        for lost in lost.iter_mut().chain(rotten).chain(mended) {
            let path = path_of(&names, file_of(lost.ino));
            lost.path = match self.on.snapshots.get(snapshot_of(lost.ino)) {
                Some(snapshot) => format!("{path} in snapshot {}", snapshot.name),
                None => path,
            };
        }
        Ok(())
    }
}

fn path_of(names: &BTreeMap<Ino, (Ino, Vec<u8>)>, ino: Ino) -> String {
    let mut parts = Vec::new();
    let mut at = ino;
    while let Some((parent, name)) = names.get(&at).filter(|_| parts.len() < DEPTH_MAX) {
        parts.push(String::from_utf8_lossy(name).into_owned());
        at = *parent;
    }
    if parts.is_empty() {
        return format!("(file {ino}, which has no name)");
    }
    parts.reverse();
    format!("/{}", parts.join("/"))
}

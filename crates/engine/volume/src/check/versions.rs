//! Values that are saved for snapshots: which blocks their extents name, and that each is of a snapshot.

use super::one::Halt;
use super::walk::Walk;
use braid_format::volume::extent::{PER_GROUP, parse};
use braid_format::volume::keys;
use braid_format::volume::snapshot::Saved;

impl Walk {
    /// Names the blocks that snapshots have. In the `first` pass saved values are held against the snapshots that there are,
    /// too.
    pub(super) async fn name_versions(&self, first: bool) -> Result<(), Halt> {
        // Extents that files have let go are saved then.
        self.on.commits.sync_all().await?;
        let prefix = if first { &b"Z"[..] } else { keys::SAVED_EXTENTS };
        let (mut cursor, end) = (Some(prefix.to_vec()), keys::after(prefix));
        let mut strays = Vec::new();
        while let Some(start) = cursor.take() {
            let (pairs, next) = self.some_pairs(&start, &end).await?;
            for (key, value) in &pairs {
                let known = keys::saved_of(key).filter(|(of, _)| keys::is_saved(of));
                let Some((of, id)) = known.filter(|(_, id)| self.on.snapshots.get(*id).is_some())
                else {
                    strays.push(key.clone());
                    continue;
                };
                match Saved::parse(value) {
                    Ok(saved) => self.name_version(of, id, saved),
                    Err(error) if first => self.problem(false, error.to_string()),
                    Err(_) => {}
                }
            }
            cursor = next;
        }
        if first && !strays.is_empty() {
            let text = format!("{} saved values are of no snapshot that there is", strays.len());
            self.problem(true, text);
            for key in strays.into_iter().filter(|_| self.repair) {
                self.on.transactions.set(key, None);
            }
        }
        Ok(())
    }

    fn name_version(&self, of: &[u8], id: u32, saved: Saved) {
        let (Some(ino), Some(group), Some(value)) =
            (keys::ino_of(of), keys::second_of(of), saved.value())
        else {
            return;
        };
        if of.first() != Some(&b'P') {
            return;
        }
        let list = match parse(ino, group, self.on.geometry.stripe, &value) {
            Ok(list) => list,
            Err(error) => return self.problem(false, error.to_string()),
        };
        let mut walked = self.watch.extents.borrow_mut();
        for (extent, stripe) in list.iter().zip(group.saturating_mul(PER_GROUP)..) {
            if extent.is_hole() {
                continue;
            }
            if self.on.bricks.get(extent.brick).is_none() || self.on.extents.is_outside(extent) {
                let text = format!(
                    "stripe {stripe} of file {ino} in snapshot {id} is on no brick, or beyond its end"
                );
                self.problem(false, text);
                continue;
            }
            walked.bits.name_kept(extent);
        }
    }
}

//! Checksums and intents against the files that they belong to.

use super::one::Halt;
use super::walk::Walk;
use braid_format::volume::keys;

impl Walk {
    /// Checks that every record of checksums, and every intent, has a file.
    pub(super) async fn check_sums(&self) -> Result<(), Halt> {
        for like in [keys::sums(0, 0), keys::intent(0, 0)] {
            self.each_owner(&like[..1], async |key| self.check_owner(key).await).await?;
        }
        Ok(())
    }

    /// True: the file that the key belongs to exists, and so those of its other records do.
    async fn check_owner(&self, key: &[u8]) -> Result<bool, Halt> {
        let is_intent = key.starts_with(&keys::intent(0, 0)[..1]);
        if let Some(ino) = keys::ino_of(key) {
            // A new file has no record yet, but is in memory.
            let known = self.on.inodes.known(ino).is_some();
            if known || self.on.transactions.stored(&keys::inode(ino)).await?.is_some() {
                return Ok(true);
            }
            // It says which copies have lost something, also those that only snapshots have.
            if is_intent && self.on.transactions.is_kept(ino).await? {
                return Ok(true);
            }
        }
        // Meanwhile it may have gone, with its file.
        if self.on.transactions.stored(key).await?.is_some() {
            if is_intent && self.on.transactions.writable().is_err() {
                // The next mount that writes takes away what a crash has left.
                return Ok(false);
            }
            let what = if is_intent { "an intent" } else { "checksums" };
            let (ino, place) = (keys::ino_of(key), keys::second_of(key));
            let (ino, place) = (ino.unwrap_or_default(), place.unwrap_or_default());
            self.problem(true, format!("{what} of file {ino} at {place}: there is no such file"));
            if self.repair {
                self.on.transactions.set(key.to_vec(), None);
            }
        }
        Ok(false)
    }
}

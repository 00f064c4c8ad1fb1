//! Common extents: which stripes of files have them, and when nobody has one any more.
//!
//! An extent is common from the moment at which a second stripe gets it. Each stripe of which any version names it (the present one,
//! or one that a snapshot has) is an owner, and recorded as such. An owner leaves in the transaction in which its last version lets the extent
//! go. Whether it was the last is found out when that is durable, from what is recorded then: nobody can come to an extent
//! that has no owner.

use crate::record::Record;
use crate::transactions::{TransactionNr, Transactions};
use braid_filesystem::{Errno, Ino};
use braid_format::volume::RecordError;
use braid_format::volume::extent::Place;
use braid_format::volume::keys;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Records that are looked for at a time.
const AT_ONCE: usize = 256;

/// The value of a pair that says something by being there.
const PRESENT: [u8; 1] = [1];

/// A stripe of a file; its number has its copy.
pub type Owner = (Ino, u64);

/// A common extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Common {
    /// Its blocks: all owners that are there now have all of them.
    pub blocks: u16,
    /// Its owners, in their order.
    pub owners: Vec<Owner>,
}

/// The owners of common extents.
pub struct Owners {
    transactions: Rc<Transactions>,
    record: Rc<Record>,
    /// Extents that an owner has left, with the transaction that has that.
    left: RefCell<BTreeMap<Place, TransactionNr>>,
    looking: Cell<bool>,
}

impl Owners {
    pub(super) fn new(transactions: Rc<Transactions>, record: Rc<Record>) -> Owners {
        Owners { transactions, record, left: RefCell::default(), looking: Cell::new(false) }
    }

    /// The common extent that begins there.
    ///
    /// # Errors
    /// When the store fails, or a record is damaged.
    pub async fn of(&self, at: Place) -> Result<Option<Common>, Errno> {
        if !self.record.has_common() {
            return Ok(None);
        }
        let mut found: Option<Common> = None;
        let (mut cursor, end) = (Some(keys::common(at)), keys::after(&keys::common(at)));
        while let Some(from) = cursor.take() {
            let (pairs, next) = self.transactions.scanned(&from, &end, AT_ONCE).await?;
            for (key, value) in pairs {
                match (keys::owner_of(&key), &mut found) {
                    (Some((_, None)), found) => {
                        let blocks = keys::common_blocks(&value);
                        let blocks = blocks.ok_or_else(|| self.damaged(at))?;
                        *found = Some(Common { blocks, owners: Vec::new() });
                    }
                    (Some((_, Some(owner))), Some(found)) => found.owners.push(owner),
                    _ => return Err(self.damaged(at)),
                }
            }
            cursor = next;
        }
        Ok(found)
    }

    /// The first owner of the extent that begins there: jobs look at the extent where it is.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn first_of(&self, at: Place) -> Result<Option<Owner>, Errno> {
        if !self.record.has_common() {
            return Ok(None);
        }
        let (mut cursor, end) = (Some(keys::owner(at, (0, 0))), keys::after(&keys::common(at)));
        while let Some(from) = cursor.take() {
            let (pairs, next) = self.transactions.scanned(&from, &end, 1).await?;
            if let Some((key, _)) = pairs.first() {
                return Ok(keys::owner_of(key).and_then(|(_, owner)| owner));
            }
            cursor = next;
        }
        Ok(None)
    }

    /// A stripe is an owner of the extent that begins there.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn has(&self, at: Place, owner: Owner) -> Result<bool, Errno> {
        Ok(self.transactions.stored(&keys::owner(at, owner)).await?.is_some())
    }

    /// These stripes are owners of an extent of `blocks` blocks from now on.
    pub(super) fn add(&self, at: Place, blocks: u16, owners: [Owner; 2]) {
        self.record.note_common();
        self.transactions.set(keys::common(at), Some(keys::common_value(blocks)));
        for owner in owners {
            self.transactions.set(keys::owner(at, owner), Some(PRESENT.to_vec()));
        }
    }

    /// A stripe has the extent that begins there no more, in no version.
    pub(super) fn leave(&self, at: Place, owner: Owner) {
        self.transactions.set(keys::owner(at, owner), None);
        self.look_at(at);
    }

    /// It is to be found out whether the extent has owners left.
    pub fn look_at(&self, at: Place) {
        self.transactions.set(keys::left(at), Some(PRESENT.to_vec()));
        self.left.borrow_mut().insert(at, self.transactions.number());
    }

    /// An extent lies elsewhere now, with all its owners.
    pub(super) fn moved(&self, from: Place, common: &Common, to: Place) {
        self.transactions.set(keys::common(from), None);
        self.transactions.set(keys::common(to), Some(keys::common_value(common.blocks)));
        for owner in &common.owners {
            self.transactions.set(keys::owner(from, *owner), None);
            self.transactions.set(keys::owner(to, *owner), Some(PRESENT.to_vec()));
        }
        // The last of them may have left while it was being moved.
        self.look_at(to);
    }

    /// Finds the extents that an earlier life was to look at.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn find_left(&self) -> Result<(), Errno> {
        let (mut cursor, end) = (self.record.has_common().then(|| b"F".to_vec()), b"G".to_vec());
        while let Some(from) = cursor.take() {
            let (pairs, next) = self.transactions.scanned(&from, &end, AT_ONCE).await?;
            let places = pairs.iter().filter_map(|(key, _)| keys::left_of(key));
            self.left.borrow_mut().extend(places.map(|at| (at, 0)));
            cursor = next;
        }
        Ok(())
    }

    /// The common extent that begins there has no owner, and is not among those that are to be looked at.
    pub(super) async fn is_forgotten(&self, at: Place) -> Result<bool, Errno> {
        let common = self.of(at).await?;
        let is_known = self.left.borrow().contains_key(&at);
        Ok(!is_known && common.is_some_and(|common| common.owners.is_empty()))
    }

    /// Some extents that owners have left were not looked at yet.
    pub fn has_left(&self) -> bool {
        !self.left.borrow().is_empty()
    }

    /// Looks at the extents that owners have left for good, and calls `free` for those that have none any more: their place, and
    /// their blocks. It makes sure that they can be freed in one step, and is then called for that.
    pub(super) async fn look(
        &self,
        prepare: impl AsyncFn(Place, u16) -> Result<(), Errno>,
        free: impl Fn(Place, u16),
    ) -> Result<(), Errno> {
        if self.looking.replace(true) {
            return Ok(());
        }
        let looked = self.look_at_all(prepare, free).await;
        self.looking.set(false);
        looked
    }

    async fn look_at_all(
        &self,
        prepare: impl AsyncFn(Place, u16) -> Result<(), Errno>,
        free: impl Fn(Place, u16),
    ) -> Result<(), Errno> {
        let durable = self.transactions.durable();
        let due: Vec<(Place, TransactionNr)> = {
            let left = self.left.borrow();
            left.iter().filter(|(_, nr)| **nr <= durable).map(|(at, nr)| (*at, *nr)).collect()
        };
        for (at, number) in due {
            let common = self.of(at).await?;
            let gone = common.filter(|common| common.owners.is_empty());
            if let Some(gone) = &gone {
                prepare(at, gone.blocks).await?;
            }
            // Another may have left meanwhile, which is not durable yet.
            if self.left.borrow().get(&at) != Some(&number) {
                continue;
            }
            self.left.borrow_mut().remove(&at);
            self.transactions.set(keys::left(at), None);
            if let Some(gone) = gone {
                self.transactions.set(keys::common(at), None);
                free(at, gone.blocks);
            }
            self.transactions.room().await;
        }
        Ok(())
    }

    fn damaged(&self, (brick, start): Place) -> Errno {
        self.transactions.damaged(&RecordError::damaged_owners(brick, start))
    }
}

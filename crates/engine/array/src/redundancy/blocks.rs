//! Equal-height blocks of one stripe, by slot, and what can be computed from them.

use braid_layout::{Role, Slot, StripeMap};
use braid_shard::{Buf, Pool};
use smallvec::SmallVec;

type Sources<'a> = SmallVec<[&'a [u8]; 16]>;
type Syndrome<'a> = SmallVec<[Option<&'a [u8]>; 16]>;

/// More blocks of the stripe are missing than its parity makes up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyMissing;

/// The blocks that are at hand.
pub(crate) struct Blocks {
    map: StripeMap,
    /// Entries of the syndrome, gaps of the ddf layouts included.
    width: usize,
    by_slot: SmallVec<[Option<Buf>; 12]>,
}

impl Blocks {
    /// No block yet. `width` as by `Parity::q_width`.
    pub(crate) fn new(map: StripeMap, width: usize) -> Blocks {
        let mut by_slot = SmallVec::new();
        by_slot.resize_with(map.slots(), || None);
        Blocks { map, width, by_slot }
    }

    /// Puts a block in its place.
    pub(crate) fn set(&mut self, slot: Slot, block: Buf) {
        if let Some(place) = self.by_slot.get_mut(slot) {
            *place = Some(block);
        }
    }

    /// The block of `slot`, if at hand.
    pub(crate) fn get(&self, slot: Slot) -> Option<&Buf> {
        self.by_slot.get(slot).and_then(Option::as_ref)
    }

    fn data(&self, k: usize) -> Option<&Buf> {
        self.get(self.map.data_slot(k))
    }

    fn missing_data(&self) -> SmallVec<[usize; 2]> {
        (0..self.map.data_chunks()).filter(|k| self.data(*k).is_none()).collect()
    }

    /// The data blocks by exponent; `None` for gaps and for blocks that are not at hand.
    fn syndrome(&self) -> Syndrome<'_> {
        let mut list: Syndrome = SmallVec::new();
        list.resize(self.width, None);
        for k in 0..self.map.data_chunks() {
            if let Some(place) = list.get_mut(self.map.exponent(k)) {
                *place = self.data(k).map(|block| &**block);
            }
        }
        list
    }

    fn known_data(&self) -> Sources<'_> {
        (0..self.map.data_chunks()).filter_map(|k| self.data(k).map(|block| &**block)).collect()
    }

    /// Computes data block `k`, which is not at hand, into `out`.
    pub(crate) fn recover_data(&self, k: usize, out: &mut [u8]) -> Result<(), TooManyMissing> {
        let missing = self.missing_data();
        let p = self.get(self.map.p_slot());
        let q = self.map.q_slot().and_then(|slot| self.get(slot));
        match (missing.as_slice(), p, q) {
            ([_], Some(p), _) => {
                let mut known = self.known_data();
                known.push(p);
                braid_parity::recover_data_with_p(&known, out);
                Ok(())
            }
            ([_], None, Some(q)) => {
                braid_parity::recover_data_with_q(&self.syndrome(), self.map.exponent(k), q, out);
                Ok(())
            }
            ([a, b], Some(p), Some(q)) => {
                // Both come out of the same equations; the other one is not wanted here.
                let other = if *a == k { *b } else { *a };
                let mut unwanted = vec![0; out.len()];
                let (x, y) = (self.map.exponent(k), self.map.exponent(other));
                braid_parity::recover_two_data(&self.syndrome(), x, y, p, q, out, &mut unwanted);
                Ok(())
            }
            _ => Err(TooManyMissing),
        }
    }

    /// Data blocks that are not at hand and cannot be computed.
    pub(crate) fn lost_data(&self) -> SmallVec<[usize; 2]> {
        let missing = self.missing_data();
        let parities = [Some(self.map.p_slot()), self.map.q_slot()];
        let at_hand = parities.into_iter().flatten().filter(|slot| self.get(*slot).is_some());
        if missing.len() > at_hand.count() { missing } else { SmallVec::new() }
    }

    /// True when all data blocks but one are at hand, and P and Q too.
    pub(crate) fn one_data_block_missing(&self) -> bool {
        let q = self.map.q_slot().and_then(|slot| self.get(slot));
        self.missing_data().len() == 1 && self.get(self.map.p_slot()).is_some() && q.is_some()
    }

    /// Computes all data blocks that are not at hand.
    pub(crate) fn complete_data(&mut self, pool: &Pool, len: usize) -> Result<(), TooManyMissing> {
        let missing = self.missing_data();
        if let [a, b] = missing.as_slice() {
            let (Some(p), Some(q)) =
                (self.get(self.map.p_slot()), self.map.q_slot().and_then(|slot| self.get(slot)))
            else {
                return Err(TooManyMissing);
            };
            let (mut first, mut second) = (pool.get(len), pool.get(len));
            let (x, y) = (self.map.exponent(*a), self.map.exponent(*b));
            let syndrome = self.syndrome();
            braid_parity::recover_two_data(&syndrome, x, y, p, q, &mut first, &mut second);
            drop(syndrome);
            self.set(self.map.data_slot(*a), first.freeze());
            self.set(self.map.data_slot(*b), second.freeze());
            return Ok(());
        }
        for k in missing {
            let mut block = pool.get(len);
            self.recover_data(k, &mut block)?;
            self.set(self.map.data_slot(k), block.freeze());
        }
        Ok(())
    }

    /// Computes the parity that is asked for, from data blocks that are all at hand.
    pub(crate) fn parity(
        &self,
        p: Option<&mut [u8]>,
        q: Option<&mut [u8]>,
    ) -> Result<(), TooManyMissing> {
        if !self.missing_data().is_empty() {
            return Err(TooManyMissing);
        }
        match (p, q) {
            (Some(p), Some(q)) => braid_parity::pq(&self.syndrome(), p, q),
            (Some(p), None) => braid_parity::xor(p, &self.known_data()),
            (None, Some(q)) => braid_parity::q(&self.syndrome(), q),
            (None, None) => {}
        }
        Ok(())
    }

    /// Computes the block of `slot`, data or parity, into `out`. May compute other missing data on
    /// the way and keep it.
    pub(crate) fn recover_slot(
        &mut self,
        pool: &Pool,
        slot: Slot,
        out: &mut [u8],
    ) -> Result<(), TooManyMissing> {
        match self.map.role(slot) {
            Role::Data(k) => self.recover_data(k, out),
            Role::P => {
                self.complete_data(pool, out.len())?;
                self.parity(Some(out), None)
            }
            Role::Q => {
                self.complete_data(pool, out.len())?;
                self.parity(None, Some(out))
            }
        }
    }
}

/// Computes P, and Q where it is asked for, of a stripe whose data chunks lie one after the other in `data`. `width` as by
/// `Parity::q_width`; `p` and `q` are as long as a chunk.
pub(crate) fn parity_of_chunks(
    map: &StripeMap,
    width: usize,
    data: &[u8],
    p: &mut [u8],
    q: Option<&mut [u8]>,
) {
    let chunks = data.chunks_exact(p.len());
    let Some(q) = q else {
        let sources: Sources = chunks.collect();
        return braid_parity::xor(p, &sources);
    };
    let mut list: Syndrome = SmallVec::new();
    list.resize(width, None);
    for (k, chunk) in chunks.enumerate() {
        if let Some(place) = list.get_mut(map.exponent(k)) {
            *place = Some(chunk);
        }
    }
    braid_parity::pq(&list, p, q);
}

/// Has the parity that there is follow data chunk `k`, which changes from `old` to `new`.
#[inline]
pub(crate) fn change_parity(
    map: &StripeMap,
    k: usize,
    (old, new): (&[u8], &[u8]),
    (p, q): (Option<&mut [u8]>, Option<&mut [u8]>),
) {
    match (p, q) {
        (Some(p), None) => braid_parity::delta_p(old, new, p),
        (p, Some(q)) => change_q(map, k, (old, new), (p, q)),
        (None, None) => {}
    }
}

/// [`change_parity`] where Q is there.
#[inline(never)]
fn change_q(
    map: &StripeMap,
    k: usize,
    (old, new): (&[u8], &[u8]),
    (p, q): (Option<&mut [u8]>, &mut [u8]),
) {
    // An exponent is below the number of slots of a level 6 array, 257 at most.
    let exponent = map.exponent(k) as u8;
    match p {
        Some(p) => braid_parity::delta_pq(exponent, old, new, p, q),
        None => braid_parity::delta_q(exponent, old, new, q),
    }
}

//! Parity computed where the bytes lie, in memory that several shards reach.
//!
//! Copying blocks out, computing, and copying them back moves each byte twice more than needed;
//! here each is touched once. Which bytes belong together is the caller's business.
//!
//! Each operation first claims the regions of memory that it works in, and does nothing where another thread is at work
//! in one. Invariant: no two threads have references to the same bytes at a time, unless both only read.

use super::SharedMemory;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a [`SharedMemory`] from `at` on; how many, the operation says.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The memory.
    pub memory: &'a SharedMemory,
    /// First byte.
    pub at: usize,
}

impl Place<'_> {
    /// True when `len` bytes from here neither reach beyond the memory nor, for any two of
    /// `places`, share a byte.
    fn all_apart(places: &[Place<'_>], len: usize) -> bool {
        let apart = |a: &Place<'_>, b: &Place<'_>| {
            !std::ptr::eq(a.memory, b.memory) || a.at.abs_diff(b.at) >= len
        };
        let mut rest = places;
        while let Some((first, others)) = rest.split_first() {
            if !first.memory.holds(first.at, len) || !others.iter().all(|other| apart(first, other))
            {
                return false;
            }
            rest = others;
        }
        true
    }

    /// The `len` bytes from here.
    ///
    /// # Safety
    /// They lie within the memory and have been claimed for longer than the slice lives, and no other reference to them
    /// is made on this thread meanwhile, unless both are only read.
    #[allow(clippy::mut_from_ref)]
    unsafe fn slice(&self, len: usize) -> &mut [u8] {
        // SAFETY: the caller's promise; the memory is mapped, and initialised by the kernel.
        unsafe { std::slice::from_raw_parts_mut(self.memory.memory.as_ptr().add(self.at), len) }
    }
}

/// Regions that this thread alone makes references to.
struct Claimed<'a>(SmallVec<[&'a AtomicBool; 8]>);

impl<'a> Claimed<'a> {
    /// Claims what `len` bytes from each of `places` on lie in; `None` when another thread has some of it.
    fn new(places: &[Place<'a>], len: usize) -> Option<Claimed<'a>> {
        let mut claimed = Claimed(SmallVec::new());
        for flag in places.iter().flat_map(|place| place.memory.claims(place.at, len)) {
            if claimed.0.iter().any(|own| std::ptr::eq(*own, flag)) {
                continue;
            }
            // Acquire: what was done in it before comes before what is done now.
            if flag.swap(true, Ordering::Acquire) {
                return None;
            }
            claimed.0.push(flag);
        }
        Some(claimed)
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|flag| flag.store(false, Ordering::Release));
    }
}

/// A stripe goes to memory that was not read before and is not read next: past the caches, each byte
/// moves once (measured, 192 KiB stripes: 2.5 times the rate of ordinary stores).
const STORES: braid_parity::Stores = braid_parity::Stores::Streaming;

/// A small write with P: `p ^= data ^ new`, then `data = new`. False, and nothing done, when a
/// place reaches beyond its memory, the two share a byte, or another thread is at work there.
pub fn update_p(data: Place<'_>, new: &[u8], p: Place<'_>) -> bool {
    let len = new.len();
    let places = [data, p];
    if !Place::all_apart(&places, len) {
        return false;
    }
    let Some(_claimed) = Claimed::new(&places, len) else { return false };
    // SAFETY: in range and apart by the check, and claimed; both slices end with this call, which calls
    // nobody else. `new` is a Rust reference and so cannot be this memory.
    unsafe { braid_parity::update_p(data.slice(len), new, p.slice(len)) };
    true
}

/// A small write with P and Q, of the data block with exponent `exponent`: as [`update_p`].
pub fn update_pq(exponent: u8, data: Place<'_>, new: &[u8], p: Place<'_>, q: Place<'_>) -> bool {
    let len = new.len();
    let places = [data, p, q];
    if !Place::all_apart(&places, len) {
        return false;
    }
    let Some(_claimed) = Claimed::new(&places, len) else { return false };
    // SAFETY: as in `update_p`.
    unsafe {
        braid_parity::update_pq(exponent, data.slice(len), new, p.slice(len), q.slice(len));
    }
    true
}

/// A full stripe with P: each of `data` = its block, `p` = XOR of the blocks. False, and nothing
/// done, when there is no data, the blocks differ in length, a place reaches beyond its memory,
/// two of them share a byte, or another thread is at work there.
pub fn write_with_p(data: &[(Place<'_>, &[u8])], p: Place<'_>) -> bool {
    let Some(len) = one_length(data.iter().map(|(_, block)| *block)) else { return false };
    let places: SmallVec<[Place<'_>; 16]> =
        data.iter().map(|(place, _)| *place).chain([p]).collect();
    if !Place::all_apart(&places, len) {
        return false;
    }
    let Some(_claimed) = Claimed::new(&places, len) else { return false };
    let sources: SmallVec<[&[u8]; 16]> = data.iter().map(|(_, block)| *block).collect();
    // SAFETY: as in `update_p`.
    unsafe {
        let mut to: SmallVec<[&mut [u8]; 16]> =
            data.iter().map(|(place, _)| place.slice(len)).collect();
        braid_parity::copy_xor(&mut to, &sources, p.slice(len), STORES);
    }
    true
}

/// A full stripe with P and Q: as [`write_with_p`]. The index in `data` is the exponent; `None` is
/// a gap.
pub fn write_with_pq(data: &[Option<(Place<'_>, &[u8])>], p: Place<'_>, q: Place<'_>) -> bool {
    let blocks = || data.iter().flatten();
    let Some(len) = one_length(blocks().map(|(_, block)| *block)) else { return false };
    let places: SmallVec<[Place<'_>; 16]> =
        blocks().map(|(place, _)| *place).chain([p, q]).collect();
    if data.len() > 255 || !Place::all_apart(&places, len) {
        return false;
    }
    let Some(_claimed) = Claimed::new(&places, len) else { return false };
    let sources: SmallVec<[Option<&[u8]>; 16]> =
        data.iter().map(|data| data.map(|(_, block)| block)).collect();
    // SAFETY: as in `update_p`.
    unsafe {
        let mut to: SmallVec<[Option<&mut [u8]>; 16]> =
            data.iter().map(|data| data.as_ref().map(|(place, _)| place.slice(len))).collect();
        braid_parity::copy_pq(&mut to, &sources, p.slice(len), q.slice(len), STORES);
    }
    true
}

/// `out` = XOR of the blocks at `places`: a lost block, from all others of its stripe and P. False, and
/// nothing done, when there is no place, one reaches beyond its memory, or another thread is at work there.
pub fn xor(places: &[Place<'_>], out: &mut [u8]) -> bool {
    let len = out.len();
    if places.is_empty() || !places.iter().all(|place| place.memory.holds(place.at, len)) {
        return false;
    }
    let Some(_claimed) = Claimed::new(places, len) else { return false };
    // SAFETY: in range by the check, and claimed; the slices are only read, and end with this call. `out` is a Rust
    // reference and so cannot be this memory.
    unsafe {
        let sources: SmallVec<[&[u8]; 16]> =
            places.iter().map(|place| &*place.slice(len)).collect();
        braid_parity::xor(out, &sources);
    }
    true
}

/// The length that all blocks have; `None` when there is none, or several.
fn one_length<'a>(mut blocks: impl Iterator<Item = &'a [u8]>) -> Option<usize> {
    let len = blocks.next()?.len();
    blocks.all(|block| block.len() == len).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 1000;

    fn memory(seed: u8) -> (SharedMemory, Vec<u8>) {
        let bytes: Vec<u8> =
            (0..4096_u32).map(|at| (at * 7 / 3) as u8 ^ seed.wrapping_mul(29)).collect();
        let memory = SharedMemory::new(bytes.len());
        assert!(memory.write(0, &bytes));
        (memory, bytes)
    }

    fn content(memory: &SharedMemory) -> Vec<u8> {
        let mut bytes = vec![0; memory.len()];
        assert!(memory.read(0, &mut bytes));
        bytes
    }

    #[test]
    fn small_writes_change_data_and_parity_and_nothing_else() {
        let ((data, mut d), (p, mut pp), (q, mut qq)) = (memory(1), memory(2), memory(3));
        let new = memory(4).1[..LEN].to_vec();
        let place = |memory, at| Place { memory, at };

        assert!(update_p(place(&data, 512), &new, place(&p, 0)));
        braid_parity::update_p(&mut d[512..][..LEN], &new, &mut pp[..LEN]);
        assert!(content(&data) == d && content(&p) == pp);

        assert!(update_pq(3, place(&data, 0), &new, place(&p, 8), place(&q, 16)));
        let (old, more) = (&mut d[..LEN], &mut pp[8..][..LEN]);
        braid_parity::update_pq(3, old, &new, more, &mut qq[16..][..LEN]);
        assert!(content(&data) == d && content(&p) == pp && content(&q) == qq);
    }

    #[test]
    fn full_stripes_are_copied_with_their_parity() {
        let memories: Vec<SharedMemory> = (0..5).map(|seed| memory(seed).0).collect();
        let blocks: Vec<Vec<u8>> = (5..8).map(|seed| memory(seed).1[..LEN].to_vec()).collect();
        let place = |nr: usize| Place { memory: &memories[nr], at: 64 };
        let flat: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        let (mut p, mut q) = (vec![0; LEN], vec![0; LEN]);

        let data: Vec<_> = flat.iter().enumerate().map(|(nr, block)| (place(nr), *block)).collect();
        assert!(write_with_p(&data, place(3)));
        braid_parity::xor(&mut p, &flat);
        assert!(content(&memories[3])[64..][..LEN] == p);

        // A gap at exponent 1.
        let data = [Some(data[0]), None, Some(data[2]), Some(data[1])];
        assert!(write_with_pq(&data, place(3), place(4)));
        braid_parity::pq(&[Some(flat[0]), None, Some(flat[2]), Some(flat[1])], &mut p, &mut q);
        assert!(content(&memories[3])[64..][..LEN] == p);
        assert!(content(&memories[4])[64..][..LEN] == q);
        for (nr, block) in blocks.iter().enumerate() {
            assert!(content(&memories[nr])[64..][..LEN] == block[..]);
        }
    }

    #[test]
    fn a_lost_block_is_the_xor_of_the_others() {
        let memories: Vec<(SharedMemory, Vec<u8>)> = (1..5).map(memory).collect();
        let places: Vec<Place<'_>> =
            memories.iter().map(|(memory, _)| Place { memory, at: 512 }).collect();
        let (mut out, mut expected) = ([7; LEN], [0; LEN]);
        assert!(xor(&places, &mut out));
        let blocks: Vec<&[u8]> = memories.iter().map(|(_, bytes)| &bytes[512..][..LEN]).collect();
        braid_parity::xor(&mut expected, &blocks);
        assert!(out == expected);
        assert!(!xor(&[], &mut out) && !xor(&[Place { at: 4096, ..places[0] }], &mut out));
        assert!(out == expected);
    }

    #[test]
    fn where_another_is_at_work_nothing_is_done() {
        let ((data, d), (p, pp)) = (memory(1), memory(2));
        let new = [7; LEN];
        let place = |memory, at| Place { memory, at };
        let others = Claimed::new(&[place(&p, 2000)], 10).unwrap();
        assert!(!update_p(place(&data, 0), &new, place(&p, 0)));
        assert!(!update_pq(1, place(&data, 0), &new, place(&data, 2000), place(&p, 0)));
        assert!(!write_with_p(&[(place(&data, 0), &new)], place(&p, 0)));
        assert!(!write_with_pq(&[Some((place(&p, 0), &new))], place(&data, 0), place(&data, 2000)));
        let mut out = [3; LEN];
        assert!(!xor(&[place(&data, 0), place(&p, 0)], &mut out) && out == [3; LEN]);
        assert!(content(&data) == d && content(&p) == pp);
        drop(others);
        assert!(update_p(place(&data, 0), &new, place(&p, 0)), "nothing stays claimed");
    }

    #[test]
    fn places_out_of_range_or_over_each_other_are_left_alone() {
        let ((data, d), (p, pp)) = (memory(1), memory(2));
        let new = [7; LEN];
        let place = |memory, at| Place { memory, at };
        assert!(!update_p(place(&data, 4096 - LEN + 1), &new, place(&p, 0)));
        assert!(!update_p(place(&data, 0), &new, place(&p, usize::MAX)));
        assert!(!update_p(place(&data, 0), &new, place(&data, LEN - 1)));
        assert!(!update_pq(1, place(&data, 0), &new, place(&p, 0), place(&p, 1)));
        assert!(!write_with_p(&[], place(&p, 0)));
        assert!(!write_with_p(&[(place(&data, 0), &new), (place(&data, 1), &new)], place(&p, 0)));
        assert!(!write_with_p(
            &[(place(&data, 0), &new), (place(&data, 2000), &new[1..])],
            place(&p, 0)
        ));
        assert!(!write_with_pq(&[None], place(&p, 0), place(&data, 0)));
        assert!(content(&data) == d && content(&p) == pp);
        assert!(update_p(place(&data, 0), &new, place(&data, LEN)), "apart in one memory");
    }
}

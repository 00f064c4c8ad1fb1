//! The bare loop: only copies and XORs the bytes that a load must move, on plain memory.
//!
//! No device, no request, no task, no lock: what is left is the price of the data itself. Members
//! are plain memory of the size of the array's; payload comes from as large a working set. A small
//! write copies old data and old parity (or the data that is not written) out, computes, and copies
//! new data and parity in; a full stripe copies each chunk and computes parity straight into the
//! parity member; a read copies.
//!
//! Invariant: after any writes, parity matches data (tested), so no work was skipped.

use crate::ideal::for_stripes;
use crate::offsets::{Random, Region};
use crate::payload::fill;
use crate::rows::{Rows, Way, cut, way};
use braid_layout::{Layout, Parity, StripeMap};
use braid_shard::{BufMut, Pool};
use std::ops::Range;

/// What the loop does.
#[derive(Clone, Debug)]
pub struct BareLoad {
    /// Bytes of a request.
    pub block: u64,
    /// Percent of requests that read.
    pub reads: u8,
    /// At random places, rather than one after the other.
    pub random: bool,
    /// The seed of the places.
    pub seed: u64,
    /// Bytes of data that writes take theirs from.
    pub payload: u64,
    /// Slot 0 is missing: its bytes are recovered when they are read. For parity layouts.
    pub degraded: bool,
}

/// See the module's documentation.
pub struct Bare {
    load: BareLoad,
    layout: Layout,
    members: Vec<BufMut>,
    region: Region,
    random: Random,
    payload: Vec<BufMut>,
    next: usize,
    scratch: Vec<BufMut>,
}

impl Bare {
    /// Memory for `layout`, every page of it touched in the order in which the array's own pages
    /// are: the system may place neighbours side by side.
    pub fn new(pool: &Pool, layout: Layout, load: BareLoad) -> Option<Bare> {
        let members =
            (0..layout.slots()).map(|slot| pool.zeroed(layout.used_size(slot) as usize)).collect();
        let region = Region::share(0..layout.array_size(), load.block, 0, 1)?;
        let block = load.block as usize;
        let mut payload: Vec<BufMut> =
            (0..(load.payload as usize / block).max(1)).map(|_| pool.get(block)).collect();
        for (nr, buf) in payload.iter_mut().enumerate() {
            fill(buf, nr as u64);
        }
        let chunk = layout.chunk_size().max(4096) as usize;
        // P, Q, and a block of each data chunk.
        let scratch = (0..layout.slots() + 2).map(|_| pool.zeroed(chunk)).collect();
        let mut bare = Bare {
            random: Random::new(load.seed),
            load,
            layout,
            members,
            region,
            payload,
            next: 0,
            scratch,
        };
        bare.fill();
        Some(bare)
    }

    /// Writes every byte once, stripe after stripe.
    fn fill(&mut self) {
        let size = self.layout.array_size();
        let unit = match &self.layout {
            Layout::Parity(parity) => parity.stripe_size(),
            other => other.chunk_size().max(4096),
        };
        let zeroes = vec![0; unit as usize];
        for offset in (0..size).step_by(unit as usize) {
            let len = unit.min(size - offset) as usize;
            write(&self.layout, &mut self.members, &mut self.scratch, offset, &zeroes[..len]);
        }
    }

    /// Does one request.
    pub fn step(&mut self) {
        let at = if self.load.random {
            self.region.random(&mut self.random)
        } else {
            self.region.sequential()
        };
        let reads = match self.load.reads {
            0 => false,
            100.. => true,
            percent => self.random.below(100) < u64::from(percent),
        };
        self.next = if self.next + 1 >= self.payload.len() { 0 } else { self.next + 1 };
        if reads { self.read(at) } else { self.write(at) }
    }

    fn read(&mut self, offset: u64) {
        let Bare { layout, members, payload, next, load, .. } = self;
        let Some(buf) = payload.get_mut(*next) else { return };
        let len = buf.len() as u64;
        let mut done = 0;
        while done < len {
            let (slot, at, run) = locate(layout, offset + done, len - done);
            let into = &mut buf[done as usize..(done + run) as usize];
            let from = at as usize..(at + run) as usize;
            if load.degraded && slot == 0 {
                recover(members, from, into);
            } else {
                into.copy_from_slice(&members[slot][from]);
            }
            done += run;
        }
    }

    fn write(&mut self, offset: u64) {
        if let Some(buf) = self.payload.get(self.next) {
            write(&self.layout, &mut self.members, &mut self.scratch, offset, buf);
        }
    }
}

fn write(layout: &Layout, members: &mut [BufMut], scratch: &mut [BufMut], offset: u64, buf: &[u8]) {
    match layout {
        Layout::Parity(parity) => {
            let mut from = 0;
            for_stripes(offset, buf.len() as u64, parity.stripe_size(), |stripe, extent| {
                let len = (extent.end - extent.start) as usize;
                write_stripe(parity, members, scratch, stripe, extent, &buf[from..from + len]);
                from += len;
            });
        }
        Layout::Raid10(raid10) => {
            each_run(layout, offset, buf.len() as u64, |at, range| {
                let (chunk_nr, within) = raid10.locate(at);
                for place in raid10.copies(chunk_nr) {
                    let to = (place.offset + within) as usize;
                    members[place.slot][to..to + range.len()].copy_from_slice(&buf[range.clone()]);
                }
            });
        }
        Layout::Mirror(_) => {
            for member in members {
                member[offset as usize..offset as usize + buf.len()].copy_from_slice(buf);
            }
        }
        Layout::Striped(_) | Layout::Linear(_) => {
            each_run(layout, offset, buf.len() as u64, |at, range| {
                let (slot, to, _) = locate(layout, at, range.len() as u64);
                let to = to as usize;
                members[slot][to..to + range.len()].copy_from_slice(&buf[range]);
            });
        }
    }
}

/// Slot, member offset and length of the run at `offset`.
fn locate(layout: &Layout, offset: u64, len: u64) -> (usize, u64, u64) {
    match layout {
        Layout::Striped(striped) => {
            let (place, run) = striped.map(offset);
            (place.slot, place.offset, run.min(len))
        }
        Layout::Linear(linear) => {
            let (place, run) = linear.map(offset);
            (place.slot, place.offset, run.min(len))
        }
        Layout::Mirror(_) => (0, offset, len),
        Layout::Raid10(raid10) => {
            let (chunk_nr, within) = raid10.locate(offset);
            let place = raid10.copy(chunk_nr, 0);
            (place.slot, place.offset + within, len.min(raid10.chunk_size() - within))
        }
        Layout::Parity(parity) => {
            let (stripe, k, within) = parity.locate(offset);
            let run = len.min(parity.chunk_size() - within);
            (parity.data_slot(stripe, k), parity.member_offset(stripe) + within, run)
        }
    }
}

fn each_run(layout: &Layout, offset: u64, len: u64, mut each: impl FnMut(u64, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let (_, _, run) = locate(layout, offset + done, len - done);
        each(offset + done, done as usize..(done + run) as usize);
        done += run;
    }
}

/// Slot 0 from all others: right for levels 4 and 5; for level 6 as much work as with P.
fn recover(members: &[BufMut], rows: Range<usize>, into: &mut [u8]) {
    let mut sources: [&[u8]; SOURCES_MAX] = [&[]; SOURCES_MAX];
    let mut count = 0;
    for (place, member) in sources.iter_mut().zip(members.iter().skip(1)) {
        *place = &member[rows.clone()];
        count += 1;
    }
    braid_parity::xor(into, &sources[..count]);
}

/// Members of the widest array that the loop is made for.
pub const SOURCES_MAX: usize = 32;

fn write_stripe(
    parity: &Parity,
    members: &mut [BufMut],
    scratch: &mut [BufMut],
    stripe: u64,
    extent: Range<u64>,
    payload: &[u8],
) {
    let map = parity.map_stripe(stripe);
    let base = parity.member_offset(stripe) as usize;
    let chunk = parity.chunk_size();
    for piece in cut(&extent, chunk) {
        let (way, _) = way(piece.written.len(), parity.data_chunks(), parity.parity_count());
        let of_chunk = |k: usize| {
            let from = (k as u64 * chunk + piece.rows.start - extent.start) as usize;
            &payload[from..from + (piece.rows.end - piece.rows.start) as usize]
        };
        let rows = base + piece.rows.start as usize..base + piece.rows.end as usize;
        match way {
            Way::ReadModify => read_modify(&map, members, scratch, &piece, rows, of_chunk),
            Way::Full | Way::Reconstruct => whole(&map, members, scratch, &piece, rows, of_chunk),
        }
    }
}

fn read_modify<'a>(
    map: &StripeMap,
    members: &mut [BufMut],
    scratch: &mut [BufMut],
    piece: &Rows,
    rows: Range<usize>,
    of_chunk: impl Fn(usize) -> &'a [u8],
) {
    let len = rows.len();
    let [p, q, old, ..] = scratch else { return };
    let (old, p, q) = (&mut old[..len], &mut p[..len], &mut q[..len]);
    p.copy_from_slice(&members[map.p_slot()][rows.clone()]);
    if let Some(slot) = map.q_slot() {
        q.copy_from_slice(&members[slot][rows.clone()]);
    }
    for k in piece.written.clone() {
        let member = &mut members[map.data_slot(k)][rows.clone()];
        old.copy_from_slice(member);
        let new = of_chunk(k);
        match map.q_slot() {
            Some(_) => braid_parity::delta_pq(map.exponent(k) as u8, old, new, p, q),
            None => braid_parity::delta_p(old, new, p),
        }
        member.copy_from_slice(new);
    }
    members[map.p_slot()][rows.clone()].copy_from_slice(p);
    if let Some(slot) = map.q_slot() {
        members[slot][rows].copy_from_slice(q);
    }
}

/// Full stripes and reconstruct-writes: parity from the payload and from what is not written.
fn whole<'a>(
    map: &StripeMap,
    members: &mut [BufMut],
    scratch: &mut [BufMut],
    piece: &Rows,
    rows: Range<usize>,
    of_chunk: impl Fn(usize) -> &'a [u8],
) {
    for k in piece.written.clone() {
        members[map.data_slot(k)][rows.clone()].copy_from_slice(of_chunk(k));
    }
    let data = map.data_chunks();
    if piece.written.len() == data {
        let mut sources: [Option<&[u8]>; SOURCES_MAX] = [None; SOURCES_MAX];
        for (k, place) in sources.iter_mut().enumerate().take(data) {
            *place = Some(of_chunk(k));
        }
        match map.q_slot().map(|q| members.get_disjoint_mut([map.p_slot(), q])) {
            Some(Ok([p, q])) => with_q(map, &sources, &mut p[rows.clone()], &mut q[rows]),
            _ => only_p(&sources[..data], &mut members[map.p_slot()][rows]),
        }
        return;
    }
    let len = rows.len();
    let [p, q, others @ ..] = scratch else { return };
    let (p, q) = (&mut p[..len], &mut q[..len]);
    let mut sources: [Option<&[u8]>; SOURCES_MAX] = [None; SOURCES_MAX];
    for ((k, place), other) in sources.iter_mut().enumerate().zip(others).take(data) {
        *place = Some(if piece.written.contains(&k) {
            of_chunk(k)
        } else {
            other[..len].copy_from_slice(&members[map.data_slot(k)][rows.clone()]);
            &other[..len]
        });
    }
    match map.q_slot() {
        Some(slot) => {
            with_q(map, &sources, p, q);
            members[slot][rows.clone()].copy_from_slice(q);
        }
        None => only_p(&sources[..data], p),
    }
    members[map.p_slot()][rows].copy_from_slice(p);
}

fn only_p(sources: &[Option<&[u8]>], p: &mut [u8]) {
    let mut flat: [&[u8]; SOURCES_MAX] = [&[]; SOURCES_MAX];
    for (place, source) in flat.iter_mut().zip(sources.iter().flatten()) {
        *place = source;
    }
    braid_parity::xor(p, &flat[..sources.len()]);
}

fn with_q(map: &StripeMap, sources: &[Option<&[u8]>; SOURCES_MAX], p: &mut [u8], q: &mut [u8]) {
    let data = map.data_chunks();
    let mut by_exponent: [Option<&[u8]>; SOURCES_MAX] = [None; SOURCES_MAX];
    let mut width = data;
    for (k, source) in sources.iter().enumerate().take(data) {
        let exponent = map.exponent(k);
        width = width.max(exponent + 1);
        if let Some(place) = by_exponent.get_mut(exponent) {
            *place = *source;
        }
    }
    braid_parity::pq(&by_exponent[..width.min(SOURCES_MAX)], p, q);
}

/// The bare rebuild: slot 0 recovered from all others, a chunk at a time. Gives the bytes.
pub fn rebuild_step(members: &mut [BufMut], rows: Range<usize>) -> u64 {
    let len = rows.len() as u64;
    if let Some((first, others)) = members.split_first_mut() {
        let mut sources: [&[u8]; SOURCES_MAX] = [&[]; SOURCES_MAX];
        let mut count = 0;
        for (place, member) in sources.iter_mut().zip(others.iter()) {
            *place = &member[rows.clone()];
            count += 1;
        }
        braid_parity::xor(&mut first[rows], &sources[..count]);
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ideal::layout;
    use crate::options::{Options, Pattern};
    use braid_device::spec::MemberSpec;
    use braid_layout::Level;

    fn bare(level: Level, members: usize, block: u64, reads: u8) -> Bare {
        let specs = vec![MemberSpec::Ram(1 << 20); members];
        let options =
            Options { chunk: 8192, ..Options::new(level, specs, Pattern::RandWrite, block) };
        let layout = layout(&options, 1 << 20).unwrap();
        let load =
            BareLoad { block, reads, random: true, seed: 5, payload: 1 << 18, degraded: false };
        Bare::new(&Pool::new(0), layout, load).unwrap()
    }

    fn parity_matches(bare: &Bare) {
        let Layout::Parity(parity) = &bare.layout else { panic!("no parity") };
        for stripe in 0..parity.stripes() {
            let map = parity.map_stripe(stripe);
            let at = parity.member_offset(stripe) as usize;
            let rows = at..at + parity.chunk_size() as usize;
            let mut data: [Option<&[u8]>; SOURCES_MAX] = [None; SOURCES_MAX];
            for k in 0..map.data_chunks() {
                data[map.exponent(k)] = Some(&bare.members[map.data_slot(k)][rows.clone()]);
            }
            let (mut p, mut q) = (vec![0; rows.len()], vec![0; rows.len()]);
            braid_parity::pq(&data, &mut p, &mut q);
            assert!(p == bare.members[map.p_slot()][rows.clone()], "P of stripe {stripe}");
            if let Some(slot) = map.q_slot() {
                assert!(q == bare.members[slot][rows], "Q of stripe {stripe}");
            }
        }
    }

    #[test]
    fn parity_matches_data_after_writes_of_every_shape() {
        for (level, members) in [(Level::Raid4, 3), (Level::Raid5, 5), (Level::Raid6, 6)] {
            for block in [4096, 12288, 16384, 65536, 100 * 1024] {
                let mut bare = bare(level, members, block, 0);
                (0..200).for_each(|_| bare.step());
                parity_matches(&bare);
            }
        }
    }

    #[test]
    fn what_is_written_is_read_back_on_every_level() {
        for (level, members) in [
            (Level::Raid0, 3),
            (Level::Raid1, 2),
            (Level::Raid10, 4),
            (Level::Raid5, 5),
            (Level::Raid6, 6),
        ] {
            let mut bare = bare(level, members, 20480, 0);
            bare.next = 1;
            let written = bare.payload[1].to_vec();
            bare.write(20480 * 7);
            bare.next = 2;
            bare.read(20480 * 7);
            assert!(bare.payload[2][..] == written[..], "{level}");
        }
    }

    #[test]
    fn a_missing_member_is_recovered_from_the_others() {
        let mut bare = bare(Level::Raid5, 5, 20480, 0);
        (0..400).for_each(|_| bare.step());
        bare.next = 1;
        bare.read(20480 * 3);
        let healthy = bare.payload[1].to_vec();
        let len = bare.members[0].len();
        let lost = bare.members[0].to_vec();
        bare.members[0].fill(0xaa);
        bare.load.degraded = true;
        bare.read(20480 * 3);
        assert!(bare.payload[1][..] == healthy[..]);
        rebuild_step(&mut bare.members, 0..len);
        assert!(bare.members[0][..] == lost[..]);
    }
}

//! One write of all of a stripe whose members are all there: what large writes in order consist of.
//!
//! Nothing is read, so there is no plan to choose and nothing to divide: parity is computed from the payload where it lies,
//! and each member gets its chunk. Where a member is missing, a block is recorded as bad or memory is short the general way
//! is taken (see [`crate::write::batch`]).

use crate::consistency::WriteInFlight;
use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::engine::Engine;
use crate::engine::work::{WriteArgs, WritePayload};
use crate::redundancy::blocks::parity_of_chunks;
use crate::state::extent::Extent;
use crate::state::view::View;
use crate::write::members::write_members;
use crate::write::write_errors::handle_write_errors;
use braid_device::IoError;
use braid_layout::{Parity, StripeMap};
use braid_shard::{Buf, BufMut};
use std::rc::Rc;

/// Carries out the one write `piece`, of all of stripe `stripe`, whose rows are held, and which has begun as `writing`. `None`:
/// nothing was written, and another way is to be taken.
pub(crate) async fn carry_out(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    writing: &WriteInFlight,
    parity: &Parity,
    stripe: u64,
    piece: &WriteArgs,
) -> Option<Result<(), IoError>> {
    let WritePayload::Data(data) = &piece.payload else { return None };
    if view.broken || view.any_bad() || view.missing().next().is_some() {
        return None;
    }
    let chunk = parity.chunk_size();
    let _scratch = engine.scratch.try_take(chunk * parity.parity_count() as u64)?;
    let map = parity.map_stripe(stripe);
    let pool = engine.shard.pool();
    let (mut p, mut q) = (pool.get(chunk as usize), map.q_slot().map(|_| pool.get(chunk as usize)));
    parity_of_chunks(&map, parity.q_width(), data, &mut p, q.as_deref_mut());
    engine.measured.count(|counters| {
        counters.full_stripes += 1;
        counters.lookups += 1;
    });
    let going = Going {
        map,
        stripe,
        base: parity.member_offset(stripe),
        chunk: chunk as usize,
        extent: piece.extent,
        data,
        p: p.freeze(),
        q: q.map(BufMut::freeze),
        fua: piece.fua,
    };
    let outcomes = match write_members(engine, view, writing, engine.sets.start(), &going).await {
        Ok(outcomes) => outcomes,
        Err(error) => {
            engine.cache.forget(stripe, 0..chunk);
            return Some(Err(error));
        }
    };
    engine.measured.count(|counters| counters.member_writes += outcomes.len() as u64);
    // The written data is not kept: that would cost a copy of all of it, and save nothing until a part of it is written again.
    engine.cache.forget(stripe, 0..chunk);
    if writing.met_error() || outcomes.any_error(|_| true) {
        return Some(handle_write_errors(engine, view, stripe, outcomes).await);
    }
    Some(Ok(()))
}

/// The write with its parity.
struct Going<'a> {
    map: StripeMap,
    stripe: u64,
    /// Component byte of the stripe's first row.
    base: u64,
    /// Bytes of a chunk.
    chunk: usize,
    extent: Extent,
    /// The stripe's data chunks, one after the other.
    data: &'a Buf,
    p: Buf,
    q: Option<Buf>,
    fua: bool,
}

impl Outgoing for Going<'_> {
    fn unit(&self) -> u64 {
        self.stripe
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        std::iter::once(self.extent)
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        let block =
            |slot, role, buf| Block { slot, at: self.base, role, content: Content::Bytes(buf) };
        let data = (0..self.map.data_chunks()).map(move |k| {
            let bytes = self.data.slice(k * self.chunk..(k + 1) * self.chunk);
            block(self.map.data_slot(k), Role::Data, bytes)
        });
        let p = std::iter::once(block(self.map.p_slot(), Role::Parity, self.p.clone()));
        let q = self.map.q_slot().zip(self.q.as_ref());
        let q = q.map(move |(slot, q)| block(slot, Role::Parity, q.clone()));
        // Parity that has just been computed goes first: a member in memory takes it out of the nearest cache.
        p.chain(q).chain(data)
    }

    fn fua(&self) -> bool {
        self.fua
    }
}

//! Data and parity go to the members: the one place where writes of units do, once the consistency policy lets them.

use crate::consistency::outgoing::{Block, Content, Outgoing, Role};
use crate::consistency::{Permit, WriteInFlight};
use crate::engine::Engine;
use crate::state::extent::Extent;
use crate::state::view::View;
use crate::write::write_errors::handle_write_errors;
use braid_device::{IoError, IoErrorKind, IoSet, Outcomes};
use braid_shard::plant::planted;
use std::rc::Rc;

/// Gives the blocks of `write`, which has begun as `writing`, to their members by way of `set`, an empty one, and waits for
/// them. Outcomes are tagged with slots; a slot without a member has none. Where a member cannot make zeroes by itself,
/// although it says so, all get them as bytes.
///
/// # Errors
/// What has to be logged before them cannot be, or what members did not take of a part is nowhere to be had. Some of the write may have been carried out then, like that of a member
/// that fails half-way.
#[inline]
pub(super) async fn write_members(
    engine: &Rc<Engine>,
    view: &Rc<View>,
    writing: &WriteInFlight,
    mut set: IoSet,
    write: &impl Outgoing,
) -> Result<Outcomes, IoError> {
    match engine.consistency.in_parts(view, write) {
        None => {
            let permit = engine.before_members(view, writing, write).await?;
            give(engine, view, write, &mut set).await;
            if set.any_error(|_| true) {
                permit.keep_with(writing);
            }
        }
        Some(parts) => {
            for part in parts {
                let permit = engine.before_members(view, writing, &part).await?;
                let mut own = engine.sets.start();
                give(engine, view, &part, &mut own).await;
                let outcomes = own.finish().await;
                // Done with before the next is logged: what that waits for may be the end of this one.
                if outcomes.any_error(|_| true) {
                    writing.note_error();
                    handle_write_errors(engine, view, write.unit(), outcomes).await?;
                }
                drop(permit);
            }
        }
    }
    Ok(set.finish().await)
}

/// [`write_members`] up to where it waits for them, for a write of bytes of which nothing has to be logged before: `None`, and
/// nothing was done, for all others. Only what members do not take has an outcome.
#[inline]
pub(super) fn try_submit<'a>(
    engine: &Engine,
    view: &View,
    writing: &'a WriteInFlight,
    set: &mut IoSet,
    write: &impl Outgoing,
) -> Option<Permit<'a>> {
    let permit = engine.consistency.before_members(view, writing, write)?;
    submit::<true>(view, write, set);
    Some(permit)
}

/// Within one permit, since what is logged of zeroes is the same in whatever way they are made.
#[inline]
async fn give(engine: &Engine, view: &View, write: &impl Outgoing, set: &mut IoSet) {
    submit::<false>(view, write, set);
    set.all().await;
    if set.any_error(|error| error.kind == IoErrorKind::Unsupported) {
        set.clear();
        submit::<false>(view, &InFull { engine, write }, set);
        set.all().await;
    }
}

/// A write with its zeroes as bytes.
struct InFull<'a, W> {
    engine: &'a Engine,
    write: &'a W,
}

impl<W: Outgoing> Outgoing for InFull<'_, W> {
    fn unit(&self) -> u64 {
        self.write.unit()
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        self.write.extents()
    }

    fn blocks(&self) -> impl Iterator<Item = Block> {
        self.write.blocks().map(|block| {
            let content = match block.content {
                Content::Zeroes { len, .. } => {
                    Content::Bytes(self.engine.scratch.zeroes(len as usize))
                }
                bytes @ Content::Bytes(_) => bytes,
            };
            Block { content, ..block }
        })
    }

    fn fua(&self) -> bool {
        self.write.fua()
    }
}

/// With `FOR_ERRORS` only what members do not take has an outcome.
#[inline(always)]
fn submit<const FOR_ERRORS: bool>(view: &View, write: &impl Outgoing, set: &mut IoSet) {
    for block in write.blocks() {
        let Some((device, data_offset)) = view.member(block.slot) else { continue };
        let fua = write.fua() && !(block.role == Role::Parity && planted("parity-without-fua"));
        let (offset, tag) = (data_offset + block.at, block.slot as u32);
        match block.content {
            Content::Bytes(buf) if FOR_ERRORS => {
                set.submit_write(tag, &**device, offset, buf, fua);
            }
            content => set.submit(tag, &**device, content.into_request(offset, fua)),
        }
    }
    if view.any_replacement() {
        also_to_replacements(view, write, set);
    }
}

/// Blocks for members that are being replaced go to their replacements too.
#[cold]
fn also_to_replacements(view: &View, write: &impl Outgoing, set: &mut IoSet) {
    if planted("replacement-not-written") {
        return;
    }
    for block in write.blocks() {
        let Some(slot) = view.replacement_of(block.slot) else { continue };
        let Some((device, data_offset)) = view.member(slot) else { continue };
        let request = block.content.into_request(data_offset + block.at, write.fua());
        set.submit(slot as u32, &**device, request);
    }
}

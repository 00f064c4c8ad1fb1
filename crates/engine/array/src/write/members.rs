//! Data and parity go to the members: the one place where writes of units do, once the consistency policy lets them.

use crate::consistency::WriteInFlight;
use crate::consistency::outgoing::{Outgoing, Role};
use crate::engine::Engine;
use crate::state::view::View;
use braid_device::{IoError, IoSet, Outcomes};
use braid_shard::plant::planted;
use std::rc::Rc;

/// Gives the blocks of `write`, which has begun as `writing`, to their members by way of `set`, an empty one, and waits for
/// them. Outcomes are tagged with slots; a slot without a member has none.
///
/// # Errors
/// What has to be logged before them cannot be. Some of the write may have been carried out then, like that of a member
/// that fails half-way.
#[inline]
pub(super) async fn write_members(
    engine: &Rc<Engine>,
    view: &View,
    writing: &WriteInFlight,
    mut set: IoSet,
    write: &impl Outgoing,
) -> Result<Outcomes, IoError> {
    match engine.consistency.in_parts(write) {
        None => {
            let _permit = engine.before_members(view, writing, write).await?;
            submit(view, write, &mut set);
            return Ok(set.finish().await);
        }
        Some(parts) => {
            for part in parts {
                let _permit = engine.before_members(view, writing, &part).await?;
                submit(view, &part, &mut set);
                set.all().await;
            }
        }
    }
    Ok(set.finish().await)
}

#[inline]
fn submit(view: &View, write: &impl Outgoing, set: &mut IoSet) {
    for block in write.blocks() {
        let Some((device, data_offset)) = view.member(block.slot) else { continue };
        let fua = write.fua() && !(block.role == Role::Parity && planted("parity-without-fua"));
        let request = block.content.into_request(data_offset + block.at, fua);
        set.submit(block.slot as u32, &**device, request);
    }
    if view.any_replacement() {
        also_to_replacements(view, write, set);
    }
}

/// What goes to members that are being replaced goes to their replacements too.
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

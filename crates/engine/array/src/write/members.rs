//! Data and parity go to the members: the one place where writes of units do, once the consistency policy lets them.

use crate::consistency::WriteInFlight;
use crate::consistency::outgoing::{Outgoing, Role};
use crate::engine::Engine;
use crate::state::view::View;
use braid_device::{IoSet, Outcomes};
use braid_shard::plant::planted;

/// Gives the blocks of `write`, which has begun as `writing`, to their members, and waits for them. Outcomes are tagged with
/// slots; a slot without a member has none.
#[inline]
pub(super) async fn write_members(
    engine: &Engine,
    view: &View,
    writing: &WriteInFlight,
    write: &impl Outgoing,
) -> Outcomes {
    let _permit = engine.consistency.before_members(view, writing, write).await;
    let mut set = engine.sets.start();
    for block in write.blocks() {
        let Some((device, data_offset)) = view.member(block.slot) else { continue };
        let fua = write.fua() && !(block.role == Role::Parity && planted("parity-without-fua"));
        let request = block.content.into_request(data_offset + block.at, fua);
        set.submit(block.slot as u32, &**device, request);
    }
    if view.any_replacement() {
        also_to_replacements(view, write, &mut set);
    }
    set.finish().await
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

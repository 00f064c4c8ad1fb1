//! Data and parity go to the members: the one place where writes of units do, once the consistency policy lets them.

use crate::consistency::WriteInFlight;
use crate::consistency::outgoing::{Outgoing, Role};
use crate::engine::Engine;
use crate::state::view::View;
use braid_device::{IoSet, Outcomes};
use braid_shard::plant::planted;

/// Gives the blocks of `write`, which has begun as `writing`, to their members by way of `set`, an empty one, and waits for
/// them. Outcomes are tagged with slots; a slot without a member has none.
#[inline]
pub(super) async fn write_members(
    engine: &Engine,
    view: &View,
    writing: &WriteInFlight,
    mut set: IoSet,
    write: &impl Outgoing,
) -> Outcomes {
    let _permit = engine.consistency.before_members(view, writing, write).await;
    for block in write.blocks() {
        let Some((device, data_offset)) = view.member(block.slot) else { continue };
        let fua = write.fua() && !(block.role == Role::Parity && planted("parity-without-fua"));
        let request = block.content.into_request(data_offset + block.at, fua);
        set.submit(block.slot as u32, &**device, request);
    }
    set.finish().await
}

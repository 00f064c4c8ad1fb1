//! Writes whose bits in the bitmap are not recorded yet.

use crate::engine::Engine;
use crate::engine::work::WriteArgs;
use crate::write::start::start_write;
use std::rc::Rc;

/// Carries out a write whose bits are not armed: has them recorded first.
pub(crate) async fn record_then_write(engine: Rc<Engine>, args: WriteArgs) {
    match engine.enter(args.unit, args.extent).await {
        Ok(entered) => {
            start_write(&engine, WriteArgs { intent: Some(entered), ..args });
        }
        Err(error) => args.finish(&engine.mesh, Err(error)),
    }
}

//! Writes of which the consistency policy has not recorded yet what it wants.

use crate::engine::Engine;
use crate::engine::work::WriteArgs;
use crate::write::start::start_write;
use std::rc::Rc;

/// Carries out a write that has to wait for that first.
pub(crate) async fn record_then_write(engine: Rc<Engine>, args: WriteArgs) {
    match engine.enter(args.unit, args.extent).await {
        Ok(entered) => {
            let view = engine.view();
            start_write(&engine, &view, WriteArgs { entered: Some(entered), ..args });
        }
        Err(error) => args.finish(&engine.mesh, Err(error)),
    }
}

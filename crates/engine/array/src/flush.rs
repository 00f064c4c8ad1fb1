//! Flush: every member makes durable what it has completed.

use crate::engine::Engine;
use braid_device::{Completion, IoError, IoErrorKind, Op, Request};
use std::rc::Rc;

/// Flushes all members; one that cannot is failed, like one that cannot write.
pub(crate) async fn flush(engine: Rc<Engine>, done: Completion) {
    let _request = engine.begin_request();
    let result = flush_members(&engine).await;
    done.finish(result, Op::Flush);
}

async fn flush_members(engine: &Rc<Engine>) -> Result<(), IoError> {
    let view = engine.view();
    let mut set = engine.sets.start();
    for (slot, device) in view.devices() {
        set.submit(slot as u32, &**device, Request::flush());
    }
    let mut first = None;
    for (slot, outcome) in set.finish().await {
        let Err(error) = outcome.result else { continue };
        if error.kind == IoErrorKind::Unsupported {
            continue;
        }
        first.get_or_insert(error);
        engine.fail_member(slot as usize, &view, error).await;
    }
    match first {
        // What the failed member lost is still in the redundancy of the others.
        Some(_) if engine.geometry.level.has_redundancy() && !engine.view().broken => Ok(()),
        Some(error) => Err(error),
        // What a member that is missing too many had not made durable is nowhere else.
        None if engine.view().broken => Err(IoError::new(IoErrorKind::Lost)),
        None => Ok(()),
    }
}

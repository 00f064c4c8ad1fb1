//! A target that is offered to be read only, whatever it allows itself.
//!
//! Others may write to it through another door, so its content changes for those who read it here.

use std::rc::Rc;
use std::sync::Arc;

use braid_device::{Device, OpenError, Target, TargetInfo};
use braid_shard::Shard;

/// See the module's documentation.
pub(super) struct ReadOnly(pub Arc<dyn Target>);

impl Target for ReadOnly {
    fn info(&self) -> TargetInfo {
        TargetInfo { read_only: true, ..self.0.info() }
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        // What an export does not offer its connections refuse before any device sees it.
        self.0.open(shard)
    }
}

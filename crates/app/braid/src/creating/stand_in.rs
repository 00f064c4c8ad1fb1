//! A device that stands in for a member while an array is planned: the same size and blocks, reads as
//! zeros, forgets what is written.

use braid_device::{Completion, Device, DeviceInfo, Op, OpenError, Opener, Request};
use braid_shard::Shard;
use std::rc::Rc;

/// See the module's documentation.
pub struct StandIn {
    info: DeviceInfo,
}

impl StandIn {
    /// Stands in for the device that `info` describes.
    pub fn new(info: DeviceInfo) -> StandIn {
        StandIn { info }
    }
}

impl Opener for StandIn {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn open(&self, _: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Ok(Rc::new(Empty { info: self.info.clone() }))
    }
}

struct Empty {
    info: DeviceInfo,
}

impl Device for Empty {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, mut request: Request, done: Completion) {
        if let Op::Read(bufs) = &mut request.op {
            for buf in bufs {
                buf.fill(0);
            }
        }
        done.finish(Ok(()), request.op);
    }
}

//! The array as a device: looks at each request, and hands it to the step that carries it out.
//!
//! Healthy reads go straight to the members of any shard. Writes, and reads that need redundancy,
//! go to the owner of their unit.

use crate::engine::Engine;
use crate::engine::home::News;
use crate::read::start::read;
use crate::write::start::write;
use braid_device::{
    Completion, Device, DeviceInfo, FindAgreeing, FindHoles, IoError, IoErrorKind, Op, Outcome,
    Request, Sought,
};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// See the module's documentation.
/// One for each connection.
#[derive(Clone)]
pub(crate) struct ArrayDevice {
    engine: Rc<Engine>,
    info: Rc<DeviceInfo>,
    /// Losses that its client has been told of.
    told: Rc<Cell<u64>>,
    /// Counts as one that is open.
    _open: Rc<()>,
}

impl ArrayDevice {
    pub(crate) fn new(engine: &Rc<Engine>) -> ArrayDevice {
        // Losses from before this connection do not concern its client.
        let told = Rc::new(Cell::new(engine.home.reports.losses()));
        let size = engine.size.get();
        let info = match engine.info.size == size {
            true => Rc::clone(&engine.info),
            false => Rc::new(DeviceInfo { size, ..(*engine.info).clone() }),
        };
        ArrayDevice { engine: Rc::clone(engine), info, told, _open: Rc::clone(&engine.opened) }
    }
}

impl ArrayDevice {
    /// A request that is refused, that waits, or that covers no byte; `checked`: its length, if it can be carried out.
    #[inline(never)]
    fn submit_unusual(&self, request: Request, checked: Result<u64, IoError>, done: Completion) {
        let engine = &self.engine;
        if let Err(error) = checked {
            return done.finish(Err(error), request.op);
        }
        if engine.is_stopping() {
            return done.finish(Err(IoError::new(IoErrorKind::Refused)), request.op);
        }
        let len = checked.unwrap_or(0);
        let bytes = request.offset..request.offset.saturating_add(len);
        if engine.splits.hold.is_on() && engine.splits.hold.keeps(&bytes) {
            return engine.splits.hold.keep(request, Rc::new(self.clone()), done);
        }
        if len > 0 {
            return self.carry_out(request, len, done);
        }
        if !matches!(request.op, Op::Flush) {
            return done.complete(Outcome::ok(request.op));
        }
        self.flush(engine.measured.arrives(&request.op, 0, done));
    }

    /// A request that covers bytes, can be carried out and has to wait for nothing.
    #[inline(never)]
    fn carry_out(&self, request: Request, len: u64, done: Completion) {
        let engine = &self.engine;
        let done = engine.measured.arrives(&request.op, len, done);
        let offset = request.offset;
        match request.op {
            Op::Read(_) => {
                engine.note_size(len);
                read(engine, request, len, done);
            }
            Op::Write { .. } => {
                engine.note_size(len);
                write(engine, request, len, done);
            }
            // It covers no byte, so it does not come by here.
            Op::Flush => self.flush(done),
            Op::Discard { len } => crate::request::zeroing::discard(engine, offset, len, done),
            Op::WriteZeroes { len, unmap, fua } => {
                crate::request::zeroing::write_zeroes(engine, offset, len, unmap, fua, done);
            }
        }
    }

    #[inline(never)]
    fn flush(&self, done: Completion) {
        let (engine, told) = (Rc::clone(&self.engine), Rc::clone(&self.told));
        engine.tasks().flush.spawn((Rc::clone(&engine), told, done));
    }
}

impl Engine {
    /// The array as a device of this shard.
    pub fn device(self: &Rc<Engine>) -> Rc<dyn Device> {
        Rc::new(ArrayDevice::new(self))
    }
}

impl Device for ArrayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn cut_from(&self, bytes: u64) {
        self.engine.members.set_cut_from(bytes);
    }

    fn layers(&self) -> u32 {
        self.engine.members.layers()
    }

    fn may_hang(&self) -> bool {
        self.engine.members.may_hang()
    }

    fn hurry(&self) {
        self.engine.home.tell(News::Hurry);
    }

    fn waits_for_silent(&self) -> bool {
        self.engine.home.reports.waits_for_silent()
    }

    fn waits_for_space(&self) -> bool {
        self.engine.home.reports.any_waits_for_space()
    }

    fn find_agreeing(&self, sought: Sought) -> FindAgreeing {
        crate::read::agreeing::find(&self.engine, sought)
    }

    fn holes(&self, bytes: Range<u64>) -> FindHoles {
        crate::request::holes::holes(&self.engine, bytes)
    }

    fn submit(&self, request: Request, done: Completion) {
        let engine = &self.engine;
        match request.check(&self.info) {
            Ok(len) if len > 0 && !engine.is_stopping() && !engine.splits.hold.is_on() => {
                // Where requests are not timed they are so cheap that it shows how often one is moved: these two go on
                // right here.
                match &request.op {
                    Op::Read(_) if !engine.measured.is_timed() => {
                        engine.measured.count_request(&request.op, len);
                        read(engine, request, len, done);
                    }
                    Op::Write { .. } if !engine.measured.is_timed() => {
                        engine.measured.count_request(&request.op, len);
                        write(engine, request, len, done);
                    }
                    _ => self.carry_out(request, len, done),
                }
            }
            checked => self.submit_unusual(request, checked, done),
        }
    }
}

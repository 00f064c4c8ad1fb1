//! One request, from the guest's memory to the device and back.
//!
//! A write's payload is copied into a buffer of the shard before anything is done with it: the guest may change its memory
//! while parity is computed, and parity must be that of what is written.

use super::hub::Hub;
use crate::blk::config::REQUEST_BYTES_MAX;
use crate::blk::request::{
    ID_BYTES, Job, Range, SECTOR, SECTORS_PER_RANGE_MAX, Status, Verb, copy_in, copy_out,
};
use crate::memory::Memory;
use braid_device::{DeviceInfo, IoErrorKind, Op, Outcome, Request};
use braid_shard::sync::Share;
use std::rc::Rc;

/// Flags of a range that may be given back.
const F_UNMAP: u32 = 1;

/// Does it. Gives its status, and the bytes that were read and written.
pub(super) async fn execute(hub: &Rc<Hub>, job: &Job, memory: &Memory) -> (Status, (u64, u64)) {
    match job.verb {
        Verb::Write | Verb::Discard | Verb::WriteZeroes if hub.disk.is_read_only() => {
            (Status::Failed, (0, 0))
        }
        Verb::Read => match read(hub, job, memory).await {
            Some(()) => (Status::Ok, (job.bytes, 0)),
            None => (Status::Failed, (0, 0)),
        },
        Verb::Write => match write(hub, job, memory).await {
            Some(()) => (Status::Ok, (0, job.bytes)),
            None => (Status::Failed, (0, 0)),
        },
        Verb::Flush => (of(submit(hub, Request::flush()).await.result.is_ok()), (0, 0)),
        Verb::Discard | Verb::WriteZeroes => (ranges(hub, job, memory).await, (0, 0)),
        Verb::Id => match id(hub, job, memory) {
            Some(bytes) => (Status::Ok, (bytes, 0)),
            None => (Status::Failed, (0, 0)),
        },
        Verb::Unknown => (Status::Unsupported, (0, 0)),
    }
}

fn of(ok: bool) -> Status {
    if ok { Status::Ok } else { Status::Failed }
}

/// The first byte of a read or write that the device can take.
fn offset_of(hub: &Hub, job: &Job) -> Option<u64> {
    let within = |hub: &Hub| offset_within(hub.disk.device().info(), job);
    // A guest that has been told of growth uses what is new.
    within(hub).or_else(|| if hub.disk.has_grown() { within(hub) } else { None })
}

fn offset_within(info: &DeviceInfo, job: &Job) -> Option<u64> {
    let offset = job.sector.checked_mul(SECTOR)?;
    let block = u64::from(info.logical_block.max(1));
    let whole = offset.is_multiple_of(block) && job.bytes.is_multiple_of(block);
    let within = offset.checked_add(job.bytes)? <= info.size;
    (whole && within && (1..=REQUEST_BYTES_MAX).contains(&job.bytes)).then_some(offset)
}

/// Memory for a payload of so many bytes: that of its buffer.
async fn room(hub: &Hub, bytes: u64) -> Share {
    hub.budget.take(bytes.next_power_of_two().max(4096)).await
}

async fn read(hub: &Rc<Hub>, job: &Job, memory: &Memory) -> Option<()> {
    let offset = offset_of(hub, job)?;
    let _room = room(hub, job.bytes).await;
    let buf = hub.shard.pool().get(job.bytes as usize);
    let Outcome { result, op } = submit(hub, Request::read(offset, buf)).await;
    result.ok()?;
    let Op::Read(bufs) = op else { return None };
    let [buf] = bufs.as_slice() else { return None };
    // The guest's memory is none of ours once its front end has gone.
    if hub.has_ended() {
        return None;
    }
    copy_out(memory, &job.data, buf).ok()
}

async fn write(hub: &Rc<Hub>, job: &Job, memory: &Memory) -> Option<()> {
    let offset = offset_of(hub, job)?;
    let _room = room(hub, job.bytes).await;
    let mut buf = hub.shard.pool().get(job.bytes as usize);
    copy_in(memory, &job.data, &mut buf).ok()?;
    if memory.is_broken() {
        // Zeroes are none of the guest's.
        return None;
    }
    let fua = hub.durable_writes.get();
    submit(hub, Request::write(offset, buf.freeze(), fua)).await.result.ok()
}

async fn ranges(hub: &Rc<Hub>, job: &Job, memory: &Memory) -> Status {
    let ranges = job.ranges(memory).filter(|_| !memory.is_broken());
    let Some(ranges) = ranges else { return Status::Failed };
    // A flag that a range cannot have is told apart from one that fails.
    let known = if job.verb == Verb::WriteZeroes { F_UNMAP } else { 0 };
    if ranges.iter().any(|range| range.flags & !known != 0) {
        return Status::Unsupported;
    }
    let requests: Option<Vec<Request>> =
        ranges.iter().map(|range| request_of(hub, job.verb, range)).collect();
    let Some(requests) = requests else { return Status::Failed };
    for request in requests {
        let is_hint = matches!(request.op, Op::Discard { .. });
        if let Err(error) = submit(hub, request).await.result
            && !(is_hint && error.kind == IoErrorKind::Unsupported)
        {
            return Status::Failed;
        }
    }
    Status::Ok
}

/// `None` when the device cannot take it.
fn request_of(hub: &Hub, verb: Verb, range: &Range) -> Option<Request> {
    let offset = range.sector.checked_mul(SECTOR)?;
    let len = u64::from(range.sectors) * SECTOR;
    let op = match verb {
        Verb::Discard => Op::Discard { len },
        _ => {
            let (unmap, fua) = (range.flags & F_UNMAP != 0, hub.durable_writes.get());
            Op::WriteZeroes { len, unmap, fua }
        }
    };
    let request = Request { offset, op };
    let known = range.sectors > 0 && range.sectors <= SECTORS_PER_RANGE_MAX;
    let fits = || request.check(hub.disk.device().info()).is_ok();
    (known && (fits() || hub.disk.has_grown() && fits())).then_some(request)
}

/// Gives the bytes that the driver got.
fn id(hub: &Hub, job: &Job, memory: &Memory) -> Option<u64> {
    let mut id = [0; ID_BYTES];
    let name = hub.name.as_bytes();
    let length = name.len().min(ID_BYTES);
    id.get_mut(..length)?.copy_from_slice(name.get(..length)?);
    copy_out(memory, &job.data, &id).ok()?;
    Some(job.bytes.min(ID_BYTES as u64))
}

async fn submit(hub: &Hub, request: Request) -> Outcome {
    hub.sets.one(&*hub.disk.device(), request).await
}

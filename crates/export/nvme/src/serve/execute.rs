//! I/O commands as requests to the device, and what became of them as status.

use super::limits::REQUEST_BYTES_MAX;
use super::queue::{Answer, Queue, Token};
use super::work::Work;
use crate::protocol::{Command, Direction, Range, Sgl, Status, io, ranges};
use braid_device::{BufMuts, DeviceInfo, Op, Request};
use braid_export::Disk;
use std::rc::Rc;

/// The only namespace of a subsystem, and that of commands for all.
pub(super) const NAMESPACE: u32 = 1;
pub(super) const ALL_NAMESPACES: u32 = 0xffff_ffff;

/// The work of a command, and the bytes of its data.
///
/// # Errors
/// The status of a command that cannot be done.
pub(super) fn plan(disk: &Disk, command: &Command) -> Result<(Work, u32), Status> {
    match plan_within(disk, command) {
        Err(Status::LBA_OUT_OF_RANGE) if disk.has_grown() => plan_within(disk, command),
        planned => planned,
    }
}

fn plan_within(disk: &Disk, command: &Command) -> Result<(Work, u32), Status> {
    let device = disk.device();
    let info = device.info();
    let flushes_all = command.opcode() == io::FLUSH && command.namespace() == ALL_NAMESPACES;
    if command.namespace() != NAMESPACE && !flushes_all {
        return Err(Status::INVALID_NAMESPACE);
    }
    if command.is_fused() {
        return Err(Status::INVALID_FIELD);
    }
    let block = u64::from(info.logical_block.max(1));
    let writes = matches!(command.opcode(), io::WRITE | io::WRITE_ZEROES | io::DATASET_MANAGEMENT);
    if writes && disk.is_read_only() {
        return Err(Status::NAMESPACE_WRITE_PROTECTED);
    }
    let len = command.blocks() * block;
    let offset = || offset_of(info, command.block(), len);
    match command.opcode() {
        io::READ => {
            moved(command, len).and_then(|bytes| Ok((Work::Read { offset: offset()? }, bytes)))
        }
        io::WRITE => {
            let bytes = moved(command, len)?;
            Ok((Work::Write { offset: offset()?, fua: command.fua() }, bytes))
        }
        io::COMPARE => {
            let bytes = moved(command, len)?;
            Ok((Work::Compare { offset: offset()? }, bytes))
        }
        io::WRITE_ZEROES => {
            let unmap = command.dword(12) & 1 << 25 != 0;
            Ok((Work::Zeroes { offset: offset()?, len, unmap, fua: command.fua() }, 0))
        }
        io::DATASET_MANAGEMENT => {
            let ranges = (command.dword(10) & 0xff) as usize + 1;
            let deallocates = command.dword(11) & 1 << 2 != 0;
            let bytes = length_of(command).filter(|bytes| *bytes >= ranges as u32 * 16);
            let bytes = bytes.filter(|bytes| *bytes <= 4096).ok_or(Status::INVALID_SGL_LENGTH)?;
            Ok((if deallocates { Work::Discard { ranges } } else { Work::Hint }, bytes))
        }
        io::FLUSH => Ok((Work::Flush, 0)),
        _ => Err(Status::INVALID_OPCODE),
    }
}

/// The first byte of `len` bytes from the block `block` on.
fn offset_of(info: &DeviceInfo, block: u64, len: u64) -> Result<u64, Status> {
    let offset = block.checked_mul(u64::from(info.logical_block.max(1)));
    let fits = |offset: &u64| offset.checked_add(len).is_some_and(|end| end <= info.size);
    offset.filter(fits).ok_or(Status::LBA_OUT_OF_RANGE)
}

fn length_of(command: &Command) -> Option<u32> {
    match command.sgl() {
        Sgl::InCapsule(0, length) | Sgl::Transport(length) => Some(length),
        _ => None,
    }
}

/// Bytes that a command of `len` bytes moves.
fn moved(command: &Command, len: u64) -> Result<u32, Status> {
    let told = match command.sgl() {
        Sgl::Other(_) => return Err(Status::INVALID_SGL_TYPE),
        Sgl::InCapsule(_, _) if command.direction() == Direction::Out => {
            return Err(Status::INVALID_SGL_TYPE);
        }
        _ => length_of(command).ok_or(Status::INVALID_SGL_LENGTH)?,
    };
    if len > REQUEST_BYTES_MAX {
        return Err(Status::INVALID_FIELD);
    }
    if u64::from(told) == len { Ok(told) } else { Err(Status::INVALID_SGL_LENGTH) }
}

/// Starts a command whose memory is there: at the device, or with a demand for its data.
pub(super) fn start(queue: &Rc<Queue>, disk: &Disk, token: Token) {
    let Some((command, work, bytes)) = queue.command(token) else { return };
    queue.start(token);
    queue.figures.borrow().began();
    if command.direction() == Direction::In && bytes > 0 {
        return match queue.take_data(token) {
            Some((_, true)) => {
                queue.answer(
                    token,
                    Answer::Device(Err(Status::TRANSIENT_TRANSPORT), BufMuts::new()),
                );
            }
            Some((data, false)) => with_data(queue, disk, token, (work, data)),
            None => queue.ask_for_data(token),
        };
    }
    let op = match work {
        Work::Read { .. } => Op::Read([queue.shard.pool().get(bytes as usize)].into()),
        Work::Zeroes { len, unmap, fua, .. } => Op::WriteZeroes { len, unmap, fua },
        Work::Flush => Op::Flush,
        _ => return queue.answer(token, Answer::Device(Ok(()), BufMuts::new())),
    };
    let offset = match work {
        Work::Read { offset } | Work::Zeroes { offset, .. } => offset,
        _ => 0,
    };
    queue.busy(token, 1);
    disk.device().submit(Request { offset, op }, queue.completion(token));
}

/// Goes on with a command whose data has come.
pub(super) fn go_on(queue: &Rc<Queue>, disk: &Disk, token: Token) {
    let Some((_, work, _)) = queue.command(token) else { return };
    match queue.take_data(token) {
        Some((data, false)) => with_data(queue, disk, token, (work, data)),
        _ => queue.answer(token, Answer::Device(Err(Status::TRANSIENT_TRANSPORT), BufMuts::new())),
    }
}

fn with_data(
    queue: &Rc<Queue>,
    disk: &Disk,
    token: Token,
    (work, data): (Work, braid_shard::BufMut),
) {
    let device = disk.device();
    match work {
        Work::Write { offset, fua } => {
            queue.busy(token, 1);
            device.submit(Request::write(offset, data.freeze(), fua), queue.completion(token));
        }
        Work::Compare { offset } => {
            let found = queue.shard.pool().get(data.len());
            queue.keep_data(token, data);
            queue.busy(token, 1);
            device.submit(Request::read(offset, found), queue.completion(token));
        }
        Work::Discard { ranges: count } => {
            let requests = match discards(disk, &data, count) {
                Err(Status::LBA_OUT_OF_RANGE) if disk.has_grown() => discards(disk, &data, count),
                requests => requests,
            };
            let device = disk.device();
            match requests {
                Err(status) => queue.answer(token, Answer::Device(Err(status), BufMuts::new())),
                Ok(requests) if requests.is_empty() => {
                    queue.answer(token, Answer::Device(Ok(()), BufMuts::new()));
                }
                Ok(requests) => {
                    // At most 256.
                    queue.busy(token, requests.len() as u32);
                    for request in requests {
                        device.submit(request, queue.completion(token));
                    }
                }
            }
        }
        _ => queue.answer(token, Answer::Device(Ok(()), BufMuts::new())),
    }
}

/// A request for each range.
fn discards(disk: &Disk, data: &[u8], count: usize) -> Result<Vec<Request>, Status> {
    let device = disk.device();
    let info = device.info();
    let block = u64::from(info.logical_block.max(1));
    let ranges = ranges(data, count).ok_or(Status::INVALID_FIELD)?;
    let covered = ranges.iter().filter(|range| range.blocks > 0);
    let request = |range: &Range| {
        let len = u64::from(range.blocks) * block;
        let offset = offset_of(info, range.start, len)?;
        Ok(Request { offset, op: Op::Discard { len } })
    };
    covered.map(request).collect()
}

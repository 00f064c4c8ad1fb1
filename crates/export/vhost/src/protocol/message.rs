//! A message of the front end.

use super::constants::{
    BODY_BYTES_MAX, CONFIG_BYTES_MAX, DESCRIPTORS_MAX, HEADER_BYTES, QUEUES_MAX,
};
use super::fields::Fields;

pub(super) const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
pub(super) const FLAG_REPLY: u32 = 4;
const FLAG_NEED_REPLY: u32 = 8;

/// Bytes of a region in a body.
const REGION_BYTES: usize = 32;

/// `VHOST_USER_GET_CONFIG`.
pub const CODE_GET_CONFIG: u32 = 24;

/// The front end broke a rule of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A header that is none.
    #[error(
        "a header with the flags {flags:#x} and {size} bytes to follow is none of vhost-user's"
    )]
    Header {
        /// Its flags.
        flags: u32,
        /// The bytes that it announces.
        size: u32,
    },
    /// A message that was not offered.
    #[error("message {0} is not known here")]
    Unknown(u32),
    /// A body of the wrong length or with impossible values.
    #[error("message {0} has a body that it cannot have")]
    Body(u32),
    /// Too many or too few descriptors.
    #[error("message {code} came with {found} descriptors")]
    Descriptors {
        /// The message.
        code: u32,
        /// Descriptors that came with it.
        found: usize,
    },
    /// A queue that there cannot be.
    #[error("message {code} is about queue {queue}")]
    Queue {
        /// The message.
        code: u32,
        /// The queue's number.
        queue: u32,
    },
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's number.
    pub code: u32,
    /// Bytes of the body, at most [`BODY_BYTES_MAX`].
    pub size: u32,
    /// The front end asks for a reply where there is none by itself.
    pub needs_reply: bool,
}

impl Header {
    /// Takes a header apart.
    ///
    /// # Errors
    /// Another version, a reply, a body that is too long.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, Violation> {
        let mut fields = Fields(bytes);
        // Twelve bytes are three numbers.
        let mut next = || fields.u32().unwrap_or_default();
        let (code, flags, size) = (next(), next(), next());
        let known = VERSION_MASK | FLAG_NEED_REPLY;
        let fits = usize::try_from(size).is_ok_and(|size| size <= BODY_BYTES_MAX);
        if flags & VERSION_MASK != VERSION || flags & !known != 0 || !fits {
            return Err(Violation::Header { flags, size });
        }
        Ok(Header { code, size, needs_reply: flags & FLAG_NEED_REPLY != 0 })
    }
}

/// A range of the guest's memory. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its address for the guest.
    pub guest: u64,
    /// Its size.
    pub size: u64,
    /// Its address in the front end.
    pub user: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

/// Where the parts of a ring are, as addresses in the front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAddresses {
    /// The table of descriptors.
    pub descriptors: u64,
    /// The used ring.
    pub used: u64,
    /// The available ring.
    pub available: u64,
}

/// The memory in which requests under way are tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightShape {
    /// Its bytes.
    pub size: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// Queues.
    pub queues: u16,
    /// Descriptors of each.
    pub queue_size: u16,
}

impl InflightShape {
    /// As the body of a reply.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.size.to_ne_bytes(), self.offset.to_ne_bytes()].concat();
        bytes.extend_from_slice(&self.queues.to_ne_bytes());
        bytes.extend_from_slice(&self.queue_size.to_ne_bytes());
        // The structure is padded to a multiple of eight.
        bytes.extend_from_slice(&[0; 4]);
        bytes
    }
}

/// A message; with the number of a queue where it is about one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named as in the specification.
pub enum Message {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    /// A descriptor comes with each.
    SetMemTable(Vec<Region>),
    SetVringNum {
        queue: u16,
        size: u16,
    },
    SetVringAddr {
        queue: u16,
        addresses: RingAddresses,
    },
    SetVringBase {
        queue: u16,
        base: u16,
    },
    GetVringBase {
        queue: u16,
    },
    /// With a descriptor, or without one.
    SetVringKick {
        queue: u16,
        with: bool,
    },
    SetVringCall {
        queue: u16,
        with: bool,
    },
    SetVringErr {
        queue: u16,
        with: bool,
    },
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable {
        queue: u16,
        enable: bool,
    },
    /// A descriptor comes with it.
    SetBackendReqFd,
    GetConfig {
        offset: u32,
        size: u32,
    },
    SetConfig,
    GetInflightFd(InflightShape),
    /// A descriptor comes with it.
    SetInflightFd(InflightShape),
    ResetDevice,
}

impl Message {
    /// Takes a body apart that came with so many descriptors.
    ///
    /// # Errors
    /// The first field that does not fit.
    pub fn decode(header: Header, body: &[u8], descriptors: usize) -> Result<Message, Violation> {
        let code = header.code;
        let mut fields = Fields(body);
        let message = match code {
            1 => Message::GetFeatures,
            2 => Message::SetFeatures(number(code, &mut fields)?),
            3 => Message::SetOwner,
            4 => Message::ResetOwner,
            5 => Message::SetMemTable(regions(code, &mut fields)?),
            8 => {
                let (queue, size) = ring_state(code, &mut fields)?;
                Message::SetVringNum { queue, size }
            }
            9 => ring_addresses(code, &mut fields)?,
            10 => {
                let (queue, base) = ring_state(code, &mut fields)?;
                Message::SetVringBase { queue, base }
            }
            11 => Message::GetVringBase { queue: ring_state(code, &mut fields)?.0 },
            12..=14 => of_ring(code, number(code, &mut fields)?)?,
            15 => Message::GetProtocolFeatures,
            16 => Message::SetProtocolFeatures(number(code, &mut fields)?),
            17 => Message::GetQueueNum,
            18 => match ring_state(code, &mut fields)? {
                (queue, enable @ 0..=1) => Message::SetVringEnable { queue, enable: enable == 1 },
                _ => return Err(Violation::Body(code)),
            },
            21 => Message::SetBackendReqFd,
            CODE_GET_CONFIG => {
                let (offset, size) = config(code, &mut fields)?;
                Message::GetConfig { offset, size }
            }
            25 => config(code, &mut fields).map(|_| Message::SetConfig)?,
            31 => Message::GetInflightFd(inflight(code, &mut fields)?),
            32 => Message::SetInflightFd(inflight(code, &mut fields)?),
            34 => Message::ResetDevice,
            _ => return Err(Violation::Unknown(code)),
        };
        if !fields.0.is_empty() {
            return Err(Violation::Body(code));
        }
        match message.descriptors() == descriptors {
            true => Ok(message),
            false => Err(Violation::Descriptors { code, found: descriptors }),
        }
    }

    /// Descriptors that come with it.
    fn descriptors(&self) -> usize {
        match self {
            Message::SetMemTable(regions) => regions.len(),
            Message::SetVringKick { with: true, .. }
            | Message::SetVringCall { with: true, .. }
            | Message::SetVringErr { with: true, .. }
            | Message::SetBackendReqFd
            | Message::SetInflightFd(_) => 1,
            _ => 0,
        }
    }
}

fn number(code: u32, fields: &mut Fields<'_>) -> Result<u64, Violation> {
    fields.u64().ok_or(Violation::Body(code))
}

fn queue_of(code: u32, queue: u32) -> Result<u16, Violation> {
    let known = u16::try_from(queue).ok().filter(|queue| *queue < QUEUES_MAX);
    known.ok_or(Violation::Queue { code, queue })
}

/// `struct vhost_vring_state`: a queue, and a number that has 16 bits in all its uses.
fn ring_state(code: u32, fields: &mut Fields<'_>) -> Result<(u16, u16), Violation> {
    let both = fields.u32().zip(fields.u32()).ok_or(Violation::Body(code))?;
    let number = u16::try_from(both.1).map_err(|_| Violation::Body(code))?;
    Ok((queue_of(code, both.0)?, number))
}

/// A queue in the lowest eight bits, and a bit that says that no descriptor comes.
fn of_ring(code: u32, value: u64) -> Result<Message, Violation> {
    const NO_DESCRIPTOR: u64 = 1 << 8;
    if value & !(NO_DESCRIPTOR | 0xff) != 0 {
        return Err(Violation::Body(code));
    }
    let (queue, with) = (queue_of(code, (value & 0xff) as u32)?, value & NO_DESCRIPTOR == 0);
    Ok(match code {
        12 => Message::SetVringKick { queue, with },
        13 => Message::SetVringCall { queue, with },
        _ => Message::SetVringErr { queue, with },
    })
}

fn ring_addresses(code: u32, fields: &mut Fields<'_>) -> Result<Message, Violation> {
    let mut read = || {
        let (queue, _flags) = (fields.u32()?, fields.u32()?);
        let (descriptors, used, available) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let _log = fields.u64()?;
        Some((queue, RingAddresses { descriptors, used, available }))
    };
    let (queue, addresses) = read().ok_or(Violation::Body(code))?;
    Ok(Message::SetVringAddr { queue: queue_of(code, queue)?, addresses })
}

fn regions(code: u32, fields: &mut Fields<'_>) -> Result<Vec<Region>, Violation> {
    let count = fields.u32().zip(fields.u32()).map(|(count, _padding)| count as usize);
    let count = count.filter(|count| (1..=DESCRIPTORS_MAX).contains(count));
    let mut region = |_| {
        let (guest, size) = (fields.u64()?, fields.u64()?);
        let (user, offset) = (fields.u64()?, fields.u64()?);
        Some(Region { guest, size, user, offset })
    };
    let regions = count.and_then(|count| (0..count).map(&mut region).collect::<Option<Vec<_>>>());
    // Linux' driver of User Mode Linux sends its whole array, however many of it count.
    let rest = fields.0.len();
    if rest > DESCRIPTORS_MAX * REGION_BYTES {
        return Err(Violation::Body(code));
    }
    fields.0 = &[];
    regions.ok_or(Violation::Body(code))
}

/// An offset and a size in the configuration space; the bytes that follow are of no use in a request to read it, and there
/// is nothing to be written.
fn config(code: u32, fields: &mut Fields<'_>) -> Result<(u32, u32), Violation> {
    let mut read = || Some((fields.u32()?, fields.u32()?, fields.u32()?));
    let (offset, size, _flags) = read().ok_or(Violation::Body(code))?;
    let within = offset.checked_add(size).is_some_and(|end| end <= CONFIG_BYTES_MAX);
    if !within || fields.0.len() != size as usize {
        return Err(Violation::Body(code));
    }
    fields.0 = &[];
    Ok((offset, size))
}

fn inflight(code: u32, fields: &mut Fields<'_>) -> Result<InflightShape, Violation> {
    let mut read = || {
        let (size, offset) = (fields.u64()?, fields.u64()?);
        let (queues, queue_size) = (fields.u16()?, fields.u16()?);
        // Padding: front ends send it or not.
        fields.0 = fields.0.get(4..).unwrap_or(fields.0);
        Some(InflightShape { size, offset, queues, queue_size })
    };
    let shape = read().ok_or(Violation::Body(code))?;
    match (1..=QUEUES_MAX).contains(&shape.queues) {
        true => Ok(shape),
        false => Err(Violation::Body(code)),
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;

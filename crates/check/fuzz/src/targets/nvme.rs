//! NVMe over TCP, what a host sends: a byte that says how the stream is cut, then the stream.
//!
//! A stream is decoded twice, whole and in pieces: what it means must not depend on where it was cut. What follows a command
//! in its capsule is read as what that command has there: names of a Connect, ranges of a Dataset Management. Messages of
//! an authentication, which is the data of commands too, have a parser of their own.

use super::target::{PLAIN, Target, Verdict, head, must};
use crate::mutate::{Field, le};
use braid_nvme::protocol::authentication::Message;
use braid_nvme::protocol::{
    Command, ConnectData, Crc32c, DIGEST_BYTES, Decoder, Direction, Encoder, Event, Fabrics,
    INITIALIZE_BYTES, MAX_IN_CAPSULE, Payload, Sgl, io, ranges,
};

/// The PDUs of a host.
pub const PDUS: Target = Target {
    name: "nvme-pdus",
    what: "NVMe/TCP server: PDUs, commands and the data of Connect",
    fields: FIELDS,
    fix,
    run: both_ways,
    ..PLAIN
};

/// The messages of an authentication.
pub const AUTHENTICATION: Target = Target {
    name: "nvme-authentication",
    what: "NVMe: messages of DH-HMAC-CHAP, either way",
    fields: &[
        le(0, 1),
        le(1, 1),
        le(4, 2),
        le(6, 1),
        le(7, 1),
        le(8, 1),
        le(9, 1),
        le(10, 2),
        le(10, 1),
        le(11, 1),
        le(12, 4),
        le(12, 1),
        le(42, 1),
    ],
    run: authentication,
    ..PLAIN
};

fn authentication(input: &[u8]) -> Result<Verdict, String> {
    let Ok(message) = Message::decode(input) else { return Ok(Verdict::Refused) };
    let bytes = message.encode();
    // At most a hash, a challenge, and what is before them.
    must(bytes.len() <= 16 + 2 * 255, "a message is not too long")?;
    must(Message::decode(&bytes) == Ok(message), "a message survives the wire")?;
    Ok(Verdict::Accepted)
}

/// Bytes before the first PDU.
const CUT: usize = 1;
/// Where the second PDU begins.
const SECOND: usize = CUT + INITIALIZE_BYTES;

const FIELDS: &[Field] = &[
    // The first PDU: type, flags, header, offset of data, length, version, alignment, digests, R2Ts.
    le(CUT, 1),
    le(CUT + 1, 1),
    le(CUT + 2, 1),
    le(CUT + 3, 1),
    le(CUT + 4, 4),
    le(CUT + 8, 2),
    le(CUT + 10, 1),
    le(CUT + 11, 1),
    le(CUT + 12, 4),
    // The second: the same, and the fields of a command.
    le(SECOND, 1),
    le(SECOND + 1, 1),
    le(SECOND + 2, 1),
    le(SECOND + 3, 1),
    le(SECOND + 4, 4),
    le(SECOND + 8, 1),
    le(SECOND + 9, 1),
    le(SECOND + 10, 2),
    le(SECOND + 12, 4),
    le(SECOND + 16, 4),
    le(SECOND + 32, 8),
    le(SECOND + 40, 4),
    le(SECOND + 47, 1),
    le(SECOND + 48, 4),
    le(SECOND + 52, 4),
    le(SECOND + 56, 4),
];

/// Makes the digests of headers right, as far as PDUs can be followed.
fn fix(input: &mut [u8]) {
    if input.get(CUT + 11).is_none_or(|digests| digests & 1 == 0) {
        return;
    }
    let mut at = SECOND;
    while let Some(pdu) = input.get_mut(at..) {
        let Some([_, flags, header, _, l0, l1, l2, l3]) = pdu.first_chunk::<8>().copied() else {
            return;
        };
        let header = usize::from(header);
        if let Some((bytes, digest)) = pdu.split_at_mut_checked(header)
            && flags & 1 != 0
            && let Some(digest) = digest.first_chunk_mut::<DIGEST_BYTES>()
        {
            *digest = Crc32c::of(bytes).to_le_bytes();
        }
        at = at.saturating_add((u32::from_le_bytes([l0, l1, l2, l3]) as usize).max(8));
    }
}

/// The meaning of a stream.
#[derive(Default)]
struct Meaning {
    /// In words.
    events: Vec<String>,
    /// The last words to the host.
    sent: Vec<u8>,
    commands: usize,
}

fn both_ways(input: &[u8]) -> Result<Verdict, String> {
    let ([cut], stream) = head::<CUT>(input);
    let whole = decode(&mut std::iter::once(stream))?;
    let pieces = decode(&mut stream.chunks(1 + usize::from(cut) % 60))?;
    must(whole.events == pieces.events, "a stream means the same however it is cut")?;
    must(whole.sent == pieces.sent, "a stream is answered the same however it is cut")?;
    Ok(if whole.commands > 0 { Verdict::Accepted } else { Verdict::Refused })
}

fn decode(pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Meaning, String> {
    let mut decoder = Decoder::new();
    let mut meaning = Meaning::default();
    // The command whose payload comes, the payload so far, and bytes of it and its digest that are to come.
    let mut command = None;
    let mut data = Vec::new();
    let mut missing = 0;
    for piece in pieces {
        let mut input = piece;
        for step in 0.. {
            must(step < piece.len() + 2, "a decoder gets on")?;
            let (taken, rest) = input.split_at(missing.min(input.len()));
            data.extend(taken);
            (input, missing) = (rest, missing - taken.len());
            if missing > 0 {
                break;
            }
            if let Some(command) = command.take() {
                meaning.events.push(read(&command, &data)?);
            }
            data.clear();
            match decoder.step(&mut input) {
                Ok(Event::NeedMore) => {
                    must(input.is_empty(), "a decoder that needs more has taken all")?;
                    break;
                }
                Ok(event) => {
                    missing = match &event {
                        Event::Initialize(wishes) => {
                            decoder.set_digests(wishes.header_digest, wishes.data_digest);
                            0
                        }
                        Event::Command(came, payload) => {
                            must(payload.length <= MAX_IN_CAPSULE, "a capsule is not too long")?;
                            must(Command::new(*came.bytes()) == *came, "a command is its bytes")?;
                            meaning.commands += 1;
                            command = Some(*came);
                            bytes_of(payload)
                        }
                        Event::Data { payload, .. } => {
                            must(payload.length > 0, "data is not empty")?;
                            bytes_of(payload)
                        }
                        Event::Terminated(_) | Event::NeedMore => 0,
                    };
                    meaning.events.push(format!("{event:?}"));
                    if let Event::Terminated(_) = event {
                        return Ok(meaning);
                    }
                }
                Err(violation) => {
                    Encoder::terminate(&violation, &mut meaning.sent);
                    let told = meaning.sent.get(4..8).and_then(|bytes| bytes.try_into().ok());
                    let told = told.map_or(0, u32::from_le_bytes) as usize;
                    must(told == meaning.sent.len(), "last words are as long as they say")?;
                    must(told <= 24 + 128, "last words are short")?;
                    meaning.events.push(violation.to_string());
                    return Ok(meaning);
                }
            }
        }
    }
    Ok(meaning)
}

fn bytes_of(payload: &Payload) -> usize {
    payload.length as usize + if payload.digest { DIGEST_BYTES } else { 0 }
}

/// The fields that the server reads of a command and of the data in its capsule.
fn read(command: &Command, data: &[u8]) -> Result<String, String> {
    must((1..=1 << 16).contains(&command.blocks()), "a command has 1 to 65536 blocks")?;
    let how = (command.sgl(), command.direction(), command.fabrics(), command.is_fused());
    if let (Sgl::InCapsule(..), Direction::Out, None, _) = how {
        return Ok("data of a read in the capsule".to_owned());
    }
    let what = if command.fabrics() == Some(Fabrics::Connect) {
        let names = ConnectData::decode(data);
        if let Ok(names) = &names {
            must(
                ConnectData::decode(&names.encode()) == Ok(names.clone()),
                "names survive the wire",
            )?;
        }
        format!("{names:?}")
    } else if command.opcode() == io::DATASET_MANAGEMENT {
        let count = (command.dword(10) & 0xff) as usize + 1;
        let found = ranges(data, count);
        must(
            found.as_ref().is_none_or(|found| found.len() == count && data.len() >= count * 16),
            "ranges are inside their data",
        )?;
        format!("{found:?}")
    } else {
        format!("{} {} {}", command.block(), command.fua(), command.namespace())
    };
    Ok(format!("{how:?} {what}"))
}

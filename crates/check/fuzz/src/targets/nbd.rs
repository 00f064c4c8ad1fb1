//! The NBD protocol, both ends: a byte that says how the stream is cut, then the peer's bytes.
//!
//! A stream is decoded twice, whole and in pieces: what it means must not depend on where it was cut.

use super::target::{PLAIN, Target, Verdict, head, must, no_checksum};
use crate::mutate::{Field, be};
use braid_nbd::protocol::{
    BlockSizes, ClientHandshake, ClientHandshakeStep, ClientOptions, Command, Export, ExportTable,
    Features, Headers, Negotiated, ReplyDecoder, ReplyEvent, RequestDecoder, RequestEvent,
    RequestRules, ServerHandshake, ServerHandshakeStep, TlsOffer,
};

/// What a client sends before transmission.
pub const SERVER_HANDSHAKE: Target = Target {
    name: "nbd-options",
    what: "NBD server: a client's flags and options",
    fields: &[be(1, 4), be(5, 8), be(13, 4), be(17, 4), be(21, 4), be(25, 4), be(29, 2)],
    fix: no_checksum,
    run: |input| match input.first().map_or(0, |cut| cut % 3) {
        0 => both_ways(input, |pieces| server_handshake(TlsOffer::Off, pieces)),
        1 => both_ways(input, |pieces| server_handshake(TlsOffer::Allow, pieces)),
        _ => both_ways(input, |pieces| server_handshake(TlsOffer::Require, pieces)),
    },
    ..PLAIN
};

/// What a client sends in transmission.
pub const REQUESTS: Target = Target {
    name: "nbd-requests",
    what: "NBD server: requests",
    fields: REQUEST_FIELDS,
    fix: no_checksum,
    run: |input| both_ways(input, |pieces| requests(Headers::Structured, pieces)),
    ..PLAIN
};

/// The messages of a client in transmission when lengths have 64 bits.
pub const EXTENDED_REQUESTS: Target = Target {
    name: "nbd-extended-requests",
    what: "NBD server: requests with extended headers",
    fields: EXTENDED_REQUEST_FIELDS,
    fix: no_checksum,
    run: |input| both_ways(input, |pieces| requests(Headers::Extended, pieces)),
    ..PLAIN
};

/// What a server sends before transmission.
pub const CLIENT_HANDSHAKE: Target = Target {
    name: "nbd-offers",
    what: "NBD client: a server's greeting and option replies",
    fields: &[
        be(1, 8),
        be(9, 8),
        be(17, 2),
        be(19, 8),
        be(27, 4),
        be(31, 4),
        be(35, 4),
        be(39, 2),
        be(41, 8),
    ],
    fix: no_checksum,
    run: |input| both_ways(input, client_handshake),
    ..PLAIN
};

/// What a server sends in transmission.
pub const REPLIES: Target = Target {
    name: "nbd-replies",
    what: "NBD client: simple and structured replies",
    fields: &[
        be(1, 4),
        be(5, 2),
        be(7, 2),
        be(9, 8),
        be(17, 4),
        be(21, 8),
        be(29, 4),
        be(37, 4),
        be(45, 4),
    ],
    fix: no_checksum,
    run: |input| both_ways(input, replies),
    ..PLAIN
};

/// The same with extended headers: an error first, then a success.
pub const EXTENDED_REPLIES: Target = Target {
    name: "nbd-extended-replies",
    what: "NBD client: extended replies",
    fields: &[be(1, 4), be(5, 2), be(7, 2), be(9, 8), be(17, 8), be(25, 8), be(33, 4), be(37, 2)],
    fix: no_checksum,
    run: |input| both_ways(input, extended_replies),
    ..PLAIN
};

const REQUEST_FIELDS: &[Field] = &[
    be(1, 4),
    be(5, 2),
    be(7, 2),
    be(9, 8),
    be(17, 8),
    be(25, 4),
    be(29, 4),
    be(33, 2),
    be(35, 2),
    be(45, 8),
    be(53, 4),
];

/// A block status request with a payload first, then a request without one.
const EXTENDED_REQUEST_FIELDS: &[Field] = &[
    be(1, 4),
    be(5, 2),
    be(7, 2),
    be(9, 8),
    be(17, 8),
    be(25, 8),
    be(33, 8),
    be(41, 4),
    be(45, 4),
    be(49, 2),
    be(51, 2),
    be(61, 8),
    be(69, 8),
];

/// What a stream meant: a line for each event, in words, and how it ended.
struct Meaning {
    events: Vec<String>,
    sent: Vec<u8>,
    verdict: Verdict,
}

/// Decodes the pieces of a stream one after the other.
type Decode = fn(&mut dyn Iterator<Item = &[u8]>) -> Result<Meaning, String>;

fn both_ways(input: &[u8], decode: Decode) -> Result<Verdict, String> {
    let ([cut], stream) = head::<1>(input);
    let whole = decode(&mut std::iter::once(stream))?;
    // Pieces of one length are enough: the byte decides which.
    let pieces = decode(&mut stream.chunks(1 + usize::from(cut) % 40))?;
    must(whole.events == pieces.events, "a stream means the same however it is cut")?;
    must(whole.sent == pieces.sent, "a stream is answered the same however it is cut")?;
    must(whole.verdict == pieces.verdict, "a stream ends the same however it is cut")?;
    Ok(whole.verdict)
}

fn export() -> Export {
    Export {
        name: "disk".to_owned(),
        description: "an array".to_owned(),
        size: 1 << 30,
        block: BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 },
        features: Features {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            fast_zero: true,
            cache: true,
            ..Features::default()
        },
    }
}

/// Options that are answered before a client has had enough: each takes at least 16 bytes.
fn steps_of(piece: &[u8]) -> usize {
    piece.len() + 2
}

fn server_handshake(
    tls: TlsOffer,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Result<Meaning, String> {
    let exports = ExportTable::new(vec![export()], None).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let mut handshake = ServerHandshake::new(tls, &mut out);
    let mut events = Vec::new();
    let mut verdict = Verdict::Refused;
    'stream: for piece in pieces {
        let mut input = piece;
        for step in 0.. {
            must(step < steps_of(piece), "a handshake gets on")?;
            match handshake.step(&exports, &mut input, &mut out) {
                Ok(ServerHandshakeStep::NeedMore) => break,
                Ok(ServerHandshakeStep::Answered) => verdict = Verdict::Accepted,
                Ok(ServerHandshakeStep::StartTls) => {
                    must(tls != TlsOffer::Off, "TLS begins where it is offered")?;
                    must(!events.contains(&"TLS".to_owned()), "TLS begins once")?;
                    // The rest of the stream stands for what would come within it.
                    handshake.tls_begun();
                    events.push("TLS".to_owned());
                }
                Ok(end) => {
                    must(
                        tls != TlsOffer::Require
                            || events.contains(&"TLS".to_owned())
                            || end == ServerHandshakeStep::Closed,
                        "nobody gets in without TLS where it is required",
                    )?;
                    events.push(format!("{end:?}"));
                    break 'stream;
                }
                Err(error) => {
                    events.push(error.to_string());
                    break 'stream;
                }
            }
        }
        must(input.is_empty(), "a handshake that needs more has taken all")?;
    }
    Ok(Meaning { events, sent: out, verdict })
}

fn requests(headers: Headers, pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Meaning, String> {
    let negotiated = Negotiated { export: 0, headers, base_allocation: true, block_sizes: true };
    // Extended requests may be about more than 4 GiB.
    let size = if headers == Headers::Extended { 1 << 50 } else { 1 << 30 };
    let export = Export { size, ..export() };
    let mut decoder = RequestDecoder::new(RequestRules::new(&export, negotiated));
    let mut events = Vec::new();
    let mut verdict = Verdict::Refused;
    let mut payload = 0usize;
    'stream: for piece in pieces {
        let mut input = piece;
        for step in 0.. {
            must(step < steps_of(piece), "a decoder gets on")?;
            let skipped = payload.min(input.len());
            input = &input[skipped..];
            payload -= skipped;
            if payload > 0 {
                break;
            }
            match decoder.step(&mut input) {
                Ok(RequestEvent::NeedMore) => break,
                Ok(RequestEvent::Request(request)) => {
                    verdict = Verdict::Accepted;
                    let end = request.offset.checked_add(request.length);
                    must(
                        end.is_some_and(|end| end <= export.size),
                        "a request is inside the export",
                    )?;
                    must(request.length.is_multiple_of(512), "a request is aligned")?;
                    must(
                        headers == Headers::Extended || u32::try_from(request.length).is_ok(),
                        "a compact request counts in 32 bits",
                    )?;
                    if request.command == Command::Write {
                        let maximum = u64::from(export.block.maximum);
                        must(request.length <= maximum, "a write is not too long")?;
                        payload = request.length as usize;
                    }
                    events.push(format!("{request:?}"));
                }
                Ok(event @ RequestEvent::Refuse(_)) => events.push(format!("{event:?}")),
                Ok(RequestEvent::Disconnect) => {
                    events.push("disconnect".to_owned());
                    break 'stream;
                }
                Err(error) => {
                    events.push(error.to_string());
                    break 'stream;
                }
            }
        }
    }
    Ok(Meaning { events, sent: Vec::new(), verdict })
}

fn client_handshake(pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Meaning, String> {
    let options = ClientOptions { export: "disk".to_owned(), headers: Headers::Structured };
    let mut handshake = ClientHandshake::new(options).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let mut events = Vec::new();
    let mut verdict = Verdict::Refused;
    for piece in pieces {
        let mut input = piece;
        match handshake.step(&mut input, &mut out) {
            Ok(ClientHandshakeStep::NeedMore) => {
                must(input.is_empty(), "a handshake that needs more has taken all")?;
            }
            Ok(ClientHandshakeStep::StartTls) => {
                return Err("TLS began, which nobody asked for".to_owned());
            }
            Ok(ClientHandshakeStep::Transmission(offer)) => {
                verdict = Verdict::Accepted;
                events.push(format!("{offer:?}"));
                break;
            }
            Err(error) => {
                events.push(error.to_string());
                break;
            }
        }
    }
    Ok(Meaning { events, sent: out, verdict })
}

fn replies(pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Meaning, String> {
    replies_with(Headers::Structured, pieces)
}

fn extended_replies(pieces: &mut dyn Iterator<Item = &[u8]>) -> Result<Meaning, String> {
    replies_with(Headers::Extended, pieces)
}

fn replies_with(
    headers: Headers,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Result<Meaning, String> {
    let mut decoder = ReplyDecoder::new(headers);
    let mut events = Vec::new();
    let mut verdict = Verdict::Refused;
    let mut payload = 0usize;
    'stream: for piece in pieces {
        let mut input = piece;
        for step in 0.. {
            must(step < steps_of(piece), "a decoder gets on")?;
            let skipped = payload.min(input.len());
            input = &input[skipped..];
            payload -= skipped;
            if payload > 0 {
                break;
            }
            match decoder.step(&mut input) {
                Ok(ReplyEvent::NeedMore) => break,
                Ok(event) => {
                    verdict = Verdict::Accepted;
                    if let ReplyEvent::Data { length, .. } = event {
                        must(length > 0, "data is not empty")?;
                        payload = length as usize;
                    }
                    events.push(format!("{event:?} {}", decoder.message()));
                }
                Err(error) => {
                    events.push(error.to_string());
                    break 'stream;
                }
            }
        }
    }
    Ok(Meaning { events, sent: Vec::new(), verdict })
}

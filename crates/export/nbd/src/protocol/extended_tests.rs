//! Extended headers: negotiation, requests with 64-bit lengths, and the bytes of replies.

use super::constants::*;
use super::*;

const SIZE: u64 = 1 << 50;
const COOKIE: u64 = 0x0102_0304_0506_0708;

fn export() -> Export {
    Export {
        name: "disk".into(),
        description: String::new(),
        size: SIZE,
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

fn decoder(base_allocation: bool) -> RequestDecoder {
    let headers = Headers::Extended;
    let negotiated = Negotiated { export: 0, headers, base_allocation, block_sizes: true };
    RequestDecoder::new(RequestRules::new(&export(), negotiated))
}

fn raw(flags: u16, kind: u16, offset: u64, length: u64, payload: &[u8]) -> Vec<u8> {
    [
        &EXTENDED_REQUEST_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &kind.to_be_bytes(),
        &COOKIE.to_be_bytes(),
        &offset.to_be_bytes(),
        &length.to_be_bytes(),
        payload,
    ]
    .concat()
}

fn contexts(length: u64, ids: &[u32]) -> Vec<u8> {
    let ids = ids.iter().flat_map(|id| id.to_be_bytes());
    length.to_be_bytes().into_iter().chain(ids).collect()
}

fn status(length: u64, ids: &[u32]) -> Vec<u8> {
    let payload = contexts(length, ids);
    raw(CMD_FLAG_PAYLOAD_LEN, CMD_BLOCK_STATUS, 0, payload.len() as u64, &payload)
}

/// All events of a stream, in pieces of this length.
fn events(stream: &[u8], piece: usize) -> Vec<RequestEvent> {
    let mut decoder = decoder(true);
    let mut found = Vec::new();
    for mut input in stream.chunks(piece) {
        loop {
            match decoder.step(&mut input).expect("the stream can be followed") {
                RequestEvent::NeedMore => break,
                event => found.push(event),
            }
        }
        assert!(input.is_empty());
    }
    assert!(decoder.at_boundary());
    found
}

fn only(stream: &[u8]) -> RequestEvent {
    let found = events(stream, usize::MAX >> 1);
    assert_eq!(found, events(stream, 1));
    assert_eq!(found.len(), 1, "{found:?}");
    found[0]
}

fn refused(stream: &[u8]) -> ErrorCode {
    match only(stream) {
        RequestEvent::Refuse(Refusal { cookie: COOKIE, code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

/// The answers of a server to these options: the types of its replies, the transmission flags it told last, and how it ended.
fn agree(options: &[(u32, &[u8])]) -> (Vec<u32>, u16, Result<ServerHandshakeStep, String>) {
    let exports = ExportTable::new(vec![export()], None).expect("it may be offered");
    let mut sent = Vec::new();
    let mut server = ServerHandshake::new(TlsOffer::Off, &mut sent);
    sent.clear();
    let mut stream = (FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES).to_be_bytes().to_vec();
    for (option, data) in options {
        encode_option(&mut stream, *option, &[data]);
    }
    let mut input = &stream[..];
    let end = loop {
        match server.step(&exports, &mut input, &mut sent) {
            Ok(ServerHandshakeStep::Answered) => {}
            Ok(end) => break Ok(end),
            Err(error) => break Err(error.to_string()),
        }
    };
    let (mut kinds, mut flags, mut rest) = (Vec::new(), 0, &sent[..]);
    while let Some((head, after)) = rest.split_first_chunk::<20>() {
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (data, after) = after.split_at(word(16) as usize);
        kinds.push(word(12));
        if word(12) == REP_INFO && data[..2] == INFO_EXPORT.to_be_bytes() {
            flags = u16::from_be_bytes([data[10], data[11]]);
        }
        rest = after;
    }
    (kinds, flags, end)
}

const GO: &[u8] = b"\0\0\0\x04disk\0\0";
const CONTEXT: &[u8] = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";

#[test]
fn extended_headers_are_agreed_on_with_and_without_structured_replies_before() {
    let extended = |base_allocation| {
        let headers = Headers::Extended;
        let negotiated = Negotiated { export: 0, headers, base_allocation, block_sizes: false };
        Ok(ServerHandshakeStep::Transmission(negotiated))
    };
    let (kinds, flags, end) = agree(&[(OPT_EXTENDED_HEADERS, b""), (OPT_GO, GO)]);
    assert_eq!((kinds, end), (vec![REP_ACK, REP_INFO, REP_ACK], extended(false)));
    assert_eq!(flags & (FLAG_SEND_DF | FLAG_BLOCK_STATUS_PAYLOAD), FLAG_SEND_DF);
    let (kinds, flags, end) = agree(&[
        (OPT_STRUCTURED_REPLY, b""),
        (OPT_EXTENDED_HEADERS, b""),
        (OPT_SET_META_CONTEXT, CONTEXT),
        (OPT_GO, GO),
    ]);
    assert_eq!(kinds, [REP_ACK, REP_ACK, REP_META_CONTEXT, REP_ACK, REP_INFO, REP_ACK]);
    assert_eq!(end, extended(true));
    assert_ne!(flags & FLAG_BLOCK_STATUS_PAYLOAD, 0);
    // Without them there are no payloads to be offered.
    let (_, flags, _) =
        agree(&[(OPT_STRUCTURED_REPLY, b""), (OPT_SET_META_CONTEXT, CONTEXT), (OPT_GO, GO)]);
    assert_eq!(flags & FLAG_BLOCK_STATUS_PAYLOAD, 0);
}

#[test]
fn what_makes_no_sense_with_extended_headers_is_refused() {
    let (kinds, _, _) = agree(&[
        (OPT_EXTENDED_HEADERS, b""),
        (OPT_STRUCTURED_REPLY, b""),
        (OPT_EXTENDED_HEADERS, b""),
    ]);
    assert_eq!(kinds, [REP_ACK, REP_ERR_EXT_HEADER_REQD, REP_ERR_INVALID]);
    let (_, _, end) = agree(&[(OPT_EXTENDED_HEADERS, b""), (OPT_EXPORT_NAME, b"disk")]);
    assert_eq!(end, Err(ServerHandshakeError::NameExtended.to_string()));
}

#[test]
fn a_request_without_a_payload_may_be_about_the_whole_export() {
    for (command, kind) in [
        (Command::Trim, CMD_TRIM),
        (Command::WriteZeroes, CMD_WRITE_ZEROES),
        (Command::Cache, CMD_CACHE),
        (Command::BlockStatus, CMD_BLOCK_STATUS),
    ] {
        let request =
            Request { cookie: COOKIE, command, flags: 0, offset: 512, length: SIZE - 512 };
        assert_eq!(request.encode_extended()[..], raw(0, kind, 512, SIZE - 512, b"")[..]);
        assert_eq!(only(&request.encode_extended()), RequestEvent::Request(request));
        let code = if kind == CMD_WRITE_ZEROES { ErrorCode::NoSpace } else { ErrorCode::Invalid };
        assert_eq!(refused(&raw(0, kind, 512, SIZE, b"")), code);
        assert_eq!(refused(&raw(0, kind, u64::MAX - 511, 512, b"")), code);
    }
    // Data that is read travels, and is no longer than before.
    assert_eq!(refused(&raw(0, CMD_READ, 0, (1 << 32) + 512, b"")), ErrorCode::Invalid);
}

#[test]
fn payloads_are_where_the_flag_says_and_a_write_has_one() {
    let write = raw(CMD_FLAG_PAYLOAD_LEN | CMD_FLAG_FUA, CMD_WRITE, 512, 1024, b"");
    let (command, flags) = (Command::Write, CMD_FLAG_FUA);
    let request = Request { cookie: COOKIE, command, flags, offset: 512, length: 1024 };
    assert_eq!(request.encode_extended()[..], write[..]);
    assert_eq!(only(&write), RequestEvent::Request(request));
    // QEMU leaves the flag out, and sends the payload.
    let without = raw(CMD_FLAG_FUA, CMD_WRITE, 512, 1024, b"");
    assert_eq!(only(&without), RequestEvent::Request(request));
    assert_eq!(refused(&raw(0, CMD_WRITE, 1, 700, &[0x21; 700])), ErrorCode::Invalid);
    // The payload of a command that takes none is skipped, as is that of a write that is refused.
    for kind in [CMD_READ, CMD_TRIM, CMD_FLUSH, 77] {
        let stream = raw(CMD_FLAG_PAYLOAD_LEN, kind, 0, 700, &[0x21; 700]);
        assert_eq!(refused(&stream), ErrorCode::Invalid);
    }
    let unaligned = raw(CMD_FLAG_PAYLOAD_LEN, CMD_WRITE, 1, 700, &[0x21; 700]);
    assert_eq!(refused(&unaligned), ErrorCode::Invalid);
    for kind in [CMD_READ, CMD_WRITE, CMD_BLOCK_STATUS] {
        let length = u64::from(SKIPPED_BYTES_MAX) + 1;
        let stream = raw(CMD_FLAG_PAYLOAD_LEN, kind, 0, length, b"");
        let violation = RequestViolation::PayloadTooLong(length);
        assert_eq!(decoder(true).step(&mut &stream[..]), Err(violation));
    }
}

#[test]
fn headers_of_the_other_form_end_the_connection() {
    let flush = Request { cookie: 1, command: Command::Flush, flags: 0, offset: 0, length: 0 };
    let compact = [flush.encode(), flush.encode()].concat();
    let violation = RequestViolation::Magic(REQUEST_MAGIC);
    assert_eq!(decoder(true).step(&mut &compact[..]), Err(violation));
    let negotiated = Negotiated {
        export: 0,
        headers: Headers::Structured,
        base_allocation: false,
        block_sizes: true,
    };
    let mut structured = RequestDecoder::new(RequestRules::new(&export(), negotiated));
    let violation = RequestViolation::Magic(EXTENDED_REQUEST_MAGIC);
    assert_eq!(structured.step(&mut &flush.encode_extended()[..]), Err(violation));
}

#[test]
fn block_status_names_its_contexts_and_unknown_ones_are_refused() {
    let (command, flags) = (Command::BlockStatus, 0);
    let request = Request { cookie: COOKIE, command, flags, offset: 0, length: 1 << 40 };
    let expected = RequestEvent::Request(request);
    assert_eq!(only(&status(1 << 40, &[CONTEXT_ID])), expected);
    assert_eq!(only(&status(1 << 40, &[CONTEXT_ID; 16])), expected);
    assert_eq!(refused(&status(1 << 40, &[CONTEXT_ID, 9])), ErrorCode::Invalid);
    assert_eq!(refused(&status(1 << 40, &[])), ErrorCode::Invalid);
    assert_eq!(refused(&status(SIZE + 512, &[CONTEXT_ID])), ErrorCode::Invalid);
    // Longer than any that makes sense, or of no such form.
    assert_eq!(refused(&status(512, &[CONTEXT_ID; 17])), ErrorCode::Invalid);
    let odd = raw(CMD_FLAG_PAYLOAD_LEN, CMD_BLOCK_STATUS, 0, 13, &[0; 13]);
    assert_eq!(refused(&odd), ErrorCode::Invalid);
    // Without a context that was agreed on there is nothing to ask about.
    let step = decoder(false).step(&mut &status(512, &[CONTEXT_ID])[..]);
    assert!(matches!(step, Ok(RequestEvent::Refuse(_))), "{step:?}");
}

#[test]
fn a_stream_cut_anywhere_is_gone_on_with_by_a_successor() {
    let stream = status(1 << 40, &[CONTEXT_ID]);
    for at in 1..stream.len() {
        let mut first = decoder(true);
        assert_eq!(first.step(&mut &stream[..at]), Ok(RequestEvent::NeedMore));
        assert!(!first.at_boundary());
        let (skip, come) = first.position();
        assert_eq!((skip, come), (0, &stream[..at]));
        let rest = [come, &stream[at..]].concat();
        let step = decoder(true).step(&mut &rest[..]);
        assert!(matches!(step, Ok(RequestEvent::Request(_))), "{at} {step:?}");
    }
}

#[test]
fn replies_are_the_bytes_of_the_specification() {
    let asked = Asked { cookie: COOKIE, offset: 0x1122_3344_5566_7788 };
    let encode = |write: fn(&ReplyEncoder, Asked, &mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&ReplyEncoder::new(Headers::Extended), asked, &mut out);
        out
    };
    let head = |kind: &[u8; 2], length: u8| {
        let begin = [&b"\x6e\x8a\x27\x8c\0\x01"[..], kind, b"\x01\x02\x03\x04\x05\x06\x07\x08"];
        let end = [&b"\x11\x22\x33\x44\x55\x66\x77\x88"[..], b"\0\0\0\0\0\0\0", &[length]];
        [begin.concat(), end.concat()].concat()
    };
    assert_eq!(encode(|encoder, asked, out| encoder.done(asked, out)), head(b"\0\0", 0));
    let full = encode(|encoder, asked, out| encoder.error(asked, ErrorCode::NoSpace, "full", out));
    assert_eq!(full, [&head(b"\x80\x01", 10)[..], b"\0\0\0\x1c\0\x04full"].concat());
    let data = encode(|encoder, asked, out| encoder.read(asked, 16, out));
    let offset = b"\x11\x22\x33\x44\x55\x66\x77\x88";
    assert_eq!(data, [&head(b"\0\x01", 24)[..], offset].concat());
    let extents =
        encode(|encoder, asked, out| encoder.extents(asked, &[(5 << 32, 3), (512, 0)], out));
    let expected = [
        &head(b"\0\x06", 40)[..],
        b"\0\0\0\x01\0\0\0\x02",
        b"\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\x03",
        b"\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0",
    ];
    assert_eq!(extents, expected.concat());
}

#[test]
fn a_client_understands_the_servers_extended_replies_and_no_others() {
    let (encoder, asked) =
        (ReplyEncoder::new(Headers::Extended), Asked { cookie: COOKIE, offset: 512 });
    let mut stream = Vec::new();
    encoder.done(asked, &mut stream);
    encoder.error(asked, ErrorCode::NoSpace, "full", &mut stream);
    encoder.read(asked, 4096, &mut stream);
    for piece in [1, 7, stream.len()] {
        let mut decoder = ReplyDecoder::new(Headers::Extended);
        let mut events = Vec::new();
        for mut input in stream.chunks(piece) {
            loop {
                match decoder.step(&mut input).unwrap() {
                    ReplyEvent::NeedMore => break,
                    event => events.push(event),
                }
            }
        }
        let (cookie, done) = (COOKIE, true);
        let expected = [
            ReplyEvent::Done { cookie },
            ReplyEvent::Error { cookie, code: ErrorCode::NoSpace, done },
            ReplyEvent::Data { cookie, offset: 512, length: 4096, done },
        ];
        assert_eq!(events, expected);
        assert_eq!(decoder.message(), "full");
    }
    let mut structured = Vec::new();
    ReplyEncoder::new(Headers::Structured).error(asked, ErrorCode::Io, "", &mut structured);
    structured.resize(EXTENDED_CHUNK_BYTES, 0);
    let violation = ReplyDecoder::new(Headers::Extended).step(&mut &structured[..]);
    assert_eq!(violation, Err(ReplyViolation::Magic(STRUCTURED_REPLY_MAGIC)));
    // Longer than any payload.
    let mut long = stream[..EXTENDED_CHUNK_BYTES].to_vec();
    long[24] = 1;
    let violation = ReplyDecoder::new(Headers::Extended).step(&mut &long[..]);
    assert_eq!(violation, Err(ReplyViolation::Malformed(REPLY_TYPE_NONE)));
}

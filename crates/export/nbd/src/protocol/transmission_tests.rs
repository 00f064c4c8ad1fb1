//! Transmission: validation rule by rule, the bytes of replies, and the properties of both ends.

use proptest::prelude::*;

use super::constants::*;
use super::*;

const SIZE: u64 = 1 << 30;

fn export(features: Features) -> Export {
    Export {
        name: "disk".into(),
        description: String::new(),
        size: SIZE,
        block: BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 },
        features,
    }
}

fn everything() -> Features {
    Features {
        flush: true,
        fua: true,
        trim: true,
        write_zeroes: true,
        fast_zero: true,
        cache: true,
        ..Features::default()
    }
}

fn rules(features: Features, structured: bool) -> RequestRules {
    let headers = if structured { Headers::Structured } else { Headers::Simple };
    let negotiated =
        Negotiated { export: 0, headers, base_allocation: structured, block_sizes: true };
    RequestRules::new(&export(features), negotiated)
}

fn raw(flags: u16, kind: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&42u64.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

fn decide(rules: RequestRules, bytes: &[u8]) -> Result<RequestEvent, RequestViolation> {
    RequestDecoder::new(rules).step(&mut &bytes[..])
}

/// A request whose reply is encoded.
fn asked(cookie: u64, offset: u64) -> Asked {
    Asked { cookie, offset }
}

fn refused(rules: RequestRules, bytes: &[u8]) -> Option<ErrorCode> {
    match decide(rules, bytes) {
        Ok(RequestEvent::Refuse(refusal)) => {
            assert_eq!(refusal.cookie, 42);
            Some(refusal.code)
        }
        Ok(RequestEvent::Request(_)) => None,
        other => panic!("neither accepted nor refused: {other:?}"),
    }
}

#[test]
fn ranges_past_the_end_are_refused_with_the_error_of_their_command() {
    let rules = rules(everything(), true);
    for (kind, expected) in [
        (CMD_READ, ErrorCode::Invalid),
        (CMD_TRIM, ErrorCode::Invalid),
        (CMD_CACHE, ErrorCode::Invalid),
        (CMD_BLOCK_STATUS, ErrorCode::Invalid),
        (CMD_WRITE, ErrorCode::NoSpace),
        (CMD_WRITE_ZEROES, ErrorCode::NoSpace),
    ] {
        assert_eq!(refused(rules, &raw(0, kind, SIZE - 512, 512)), None);
        assert_eq!(refused(rules, &raw(0, kind, SIZE - 512, 1024)), Some(expected));
        assert_eq!(refused(rules, &raw(0, kind, SIZE, 512)), Some(expected));
        assert_eq!(refused(rules, &raw(0, kind, u64::MAX - 511, 1024)), Some(expected));
    }
}

#[test]
fn misaligned_empty_and_overlong_requests_are_invalid() {
    let rules = rules(everything(), true);
    for kind in [CMD_READ, CMD_WRITE, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES, CMD_BLOCK_STATUS] {
        assert_eq!(refused(rules, &raw(0, kind, 511, 512)), Some(ErrorCode::Invalid));
        assert_eq!(refused(rules, &raw(0, kind, 512, 513)), Some(ErrorCode::Invalid));
        assert_eq!(refused(rules, &raw(0, kind, 512, 0)), Some(ErrorCode::Invalid));
        let carries_data = matches!(kind, CMD_READ | CMD_WRITE);
        let overlong = refused(rules, &raw(0, kind, 0, (1 << 20) + 512));
        assert_eq!(overlong, carries_data.then_some(ErrorCode::Invalid));
        assert_eq!(refused(rules, &raw(0, kind, 0, 1 << 20)), None);
    }
}

#[test]
fn unknown_commands_and_flags_are_invalid() {
    let rules = rules(everything(), true);
    assert_eq!(refused(rules, &raw(0, 8, 0, 512)), Some(ErrorCode::Invalid));
    assert_eq!(refused(rules, &raw(0, u16::MAX, 0, 512)), Some(ErrorCode::Invalid));
    let own = [
        (CMD_READ, CMD_FLAG_DF),
        (CMD_WRITE, 0),
        (CMD_FLUSH, 0),
        (CMD_TRIM, 0),
        (CMD_CACHE, 0),
        (CMD_WRITE_ZEROES, CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO),
        (CMD_BLOCK_STATUS, CMD_FLAG_REQ_ONE),
    ];
    for (kind, own) in own {
        let length = if kind == CMD_FLUSH { 0 } else { 512 };
        for bit in 0..16 {
            let flag = 1 << bit;
            let known = flag & (own | CMD_FLAG_FUA) != 0;
            let expected = (!known).then_some(ErrorCode::Invalid);
            assert_eq!(refused(rules, &raw(flag, kind, 0, length)), expected, "{kind} {flag:#x}");
        }
    }
}

#[test]
fn what_the_export_does_not_offer_is_invalid() {
    let bare = rules(Features::default(), false);
    for kind in [CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES, CMD_BLOCK_STATUS] {
        assert_eq!(refused(bare, &raw(0, kind, 0, 512)), Some(ErrorCode::Invalid));
    }
    assert_eq!(refused(bare, &raw(0, CMD_FLUSH, 0, 0)), Some(ErrorCode::Invalid));
    assert_eq!(refused(bare, &raw(CMD_FLAG_FUA, CMD_WRITE, 0, 512)), Some(ErrorCode::Invalid));
    assert_eq!(refused(bare, &raw(CMD_FLAG_DF, CMD_READ, 0, 512)), Some(ErrorCode::Invalid));
    let slow = rules(Features { write_zeroes: true, ..Features::default() }, false);
    let fast = raw(CMD_FLAG_FAST_ZERO, CMD_WRITE_ZEROES, 0, 512);
    assert_eq!(refused(slow, &fast), Some(ErrorCode::Invalid));
}

#[test]
fn a_read_only_export_refuses_what_modifies_it() {
    let rules = rules(Features { read_only: true, ..everything() }, true);
    for kind in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
        assert_eq!(refused(rules, &raw(0, kind, 0, 512)), Some(ErrorCode::NotPermitted));
    }
    assert_eq!(refused(rules, &raw(0, CMD_READ, 0, 512)), None);
    assert_eq!(refused(rules, &raw(0, CMD_FLUSH, 0, 0)), None);
}

#[test]
fn flush_takes_neither_offset_nor_length() {
    let rules = rules(everything(), true);
    assert_eq!(refused(rules, &raw(0, CMD_FLUSH, 512, 0)), Some(ErrorCode::Invalid));
    assert_eq!(refused(rules, &raw(0, CMD_FLUSH, 0, 512)), Some(ErrorCode::Invalid));
}

#[test]
fn a_refused_write_has_its_payload_skipped_and_the_next_request_is_found() {
    let mut decoder = RequestDecoder::new(rules(everything(), true));
    let mut stream = raw(0, CMD_WRITE, 1, 5000);
    stream.extend_from_slice(&[0x25; 5000]);
    stream.extend_from_slice(&raw(0, CMD_READ, 0, 512));
    let mut input = &stream[..];
    assert!(matches!(decoder.step(&mut input), Ok(RequestEvent::Refuse(_))));
    assert!(!decoder.at_boundary());
    assert!(matches!(
        decoder.step(&mut input),
        Ok(RequestEvent::Request(Request { command: Command::Read, .. }))
    ));
    assert!(input.is_empty() && decoder.at_boundary());
}

#[test]
fn a_write_too_long_to_skip_ends_the_connection() {
    let rules = rules(everything(), true);
    let skipped = raw(0, CMD_WRITE, 0, SKIPPED_BYTES_MAX);
    assert_eq!(refused(rules, &skipped), Some(ErrorCode::Invalid));
    assert_eq!(
        decide(rules, &raw(0, CMD_WRITE, 0, SKIPPED_BYTES_MAX + 1)),
        Err(RequestViolation::PayloadTooLong(u64::from(SKIPPED_BYTES_MAX) + 1))
    );
    // Only a write carries a payload.
    assert_eq!(refused(rules, &raw(0, CMD_TRIM, 0, 1 << 29)), None);
}

#[test]
fn garbage_ends_the_connection_and_disconnect_is_understood() {
    let rules = rules(everything(), true);
    assert_eq!(decide(rules, &[0xab; 28]), Err(RequestViolation::Magic(0xabab_abab)));
    assert_eq!(decide(rules, &Request::encode_disconnect()), Ok(RequestEvent::Disconnect));
}

#[test]
fn replies_are_the_bytes_of_the_specification() {
    let encode = |structured: bool, write: fn(&ReplyEncoder, &mut Vec<u8>)| {
        let mut out = Vec::new();
        let headers = if structured { Headers::Structured } else { Headers::Simple };
        write(&ReplyEncoder::new(headers), &mut out);
        out
    };
    let cookie = 0x0102_0304_0506_0708_u64;
    assert_eq!(
        encode(false, |encoder, out| encoder.done(asked(0x0102_0304_0506_0708, 5), out)),
        [&SIMPLE_REPLY_MAGIC.to_be_bytes()[..], &[0; 4], &cookie.to_be_bytes()].concat()
    );
    assert_eq!(
        encode(false, |encoder, out| encoder.error(asked(7, 5), ErrorCode::NoSpace, "full", out)),
        *b"\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\x07"
    );
    assert_eq!(
        encode(true, |encoder, out| encoder.error(asked(7, 5), ErrorCode::NoSpace, "full", out)),
        *b"\x66\x8e\x33\xef\0\x01\x80\x01\0\0\0\0\0\0\0\x07\0\0\0\x0a\0\0\0\x1c\0\x04full"
    );
    assert_eq!(
        encode(false, |encoder, out| encoder.read(asked(7, 512), 4096, out)),
        *b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x07"
    );
    assert_eq!(
        encode(true, |encoder, out| encoder.read(asked(7, 512), 4096, out)),
        *b"\x66\x8e\x33\xef\0\x01\0\x01\0\0\0\0\0\0\0\x07\0\0\x10\x08\0\0\0\0\0\0\x02\0"
    );
    assert_eq!(
        encode(true, |encoder, out| encoder.extents(asked(7, 5), &[(4096, 0), (512, 3)], out)),
        *b"\x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x07\0\0\0\x14\0\0\0\x01\0\0\x10\0\0\0\0\0\
           \0\0\x02\0\0\0\0\x03"
    );
}

#[test]
fn an_overlong_message_is_cut_between_characters() {
    let mut out = Vec::new();
    let encoder = ReplyEncoder::new(Headers::Structured);
    encoder.error(asked(1, 0), ErrorCode::Io, &"é".repeat(3000), &mut out);
    let mut decoder = ReplyDecoder::new(Headers::Structured);
    let event = decoder.step(&mut &out[..]).expect("our own reply is well formed");
    assert_eq!(event, ReplyEvent::Error { cookie: 1, code: ErrorCode::Io, done: true });
    assert_eq!(decoder.message(), "é".repeat(2048));
}

#[test]
fn malformed_chunks_end_the_connection() {
    let chunk = |flags: u16, kind: u16, payload: &[u8]| {
        let mut bytes = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&7u64.to_be_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes());
        bytes.extend_from_slice(payload);
        ReplyDecoder::new(Headers::Structured).step(&mut &bytes[..])
    };
    for (flags, kind, payload) in [
        (0, REPLY_TYPE_NONE, &[][..]),
        (1, REPLY_TYPE_NONE, &[0]),
        (1, REPLY_TYPE_OFFSET_DATA, &[0; 8]),
        (1, REPLY_TYPE_OFFSET_HOLE, &[0; 12]),
        (1, REPLY_TYPE_OFFSET_HOLE, &[1; 13]),
        (1, REPLY_TYPE_BLOCK_STATUS, &[1; 4]),
        (1, REPLY_TYPE_BLOCK_STATUS, &[1; 13]),
        (1, REPLY_TYPE_BLOCK_STATUS, &[0; 12]),
        (1, REPLY_TYPE_ERROR, &[1; 5]),
        (1, REPLY_TYPE_ERROR, &[1; 6]),
        (1, REPLY_TYPE_ERROR, &[0; 5000]),
    ] {
        assert_eq!(chunk(flags, kind, payload), Err(ReplyViolation::Malformed(kind)));
    }
    assert_eq!(chunk(1, 77, &[]), Err(ReplyViolation::UnknownChunk(77)));
    // An unknown error type still is an error.
    let unknown = chunk(1, REPLY_TYPE_FLAG_ERROR | 99, b"\0\0\0\x05\0\0");
    assert_eq!(unknown, Ok(ReplyEvent::Error { cookie: 7, code: ErrorCode::Io, done: true }));
    assert_eq!(chunk(0, REPLY_TYPE_ERROR, b"\0\0\0\x4d\0\0"), {
        let code = ErrorCode::Invalid;
        Ok(ReplyEvent::Error { cookie: 7, code, done: false })
    });
}

#[test]
fn holes_and_several_extents_are_decoded() {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"\x66\x8e\x33\xef\0\0\0\x02\0\0\0\0\0\0\0\x07\0\0\0\x0c");
    bytes.extend_from_slice(b"\0\0\0\0\0\0\x02\0\0\0\x10\0");
    bytes.extend_from_slice(b"\x66\x8e\x33\xef\0\x01\0\x05\0\0\0\0\0\0\0\x07\0\0\0\x14");
    bytes.extend_from_slice(b"\0\0\0\x09\0\0\x02\0\0\0\0\x03\0\0\x04\0\0\0\0\0");
    let extent =
        |length, status, done| ReplyEvent::Extent { cookie: 7, context: 9, length, status, done };
    let hole = ReplyEvent::Hole { cookie: 7, offset: 512, length: 4096, done: false };
    let expected = vec![hole, extent(512, 3, false), extent(1024, 0, true)];
    assert_eq!(reply_events(&bytes, usize::MAX >> 1).0, expected);
}

/// Everything a request decoder says about `stream`, taking payloads as a caller would.
fn request_events(
    rules: RequestRules,
    stream: &[u8],
    piece: usize,
) -> (Vec<RequestEvent>, Option<RequestViolation>, Vec<u8>) {
    let mut decoder = RequestDecoder::new(rules);
    let (mut events, mut payloads, mut owed) = (Vec::new(), Vec::new(), 0usize);
    for bytes in stream.chunks(piece.min(stream.len().max(1))) {
        let mut input = bytes;
        loop {
            let (payload, rest) = input.split_at(owed.min(input.len()));
            payloads.extend_from_slice(payload);
            owed -= payload.len();
            input = rest;
            if owed > 0 {
                break;
            }
            match decoder.step(&mut input) {
                Ok(RequestEvent::NeedMore) => {
                    assert!(input.is_empty(), "asked for more with input left");
                    break;
                }
                Ok(event) => {
                    if let RequestEvent::Request(request) = event
                        && request.command == Command::Write
                    {
                        owed = request.length as usize;
                    }
                    events.push(event);
                }
                Err(violation) => return (events, Some(violation), payloads),
            }
        }
    }
    (events, None, payloads)
}

/// Everything a reply decoder says about `stream`; data is taken when its length is known.
fn reply_events(stream: &[u8], piece: usize) -> (Vec<ReplyEvent>, Option<ReplyViolation>, Vec<u8>) {
    let mut decoder = ReplyDecoder::new(Headers::Structured);
    let (mut events, mut data, mut owed) = (Vec::new(), Vec::new(), 0usize);
    for bytes in stream.chunks(piece.min(stream.len().max(1))) {
        let mut input = bytes;
        loop {
            let (payload, rest) = input.split_at(owed.min(input.len()));
            data.extend_from_slice(payload);
            owed -= payload.len();
            input = rest;
            if owed > 0 {
                break;
            }
            match decoder.step(&mut input) {
                Ok(ReplyEvent::NeedMore) => {
                    assert!(input.is_empty(), "asked for more with input left");
                    break;
                }
                Ok(event) => {
                    if let ReplyEvent::Data { length, .. } = event {
                        owed = length as usize;
                    }
                    events.push(event);
                }
                Err(violation) => return (events, Some(violation), data),
            }
        }
    }
    (events, None, data)
}

fn any_request() -> impl Strategy<Value = Request> {
    let command = prop::sample::select(vec![
        Command::Read,
        Command::Write,
        Command::Flush,
        Command::Trim,
        Command::Cache,
        Command::WriteZeroes,
        Command::BlockStatus,
    ]);
    let block = prop_oneof![3 => Just(512u64), 1 => Just(1u64)];
    (any::<u64>(), command, 0u16..64, 0u64..(1 << 22), 0u32..9, block).prop_map(
        |(cookie, command, flags, offset, length, block)| {
            let flags = if flags < 32 { flags & CMD_FLAG_FUA } else { flags };
            let length = u64::from(length) * block;
            match command {
                Command::Flush => Request { cookie, command, flags, offset: 0, length: 0 },
                _ => Request { cookie, command, flags, offset: offset * block, length },
            }
        },
    )
}

/// A stream of requests, with payloads, and what its accepted writes carry.
fn request_stream() -> impl Strategy<Value = (Vec<Request>, Vec<u8>)> {
    prop::collection::vec(any_request(), 0..12).prop_map(|requests| {
        let mut stream = Vec::new();
        for (number, request) in requests.iter().enumerate() {
            stream.extend_from_slice(&request.encode());
            if request.command == Command::Write {
                stream.resize(stream.len() + request.length as usize, number as u8);
            }
        }
        (requests, stream)
    })
}

proptest! {
    #[test]
    fn every_request_is_accepted_as_sent_or_refused_by_its_cookie(
        (requests, stream) in request_stream(), structured: bool,
    ) {
        let rules = rules(everything(), structured);
        let (events, violation, payloads) = request_events(rules, &stream, usize::MAX >> 1);
        prop_assert_eq!(violation, None);
        prop_assert_eq!(events.len(), requests.len());
        let mut carried = Vec::new();
        for (number, (event, request)) in events.iter().zip(&requests).enumerate() {
            match event {
                RequestEvent::Request(decoded) => {
                    prop_assert_eq!(decoded, request);
                    prop_assert!(request.offset + request.length <= SIZE);
                    prop_assert_eq!((request.offset | request.length) % 512, 0);
                    if request.command == Command::Write {
                        carried.resize(carried.len() + request.length as usize, number as u8);
                    }
                }
                RequestEvent::Refuse(refusal) => prop_assert_eq!(refusal.cookie, request.cookie),
                other => prop_assert!(false, "{other:?}"),
            }
        }
        prop_assert_eq!(payloads, carried);
    }

    #[test]
    fn requests_decode_the_same_for_every_split(
        (_, mut stream) in request_stream(),
        garbage in prop::collection::vec(any::<u8>(), 0..60),
        piece in 1usize..100,
    ) {
        stream.extend_from_slice(&garbage);
        let rules = rules(everything(), true);
        let whole = request_events(rules, &stream, usize::MAX >> 1);
        prop_assert_eq!(&request_events(rules, &stream, piece), &whole);
        prop_assert_eq!(&request_events(rules, &stream, 1), &whole);
    }

    #[test]
    fn arbitrary_bytes_with_a_good_magic_never_yield_a_request_outside_the_export(
        bytes in prop::collection::vec(any::<u8>(), 24),
        small in any::<bool>(),
    ) {
        let mut stream = REQUEST_MAGIC.to_be_bytes().to_vec();
        stream.extend_from_slice(&bytes);
        if small {
            stream[4..7].fill(0);
            stream[7] &= 7;
        }
        if let Ok(RequestEvent::Request(request)) = decide(rules(everything(), true), &stream) {
            prop_assert!(request.offset.checked_add(request.length) <= Some(SIZE));
        }
    }

    #[test]
    fn replies_decode_to_what_was_encoded_for_every_split(
        replies in prop::collection::vec((any::<u64>(), 0u32..5, 1u32..600), 0..12),
        piece in 1usize..100,
    ) {
        let encoder = ReplyEncoder::new(Headers::Structured);
        let (mut stream, mut expected, mut sent) = (Vec::new(), Vec::new(), Vec::new());
        for (cookie, kind, length) in replies {
            match kind {
                0 => {
                    encoder.done(asked(cookie, 0), &mut stream);
                    expected.push(ReplyEvent::Simple { cookie, error: None });
                }
                1 => {
                    let words = "m".repeat(length as usize);
                    encoder.error(asked(cookie, 0), ErrorCode::Io, &words, &mut stream);
                    expected.push(ReplyEvent::Error { cookie, code: ErrorCode::Io, done: true });
                }
                2 => {
                    encoder.extents(asked(cookie, 0), &[(length.into(), STATE_ZERO)], &mut stream);
                    let (context, status) = (CONTEXT_ID, STATE_ZERO);
                    expected.push(ReplyEvent::Extent { cookie, context, length, status, done: true });
                }
                3 => {
                    let simple = ReplyEncoder::new(Headers::Simple);
                    simple.error(asked(cookie, 0), ErrorCode::NoSpace, "", &mut stream);
                    let error = Some(ErrorCode::NoSpace);
                    expected.push(ReplyEvent::Simple { cookie, error });
                }
                _ => {
                    let offset = cookie >> 3;
                    encoder.read(asked(cookie, offset), length, &mut stream);
                    stream.resize(stream.len() + length as usize, length as u8);
                    sent.resize(sent.len() + length as usize, length as u8);
                    expected.push(ReplyEvent::Data { cookie, offset, length, done: true });
                }
            }
        }
        let decoded = reply_events(&stream, piece);
        prop_assert_eq!(&decoded, &(expected, None, sent));
        prop_assert_eq!(&reply_events(&stream, 1), &decoded);
    }

    #[test]
    fn reply_decoder_survives_arbitrary_bytes_the_same_for_every_split(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop::sample::select(vec![0u16, 1, 2, 5, 0x8001, 0x8002, 0x8003, 6]),
        length in 0u32..40,
        piece in 1usize..30,
    ) {
        let mut stream = STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
        stream.extend_from_slice(&REPLY_FLAG_DONE.to_be_bytes());
        stream.extend_from_slice(&kind.to_be_bytes());
        stream.extend_from_slice(&[0; 8]);
        stream.extend_from_slice(&length.to_be_bytes());
        stream.extend_from_slice(&bytes);
        let whole = reply_events(&stream, usize::MAX >> 1);
        prop_assert_eq!(&reply_events(&stream, piece), &whole);
    }

    #[test]
    fn error_values_survive_the_wire(value in 1u32..200) {
        let code = ErrorCode::from_wire(value);
        prop_assert_eq!(ErrorCode::from_wire(code.to_wire()), code);
        prop_assert!(code.to_wire() == value || code == ErrorCode::Invalid);
    }
}

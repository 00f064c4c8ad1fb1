//! Handshake: every option's answer byte for byte, and the properties of both ends.

use proptest::prelude::*;

use super::constants::*;
use super::*;

fn table() -> ExportTable {
    let export = |name: &str, size| Export {
        name: name.into(),
        description: format!("about {name}"),
        size,
        block: BlockSizes { minimum: 512, preferred: 4096, maximum: PAYLOAD_BYTES_MAX },
        features: Features {
            flush: true,
            fua: true,
            trim: true,
            write_zeroes: true,
            multi_conn: true,
            ..Features::default()
        },
    };
    ExportTable::new(vec![export("alpha", 1 << 20), export("beta", 2 << 20)], Some("beta"))
        .expect("names differ and block sizes are allowed")
}

/// The reaction of a server to some input: all that it sent after its greeting, and how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    sent: Vec<u8>,
    end: Result<ServerHandshakeStep, ServerHandshakeError>,
    left: usize,
}

/// Feeds `input` in pieces of at most `piece` bytes.
fn serve(input: &[u8], piece: usize) -> Outcome {
    let mut sent = Vec::new();
    let mut server = ServerHandshake::new(TlsOffer::Off, &mut sent);
    sent.clear();
    go_on(&mut server, sent, input, piece)
}

/// The same in the middle of a handshake.
fn go_on(server: &mut ServerHandshake, mut sent: Vec<u8>, input: &[u8], piece: usize) -> Outcome {
    let exports = table();
    let mut end = Ok(ServerHandshakeStep::NeedMore);
    let mut at = 0;
    while at < input.len() {
        let whole = &input[at..input.len().min(at + piece)];
        let mut rest = whole;
        end = server.step(&exports, &mut rest, &mut sent);
        at += whole.len() - rest.len();
        if !matches!(end, Ok(ServerHandshakeStep::NeedMore | ServerHandshakeStep::Answered)) {
            break;
        }
    }
    Outcome { sent, end, left: input.len() - at }
}

fn client_flags(flags: u32) -> Vec<u8> {
    flags.to_be_bytes().to_vec()
}

fn fixed() -> Vec<u8> {
    client_flags(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES)
}

fn with_option(mut stream: Vec<u8>, option: u32, data: &[u8]) -> Vec<u8> {
    encode_option(&mut stream, option, &[data]);
    stream
}

/// Splits a server's bytes into option replies: (option, type, data).
fn replies(mut sent: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while !sent.is_empty() {
        let (head, rest) = sent.split_at(20);
        assert_eq!(head[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (data, rest) = rest.split_at(word(16) as usize);
        found.push((word(8), word(12), data.to_vec()));
        sent = rest;
    }
    found
}

fn kinds(sent: &[u8]) -> Vec<u32> {
    replies(sent).iter().map(|reply| reply.1).collect()
}

fn info_data(name: &str, items: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(items.len() as u16).to_be_bytes());
    for item in items {
        data.extend_from_slice(&item.to_be_bytes());
    }
    data
}

fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend_from_slice(&(query.len() as u32).to_be_bytes());
        data.extend_from_slice(query.as_bytes());
    }
    data
}

#[test]
fn greeting_is_the_eighteen_bytes_of_the_specification() {
    let mut out = Vec::new();
    let _server = ServerHandshake::new(TlsOffer::Off, &mut out);
    assert_eq!(out, b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn unknown_client_flags_end_the_session() {
    let outcome = serve(&client_flags(1 << 2 | 1), 64);
    assert_eq!(outcome.end, Err(ServerHandshakeError::ClientFlags(5)));
}

#[test]
fn a_wrong_option_magic_ends_the_session() {
    let mut stream = fixed();
    stream.extend_from_slice(&[0xff; 16]);
    assert_eq!(serve(&stream, 64).end, Err(ServerHandshakeError::OptionMagic(u64::MAX)));
}

#[test]
fn export_name_answers_size_flags_and_zeroes_unless_left_out() {
    for (flags, zeroes) in [(FLAG_C_FIXED_NEWSTYLE, 124), (0, 124), (3, 0), (2, 0)] {
        let stream = with_option(client_flags(flags), OPT_EXPORT_NAME, b"alpha");
        let outcome = serve(&stream, 64);
        let mut expected = (1u64 << 20).to_be_bytes().to_vec();
        let flags = FLAG_HAS_FLAGS
            | FLAG_SEND_FLUSH
            | FLAG_SEND_FUA
            | FLAG_SEND_TRIM
            | FLAG_SEND_WRITE_ZEROES
            | FLAG_CAN_MULTI_CONN;
        expected.extend_from_slice(&flags.to_be_bytes());
        expected.resize(expected.len() + zeroes, 0);
        assert_eq!(outcome.sent, expected);
        let negotiated = Negotiated {
            export: 0,
            headers: Headers::Simple,
            base_allocation: false,
            block_sizes: false,
        };
        assert_eq!(outcome.end, Ok(ServerHandshakeStep::Transmission(negotiated)));
    }
}

#[test]
fn export_name_of_an_unknown_or_overlong_name_ends_the_session() {
    let unknown = with_option(fixed(), OPT_EXPORT_NAME, b"gamma");
    assert_eq!(serve(&unknown, 64).end, Err(ServerHandshakeError::UnknownExport("gamma".into())));
    let overlong = with_option(fixed(), OPT_EXPORT_NAME, &[b'x'; 4097]);
    assert!(matches!(serve(&overlong, 64).end, Err(ServerHandshakeError::UnknownExport(_))));
}

#[test]
fn without_fixed_newstyle_only_export_name_is_answered() {
    let stream = with_option(client_flags(0), OPT_LIST, b"");
    assert_eq!(serve(&stream, 64).end, Err(ServerHandshakeError::NotFixed(OPT_LIST)));
}

#[test]
fn go_with_the_empty_name_enters_the_default_export_and_leaves_the_rest_of_the_input() {
    let mut stream = with_option(fixed(), OPT_GO, &info_data("", &[]));
    stream.extend_from_slice(b"request");
    let outcome = serve(&stream, 4096);
    assert_eq!(outcome.left, 7);
    let negotiated = Negotiated {
        export: 1,
        headers: Headers::Simple,
        base_allocation: false,
        block_sizes: false,
    };
    assert_eq!(outcome.end, Ok(ServerHandshakeStep::Transmission(negotiated)));
    assert_eq!(kinds(&outcome.sent), [REP_INFO, REP_ACK]);
}

#[test]
fn block_sizes_bind_those_who_asked_for_them() {
    let end = |first: &[u16], last: &[u16]| {
        let stream = with_option(fixed(), OPT_INFO, &info_data("alpha", first));
        let outcome = serve(&with_option(stream, OPT_GO, &info_data("alpha", last)), 4096);
        match outcome.end {
            Ok(ServerHandshakeStep::Transmission(negotiated)) => negotiated.block_sizes,
            other => panic!("{other:?}"),
        }
    };
    assert!(end(&[], &[INFO_BLOCK_SIZE]) && end(&[INFO_BLOCK_SIZE], &[]));
    assert!(!end(&[], &[]) && !end(&[INFO_NAME], &[INFO_DESCRIPTION]));
}

#[test]
fn info_answers_the_items_asked_for_and_stays_in_the_handshake() {
    let items = [INFO_NAME, INFO_BLOCK_SIZE, INFO_DESCRIPTION, 0x7777];
    let outcome = serve(&with_option(fixed(), OPT_INFO, &info_data("", &items)), 4096);
    assert_eq!(outcome.end, Ok(ServerHandshakeStep::Answered));
    let found: Vec<Vec<u8>> = replies(&outcome.sent).into_iter().map(|reply| reply.2).collect();
    let sizes = b"\x00\x03\x00\x00\x02\x00\x00\x00\x10\x00\x02\x00\x00\x00";
    assert_eq!(found[0][..10], *b"\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00");
    assert_eq!(found[1], b"\x00\x01beta");
    assert_eq!(found[2], b"\x00\x02about beta");
    assert_eq!(found[3], sizes);
    assert_eq!(found[4], b"");
    assert_eq!(found.len(), 5);
}

#[test]
fn dont_fragment_is_offered_only_after_structured_replies() {
    let flags = |sent: &[u8]| {
        let info = replies(sent).into_iter().find(|reply| reply.1 == REP_INFO);
        let data = info.expect("the answer has an information item").2;
        u16::from_be_bytes([data[10], data[11]])
    };
    let plain = serve(&with_option(fixed(), OPT_INFO, &info_data("alpha", &[])), 64);
    let stream = with_option(fixed(), OPT_STRUCTURED_REPLY, b"");
    let structured = serve(&with_option(stream, OPT_INFO, &info_data("alpha", &[])), 64);
    assert_eq!(flags(&plain.sent) & FLAG_SEND_DF, 0);
    assert_eq!(flags(&structured.sent), flags(&plain.sent) | FLAG_SEND_DF);
}

#[test]
fn malformed_and_unknown_options_get_their_errors_and_the_session_goes_on() {
    let cases: [(u32, Vec<u8>, u32); 12] = [
        (OPT_GO, info_data("gamma", &[]), REP_ERR_UNKNOWN),
        (OPT_GO, vec![0xff; 6], REP_ERR_INVALID),
        (OPT_GO, [info_data("alpha", &[]), vec![0]].concat(), REP_ERR_INVALID),
        (OPT_INFO, vec![], REP_ERR_INVALID),
        (OPT_INFO, vec![0; OPTION_BYTES_MAX + 1], REP_ERR_TOO_BIG),
        (OPT_LIST, vec![1], REP_ERR_INVALID),
        (OPT_STARTTLS, vec![], REP_ERR_POLICY),
        (OPT_STARTTLS, vec![1], REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, vec![1], REP_ERR_INVALID),
        (OPT_EXTENDED_HEADERS, vec![0], REP_ERR_INVALID),
        (0xdead_beef, vec![7; 100_000], REP_ERR_UNSUP),
        (OPT_SET_META_CONTEXT, meta_data("alpha", &["base:allocation"]), REP_ERR_INVALID),
    ];
    for (option, data, expected) in cases {
        let stream = with_option(fixed(), option, &data);
        let outcome = serve(&with_option(stream, OPT_LIST, b""), 1000);
        let found = replies(&outcome.sent);
        assert_eq!((found[0].0, found[0].1), (option, expected));
        let rest: Vec<u32> = found[1..].iter().map(|reply| reply.1).collect();
        assert_eq!(rest, [REP_SERVER, REP_SERVER, REP_ACK]);
    }
}

#[test]
fn list_names_every_export_with_its_description() {
    let outcome = serve(&with_option(fixed(), OPT_LIST, b""), 64);
    let found = replies(&outcome.sent);
    assert_eq!(found[0].2, b"\x00\x00\x00\x05alphaabout alpha");
    assert_eq!(found[1].2, b"\x00\x00\x00\x04betaabout beta");
    assert_eq!(found[2].1, REP_ACK);
}

#[test]
fn abort_is_acknowledged_even_with_data() {
    let outcome = serve(&with_option(fixed(), OPT_ABORT, b"bye"), 64);
    assert_eq!(outcome.end, Ok(ServerHandshakeStep::Closed));
    assert_eq!(kinds(&outcome.sent), [REP_ACK]);
}

#[test]
fn block_status_is_agreed_only_for_the_export_it_was_selected_for() {
    let enter = |select: &str, queries: &[&str], go: &str| {
        let stream = with_option(fixed(), OPT_STRUCTURED_REPLY, b"");
        let stream = with_option(stream, OPT_SET_META_CONTEXT, &meta_data(select, queries));
        match serve(&with_option(stream, OPT_GO, &info_data(go, &[])), 64).end {
            Ok(ServerHandshakeStep::Transmission(negotiated)) => negotiated.base_allocation,
            other => panic!("no transmission: {other:?}"),
        }
    };
    assert!(enter("alpha", &["x-other:y", "base:allocation"], "alpha"));
    assert!(enter("", &["base:allocation"], "beta"));
    assert!(!enter("alpha", &["base:allocation"], "beta"));
    assert!(!enter("alpha", &["base:"], "alpha"));
    assert!(!enter("alpha", &[], "alpha"));
}

#[test]
fn a_failed_selection_drops_the_contexts_selected_before() {
    let stream = with_option(fixed(), OPT_STRUCTURED_REPLY, b"");
    let good = meta_data("alpha", &["base:allocation"]);
    for bad in [vec![9; 3], vec![0; OPTION_BYTES_MAX + 1]] {
        let stream = with_option(stream.clone(), OPT_SET_META_CONTEXT, &good);
        let stream = with_option(stream, OPT_SET_META_CONTEXT, &bad);
        let end = serve(&with_option(stream, OPT_GO, &info_data("alpha", &[])), 64).end;
        let negotiated = Negotiated {
            export: 0,
            headers: Headers::Structured,
            base_allocation: false,
            block_sizes: false,
        };
        assert_eq!(end, Ok(ServerHandshakeStep::Transmission(negotiated)));
    }
}

#[test]
fn listing_contexts_knows_the_wildcard_and_listing_all() {
    for (queries, found) in
        [(&[][..], true), (&["base:"], true), (&["base:allocation"], true), (&["base:x"], false)]
    {
        let stream = with_option(fixed(), OPT_STRUCTURED_REPLY, b"");
        let stream = with_option(stream, OPT_LIST_META_CONTEXT, &meta_data("alpha", queries));
        let sent = serve(&stream, 64).sent;
        let contexts = replies(&sent).iter().filter(|reply| reply.1 == REP_META_CONTEXT).count();
        assert_eq!(contexts == 1, found, "{queries:?}");
        assert_eq!(kinds(&sent).last(), Some(&REP_ACK));
    }
}

#[test]
fn tables_that_must_not_be_advertised_are_refused() {
    let good = table().exports()[0].clone();
    let with = |change: fn(&mut Export)| {
        let mut export = good.clone();
        change(&mut export);
        ExportTable::new(vec![export], None)
    };
    assert!(with(|_| {}).is_ok());
    assert!(with(|export| export.name = "x".repeat(4097)).is_err());
    assert!(with(|export| export.name = "a\0b".into()).is_err());
    assert!(with(|export| export.block.minimum = 0).is_err());
    assert!(with(|export| export.block.minimum = 768).is_err());
    assert!(with(|export| export.block.minimum = 1 << 17).is_err());
    assert!(with(|export| export.block.preferred = 256).is_err());
    assert!(with(|export| export.block.maximum = 4097).is_err());
    let twice = vec![good.clone(), good];
    assert_eq!(ExportTable::new(twice, None), Err(ExportTableError::DuplicateName("alpha".into())));
    let absent = ExportTable::new(vec![], Some("alpha"));
    assert_eq!(absent, Err(ExportTableError::NoSuchDefault("alpha".into())));
}

/// Runs our client against our server, moving at most `piece` bytes at a time.
fn meet(export: &str, headers: Headers, piece: usize) -> Result<ServerOffer, ClientHandshakeError> {
    let exports = table();
    let mut to_client = Vec::new();
    let mut server = ServerHandshake::new(TlsOffer::Off, &mut to_client);
    let options = ClientOptions { export: export.into(), headers };
    let mut client = ClientHandshake::new(options)?;
    let mut to_server = Vec::new();
    loop {
        let length = to_client.len().min(piece);
        let mut input = &to_client[..length];
        let step = client.step(&mut input, &mut to_server)?;
        let used = length - input.len();
        to_client.drain(..used);
        if let ClientHandshakeStep::Transmission(offer) = step {
            assert!(to_client.is_empty());
            return Ok(*offer);
        }
        let length = to_server.len().min(piece);
        let mut input = &to_server[..length];
        server.step(&exports, &mut input, &mut to_client).expect("our client keeps the rules");
        let used = length - input.len();
        to_server.drain(..used);
    }
}

#[test]
fn a_client_is_content_with_less_than_extended_headers() {
    let refusal = |option: u32| {
        let mut bytes = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        for word in [option, REP_ERR_UNSUP, 0] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes
    };
    let options = ClientOptions { export: "alpha".into(), headers: Headers::Extended };
    let mut client = ClientHandshake::new(options).unwrap();
    let mut asked = Vec::new();
    let mut hear = |bytes: &[u8]| {
        asked.clear();
        let step = client.step(&mut &bytes[..], &mut asked);
        assert_eq!(step, Ok(ClientHandshakeStep::NeedMore));
        asked.clone()
    };
    let option = |number: u32| [&OPTION_MAGIC.to_be_bytes()[..], &number.to_be_bytes()].concat();
    let first = hear(b"NBDMAGICIHAVEOPT\x00\x03");
    assert!(first[4..].starts_with(&option(OPT_EXTENDED_HEADERS)));
    assert!(hear(&refusal(OPT_EXTENDED_HEADERS)).starts_with(&option(OPT_STRUCTURED_REPLY)));
    assert!(hear(&refusal(OPT_STRUCTURED_REPLY)).starts_with(&option(OPT_GO)));
}

#[test]
fn client_and_server_agree_whatever_the_piece_size() {
    for piece in [1, 2, 3, 17, 4096] {
        for headers in [Headers::Simple, Headers::Structured, Headers::Extended] {
            let offer = meet("", headers, piece).expect("the default export exists");
            assert_eq!(offer.headers, headers);
            assert_eq!(offer.export, table().exports()[1]);
        }
    }
}

#[test]
fn client_reports_a_refusal_in_the_servers_words() {
    let refused = meet("gamma", Headers::Structured, 4096).expect_err("there is no such export");
    let ClientHandshakeError::Refused { export, code, message } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!((export.as_str(), code), ("gamma", REP_ERR_UNKNOWN));
    assert!(!message.is_empty());
}

#[test]
fn client_falls_back_to_export_name_on_a_server_without_go() {
    let options = ClientOptions { export: "old".into(), headers: Headers::Structured };
    let mut client = ClientHandshake::new(options).expect("the name is short");
    let mut server = b"NBDMAGICIHAVEOPT\x00\x01".to_vec();
    for option in [OPT_STRUCTURED_REPLY, OPT_GO] {
        server.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
        server.extend_from_slice(&option.to_be_bytes());
        server.extend_from_slice(&REP_ERR_UNSUP.to_be_bytes());
        server.extend_from_slice(&[0; 4]);
    }
    server.extend_from_slice(&(1u64 << 30).to_be_bytes());
    server.extend_from_slice(&(FLAG_HAS_FLAGS | FLAG_READ_ONLY).to_be_bytes());
    server.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
    server.extend_from_slice(b"reply");
    let mut input = &server[..];
    let mut sent = Vec::new();
    let step = client.step(&mut input, &mut sent).expect("the server keeps the rules");
    let ClientHandshakeStep::Transmission(offer) = step else { panic!("{step:?}") };
    assert_eq!(input, b"reply");
    assert_eq!(offer.export.size, 1 << 30);
    assert!(offer.export.features.read_only && offer.headers == Headers::Simple);
    let mut expected = client_flags(FLAG_C_FIXED_NEWSTYLE);
    encode_option(&mut expected, OPT_STRUCTURED_REPLY, &[]);
    let items = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE];
    encode_option(&mut expected, OPT_GO, &[&info_data("old", &items)]);
    encode_option(&mut expected, OPT_EXPORT_NAME, &[b"old"]);
    assert_eq!(sent, expected);
}

#[test]
fn client_refuses_what_is_no_nbd_server() {
    let new = || {
        ClientHandshake::new(ClientOptions { export: String::new(), headers: Headers::Simple })
            .expect("the name is short")
    };
    let mut out = Vec::new();
    let ssh = new().step(&mut &b"SSH-2.0-OpenSSH_9.2p1 Debian"[..], &mut out);
    assert_eq!(ssh, Err(ClientHandshakeError::Greeting));
    let unfixed = new().step(&mut &b"NBDMAGICIHAVEOPT\x00\x00"[..], &mut out);
    assert_eq!(unfixed, Err(ClientHandshakeError::NotFixed));
}

/// Streams of options, most of them nearly right.
fn option_stream() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(Vec::new()),
        Just(info_data("alpha", &[INFO_BLOCK_SIZE, INFO_NAME])),
        Just(meta_data("beta", &["base:allocation"])),
        prop::collection::vec(any::<u8>(), 0..64),
    ];
    let option = prop_oneof![4 => 0u32..12, 1 => any::<u32>()];
    let tail = prop::collection::vec(any::<u8>(), 0..40);
    (0u32..5, prop::collection::vec((option, data), 0..8), tail).prop_map(
        |(flags, options, tail)| {
            let mut stream = client_flags(flags);
            for (option, data) in options {
                encode_option(&mut stream, option, &[&data]);
            }
            stream.extend_from_slice(&tail);
            stream
        },
    )
}

proptest! {
    #[test]
    fn server_gives_the_same_bytes_and_end_for_every_split(
        stream in option_stream(), piece in 1usize..40,
    ) {
        let whole = serve(&stream, usize::MAX >> 1);
        prop_assert_eq!(&serve(&stream, piece).sent, &whole.sent);
        let split = serve(&stream, 1);
        prop_assert_eq!(&split.sent, &whole.sent);
        prop_assert_eq!(split.left, whole.left);
        // The last step may be "answered" for the whole and "need more" for a split, or the reverse.
        if !matches!(whole.end, Ok(ServerHandshakeStep::NeedMore | ServerHandshakeStep::Answered)) {
            prop_assert_eq!(split.end, whole.end);
        }
    }

    #[test]
    fn server_survives_arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut stream = fixed();
        stream.extend_from_slice(&bytes);
        let outcome = serve(&stream, 7);
        prop_assert!(outcome.sent.len() <= 4096);
    }

    #[test]
    fn client_survives_arbitrary_bytes_after_a_good_greeting(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        head in 0usize..3,
    ) {
        let mut stream = b"NBDMAGICIHAVEOPT\x00\x03".to_vec();
        if head > 0 {
            stream.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
            stream.extend_from_slice(&OPT_GO.to_be_bytes());
            stream.extend_from_slice(&REP_INFO.to_be_bytes());
        }
        if head > 1 {
            stream.extend_from_slice(&12u32.to_be_bytes());
        }
        stream.extend_from_slice(&bytes);
        let run = |piece: usize| {
            let options = ClientOptions { export: "alpha".into(), headers: Headers::Simple };
            let mut client = ClientHandshake::new(options).expect("the name is short");
            let mut out = Vec::new();
            let mut last = Ok(ClientHandshakeStep::NeedMore);
            for bytes in stream.chunks(piece) {
                last = client.step(&mut &bytes[..], &mut out);
                if last != Ok(ClientHandshakeStep::NeedMore) {
                    break;
                }
            }
            (out, last)
        };
        prop_assert_eq!(run(1), run(stream.len()));
    }
}

#[test]
fn a_server_that_requires_tls_answers_nothing_else_before_it() {
    let start = |tls| {
        let mut server = ServerHandshake::new(tls, &mut Vec::new());
        let flags = go_on(&mut server, Vec::new(), &fixed(), 1);
        assert_eq!(flags.sent, b"");
        server
    };
    let cases = [
        (OPT_LIST, vec![]),
        (OPT_INFO, info_data("alpha", &[])),
        (OPT_GO, info_data("alpha", &[])),
        (OPT_GO, vec![0; OPTION_BYTES_MAX + 1]),
        (OPT_STRUCTURED_REPLY, vec![]),
        (OPT_SET_META_CONTEXT, meta_data("alpha", &["base:allocation"])),
        (0xdead_beef, vec![7; 100_000]),
    ];
    for (option, data) in cases {
        let mut server = start(TlsOffer::Require);
        let stream = with_option(with_option(Vec::new(), option, &data), OPT_STARTTLS, b"");
        let outcome = go_on(&mut server, Vec::new(), &[stream, b"rest".to_vec()].concat(), 1000);
        let found: Vec<(u32, u32)> =
            replies(&outcome.sent).iter().map(|reply| (reply.0, reply.1)).collect();
        assert_eq!(found, [(option, REP_ERR_TLS_REQD), (OPT_STARTTLS, REP_ACK)]);
        assert_eq!(outcome.end, Ok(ServerHandshakeStep::StartTls));
        assert!(outcome.left >= 4, "what follows belongs to TLS");
    }
    let name = with_option(Vec::new(), OPT_EXPORT_NAME, b"alpha");
    let outcome = go_on(&mut start(TlsOffer::Require), Vec::new(), &name, 1000);
    assert_eq!(outcome.end, Err(ServerHandshakeError::TlsRequired));
    let abort = with_option(Vec::new(), OPT_ABORT, b"");
    let outcome = go_on(&mut start(TlsOffer::Require), Vec::new(), &abort, 1000);
    assert_eq!(outcome.end, Ok(ServerHandshakeStep::Closed));
    for tls in [TlsOffer::Off, TlsOffer::Allow] {
        let outcome = go_on(&mut start(tls), Vec::new(), &name, 1000);
        assert!(matches!(outcome.end, Ok(ServerHandshakeStep::Transmission(_))), "{tls:?}");
    }
}

#[test]
fn what_was_agreed_on_before_tls_counts_no_more_within_it() {
    let mut server = ServerHandshake::new(TlsOffer::Allow, &mut Vec::new());
    let before = with_option(fixed(), OPT_STRUCTURED_REPLY, b"");
    let context = meta_data("alpha", &["base:allocation"]);
    let before = with_option(before, OPT_SET_META_CONTEXT, &context);
    let before = with_option(before, OPT_INFO, &info_data("alpha", &[INFO_BLOCK_SIZE]));
    let outcome = go_on(&mut server, Vec::new(), &with_option(before, OPT_STARTTLS, b""), 1000);
    assert_eq!(outcome.end, Ok(ServerHandshakeStep::StartTls));
    server.tls_begun();
    let again = with_option(Vec::new(), OPT_STARTTLS, b"");
    let within = with_option(again, OPT_GO, &info_data("alpha", &[]));
    let outcome = go_on(&mut server, Vec::new(), &within, 1000);
    let found = replies(&outcome.sent);
    assert_eq!((found[0].0, found[0].1), (OPT_STARTTLS, REP_ERR_INVALID));
    let Ok(ServerHandshakeStep::Transmission(negotiated)) = outcome.end else {
        panic!("{:?}", outcome.end)
    };
    let nothing = Negotiated {
        export: 0,
        headers: Headers::Simple,
        base_allocation: false,
        block_sizes: false,
    };
    assert_eq!(negotiated, nothing);
}

#[test]
fn a_client_that_wants_tls_asks_for_nothing_before_it_or_gives_up() {
    let options = || ClientOptions { export: "alpha".into(), headers: Headers::Structured };
    let mut to_client = Vec::new();
    let mut server = ServerHandshake::new(TlsOffer::Require, &mut to_client);
    let mut client = ClientHandshake::new(options()).unwrap().within_tls();
    let mut to_server = Vec::new();
    let step = client.step(&mut &to_client[..], &mut to_server);
    assert_eq!(step, Ok(ClientHandshakeStep::NeedMore));
    // Its flags, and one option.
    assert_eq!(to_server.len(), 4 + 16);
    let outcome = go_on(&mut server, Vec::new(), &to_server, 1000);
    assert_eq!(outcome.end, Ok(ServerHandshakeStep::StartTls));
    let injected = [&outcome.sent[..], b"said by somebody in between"].concat();
    let (mut input, mut none) = (&injected[..], Vec::new());
    assert_eq!(client.step(&mut input, &mut none), Ok(ClientHandshakeStep::StartTls));
    assert_eq!((input, none.len()), (&b"said by somebody in between"[..], 0));
    server.tls_begun();
    let mut within = Vec::new();
    client.go_on(&mut within);
    let outcome = go_on(&mut server, Vec::new(), &within, 1000);
    let mut more = Vec::new();
    assert_eq!(client.step(&mut &outcome.sent[..], &mut more), Ok(ClientHandshakeStep::NeedMore));
    let outcome = go_on(&mut server, Vec::new(), &more, 1000);
    let step = client.step(&mut &outcome.sent[..], &mut none);
    let Ok(ClientHandshakeStep::Transmission(offer)) = step else { panic!("{step:?}") };
    assert_eq!((offer.export.name.as_str(), offer.headers), ("alpha", Headers::Structured));

    let mut to_client = Vec::new();
    let mut server = ServerHandshake::new(TlsOffer::Off, &mut to_client);
    let mut client = ClientHandshake::new(options()).unwrap().within_tls();
    let mut to_server = Vec::new();
    client.step(&mut &to_client[..], &mut to_server).unwrap();
    let outcome = go_on(&mut server, Vec::new(), &to_server, 1000);
    let step = client.step(&mut &outcome.sent[..], &mut to_server);
    assert!(matches!(step, Err(ClientHandshakeError::NoTls { .. })), "{step:?}");
}

//! PDUs there and back, and what a decoder refuses.

use super::*;

fn events(stream: &[u8], cut: usize, digests: bool) -> (Vec<Event>, Option<FatalError>) {
    let mut decoder = Decoder::new();
    let mut seen = Vec::new();
    let mut skip = 0;
    for piece in stream.chunks(cut) {
        let mut input = piece;
        loop {
            // The caller takes payloads out of the stream itself.
            let taken = skip.min(input.len());
            (input, skip) = (&input[taken..], skip - taken);
            match decoder.step(&mut input) {
                Ok(Event::NeedMore) => break,
                Ok(event) => {
                    if let Event::Initialize(_) = event {
                        decoder.set_digests(digests, digests);
                    }
                    if let Event::Command(_, payload) | Event::Data { payload, .. } = &event {
                        skip =
                            payload.length as usize + if payload.digest { DIGEST_BYTES } else { 0 };
                    }
                    seen.push(event);
                }
                Err(violation) => return (seen, Some(violation.error)),
            }
        }
    }
    (seen, None)
}

fn wishes(digests: bool) -> Initialize {
    Initialize { host_alignment: 0, header_digest: digests, data_digest: digests, ready_max: 4 }
}

fn stream(digests: bool) -> Vec<u8> {
    let write = Command::of(io::WRITE, 7, 1).with_data(Sgl::InCapsule(0, 512));
    let read = Command::of(io::READ, 8, 1).with_data(Sgl::Transport(4096));
    let parts = [
        wishes(digests).encode().to_vec(),
        write.capsule(&[9; 512], digests, digests),
        read.capsule(&[], digests, digests),
    ];
    parts.concat()
}

#[test]
fn a_stream_means_the_same_however_it_is_cut() {
    for digests in [false, true] {
        let stream = stream(digests);
        let (whole, error) = events(&stream, stream.len(), digests);
        assert_eq!((whole.len(), error), (3, None));
        assert_eq!(whole[0], Event::Initialize(wishes(digests)));
        let Event::Command(write, payload) = &whole[1] else { panic!("{whole:?}") };
        assert_eq!((write.id(), write.direction(), write.block()), (7, Direction::In, 0));
        assert_eq!(*payload, Payload { length: 512, digest: digests });
        let Event::Command(read, payload) = &whole[2] else { panic!("{whole:?}") };
        assert_eq!((read.sgl(), payload.length), (Sgl::Transport(4096), 0));
        for cut in [1, 7, 64, 100] {
            assert_eq!(events(&stream, cut, digests).0, whole);
        }
    }
}

#[test]
fn wrong_pdus_get_the_error_that_the_specification_has_for_them() {
    let initialized = wishes(false).encode().to_vec();
    let plain = Command::of(io::FLUSH, 1, 1).capsule(&[], false, false);
    let changed = |at: usize, byte: u8| {
        let mut pdu = plain.clone();
        pdu[at] = byte;
        [initialized.clone(), pdu].concat()
    };
    let data = |length: u32| {
        let mut pdu = vec![6, 0, 24, 24];
        pdu.extend(32u32.to_le_bytes());
        pdu.extend([0; 8]);
        pdu.extend(length.to_le_bytes());
        pdu.extend([0; 12]);
        [initialized.clone(), pdu].concat()
    };
    let too_much =
        Command::of(io::WRITE, 1, 1).capsule(&vec![0; MAX_IN_CAPSULE as usize + 1], false, false);
    for (stream, error) in [
        (plain.clone(), FatalError::Sequence),
        ([initialized.clone(), initialized.clone()].concat(), FatalError::Sequence),
        (changed(0, 0x55), FatalError::InvalidHeader),
        (changed(1, 1), FatalError::InvalidHeader),
        (changed(2, 71), FatalError::InvalidHeader),
        (changed(4, 71), FatalError::InvalidHeader),
        (data(7), FatalError::InvalidHeader),
        ([initialized.clone(), too_much].concat(), FatalError::InvalidHeader),
    ] {
        assert_eq!(events(&stream, stream.len(), false).1, Some(error), "{stream:?}");
    }
    assert_eq!(events(&data(8), 500, false).1, None);
    let mut damaged = stream(true);
    // In the header of the first command.
    damaged[INITIALIZE_BYTES + 20] ^= 1;
    assert_eq!(events(&damaged, 5000, true).1, Some(FatalError::HeaderDigest));
}

#[test]
fn data_begins_where_the_host_wants_it() {
    for alignment in [0, 1, 31] {
        let agreed = Initialize { host_alignment: alignment, ..wishes(true) };
        let mut out = Vec::new();
        Encoder::new(&agreed).data(5, 512, true, &mut out);
        let unit = (usize::from(alignment) + 1) * 4;
        assert_eq!(out.len(), usize::from(out[3]));
        assert!(out.len() >= 28 && out.len().is_multiple_of(unit));
        let length = u32::from_le_bytes(out[4..8].try_into().unwrap());
        assert_eq!(length as usize, out.len() + 512 + DIGEST_BYTES);
    }
}

#[test]
fn crc32c_is_that_of_the_specification() {
    // The check value of CRC-32C.
    assert_eq!(Crc32c::of(b"123456789"), 0xe306_9283);
    let mut pieces = Crc32c::new();
    pieces.update(b"12345");
    pieces.update(b"6789");
    assert_eq!(pieces.value(), 0xe306_9283);
}

#[test]
fn completions_and_connects_survive_the_wire() {
    let completion =
        Completion { result: 1 << 40 | 9, head: 3, command: 4, status: Status::LBA_OUT_OF_RANGE };
    assert_eq!(Completion::decode(&completion.encode()), completion);
    let data = ConnectData {
        host_id: [3; 16],
        controller: 0xffff,
        subsystem: DISCOVERY_NQN.into(),
        host: "nqn.2026-01.org.example:a".into(),
    };
    assert_eq!(ConnectData::decode(&data.encode()), Ok(data.clone()));
    let mut endless = data.encode();
    endless[256..512].fill(b'x');
    assert_eq!(ConnectData::decode(&endless), Err(256));
    assert_eq!(ConnectData::decode(&[]), Err(0));
}

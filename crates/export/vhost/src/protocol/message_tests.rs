//! Messages as bytes, right and wrong.

use super::*;

fn header(code: u32, size: usize) -> Header {
    Header { code, size: size as u32, needs_reply: false }
}

fn decoded(code: u32, body: &[u8], descriptors: usize) -> Result<Message, Violation> {
    Message::decode(header(code, body.len()), body, descriptors)
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_ne_bytes()).collect()
}

#[test]
fn headers_of_other_versions_and_replies_are_refused() {
    let bytes = |flags: u32, size: u32| {
        let all: Vec<u8> = halves(&[1, flags, size]);
        <[u8; HEADER_BYTES]>::try_from(all).unwrap()
    };
    let read = Header { code: 1, size: 8, needs_reply: true };
    assert_eq!(Header::decode(&bytes(1 | FLAG_NEED_REPLY, 8)), Ok(read));
    for (flags, size) in [(0, 8), (2, 8), (1 | FLAG_REPLY, 8), (0x11, 8), (1, u32::MAX)] {
        let refused = Err(Violation::Header { flags, size });
        assert_eq!(Header::decode(&bytes(flags, size)), refused);
    }
}

#[test]
fn bodies_are_read_as_the_specification_has_them() {
    assert_eq!(decoded(2, &words(&[7]), 0), Ok(Message::SetFeatures(7)));
    let expected = Message::SetVringNum { queue: 3, size: 256 };
    assert_eq!(decoded(8, &halves(&[3, 256]), 0), Ok(expected));
    let expected = Message::SetVringKick { queue: 2, with: true };
    assert_eq!(decoded(12, &words(&[2]), 1), Ok(expected));
    let expected = Message::SetVringCall { queue: 2, with: false };
    assert_eq!(decoded(13, &words(&[0x102]), 0), Ok(expected));
    let table = [halves(&[1, 0]), words(&[0, 4096, 8192, 0])].concat();
    let region = Region { guest: 0, size: 4096, user: 8192, offset: 0 };
    assert_eq!(decoded(5, &table, 1), Ok(Message::SetMemTable(vec![region])));
    let longer = [table, vec![0; 32]].concat();
    assert_eq!(decoded(5, &longer, 1), Ok(Message::SetMemTable(vec![region])));
    let config = [halves(&[0, 60, 0]), vec![0; 60]].concat();
    assert_eq!(decoded(24, &config, 0), Ok(Message::GetConfig { offset: 0, size: 60 }));
}

#[test]
fn inflight_shapes_come_with_their_padding_or_without() {
    let shape = InflightShape { size: 4096, offset: 0, queues: 2, queue_size: 128 };
    let bytes = shape.encode();
    assert_eq!(bytes.len(), 24);
    assert_eq!(decoded(32, &bytes, 1), Ok(Message::SetInflightFd(shape)));
    assert_eq!(decoded(31, &bytes[..20], 0), Ok(Message::GetInflightFd(shape)));
}

#[test]
fn wrong_lengths_queues_and_descriptors_are_told_apart() {
    assert_eq!(decoded(2, &[0; 7], 0), Err(Violation::Body(2)));
    assert_eq!(decoded(2, &[0; 9], 0), Err(Violation::Body(2)));
    assert_eq!(decoded(99, &[], 0), Err(Violation::Unknown(99)));
    let refused = Violation::Queue { code: 8, queue: 64 };
    assert_eq!(decoded(8, &halves(&[64, 1]), 0), Err(refused));
    assert_eq!(decoded(8, &halves(&[0, 1 << 16]), 0), Err(Violation::Body(8)));
    let refused = Violation::Descriptors { code: 12, found: 0 };
    assert_eq!(decoded(12, &words(&[0]), 0), Err(refused));
    assert_eq!(decoded(18, &halves(&[0, 2]), 0), Err(Violation::Body(18)));
    for count in [0, 9, u32::MAX] {
        let table = [halves(&[count, 0]), vec![0; 9 * 32]].concat();
        assert_eq!(decoded(5, &table, 0), Err(Violation::Body(5)));
    }
    for (offset, size) in [(0, 61), (4096, 60), (u32::MAX, 60)] {
        let config = [halves(&[offset, size, 0]), vec![0; 60]].concat();
        assert_eq!(decoded(24, &config, 0), Err(Violation::Body(24)));
    }
}

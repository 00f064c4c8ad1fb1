//! FUSE over io_uring (linux/fuse.h 7.42, Documentation/filesystems/fuse-io-uring.rst): commands, and the memory
//! beside a payload that each entry of a queue has.

use super::fields::{Fields, Out};
use super::request::Header;
use braid_shard::ring::ARGUMENT;

/// `FUSE_IO_URING_CMD_REGISTER`: a new entry, which waits for a request.
pub(crate) const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: the reply to the request in an entry, which waits for the next one.
pub(crate) const COMMIT_AND_FETCH: u32 = 2;

/// Bytes of `fuse_uring_req_header`: headers of request and reply, the request's own fields, what is in the entry.
pub(crate) const HEADERS: usize = OF_ENTRY + 32;
/// Where a request's own fields begin.
const OF_REQUEST: usize = 128;
/// Where `fuse_uring_ent_in_out` begins.
const OF_ENTRY: usize = 256;

/// `fuse_uring_cmd_req`: for an entry of queue `queue`; `commit` names the request that is answered.
pub(crate) fn argument(queue: u16, commit: u64) -> [u8; ARGUMENT] {
    let mut argument = [0; ARGUMENT];
    argument[8..16].copy_from_slice(&commit.to_ne_bytes());
    argument[16..18].copy_from_slice(&queue.to_ne_bytes());
    argument
}

/// A request as the kernel has put it into an entry.
pub(crate) struct Arrived<'a> {
    /// The request's header.
    pub header: Header,
    /// Its own fields; what follows them is the payload.
    pub fields: &'a [u8],
    /// Bytes of the payload.
    pub payload: usize,
}

/// The number under which the request in an entry is answered.
pub(crate) fn commit_number(headers: &[u8]) -> Option<u64> {
    let mut entry = Fields(headers.get(OF_ENTRY..)?);
    entry.skip(8)?;
    entry.u64()
}

/// Takes an entry's headers apart; `None` when they do not fit together.
pub(crate) fn parse(headers: &[u8]) -> Option<Arrived<'_>> {
    let header = Header::parse(headers)?;
    let mut entry = Fields(headers.get(OF_ENTRY..)?);
    entry.skip(8 + 8)?;
    let payload = entry.u32()? as usize;
    let own = (header.len as usize).checked_sub(super::HEADER)?.checked_sub(payload)?;
    let fields = headers.get(OF_REQUEST..OF_ENTRY)?.get(..own)?;
    Some(Arrived { header, fields, payload })
}

/// Puts a reply's header into an entry's headers, and how many bytes of payload it has.
pub(crate) fn put_reply(headers: &mut [u8], unique: u64, error: i32, payload: usize) {
    // At most as long as the largest read.
    let payload = u32::try_from(payload).unwrap_or(u32::MAX - super::OUT_HEADER);
    let reply = Out::new().u32(super::OUT_HEADER + payload).u32(error.cast_unsigned()).u64(unique);
    let places = [(0, reply.bytes()), (OF_ENTRY + 16, &payload.to_ne_bytes())];
    for (at, bytes) in places {
        if let Some(place) = headers.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(len: u32, payload: u32) -> Vec<u8> {
        let mut headers = vec![0; HEADERS];
        let head = Out::new().u32(len).u32(16).u64(77).u64(5).u32(1000).u32(100);
        headers[..head.bytes().len()].copy_from_slice(head.bytes());
        headers[128..132].copy_from_slice(b"own!");
        let entry = Out::new().u64(0).u64(78).u32(payload).u32(0);
        headers[256..][..entry.bytes().len()].copy_from_slice(entry.bytes());
        headers
    }

    #[test]
    fn an_entry_is_taken_apart() {
        let headers = headers(40 + 4 + 100, 100);
        let arrived = parse(&headers).expect("it fits together");
        assert_eq!((arrived.header.unique, arrived.header.ino, arrived.header.opcode), (77, 5, 16));
        assert_eq!((arrived.fields, arrived.payload), (&b"own!"[..], 100));
        assert_eq!(commit_number(&headers), Some(78));
        assert_eq!((HEADERS, commit_number(&headers[..270])), (288, None));
    }

    #[test]
    fn an_entry_that_contradicts_itself_is_a_value() {
        for (len, payload) in [(39, 0), (40, 1), (40 + 129, 0), (u32::MAX, 0), (0, u32::MAX)] {
            assert!(parse(&headers(len, payload)).is_none(), "{len} {payload}");
        }
        assert!(parse(&headers(40, 0)[..200]).is_none());
    }

    #[test]
    fn a_reply_goes_where_the_kernel_looks_for_it() {
        let mut headers = headers(40, 0);
        put_reply(&mut headers, 77, -5, 0x1234);
        let mut head = Fields(&headers);
        assert_eq!((head.u32(), head.u32()), (Some(16 + 0x1234), Some((-5i32).cast_unsigned())));
        assert_eq!(head.u64(), Some(77));
        assert_eq!(headers[272..276], 0x1234u32.to_ne_bytes());
        assert_eq!(commit_number(&headers), Some(78), "the rest stays");
        let argument = argument(3, 78);
        assert_eq!((&argument[8..16], &argument[16..18]), (&78u64.to_ne_bytes()[..], &[3, 0][..]));
    }
}

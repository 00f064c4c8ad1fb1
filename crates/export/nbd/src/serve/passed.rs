//! A connected client, as a server tells its successor of it: what was agreed on, and the bytes that were received of it and not
//! carried out.
//!
//! ```text
//!  version  flags  length of the name  bytes to skip  name of the export  bytes of the client …
//!   u8       u8      u16                 u32
//! ```
//! Numbers are little-endian. Both sides are braid on the same machine.

use crate::protocol::{Headers, Negotiated};

const VERSION: u8 = 1;
const STRUCTURED: u8 = 1;
const BASE_ALLOCATION: u8 = 1 << 1;
const BLOCK_SIZES: u8 = 1 << 2;
/// Headers are extended; then the flag of structured replies is set, too.
const EXTENDED: u8 = 1 << 3;

/// See the module's documentation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The export.
    pub export: String,
    /// The result of the handshake. The index of the export is for the successor to find.
    pub negotiated: Negotiated,
    /// Bytes of the payload of a refused write that are still to come and to be skipped.
    pub skip: u32,
    /// Bytes that come before those that are still in the socket.
    pub unread: Vec<u8>,
}

impl State {
    pub fn encode(&self) -> Vec<u8> {
        let Negotiated { headers, base_allocation, block_sizes, .. } = self.negotiated;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(headers.structured(), STRUCTURED)
            | flag(headers == Headers::Extended, EXTENDED)
            | flag(base_allocation, BASE_ALLOCATION)
            | flag(block_sizes, BLOCK_SIZES);
        let name = self.export.as_bytes();
        let mut bytes = vec![VERSION, flags];
        // Names have at most 4096 bytes.
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&self.skip.to_le_bytes());
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&self.unread);
        bytes
    }

    /// # Errors
    /// The fault of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<State, &'static str> {
        let (head, rest) = bytes.split_first_chunk::<8>().ok_or("it is cut off")?;
        let [version, flags, low, high, skip @ ..] = *head;
        if version != VERSION {
            return Err("it is of another version");
        }
        if flags & !(STRUCTURED | BASE_ALLOCATION | BLOCK_SIZES | EXTENDED) != 0 {
            return Err("it has an unknown flag");
        }
        let headers = match (flags & STRUCTURED != 0, flags & EXTENDED != 0) {
            (false, false) => Headers::Simple,
            (true, false) => Headers::Structured,
            (true, true) => Headers::Extended,
            (false, true) => return Err("its flags contradict each other"),
        };
        let length = usize::from(u16::from_le_bytes([low, high]));
        let (name, unread) = rest.split_at_checked(length).ok_or("its name is cut off")?;
        let export = std::str::from_utf8(name).map_err(|_| "its name is no text")?.to_owned();
        let negotiated = Negotiated {
            export: 0,
            headers,
            base_allocation: flags & BASE_ALLOCATION != 0,
            block_sizes: flags & BLOCK_SIZES != 0,
        };
        let skip = u32::from_le_bytes(skip);
        Ok(State { export, negotiated, skip, unread: unread.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn state(headers: Headers, [base_allocation, block_sizes]: [bool; 2]) -> State {
        State {
            export: "data".into(),
            negotiated: Negotiated { export: 0, headers, base_allocation, block_sizes },
            skip: 70_000,
            unread: vec![9; 300],
        }
    }

    #[test]
    fn a_client_is_the_same_at_the_successor() {
        for (headers, flags) in [
            (Headers::Simple, [true, false]),
            (Headers::Structured, [false, true]),
            (Headers::Extended, [false, false]),
        ] {
            let there = state(headers, flags);
            assert_eq!(State::decode(&there.encode()).unwrap(), there);
        }
    }

    #[test]
    fn what_another_version_says_is_refused_and_no_cut_breaks_it() {
        let bytes = state(Headers::Structured, [true; 2]).encode();
        for at in 0..12 {
            assert!(State::decode(&bytes[..at]).is_err(), "{at}");
        }
        let with = |at: usize, byte| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            State::decode(&bytes)
        };
        assert!(with(0, 2).is_err());
        assert!(with(1, 16).is_err());
        assert!(with(1, EXTENDED).is_err());
        assert!(with(8, 0xff).is_err());
    }
}

//! Messages of in-band authentication by DH-HMAC-CHAP (Base 2.0, section 8.13.5), in both directions.
//!
//! A message is the data of an Authentication Send or Receive command.

use super::fields::{put, u8_at, u16_at, u32_at};
use super::secret::Hash;

/// The security protocol of the commands that carry these messages, with its two bytes of specifics (Base 2.0, 6.2).
pub const SECURITY_PROTOCOL: [u8; 3] = [1, 1, 0xe9];

const COMMON: u8 = 0;
const CHAP: u8 = 1;
const NEGOTIATE: u8 = 0x00;
const CHALLENGE: u8 = 0x01;
const REPLY: u8 = 0x02;
const SUCCESS1: u8 = 0x03;
const SUCCESS2: u8 = 0x04;
const FAILURE2: u8 = 0xf0;
const FAILURE1: u8 = 0xf1;
/// Bytes before what follows, and of a protocol that a host knows.
const HEAD: usize = 16;
const NEGOTIATE_HEAD: usize = 8;
const PROTOCOL: usize = 64;
/// Identifiers that such a protocol has room for.
const IDS: usize = 30;

/// Why an authentication fails (Base 2.0, figure 447); the reason is always that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Failure {
    /// A response is wrong.
    Failed = 1,
    /// No common protocol.
    Protocol = 2,
    /// A secure channel was asked for.
    Concatenation = 3,
    /// No common hash.
    Hash = 4,
    /// No common group.
    Group = 5,
    /// A field of the message is wrong.
    Payload = 6,
    /// Another message was expected.
    Message = 7,
}

impl Failure {
    fn of(code: u8) -> Failure {
        let all = [
            Failure::Protocol,
            Failure::Concatenation,
            Failure::Hash,
            Failure::Group,
            Failure::Payload,
            Failure::Message,
        ];
        all.into_iter().find(|one| *one as u8 == code).unwrap_or(Failure::Failed)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The methods that the host knows.
    Negotiate {
        /// The number of the exchange.
        transaction: u16,
        /// It wants a secure channel afterwards.
        channel: bool,
        /// The hashes and groups of DH-HMAC-CHAP, the first the one it likes best; `None` when it knows other protocols
        /// only.
        chap: Option<(Vec<u8>, Vec<u8>)>,
    },
    /// The challenge to the host.
    Challenge {
        /// The number of the exchange.
        transaction: u16,
        /// The hash.
        hash: Hash,
        /// The group.
        group: u8,
        /// A number that is part of what is hashed.
        sequence: u32,
        /// As many bytes as the hash has.
        challenge: Vec<u8>,
        /// The controller's value in the group; empty without one.
        value: Vec<u8>,
    },
    /// The host's proof.
    Reply {
        /// The number of the exchange.
        transaction: u16,
        /// The proof.
        response: Vec<u8>,
        /// The challenge to the controller, if there is one.
        challenge: Option<Vec<u8>>,
        /// A number that is part of what is hashed then.
        sequence: u32,
        /// The host's value in the group; empty without one.
        value: Vec<u8>,
    },
    /// The host has proved itself; the controller's proof, if one was asked for.
    Success1 {
        /// The number of the exchange.
        transaction: u16,
        /// The hash.
        hash: Hash,
        /// The proof.
        response: Option<Vec<u8>>,
    },
    /// The controller has proved itself.
    Success2 {
        /// The number of the exchange.
        transaction: u16,
    },
    /// The controller ends the exchange.
    Failure1 {
        /// The number of the exchange.
        transaction: u16,
        /// Why.
        failure: Failure,
    },
    /// The host ends the exchange.
    Failure2 {
        /// The number of the exchange.
        transaction: u16,
        /// Why.
        failure: Failure,
    },
}

/// The bytes of `bytes` from `at` on, `count` of them.
fn field(bytes: &[u8], at: usize, count: usize) -> Result<Vec<u8>, Failure> {
    let found = bytes.get(at..).and_then(|rest| rest.get(..count));
    found.map(<[u8]>::to_vec).ok_or(Failure::Payload)
}

impl Message {
    /// Takes the bytes apart.
    ///
    /// # Errors
    /// The failure that the peer is to be told: no message of the protocol, or one that is cut or contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Message, Failure> {
        let transaction = u16_at(bytes, 4);
        let hash_bytes = usize::from(u8_at(bytes, 6));
        let value_bytes = usize::from(u16_at(bytes, 10));
        let whole = |count| if bytes.len() < count { Err(Failure::Payload) } else { Ok(()) };
        whole(NEGOTIATE_HEAD)?;
        match (u8_at(bytes, 0), u8_at(bytes, 1)) {
            (COMMON, NEGOTIATE) => Message::negotiate(bytes, transaction),
            // Linux says a failure is a message of the protocol, the specification that it is common to all.
            (COMMON | CHAP, FAILURE1) => {
                Ok(Message::Failure1 { transaction, failure: Failure::of(u8_at(bytes, 7)) })
            }
            (COMMON | CHAP, FAILURE2) => {
                Ok(Message::Failure2 { transaction, failure: Failure::of(u8_at(bytes, 7)) })
            }
            (CHAP, CHALLENGE) => {
                let hash = Hash::of(u8_at(bytes, 8)).ok_or(Failure::Hash)?;
                if hash.bytes() != hash_bytes {
                    return Err(Failure::Payload);
                }
                let challenge = field(bytes, HEAD, hash_bytes)?;
                let value = field(bytes, HEAD + hash_bytes, value_bytes)?;
                let (group, sequence) = (u8_at(bytes, 9), u32_at(bytes, 12));
                Ok(Message::Challenge { transaction, hash, group, sequence, challenge, value })
            }
            (CHAP, REPLY) => {
                let response = field(bytes, HEAD, hash_bytes)?;
                let challenge = field(bytes, HEAD + hash_bytes, hash_bytes)?;
                let challenge = (u8_at(bytes, 8) & 1 != 0).then_some(challenge);
                let value = field(bytes, HEAD + 2 * hash_bytes, value_bytes)?;
                let sequence = u32_at(bytes, 12);
                Ok(Message::Reply { transaction, response, challenge, sequence, value })
            }
            (CHAP, SUCCESS1) => {
                let hash = Hash::of_bytes(hash_bytes).ok_or(Failure::Payload)?;
                let valid = u8_at(bytes, 8) & 1 != 0;
                let response = valid.then(|| field(bytes, HEAD, hash_bytes)).transpose()?;
                Ok(Message::Success1 { transaction, hash, response })
            }
            (CHAP, SUCCESS2) => whole(HEAD).map(|()| Message::Success2 { transaction }),
            _ => Err(Failure::Message),
        }
    }

    fn negotiate(bytes: &[u8], transaction: u16) -> Result<Message, Failure> {
        let count = usize::from(u8_at(bytes, 7));
        let protocols = field(bytes, NEGOTIATE_HEAD, count * PROTOCOL)?;
        let mut chap = None;
        if let Some(one) = protocols.chunks(PROTOCOL).find(|one| u8_at(one, 0) == CHAP) {
            let (hashes, groups) = (usize::from(u8_at(one, 2)), usize::from(u8_at(one, 3)));
            if hashes > IDS || groups > IDS {
                return Err(Failure::Payload);
            }
            chap = Some((field(one, 4, hashes)?, field(one, 4 + IDS, groups)?));
        }
        Ok(Message::Negotiate { transaction, channel: u8_at(bytes, 6) != 0, chap })
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let start = |kind, id, transaction: u16, length| {
            let mut bytes = vec![0; length];
            put(&mut bytes, 0, &[kind, id]);
            put(&mut bytes, 4, &transaction.to_le_bytes());
            bytes
        };
        match self {
            Message::Negotiate { transaction, channel, chap } => {
                let length = NEGOTIATE_HEAD + chap.as_ref().map_or(0, |_| PROTOCOL);
                let mut bytes = start(COMMON, NEGOTIATE, *transaction, length);
                put(&mut bytes, 6, &[u8::from(*channel), u8::from(chap.is_some())]);
                if let Some((hashes, groups)) = chap {
                    put(&mut bytes, 8, &[CHAP, 0, hashes.len() as u8, groups.len() as u8]);
                    put(&mut bytes, 12, hashes);
                    put(&mut bytes, 12 + IDS, groups);
                }
                bytes
            }
            Message::Challenge { transaction, hash, group, sequence, challenge, value } => {
                let length = HEAD + hash.bytes() + value.len();
                let mut bytes = start(CHAP, CHALLENGE, *transaction, length);
                put(&mut bytes, 6, &[hash.bytes() as u8, 0, *hash as u8, *group]);
                put(&mut bytes, 10, &(value.len() as u16).to_le_bytes());
                put(&mut bytes, 12, &sequence.to_le_bytes());
                put(&mut bytes, HEAD, challenge);
                put(&mut bytes, HEAD + hash.bytes(), value);
                bytes
            }
            Message::Reply { transaction, response, challenge, sequence, value } => {
                let length = HEAD + 2 * response.len() + value.len();
                let mut bytes = start(CHAP, REPLY, *transaction, length);
                put(&mut bytes, 6, &[response.len() as u8, 0, u8::from(challenge.is_some())]);
                put(&mut bytes, 10, &(value.len() as u16).to_le_bytes());
                put(&mut bytes, 12, &sequence.to_le_bytes());
                put(&mut bytes, HEAD, response);
                put(&mut bytes, HEAD + response.len(), challenge.as_deref().unwrap_or_default());
                put(&mut bytes, HEAD + 2 * response.len(), value);
                bytes
            }
            Message::Success1 { transaction, hash, response } => {
                let mut bytes = start(CHAP, SUCCESS1, *transaction, HEAD + hash.bytes());
                put(&mut bytes, 6, &[hash.bytes() as u8, 0, u8::from(response.is_some())]);
                put(&mut bytes, HEAD, response.as_deref().unwrap_or_default());
                bytes
            }
            Message::Success2 { transaction } => start(CHAP, SUCCESS2, *transaction, HEAD),
            Message::Failure1 { transaction, failure } => {
                let mut bytes = start(COMMON, FAILURE1, *transaction, NEGOTIATE_HEAD);
                put(&mut bytes, 6, &[1, *failure as u8]);
                bytes
            }
            Message::Failure2 { transaction, failure } => {
                let mut bytes = start(COMMON, FAILURE2, *transaction, NEGOTIATE_HEAD);
                put(&mut bytes, 6, &[1, *failure as u8]);
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire_and_cut_ones_are_refused() {
        let chap = Some((vec![1, 2, 3], vec![0, 1]));
        let (hash, transaction) = (Hash::Sha384, 0x102);
        let value = |byte| vec![byte; hash.bytes()];
        let all = [
            Message::Negotiate { transaction, channel: false, chap },
            Message::Challenge {
                transaction,
                hash,
                group: 1,
                sequence: 7,
                challenge: value(3),
                value: vec![9; 256],
            },
            Message::Reply {
                transaction,
                response: value(4),
                challenge: Some(value(5)),
                sequence: 8,
                value: vec![8; 512],
            },
            Message::Success1 { transaction, hash, response: Some(value(6)) },
            Message::Success2 { transaction },
            Message::Failure1 { transaction, failure: Failure::Hash },
            Message::Failure2 { transaction, failure: Failure::Failed },
        ];
        for message in all {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Ok(message));
            let cut = bytes.get(..bytes.len() - 1).unwrap_or_default();
            assert_eq!(Message::decode(cut), Err(Failure::Payload));
        }
        assert_eq!(Message::decode(&[9; 64]), Err(Failure::Message));
    }
}

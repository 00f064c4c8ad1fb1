//! The messages on the socket, as bytes.
//!
//! A message is a header of twelve bytes and a body, in the machine's byte order, with descriptors beside it. This
//! module takes bytes and gives messages, and makes replies; it knows no socket. Invariant: whatever the bytes, it gives
//! a message whose numbers of descriptors and lengths are right, or a [`Violation`].

mod constants;
mod fields;
mod message;

pub use constants::*;
pub use message::{
    CODE_GET_CONFIG, Header, InflightShape, Message, Region, RingAddresses, Violation,
};

/// A reply to the message with this header.
#[must_use]
pub fn reply(to: Header, body: &[u8]) -> Vec<u8> {
    encode(to.code, message::FLAG_REPLY, body)
}

/// The message to a front end that the configuration has changed (`VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`).
#[must_use]
pub fn config_changed() -> Vec<u8> {
    const CONFIG_CHANGE_MSG: u32 = 2;
    encode(CONFIG_CHANGE_MSG, 0, &[])
}

fn encode(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend_from_slice(&code.to_ne_bytes());
    bytes.extend_from_slice(&(message::VERSION | flags).to_ne_bytes());
    // Bodies are of this crate's making, and short.
    bytes.extend_from_slice(&(body.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes
}

//! The NBD protocol as pure state machines, for both ends of a connection.
//!
//! Owns: the fixed newstyle handshake, the request and reply formats, the validation of requests
//! against an export. Does not know: sockets, buffers, devices, time. Every decoder has the same
//! shape: `step(&mut input)` consumes bytes from the front of a slice and returns what they meant,
//! or that it needs more; feeding a stream in any split gives the same events.
//!
//! ```text
//!  bytes in -> ServerHandshake -> Negotiated -> RequestDecoder -> Request --> (device)
//!  bytes out <- greeting, option replies        ReplyEncoder  <- done / data / error
//! ```
//!
//! Invariant: memory held by a decoder is bounded by a constant whatever the peer sends, and the
//! transmission phase allocates nothing per request.

pub mod constants;
mod export;
mod handshake_client;
mod handshake_server;
mod headers;
mod reply;
mod reply_decoder;
mod request;
mod request_decoder;
mod wire;

pub use export::{BlockSizes, Export, ExportTable, ExportTableError, Features};
pub use handshake_client::{
    ClientHandshake, ClientHandshakeError, ClientHandshakeStep, ClientOptions, ServerOffer,
};
pub use handshake_server::{
    Negotiated, ServerHandshake, ServerHandshakeError, ServerHandshakeStep, TlsOffer, encode_option,
};
pub use headers::Headers;
pub use reply::{Asked, ErrorCode, ReplyEncoder};
pub use reply_decoder::{ReplyDecoder, ReplyEvent, ReplyViolation};
pub use request::{Command, Request, RequestRules};
pub use request_decoder::{Refusal, RequestDecoder, RequestEvent, RequestViolation};

#[cfg(test)]
mod extended_tests;
#[cfg(test)]
mod handshake_tests;
#[cfg(test)]
mod transmission_tests;

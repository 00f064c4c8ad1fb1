//! The client's side of the fixed newstyle handshake (proto.md, "Handshake").
//!
//! Owns: the order of options (TLS first where it is wanted, extended headers, else structured replies, then `NBD_OPT_GO`,
//! falling back to `NBD_OPT_EXPORT_NAME` on old servers) and what the server offered. Does not know sockets.
//! Invariant: at most one option is outstanding, and a reply longer than the limit ends it.

use super::constants::*;
use super::export::{BlockSizes, Export, Features};
use super::headers::Headers;
use super::wire::{Fields, Gather, take_up_to};

pub use super::handshake_server::encode_option;

/// The wishes of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientOptions {
    /// Export name, at most 4096 bytes; empty for the default export.
    pub export: String,
    /// The most that is asked for. A server that has it not is asked for less.
    pub headers: Headers,
}

/// The offer of a server after a completed handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOffer {
    /// The export: its name as asked for, or as the server calls it; size, block sizes, features.
    pub export: Export,
    /// The headers that were agreed on.
    pub headers: Headers,
}

/// The outcome of [`ClientHandshake::step`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientHandshakeStep {
    /// All input is used up: send what is in `out`, then bring more.
    NeedMore,
    /// The server begins TLS: shake hands, [go on](ClientHandshake::go_on), and bring what comes within. Input that is left was
    /// not said within it, and must not be believed.
    StartTls,
    /// Transmission has begun; the input left belongs to it.
    Transmission(Box<ServerOffer>),
}

/// Why the handshake failed: the connection is of no further use.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ClientHandshakeError {
    /// The server's greeting is not NBD newstyle.
    #[error(
        "the server's greeting is not that of a newstyle NBD server: check the address and port"
    )]
    Greeting,
    /// The greeting lacks fixed newstyle.
    #[error("the NBD server does not speak fixed newstyle: use a server that does")]
    NotFixed,
    /// A reply that does not belong to the option sent.
    #[error("the NBD server sent a malformed reply to option {option}: {what}")]
    Malformed {
        /// The option that was outstanding.
        option: u32,
        /// The fault.
        what: &'static str,
    },
    /// The server refused the export.
    #[error("the NBD server refused export {export:?} with reply {code:#x}: {message:?}")]
    Refused {
        /// The export asked for.
        export: String,
        /// The `NBD_REP_ERR` code.
        code: u32,
        /// The server's own words, perhaps empty.
        message: String,
    },
    /// The server has no TLS.
    #[error(
        "the NBD server has no TLS (reply {code:#x}: {message:?}): have it begin with certificates, or write nbd:// where the \
         network can be trusted"
    )]
    NoTls {
        /// The `NBD_REP_ERR` code.
        code: u32,
        /// The server's own words, perhaps empty.
        message: String,
    },
    /// The export name is longer than the protocol allows.
    #[error("export name of {0} bytes is longer than the 4096 that NBD allows")]
    NameTooLong(usize),
}

#[derive(Debug)]
enum State {
    Greeting,
    ReplyHeader,
    ReplyData { kind: u32, length: usize },
    ExportName,
    ExportNameZeroes { left: usize },
    StartTls,
    Finished,
}

/// One connection's handshake; create it and [`step`](Self::step) it with the server's bytes.
#[derive(Debug)]
pub struct ClientHandshake {
    options: ClientOptions,
    state: State,
    greeting: Gather<18>,
    header: Gather<20>,
    legacy: Gather<10>,
    data: Vec<u8>,
    /// The option outstanding.
    option: u32,
    /// TLS is wanted, and has not begun.
    tls: bool,
    headers: Headers,
    no_zeroes: bool,
    sized: bool,
    export: Export,
}

impl ClientHandshake {
    /// A handshake for `options`; the server speaks first.
    ///
    /// # Errors
    /// An export name of more than 4096 bytes.
    pub fn new(options: ClientOptions) -> Result<Self, ClientHandshakeError> {
        if options.export.len() > STRING_BYTES_MAX {
            return Err(ClientHandshakeError::NameTooLong(options.export.len()));
        }
        let export = Export {
            name: options.export.clone(),
            description: String::new(),
            size: 0,
            // Safe for any server that advertises nothing ("Block size constraints").
            block: BlockSizes::default(),
            features: Features::default(),
        };
        Ok(Self {
            options,
            state: State::Greeting,
            greeting: Gather::new(),
            header: Gather::new(),
            legacy: Gather::new(),
            data: Vec::new(),
            option: 0,
            tls: false,
            headers: Headers::Simple,
            no_zeroes: false,
            sized: false,
            export,
        })
    }

    /// The same within TLS, or not at all.
    #[must_use]
    pub fn within_tls(self) -> Self {
        Self { tls: true, ..self }
    }

    /// TLS has begun: appends what is sent first within it to `out`.
    pub fn go_on(&mut self, out: &mut Vec<u8>) {
        self.tls = false;
        self.first_option(out);
    }

    /// Consumes bytes from the front of `input` and appends what is to be sent to `out`.
    ///
    /// # Errors
    /// The server refused, or is no NBD server.
    pub fn step(
        &mut self,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ClientHandshakeStep, ClientHandshakeError> {
        loop {
            match self.state {
                State::Greeting => {
                    let Some(bytes) = self.greeting.take(input) else {
                        return Ok(ClientHandshakeStep::NeedMore);
                    };
                    self.greet(&bytes, out)?;
                }
                State::ReplyHeader => {
                    let Some(bytes) = self.header.take(input) else {
                        return Ok(ClientHandshakeStep::NeedMore);
                    };
                    self.reply_header(&bytes)?;
                }
                State::ReplyData { kind, length } => {
                    let piece = take_up_to(input, length.saturating_sub(self.data.len()));
                    self.data.extend_from_slice(piece);
                    if self.data.len() < length {
                        return Ok(ClientHandshakeStep::NeedMore);
                    }
                    self.state = State::ReplyHeader;
                    let data = std::mem::take(&mut self.data);
                    self.reply(kind, &data, out)?;
                }
                State::ExportName => {
                    let Some(bytes) = self.legacy.take(input) else {
                        return Ok(ClientHandshakeStep::NeedMore);
                    };
                    self.sizes(&mut Fields(&bytes))?;
                    let left = if self.no_zeroes { 0 } else { EXPORT_NAME_ZEROES };
                    self.state = State::ExportNameZeroes { left };
                }
                State::ExportNameZeroes { left } => {
                    let left = left - take_up_to(input, left).len();
                    self.state = State::ExportNameZeroes { left };
                    if left > 0 {
                        return Ok(ClientHandshakeStep::NeedMore);
                    }
                    self.state = State::Finished;
                }
                State::StartTls => return Ok(ClientHandshakeStep::StartTls),
                State::Finished => {
                    return Ok(ClientHandshakeStep::Transmission(Box::new(ServerOffer {
                        export: self.export.clone(),
                        headers: self.headers,
                    })));
                }
            }
        }
    }

    fn greet(&mut self, bytes: &[u8; 18], out: &mut Vec<u8>) -> Result<(), ClientHandshakeError> {
        let mut fields = Fields(bytes);
        if fields.u64() != Some(INIT_MAGIC) || fields.u64() != Some(OPTION_MAGIC) {
            return Err(ClientHandshakeError::Greeting);
        }
        let flags = fields.u16().unwrap_or(0);
        if flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(ClientHandshakeError::NotFixed);
        }
        self.no_zeroes = flags & FLAG_NO_ZEROES != 0;
        let answer = FLAG_C_FIXED_NEWSTYLE | if self.no_zeroes { FLAG_C_NO_ZEROES } else { 0 };
        out.extend_from_slice(&answer.to_be_bytes());
        if self.tls {
            self.send(OPT_STARTTLS, &[], out);
        } else {
            self.first_option(out);
        }
        Ok(())
    }

    fn first_option(&mut self, out: &mut Vec<u8>) {
        match self.options.headers {
            Headers::Simple => self.go(out),
            Headers::Structured => self.send(OPT_STRUCTURED_REPLY, &[], out),
            Headers::Extended => self.send(OPT_EXTENDED_HEADERS, &[], out),
        }
    }

    fn send(&mut self, option: u32, parts: &[&[u8]], out: &mut Vec<u8>) {
        encode_option(out, option, parts);
        self.option = option;
        self.state = State::ReplyHeader;
    }

    fn go(&mut self, out: &mut Vec<u8>) {
        let name = self.options.export.clone();
        // At most 4096 bytes (checked in `new`).
        let length = (name.len() as u32).to_be_bytes();
        let items = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE];
        let count = (items.len() as u16).to_be_bytes();
        let [first, second, third] = items.map(u16::to_be_bytes);
        self.send(OPT_GO, &[&length, name.as_bytes(), &count, &first, &second, &third], out);
    }

    fn malformed(&self, what: &'static str) -> ClientHandshakeError {
        ClientHandshakeError::Malformed { option: self.option, what }
    }

    fn reply_header(&mut self, bytes: &[u8; 20]) -> Result<(), ClientHandshakeError> {
        let mut fields = Fields(bytes);
        if fields.u64() != Some(OPTION_REPLY_MAGIC) {
            return Err(self.malformed("wrong magic"));
        }
        if fields.u32() != Some(self.option) {
            return Err(self.malformed("reply to another option"));
        }
        let (Some(kind), Some(length)) = (fields.u32(), fields.u32()) else {
            return Err(self.malformed("short header"));
        };
        if length as usize > OPTION_BYTES_MAX {
            return Err(self.malformed("data longer than 16384 bytes"));
        }
        self.state = State::ReplyData { kind, length: length as usize };
        Ok(())
    }

    fn reply(
        &mut self,
        kind: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ClientHandshakeError> {
        match (self.option, kind) {
            (OPT_STARTTLS, REP_ACK) => self.state = State::StartTls,
            (OPT_STARTTLS, code) if code & REP_FLAG_ERROR != 0 => {
                let message = String::from_utf8_lossy(data).into_owned();
                return Err(ClientHandshakeError::NoTls { code, message });
            }
            (OPT_EXTENDED_HEADERS, REP_ACK) => {
                self.headers = Headers::Extended;
                self.go(out);
            }
            (OPT_EXTENDED_HEADERS, _) if kind & REP_FLAG_ERROR != 0 => {
                self.send(OPT_STRUCTURED_REPLY, &[], out);
            }
            (OPT_STRUCTURED_REPLY, REP_ACK) => {
                self.headers = Headers::Structured;
                self.go(out);
            }
            // Any error means: simple replies, which every server has.
            (OPT_STRUCTURED_REPLY, _) if kind & REP_FLAG_ERROR != 0 => self.go(out),
            (OPT_GO, REP_INFO) => self.info(data)?,
            (OPT_GO, REP_ACK) if self.sized => self.state = State::Finished,
            (OPT_GO, REP_ACK) => return Err(self.malformed("accepted without a size")),
            // It would be against the specification (`NBD_OPT_EXTENDED_HEADERS`), and what follows has no extended form.
            (OPT_GO, REP_ERR_UNSUP) if self.headers == Headers::Extended => {
                return Err(self.malformed("not known, though headers are extended"));
            }
            (OPT_GO, REP_ERR_UNSUP) => {
                let name = self.options.export.clone();
                encode_option(out, OPT_EXPORT_NAME, &[name.as_bytes()]);
                self.option = OPT_EXPORT_NAME;
                self.state = State::ExportName;
            }
            (_, code) if code & REP_FLAG_ERROR != 0 => {
                return Err(ClientHandshakeError::Refused {
                    export: self.options.export.clone(),
                    code,
                    message: String::from_utf8_lossy(data).into_owned(),
                });
            }
            _ => return Err(self.malformed("unexpected reply type")),
        }
        Ok(())
    }

    fn sizes(&mut self, fields: &mut Fields<'_>) -> Result<(), ClientHandshakeError> {
        let (Some(size), Some(flags)) = (fields.u64(), fields.u16()) else {
            return Err(self.malformed("size and flags cut short"));
        };
        self.export.size = size;
        self.export.features = Features::from_transmission_flags(flags);
        self.sized = true;
        Ok(())
    }

    fn info(&mut self, data: &[u8]) -> Result<(), ClientHandshakeError> {
        let mut fields = Fields(data);
        match fields.u16() {
            Some(INFO_EXPORT) => self.sizes(&mut fields)?,
            Some(INFO_NAME) => {
                self.export.name = String::from_utf8_lossy(fields.0).into_owned();
            }
            Some(INFO_DESCRIPTION) => {
                self.export.description = String::from_utf8_lossy(fields.0).into_owned();
            }
            Some(INFO_BLOCK_SIZE) => {
                let (Some(minimum), Some(preferred), Some(maximum)) =
                    (fields.u32(), fields.u32(), fields.u32())
                else {
                    return Err(self.malformed("block sizes cut short"));
                };
                if !minimum.is_power_of_two() || maximum < minimum {
                    return Err(self.malformed("impossible block sizes"));
                }
                self.export.block = BlockSizes { minimum, preferred, maximum };
            }
            // Unknown items must be ignored (`NBD_REP_INFO`).
            Some(_) => {}
            None => return Err(self.malformed("information without a type")),
        }
        Ok(())
    }
}

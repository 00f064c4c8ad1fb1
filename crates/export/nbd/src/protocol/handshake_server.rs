//! The server's side of the fixed newstyle handshake (proto.md, "Handshake").
//!
//! Owns: option parsing and replies, and what was negotiated. Does not know sockets or devices.
//! Invariant: after each answered option the caller gets control, so neither input nor output
//! grows beyond one option and its replies, whatever a client sends ahead.

use super::constants::*;
use super::export::{Export, ExportTable};
use super::headers::Headers;
use super::wire::{Fields, Gather, take_up_to};

/// The outcome of a completed handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Index of the export in the [`ExportTable`].
    pub export: usize,
    /// The form of requests and replies.
    pub headers: Headers,
    /// The client may ask for block status of `base:allocation`.
    pub base_allocation: bool,
    /// The client asked for block sizes, so that it keeps to them; others may count in bytes.
    pub block_sizes: bool,
}

/// TLS as a server offers it (proto.md, "TLS"), or that it has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsOffer {
    /// Not at all (mode `NOTLS`).
    #[default]
    Off,
    /// To those who want it; all exports are there without it as well.
    Allow,
    /// Nothing but `NBD_OPT_STARTTLS` and `NBD_OPT_ABORT` is answered before it has begun (mode `FORCEDTLS`).
    Require,
    /// It has begun.
    Begun,
}

/// The outcome of [`ServerHandshake::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerHandshakeStep {
    /// All input is used up; more is needed.
    NeedMore,
    /// An option was answered into `out`: send it, then step again with the input left.
    Answered,
    /// TLS begins once `out` is sent, and the input left belongs to it. When it has begun, call
    /// [`tls_begun`](ServerHandshake::tls_begun) and go on with what comes within it.
    StartTls,
    /// Transmission begins once `out` is sent; the input left belongs to it.
    Transmission(Negotiated),
    /// The client asked to end the session: send `out`, then close.
    Closed,
}

/// The client broke a rule for which the protocol has no reply: close the connection.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ServerHandshakeError {
    /// Unknown client flags; the server must drop the connection ("Client flags").
    #[error("NBD client sent unknown handshake flags {0:#x}: closing its connection")]
    ClientFlags(u32),
    /// An option without the option magic.
    #[error("NBD client sent {0:#018x} where an option must begin: closing its connection")]
    OptionMagic(u64),
    /// `NBD_OPT_EXPORT_NAME` for an export that is not there; it has no error reply.
    #[error("NBD client asked for export {0:?}, which does not exist: closing its connection")]
    UnknownExport(String),
    /// `NBD_OPT_EXPORT_NAME` before TLS, which the server requires; it has no error reply.
    #[error(
        "NBD client asked for an export without TLS, which this server requires (--tls require): closing its \
         connection"
    )]
    TlsRequired,
    /// `NBD_OPT_EXPORT_NAME` after extended headers, with which it must not be used; it has no error reply.
    #[error(
        "NBD client asked for an export by NBD_OPT_EXPORT_NAME after it had agreed on extended headers: closing its \
         connection"
    )]
    NameExtended,
    /// An option other than `NBD_OPT_EXPORT_NAME` without fixed newstyle.
    #[error(
        "NBD client sent option {0} without having agreed to fixed newstyle: closing its connection"
    )]
    NotFixed(u32),
}

#[derive(Debug)]
enum State {
    ClientFlags,
    Header,
    /// Collecting the data of an option that needs it.
    Data {
        option: u32,
        length: usize,
    },
    /// Skipping the data of an option whose answer does not depend on it.
    Skip {
        option: u32,
        length: u32,
        left: u32,
    },
    Finished,
}

/// One connection's handshake; create it, send its greeting, then [`step`](Self::step) it.
#[derive(Debug)]
pub struct ServerHandshake {
    state: State,
    flags: Gather<4>,
    header: Gather<16>,
    data: Vec<u8>,
    tls: TlsOffer,
    fixed: bool,
    no_zeroes: bool,
    headers: Headers,
    /// The export for which `base:allocation` was selected.
    context_for: Option<usize>,
    /// The export whose block sizes were asked for last.
    sizes_of: Option<usize>,
}

impl ServerHandshake {
    /// Starts a handshake by writing the greeting to `out`.
    #[must_use]
    pub fn new(tls: TlsOffer, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&INIT_MAGIC.to_be_bytes());
        out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        out.extend_from_slice(&(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        Self {
            state: State::ClientFlags,
            flags: Gather::new(),
            header: Gather::new(),
            data: Vec::new(),
            tls,
            fixed: false,
            no_zeroes: false,
            headers: Headers::Simple,
            context_for: None,
            sizes_of: None,
        }
    }

    /// TLS has begun after [`StartTls`](ServerHandshakeStep::StartTls).
    pub fn tls_begun(&mut self) {
        self.tls = TlsOffer::Begun;
    }

    /// Consumes bytes from the front of `input`, appends replies to `out`, and says what to do.
    /// `exports` must be the same table on every call.
    ///
    /// # Errors
    /// A violation that has no reply: the connection must be closed.
    pub fn step(
        &mut self,
        exports: &ExportTable,
        input: &mut &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ServerHandshakeStep, ServerHandshakeError> {
        loop {
            match self.state {
                State::ClientFlags => {
                    let Some(bytes) = self.flags.take(input) else {
                        return Ok(ServerHandshakeStep::NeedMore);
                    };
                    self.client_flags(u32::from_be_bytes(bytes))?;
                }
                State::Header => {
                    let Some(bytes) = self.header.take(input) else {
                        return Ok(ServerHandshakeStep::NeedMore);
                    };
                    self.option_header(&bytes)?;
                }
                State::Data { option, length } => {
                    let piece = take_up_to(input, length.saturating_sub(self.data.len()));
                    self.data.extend_from_slice(piece);
                    if self.data.len() < length {
                        return Ok(ServerHandshakeStep::NeedMore);
                    }
                    self.state = State::Header;
                    let data = std::mem::take(&mut self.data);
                    return self.answer(exports, option, &data, out);
                }
                State::Skip { option, length, left } => {
                    let skipped = take_up_to(input, left as usize).len();
                    // `skipped <= left` by the bound just given, so it fits and cannot underflow.
                    let left = left - skipped as u32;
                    if left > 0 {
                        self.state = State::Skip { option, length, left };
                        return Ok(ServerHandshakeStep::NeedMore);
                    }
                    self.state = State::Header;
                    return Ok(self.answer_skipped(exports, option, length, out));
                }
                State::Finished => return Ok(ServerHandshakeStep::Closed),
            }
        }
    }

    fn client_flags(&mut self, flags: u32) -> Result<(), ServerHandshakeError> {
        if flags & !(FLAG_C_FIXED_NEWSTYLE | FLAG_C_NO_ZEROES) != 0 {
            return Err(ServerHandshakeError::ClientFlags(flags));
        }
        self.fixed = flags & FLAG_C_FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & FLAG_C_NO_ZEROES != 0;
        self.state = State::Header;
        Ok(())
    }

    fn option_header(&mut self, header: &[u8; 16]) -> Result<(), ServerHandshakeError> {
        let mut fields = Fields(header);
        let (Some(magic), Some(option), Some(length)) = (fields.u64(), fields.u32(), fields.u32())
        else {
            // Not reached: the three fields are the 16 bytes.
            return Err(ServerHandshakeError::OptionMagic(0));
        };
        if magic != OPTION_MAGIC {
            return Err(ServerHandshakeError::OptionMagic(magic));
        }
        if !self.fixed && option != OPT_EXPORT_NAME {
            return Err(ServerHandshakeError::NotFixed(option));
        }
        let needs_data = matches!(
            option,
            OPT_EXPORT_NAME | OPT_INFO | OPT_GO | OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT
        );
        let barred = self.tls == TlsOffer::Require;
        if option == OPT_EXPORT_NAME && barred {
            return Err(ServerHandshakeError::TlsRequired);
        }
        if option == OPT_EXPORT_NAME && self.headers == Headers::Extended {
            return Err(ServerHandshakeError::NameExtended);
        }
        if option == OPT_EXPORT_NAME && length as usize > STRING_BYTES_MAX {
            return Err(ServerHandshakeError::UnknownExport(format!("(name of {length} bytes)")));
        }
        self.state = if needs_data && !barred && length as usize <= OPTION_BYTES_MAX {
            State::Data { option, length: length as usize }
        } else {
            State::Skip { option, length, left: length }
        };
        Ok(())
    }

    /// Answers an option whose data did not matter or was too long to keep.
    fn answer_skipped(
        &mut self,
        exports: &ExportTable,
        option: u32,
        length: u32,
        out: &mut Vec<u8>,
    ) -> ServerHandshakeStep {
        match option {
            OPT_STARTTLS if length == 0 => return self.answer_start_tls(out),
            OPT_ABORT => {
                // Data with it is ignored rather than refused (proto.md, `NBD_OPT_ABORT`).
                option_reply(out, option, REP_ACK, &[]);
                self.state = State::Finished;
                return ServerHandshakeStep::Closed;
            }
            _ if self.tls == TlsOffer::Require && option != OPT_STARTTLS => {
                let message = "this server requires TLS: begin with NBD_OPT_STARTTLS";
                refuse(out, option, REP_ERR_TLS_REQD, message);
            }
            OPT_INFO | OPT_GO | OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => {
                if option == OPT_SET_META_CONTEXT {
                    self.context_for = None;
                }
                refuse(out, option, REP_ERR_TOO_BIG, "option data longer than 16384 bytes");
            }
            OPT_LIST | OPT_STARTTLS | OPT_STRUCTURED_REPLY | OPT_EXTENDED_HEADERS if length > 0 => {
                refuse(out, option, REP_ERR_INVALID, "this option takes no data");
            }
            OPT_LIST => {
                for export in exports.exports() {
                    let name = export.name.as_bytes();
                    let description = export.description.as_bytes();
                    // Both are at most 4096 bytes (ExportTable's invariant).
                    let length = (name.len() as u32).to_be_bytes();
                    option_reply(out, option, REP_SERVER, &[&length, name, description]);
                }
                option_reply(out, option, REP_ACK, &[]);
            }
            OPT_STRUCTURED_REPLY if self.headers == Headers::Extended => {
                let message = "extended headers have been agreed on, whose replies are structured";
                refuse(out, option, REP_ERR_EXT_HEADER_REQD, message);
            }
            OPT_STRUCTURED_REPLY => {
                self.headers = Headers::Structured;
                option_reply(out, option, REP_ACK, &[]);
            }
            OPT_EXTENDED_HEADERS if self.headers == Headers::Extended => {
                let message = "extended headers have been agreed on already";
                refuse(out, option, REP_ERR_INVALID, message);
            }
            OPT_EXTENDED_HEADERS => {
                self.headers = Headers::Extended;
                option_reply(out, option, REP_ACK, &[]);
            }
            _ => refuse(out, option, REP_ERR_UNSUP, "option not known to this server"),
        }
        ServerHandshakeStep::Answered
    }

    fn answer_start_tls(&mut self, out: &mut Vec<u8>) -> ServerHandshakeStep {
        let option = OPT_STARTTLS;
        match self.tls {
            TlsOffer::Allow | TlsOffer::Require => {
                // What was agreed on without it, perhaps by somebody in between, counts no more (`NBD_OPT_STARTTLS`).
                self.headers = Headers::Simple;
                self.context_for = None;
                self.sizes_of = None;
                option_reply(out, option, REP_ACK, &[]);
                return ServerHandshakeStep::StartTls;
            }
            TlsOffer::Off => refuse(out, option, REP_ERR_POLICY, "this server has TLS turned off"),
            TlsOffer::Begun => refuse(out, option, REP_ERR_INVALID, "TLS has begun already"),
        }
        ServerHandshakeStep::Answered
    }

    /// Answers an option with its data.
    fn answer(
        &mut self,
        exports: &ExportTable,
        option: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ServerHandshakeStep, ServerHandshakeError> {
        match option {
            OPT_EXPORT_NAME => self.answer_export_name(exports, data, out),
            OPT_INFO | OPT_GO => Ok(self.answer_info(exports, option, data, out)),
            _ => {
                self.answer_meta_context(exports, option, data, out);
                Ok(ServerHandshakeStep::Answered)
            }
        }
    }

    fn answer_export_name(
        &mut self,
        exports: &ExportTable,
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<ServerHandshakeStep, ServerHandshakeError> {
        let Some((index, export)) = find(exports, name) else {
            return Err(ServerHandshakeError::UnknownExport(
                String::from_utf8_lossy(name).into_owned(),
            ));
        };
        out.extend_from_slice(&export.size.to_be_bytes());
        let flags = export.features.transmission_flags(self.headers.structured());
        out.extend_from_slice(&flags.to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        Ok(self.enter(index))
    }

    fn answer_info(
        &mut self,
        exports: &ExportTable,
        option: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> ServerHandshakeStep {
        let Some((name, wanted)) = parse_info(data) else {
            refuse(out, option, REP_ERR_INVALID, "malformed option data");
            return ServerHandshakeStep::Answered;
        };
        let Some((index, export)) = find(exports, name) else {
            refuse(out, option, REP_ERR_UNKNOWN, "no export of that name");
            return ServerHandshakeStep::Answered;
        };
        let mut flags = export.features.transmission_flags(self.headers.structured());
        // Whoever only asks may choose a metadata context yet.
        let has_context = self.context_for == Some(index) || option == OPT_INFO;
        if self.headers == Headers::Extended && has_context {
            flags |= FLAG_BLOCK_STATUS_PAYLOAD;
        }
        let kind = INFO_EXPORT.to_be_bytes();
        let size = export.size.to_be_bytes();
        option_reply(out, option, REP_INFO, &[&kind, &size, &flags.to_be_bytes()]);
        let wants = |item: u16| wanted.chunks_exact(2).any(|two| two == item.to_be_bytes());
        if wants(INFO_NAME) {
            let kind = INFO_NAME.to_be_bytes();
            option_reply(out, option, REP_INFO, &[&kind, export.name.as_bytes()]);
        }
        if wants(INFO_DESCRIPTION) && !export.description.is_empty() {
            let kind = INFO_DESCRIPTION.to_be_bytes();
            option_reply(out, option, REP_INFO, &[&kind, export.description.as_bytes()]);
        }
        if wants(INFO_BLOCK_SIZE) {
            self.sizes_of = Some(index);
            let kind = INFO_BLOCK_SIZE.to_be_bytes();
            let block = export.block;
            let (minimum, preferred, maximum) = (
                block.minimum.to_be_bytes(),
                block.preferred.to_be_bytes(),
                block.maximum.to_be_bytes(),
            );
            option_reply(out, option, REP_INFO, &[&kind, &minimum, &preferred, &maximum]);
        }
        option_reply(out, option, REP_ACK, &[]);
        if option == OPT_GO { self.enter(index) } else { ServerHandshakeStep::Answered }
    }

    fn answer_meta_context(
        &mut self,
        exports: &ExportTable,
        option: u32,
        data: &[u8],
        out: &mut Vec<u8>,
    ) {
        let setting = option == OPT_SET_META_CONTEXT;
        if setting {
            // Contexts set before are gone even when this request fails (`NBD_OPT_SET_META_CONTEXT`).
            self.context_for = None;
        }
        if !self.headers.structured() {
            refuse(out, option, REP_ERR_INVALID, "negotiate structured replies first");
            return;
        }
        let Some((name, matched)) = parse_meta_context(data, setting) else {
            refuse(out, option, REP_ERR_INVALID, "malformed option data");
            return;
        };
        let Some((index, _)) = find(exports, name) else {
            refuse(out, option, REP_ERR_UNKNOWN, "no export of that name");
            return;
        };
        if matched {
            // The id is reserved and zero in a listing.
            let id = if setting { CONTEXT_ID } else { 0 }.to_be_bytes();
            let context = CONTEXT_BASE_ALLOCATION.as_bytes();
            option_reply(out, option, REP_META_CONTEXT, &[&id, context]);
            if setting {
                self.context_for = Some(index);
            }
        }
        option_reply(out, option, REP_ACK, &[]);
    }

    fn enter(&mut self, export: usize) -> ServerHandshakeStep {
        self.state = State::Finished;
        ServerHandshakeStep::Transmission(Negotiated {
            export,
            headers: self.headers,
            base_allocation: self.context_for == Some(export),
            block_sizes: self.sizes_of == Some(export),
        })
    }
}

/// Looks a name from the wire up; one that is not UTF-8 names nothing.
fn find<'a>(exports: &'a ExportTable, name: &[u8]) -> Option<(usize, &'a Export)> {
    let index = exports.find(std::str::from_utf8(name).ok()?)?;
    Some((index, exports.get(index)?))
}

/// Name and list of requested items of `NBD_OPT_INFO` and `NBD_OPT_GO`; `None` when malformed.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    (fields.0.len() == usize::from(count) * 2).then_some((name, fields.0))
}

/// Export name, and whether the queries match `base:allocation`; `None` when malformed.
fn parse_meta_context(data: &[u8], setting: bool) -> Option<(&[u8], bool)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    // Listing without a query lists everything; setting without one selects nothing.
    let mut matched = count == 0 && !setting;
    for _ in 0..count {
        // Each query takes at least four bytes, so the loop ends within the data.
        let query = fields.string()?;
        let wildcard = !setting && query == b"base:";
        matched |= wildcard || query == CONTEXT_BASE_ALLOCATION.as_bytes();
    }
    fields.0.is_empty().then_some((name, matched))
}

/// Appends one option reply made of `parts`, together at most three strings long.
fn option_reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn refuse(out: &mut Vec<u8>, option: u32, kind: u32, message: &str) {
    option_reply(out, option, kind, &[message.as_bytes()]);
}

/// Appends one option as a client sends it, its data made of `parts` (together below 4 GiB).
pub fn encode_option(out: &mut Vec<u8>, option: u32, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&(length as u32).to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

//! The numbers of the NBD protocol (proto.md, "Values"), and braid's own limits.
//!
//! Owns only values; names follow the specification without its `NBD_` prefix.

/// First magic of the server's greeting: the ASCII bytes `NBDMAGIC` ("Newstyle negotiation").
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second magic of the greeting and magic of every option: the ASCII bytes `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
/// Magic of every option reply ("Fixed newstyle negotiation").
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic of a request ("Request message").
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic of a simple reply ("Simple reply message").
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic of a structured reply chunk ("Structured reply chunk message").
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Magic of a request with an extended header.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Magic of a reply chunk with an extended header.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flag: the server speaks fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag: the server can leave out the 124 zeroes after `NBD_OPT_EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// Client flag answering [`FLAG_FIXED_NEWSTYLE`].
pub const FLAG_C_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Client flag answering [`FLAG_NO_ZEROES`].
pub const FLAG_C_NO_ZEROES: u32 = 1 << 1;

/// Transmission flag: always set.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag: writes are refused.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// Transmission flag: `NBD_CMD_FLUSH` is supported.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag: `NBD_CMD_FLAG_FUA` is supported.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// Transmission flag: the export behaves like a rotating disk.
pub const FLAG_ROTATIONAL: u16 = 1 << 4;
/// Transmission flag: `NBD_CMD_TRIM` is supported.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag: `NBD_CMD_WRITE_ZEROES` is supported.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag: `NBD_CMD_FLAG_DF` is supported; only with structured replies.
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// Transmission flag: a flush on one connection covers writes completed on all of them.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag: `NBD_CMD_CACHE` is understood.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// Transmission flag: `NBD_CMD_FLAG_FAST_ZERO` is understood.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;
/// Transmission flag: block status requests may name metadata contexts; only with extended headers.
pub const FLAG_BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;

/// Option: choose an export and enter transmission, without a way to report an error.
pub const OPT_EXPORT_NAME: u32 = 1;
/// Option: end the session.
pub const OPT_ABORT: u32 = 2;
/// Option: list the exports.
pub const OPT_LIST: u32 = 3;
/// Option: switch to TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Option: describe an export.
pub const OPT_INFO: u32 = 6;
/// Option: describe an export and enter transmission.
pub const OPT_GO: u32 = 7;
/// Option: use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// Option: list the metadata contexts of an export.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Option: choose metadata contexts for block status.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Option: use extended headers, whose lengths have 64 bits.
pub const OPT_EXTENDED_HEADERS: u32 = 11;

/// Option reply: accepted, or end of a list.
pub const REP_ACK: u32 = 1;
/// Option reply: one export of a list.
pub const REP_SERVER: u32 = 2;
/// Option reply: one information item of an export.
pub const REP_INFO: u32 = 3;
/// Option reply: one metadata context.
pub const REP_META_CONTEXT: u32 = 4;
/// Option reply types with this bit set are errors.
pub const REP_FLAG_ERROR: u32 = 1 << 31;
/// Option error: the option is unknown to this server.
pub const REP_ERR_UNSUP: u32 = REP_FLAG_ERROR | 1;
/// Option error: forbidden by the server's configuration.
pub const REP_ERR_POLICY: u32 = REP_FLAG_ERROR | 2;
/// Option error: malformed or out of order.
pub const REP_ERR_INVALID: u32 = REP_FLAG_ERROR | 3;
/// Option error: TLS must begin first.
pub const REP_ERR_TLS_REQD: u32 = REP_FLAG_ERROR | 5;
/// Option error: no such export.
pub const REP_ERR_UNKNOWN: u32 = REP_FLAG_ERROR | 6;
/// Option error: the server is shutting down.
pub const REP_ERR_SHUTDOWN: u32 = REP_FLAG_ERROR | 7;
/// Option error: request or reply too large.
pub const REP_ERR_TOO_BIG: u32 = REP_FLAG_ERROR | 9;
/// Option error: makes no sense with, or without, extended headers.
pub const REP_ERR_EXT_HEADER_REQD: u32 = REP_FLAG_ERROR | 10;

/// Information item: size and transmission flags.
pub const INFO_EXPORT: u16 = 0;
/// Information item: canonical name.
pub const INFO_NAME: u16 = 1;
/// Information item: description for a human reader.
pub const INFO_DESCRIPTION: u16 = 2;
/// Information item: minimum, preferred and maximum block size.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Command: read.
pub const CMD_READ: u16 = 0;
/// Command: write; the only one whose request carries a payload.
pub const CMD_WRITE: u16 = 1;
/// Command: disconnect; has no reply.
pub const CMD_DISC: u16 = 2;
/// Command: flush.
pub const CMD_FLUSH: u16 = 3;
/// Command: trim (discard).
pub const CMD_TRIM: u16 = 4;
/// Command: prefetch.
pub const CMD_CACHE: u16 = 5;
/// Command: write zeroes.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Command: block status.
pub const CMD_BLOCK_STATUS: u16 = 7;

/// Command flag: reply only once the data is on stable storage.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// Command flag of write zeroes: do not leave a hole.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// Command flag of read: at most one content chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// Command flag of block status: exactly one extent.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// Command flag of write zeroes: fail rather than be as slow as a write.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
/// Command flag of extended requests: a payload of the header's length follows.
pub const CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5;

/// Structured reply flag: the last chunk of a reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;
/// Chunk: nothing further; only as the last chunk.
pub const REPLY_TYPE_NONE: u16 = 0;
/// Chunk: an offset and the data read there.
pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// Chunk: a run of zeroes.
pub const REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// Chunk: extents of one metadata context.
pub const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// Chunk: extents of one metadata context, with 64-bit lengths; only with extended headers.
pub const REPLY_TYPE_BLOCK_STATUS_EXT: u16 = 6;
/// Chunk types with this bit set are errors.
pub const REPLY_TYPE_FLAG_ERROR: u16 = 1 << 15;
/// Chunk: an error.
pub const REPLY_TYPE_ERROR: u16 = REPLY_TYPE_FLAG_ERROR | 1;
/// Chunk: an error at an offset.
pub const REPLY_TYPE_ERROR_OFFSET: u16 = REPLY_TYPE_FLAG_ERROR | 2;

/// Bytes of a request header.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of an extended request header.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// Bytes of an extended reply chunk header, without the chunk's payload.
pub const EXTENDED_CHUNK_BYTES: usize = 32;
/// Bytes of a simple reply header.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured reply chunk header, without the chunk's payload.
pub const CHUNK_BYTES: usize = 20;

/// Block status: the extent takes no space.
pub const STATE_HOLE: u32 = 1 << 0;
/// Block status: the extent reads as zeroes.
pub const STATE_ZERO: u32 = 1 << 1;

/// Longest string the protocol allows, in bytes ("Conventions").
pub const STRING_BYTES_MAX: usize = 4096;
/// Zeroes after the reply to `NBD_OPT_EXPORT_NAME` unless both ends agreed to leave them out.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// The metadata context this server offers.
pub const CONTEXT_BASE_ALLOCATION: &str = "base:allocation";
/// Our id for [`CONTEXT_BASE_ALLOCATION`]; opaque to clients.
pub const CONTEXT_ID: u32 = 1;

/// Longest option data kept in memory, in bytes; braid's own limit. It holds the longest export
/// name several times over; longer data is skipped and answered with [`REP_ERR_TOO_BIG`].
pub const OPTION_BYTES_MAX: usize = 16 << 10;
/// Default for the largest read or write, in bytes: 2^25, which every client may count on
/// ("Block size constraints").
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest payload of a block status request, in bytes: a length, and as many numbers of contexts as there could be if each
/// were named some times over. A longer one is refused; braid's own limit.
pub const STATUS_PAYLOAD_BYTES_MAX: usize = 8 + 16 * 4;
/// Payload of a refused request that is still skipped to keep the connection, in bytes; a longer
/// one ends it. At least 2^25 ("Block size constraints": smaller lengths are no attack).
pub const SKIPPED_BYTES_MAX: u32 = 64 << 20;

//! The parsers, and what must hold of each for any bytes.

mod array;
mod bitmap;
mod brick;
mod buckets;
mod clock;
mod heartbeat;
mod http;
mod journal;
mod logs;
mod nbd;
mod nvme;
mod records;
mod signatures;
mod superblock;
mod target;
mod vhost;
mod volume;

pub use target::{Target, Verdict};

/// All parsers.
pub const ALL: &[&Target] = &[
    &superblock::V1,
    &superblock::V0,
    &bitmap::BITMAP,
    &logs::BAD_BLOCKS,
    &logs::PPL,
    &journal::JOURNAL,
    &heartbeat::HEARTBEAT,
    &brick::BRICK,
    &buckets::BUCKETS,
    &records::INODE,
    &records::PLACES,
    &records::ENTRY_BY_NAME,
    &records::ENTRY_BY_COOKIE,
    &records::BLOCKS,
    &records::USAGE,
    &records::SUMS,
    &records::MARK,
    &records::SNAPSHOT,
    &records::SUBVOLUME,
    &records::SAVED,
    &records::BRICK_RECORD,
    &records::VOLUME_RECORD,
    &records::PROJECT,
    &records::JOB,
    &records::KEYS,
    &volume::VOLUME,
    &array::ARRAY,
    &signatures::SIGNATURES,
    &nbd::SERVER_HANDSHAKE,
    &nbd::REQUESTS,
    &nbd::EXTENDED_REQUESTS,
    &nbd::CLIENT_HANDSHAKE,
    &nbd::REPLIES,
    &nbd::EXTENDED_REPLIES,
    &nvme::PDUS,
    &nvme::AUTHENTICATION,
    &http::REQUESTS,
    &http::ANSWERS,
    &http::API,
    &vhost::MESSAGES,
    &vhost::MEMORY,
    &vhost::RING,
];

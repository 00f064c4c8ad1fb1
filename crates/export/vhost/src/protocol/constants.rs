//! Numbers of the protocol, and limits of this back end.

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// Bytes that a body may have: the largest is a configuration space with its head.
pub const BODY_BYTES_MAX: usize = 4096 + 12;
/// Descriptors that a message may carry: one for each region of memory.
pub const DESCRIPTORS_MAX: usize = 8;
/// Queues that a front end may use.
pub const QUEUES_MAX: u16 = 64;
/// Bytes of a device's configuration space.
pub const CONFIG_BYTES_MAX: u32 = 4096;

/// Feature bit of the transport: there are protocol features (`VHOST_USER_F_PROTOCOL_FEATURES`).
pub const F_PROTOCOL_FEATURES: u64 = 1 << 30;

/// Protocol features.
pub mod feature {
    /// Several queues.
    pub const MQ: u64 = 1 << 0;
    /// Messages that ask for a reply get one.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The back end may send requests on a socket of its own.
    pub const BACKEND_REQ: u64 = 1 << 5;
    /// The configuration space is read by messages.
    pub const CONFIG: u64 = 1 << 9;
    /// Requests under way are tracked in memory that outlives the back end.
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    /// The device can be reset.
    pub const RESET_DEVICE: u64 = 1 << 13;
}
/// The protocol features that this back end has.
pub const PROTOCOL_FEATURES: u64 = feature::MQ
    | feature::REPLY_ACK
    | feature::BACKEND_REQ
    | feature::CONFIG
    | feature::INFLIGHT_SHMFD
    | feature::RESET_DEVICE;

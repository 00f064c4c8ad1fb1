//! The description of a device (`struct ublksrv_ctrl_dev_info`), its flags and states.

/// Bytes of the structure.
pub const INFO_BYTES: usize = 64;

/// `UBLK_F_USER_RECOVERY`: the device stays when its server ends.
pub const F_USER_RECOVERY: u64 = 1 << 3;
/// `UBLK_F_USER_RECOVERY_REISSUE`: requests that the server had are given to the next one.
pub const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
/// `UBLK_F_CMD_IOCTL_ENCODE`: commands have the numbers of [`command`](super::command).
pub const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// `UBLK_F_USER_COPY`: the server copies what is written and read by calls.
pub const F_USER_COPY: u64 = 1 << 7;
/// `UBLK_F_UPDATE_SIZE`: a disk can change its size.
pub const F_UPDATE_SIZE: u64 = 1 << 10;

/// The flags of each device of ours.
pub const FLAGS: u64 = F_USER_RECOVERY | F_USER_RECOVERY_REISSUE | F_CMD_IOCTL_ENCODE | F_USER_COPY;

/// `UBLK_S_DEV_LIVE`: it has a server, or one that has just ended.
pub const LIVE: u16 = 1;
/// `UBLK_S_DEV_QUIESCED`: its requests wait for a server.
pub const QUIESCED: u16 = 2;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Queues.
    pub queues: u16,
    /// Requests of a queue that may be under way.
    pub depth: u16,
    /// [`LIVE`], [`QUIESCED`], or none of ours.
    pub state: u16,
    /// Bytes of the largest request.
    pub request_bytes: u32,
    /// The number of the device.
    pub number: u32,
    /// The process that serves it, or did.
    pub server: i32,
    /// Flags.
    pub flags: u64,
    /// A number of the server's own, which the driver keeps.
    pub own: u64,
}

impl Info {
    /// The structure.
    pub fn encode(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        let mut put = |at: usize, field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
        };
        put(0, &self.queues.to_ne_bytes());
        put(2, &self.depth.to_ne_bytes());
        put(4, &self.state.to_ne_bytes());
        put(8, &self.request_bytes.to_ne_bytes());
        put(12, &self.number.to_ne_bytes());
        put(16, &self.server.to_ne_bytes());
        put(24, &self.flags.to_ne_bytes());
        put(32, &self.own.to_ne_bytes());
        bytes
    }

    /// Takes the structure apart.
    pub fn decode(bytes: &[u8; INFO_BYTES]) -> Info {
        let part = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(part)
        };
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Info {
            queues: half(0),
            depth: half(2),
            state: half(4),
            request_bytes: word(8),
            number: word(12),
            server: word(16).cast_signed(),
            flags: part(24),
            own: part(32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read_as_it_was_written() {
        let info = Info {
            queues: 3,
            depth: 128,
            state: QUIESCED,
            request_bytes: 1 << 20,
            number: 17,
            server: 4711,
            flags: FLAGS,
            own: 0x6272_0011_2233_4455,
        };
        let bytes = info.encode();
        assert_eq!(Info::decode(&bytes), info);
        assert_eq!(bytes[12..16], 17u32.to_ne_bytes());
        assert_eq!(bytes[24..32], 0xd8u64.to_ne_bytes());
        assert_eq!(bytes[40..], [0; 24]);
    }
}

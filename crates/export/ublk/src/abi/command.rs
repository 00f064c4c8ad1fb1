//! The commands: their numbers, and their arguments in a submission.

use braid_shard::ring::ARGUMENT;

/// Bytes of `struct ublksrv_ctrl_cmd`.
const CONTROL_BYTES: u32 = 32;
/// Bytes of `struct ublksrv_io_cmd`.
const IO_BYTES: u32 = 16;

/// `_IOR('u', …)` and `_IOWR('u', …)` of asm-generic/ioctl.h.
const fn read(number: u32, bytes: u32) -> u32 {
    2 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

const fn read_write(number: u32, bytes: u32) -> u32 {
    3 << 30 | bytes << 16 | (b'u' as u32) << 8 | number
}

/// `UBLK_U_CMD_GET_DEV_INFO`: gives a device's description.
pub const GET_DEV_INFO: u32 = read(0x02, CONTROL_BYTES);
/// `UBLK_U_CMD_ADD_DEV`: makes a device of a description, and gives what became of that.
pub const ADD_DEV: u32 = read_write(0x04, CONTROL_BYTES);
/// `UBLK_U_CMD_DEL_DEV`: removes a device, and waits until nobody has it open.
pub const DEL_DEV: u32 = read_write(0x05, CONTROL_BYTES);
/// `UBLK_U_CMD_START_DEV`: makes the disk, once each queue waits for requests. Its number is this process.
pub const START_DEV: u32 = read_write(0x06, CONTROL_BYTES);
/// `UBLK_U_CMD_STOP_DEV`: takes the disk away.
pub const STOP_DEV: u32 = read_write(0x07, CONTROL_BYTES);
/// `UBLK_U_CMD_SET_PARAMS`: says what the disk is like, before it is started.
pub const SET_PARAMS: u32 = read_write(0x08, CONTROL_BYTES);
/// `UBLK_U_CMD_GET_PARAMS`: gives that.
pub const GET_PARAMS: u32 = read(0x09, CONTROL_BYTES);
/// `UBLK_U_CMD_START_USER_RECOVERY`: another process is to serve a device whose server has ended.
pub const START_USER_RECOVERY: u32 = read_write(0x10, CONTROL_BYTES);
/// `UBLK_U_CMD_END_USER_RECOVERY`: each queue waits for requests again. Its number is this process.
pub const END_USER_RECOVERY: u32 = read_write(0x11, CONTROL_BYTES);
/// `UBLK_U_CMD_GET_FEATURES`: gives the flags that the driver knows. Not before Linux 6.5.
pub const GET_FEATURES: u32 = read(0x13, CONTROL_BYTES);
/// `UBLK_U_CMD_DEL_DEV_ASYNC`: removes a device as soon as nobody has it open. Not before Linux 6.7.
pub const DEL_DEV_ASYNC: u32 = read(0x14, CONTROL_BYTES);
/// `UBLK_U_CMD_UPDATE_SIZE`: the disk has another size; its number is that in sectors. Not before Linux 6.16.
pub const UPDATE_SIZE: u32 = read_write(0x15, CONTROL_BYTES);

/// `UBLK_U_IO_FETCH_REQ`: waits for the first request of a tag.
pub const FETCH: u32 = read_write(0x20, IO_BYTES);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: answers a tag's request, and waits for its next.
pub const COMMIT_AND_FETCH: u32 = read_write(0x21, IO_BYTES);

/// The device's number for a command that is about none, or about one that is to get a number.
pub const NO_DEVICE: u32 = u32::MAX;

/// `struct ublksrv_ctrl_cmd`, for `device`: `len` bytes of memory at `address`, and a number.
pub fn control(device: u32, (address, len): (u64, u16), number: u64) -> [u8; ARGUMENT] {
    let mut argument = [0; ARGUMENT];
    argument[0..4].copy_from_slice(&device.to_ne_bytes());
    // No command of ours is about one queue.
    argument[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    argument[6..8].copy_from_slice(&len.to_ne_bytes());
    argument[8..16].copy_from_slice(&address.to_ne_bytes());
    argument[16..24].copy_from_slice(&number.to_ne_bytes());
    argument
}

/// `struct ublksrv_io_cmd`, for a tag of a queue: the answer to its request is `result`, the bytes that were moved or a
/// negative errno. Without memory, since bytes are copied by calls.
pub fn io(queue: u16, tag: u16, result: i32) -> [u8; ARGUMENT] {
    let mut argument = [0; ARGUMENT];
    argument[0..2].copy_from_slice(&queue.to_ne_bytes());
    argument[2..4].copy_from_slice(&tag.to_ne_bytes());
    argument[4..8].copy_from_slice(&result.to_ne_bytes());
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernels_header() {
        // As a C compiler gives them for linux/ublk_cmd.h.
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn arguments_have_their_fields_in_place() {
        let argument = control(7, (0x1122_3344_5566_7788, 64), 99);
        assert_eq!(argument[..8], [7, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!(argument[8..16], 0x1122_3344_5566_7788u64.to_ne_bytes());
        assert_eq!(argument[16..24], 99u64.to_ne_bytes());
        assert_eq!(argument[24..], [0; ARGUMENT - 24]);
        let argument = io(2, 300, -5);
        assert_eq!(argument[..4], [2, 0, 300u16.to_ne_bytes()[0], 1]);
        assert_eq!(argument[4..8], (-5i32).to_ne_bytes());
        assert_eq!(argument[8..], [0; ARGUMENT - 8]);
    }
}

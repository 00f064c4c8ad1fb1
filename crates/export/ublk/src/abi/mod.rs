//! The structures and numbers of `include/uapi/linux/ublk_cmd.h`, as bytes. All in the machine's byte order.

pub mod command;
pub mod info;
pub mod params;
pub mod request;

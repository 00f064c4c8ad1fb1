//! A disk as virtio has it: what it says of itself, and its requests.

pub(crate) mod config;
pub(crate) mod request;

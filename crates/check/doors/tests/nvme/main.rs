//! The NVMe/TCP door.

#![forbid(unsafe_code)]
// Helpers of the tests: unwrapping says that one has failed.
#![allow(clippy::unwrap_used)]

mod authentication;
mod capsules;
mod refusals;
mod transport;

use braid_doors::nvme::Nvme;

braid_doors::conformance!(Nvme);

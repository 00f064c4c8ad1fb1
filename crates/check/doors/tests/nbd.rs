//! The NBD door.

#![forbid(unsafe_code)]

use braid_doors::nbd::Nbd;

braid_doors::conformance!(Nbd);

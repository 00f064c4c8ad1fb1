//! The vhost-user door.

#![forbid(unsafe_code)]

mod driver;
mod taking_over;

use braid_doors::vhost::VhostUser;

braid_doors::conformance!(VhostUser);

//! Doors: the price of a request at each of them, and rivals of NBD's.
//!
//! | file | subject |
//! |---|---|
//! | `prices` | processor time of a request at each door, beside the generator in the process |
//! | `counted` | its instructions |
//! | `at_door` | a client of a door as a generator of requests |
//! | `against` | the NBD and vhost-user-blk doors beside other servers, with fio as their client |
//! | `in_guest` | fio in a guest that has the servers' disks |
//! | `servers` | those servers, as children of this process |

pub mod against;
mod at_door;
pub mod counted;
mod in_guest;
pub mod prices;
mod servers;

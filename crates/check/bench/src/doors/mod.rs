//! Doors: the price of a request at each of them, and rivals of NBD's.
//!
//! | file | subject |
//! |---|---|
//! | `prices` | processor time of a request at each door, beside the generator in the process |
//! | `counted` | its instructions |
//! | `at_door` | a client of a door as a generator of requests |
//! | `against` | the NBD door beside other servers, with fio as their client |
//! | `servers` | those servers, as children of this process |

pub mod against;
mod at_door;
pub mod counted;
pub mod prices;
mod servers;

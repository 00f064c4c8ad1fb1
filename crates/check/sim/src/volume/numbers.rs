//! Requests by number, and the order of their beginnings and ends.

/// Numbers a request.
pub type OpNr = u64;
/// Orders what begins and ends.
pub type Tick = u64;

//! A filter with a small cache of writes that nobody waits to see on the device: they are taken at once, and neighbours
//! reach it together.
//!
//! Only what is [given](WriteBack::keep) for it is kept; other requests go through, behind what is kept of their range. A
//! flush writes all of it out first. So the filter is a device with a volatile cache, whatever is below.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the filter: requests on their way through it |
//! | `write_out` | what was kept goes to the device |
//! | `kept` | the blocks in memory |

mod device;
mod kept;
#[cfg(test)]
mod tests;
mod write_out;

pub use device::WriteBack;

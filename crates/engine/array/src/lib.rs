//! The RAID engine

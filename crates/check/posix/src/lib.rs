//! What POSIX asks of a file system, and random operations against a reference.
//!
//! Works on any mounted directory and knows nothing of braid. [`cases`] asks one question at a time; [`fsx`] and
//! [`stress`] do random things and compare with what they remember; [`tree`], [`fill`] and [`names`] are loads with an answer
//! that is known beforehand; [`wedge`] does what a kernel and the server of a file system can wait for each other over. What a Linux file system does otherwise, and why, is in [`case::known`].

#![deny(unsafe_code)]

pub mod background;
pub mod bytes;
pub mod case;
pub mod cases;
pub mod fill;
pub mod fsx;
pub mod helper;
pub mod names;
pub mod raw;
pub mod scene;
pub mod stress;
pub mod tree;
pub mod wedge;

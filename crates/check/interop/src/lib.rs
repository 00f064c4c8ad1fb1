//! The real md and real clients.
//!
//! [`uml`] runs a script under a real Linux kernel with the md drivers, as an ordinary process.
//! The tests of this crate make arrays with braid and have that kernel assemble, read, check and
//! write them, and the other way round.

#![forbid(unsafe_code)]

pub mod uml;

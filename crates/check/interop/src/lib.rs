//! The real md and real clients.
//!
//! [`uml`] runs a script under a real Linux kernel with the md drivers, as an ordinary process; [`vm`] under a newer one in an
//! emulated machine, which is slower and has more drivers.
//! [`matrix`] has it and braid make arrays of every kind, and each read, check and write the other's;
//! [`stacks`] does so with arrays of arrays; in [`states`] each takes over what a crash of the other left, in [`write_hole`]
//! with a member missing, after a power [`cut`]. A [`session`] is a guest for several
//! scripts in turn. [`across`] is for arrays of files
//! that single tests carry from one to the other. [`kills`] is about volumes: their server is killed in the middle of everything;
//! [`array_kills`] does so with arrays. In [`take_overs`] a server takes over from another under a client that verifies,
//! in [`fail_overs`] a host. A [`relay`] keeps a guest's disk when the server behind it dies.

#![forbid(unsafe_code)]

pub mod across;
pub mod array_kills;
pub mod by_braid;
pub mod cell;
pub mod cut;
pub mod fail_overs;
pub mod guest;
pub mod kills;
pub mod matrix;
pub mod outcome;
mod program;
pub mod relay;
pub mod serving;
pub mod session;
mod stack_by_braid;
pub mod stacks;
pub mod states;
pub mod table;
pub mod take_overs;
pub mod uml;
pub mod vm;
pub mod vm_guest;
pub mod write_hole;

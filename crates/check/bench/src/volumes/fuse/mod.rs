//! A mounted volume beside what else answers the same requests: a file in memory and a directory passed through, both
//! by fuser alone, and ext4.
//!
//! Everything is mounted at once and measured in turn. Root only, with /dev/fuse, loop devices, fio, dbench and the
//! program `braid` beside this one; where something is missing the table is left out, and says why.

mod figures;
mod folder;
mod loads;
mod memory;
mod mounts;
mod on_loop;
mod servers;
mod tree;
mod way;

pub use folder::table as folder;
pub use memory::table as memory;
pub use on_loop::table as on_loop;
pub use servers::Server;
pub use tree::table as tree;

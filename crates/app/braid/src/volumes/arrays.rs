//! The arrays of this server, as volumes see them.

use crate::members::Member;
use anyhow::Result;
use braid_device::Opener;
use std::sync::Arc;

/// The arrays of the same server, which may be bricks.
pub trait Arrays {
    /// The array as it is, to look at its content.
    ///
    /// # Errors
    /// When it does not run, or is a member of another.
    fn look(&self, name: &str) -> Result<Arc<dyn Opener>>;

    /// The array, taken from its clients.
    ///
    /// # Errors
    /// When somebody uses it.
    fn take(&self, name: &str) -> Result<Arc<dyn Opener>>;

    /// Arrays that were taken, and are not needed any more.
    fn give_back(&self, names: &[String]);
}

/// The names of the arrays among bricks that were opened.
pub fn names_of(opened: &[(Member, Arc<dyn Opener>)]) -> Vec<String> {
    opened.iter().filter_map(|(member, _)| member.array()).map(str::to_string).collect()
}

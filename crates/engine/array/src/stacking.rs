//! An array as a member of another.
//!
//! What the upper array asks of its member goes to the engine of the same shard: no message, no copy.
//! Whoever stacks arrays starts them from the bottom up and stops them from the top down; an array that is
//! stopped below another is a member that is gone.

use crate::array::Array;
use braid_device::{Device, OpenError, Opener, Target};
use braid_shard::Shard;
use std::rc::Rc;
use std::sync::Arc;

/// What the name of a member begins with that is an array of this process.
pub const PREFIX: &str = "array:";

/// See the module's documentation.
pub struct ArrayMember {
    array: Arc<Array>,
    name: String,
}

impl ArrayMember {
    /// `array`, to be a member of another of the same process.
    pub fn new(array: Arc<Array>) -> ArrayMember {
        let name = format!("{PREFIX}{}", array.name());
        ArrayMember { array, name }
    }
}

impl Opener for ArrayMember {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        Target::open(&*self.array, shard)
    }
}

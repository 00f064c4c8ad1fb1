//! An array as a member of another.
//!
//! A request of the upper array goes to its member's engine on the same shard: no message, no copy.
//! Whoever stacks arrays starts them from the bottom up and stops them from the top down; an array that is
//! stopped below another is a member that is gone.

use braid_device::{Device, OpenError, Opener, Target};
use braid_shard::Shard;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// The prefix of the name of a member that is an array of this process.
pub const PREFIX: &str = "array:";

/// See the module's documentation.
pub struct ArrayMember {
    name: String,
    array: OnceLock<Arc<dyn Target>>,
}

impl ArrayMember {
    /// `array`, which runs, to be a member of another of the same process.
    pub fn new(array: Arc<impl Target + 'static>) -> ArrayMember {
        let member = ArrayMember::later(&array.info().name);
        member.started(array);
        member
    }

    /// The array `name`, which will run before this is opened: [`ArrayMember::started`] says so.
    pub fn later(name: &str) -> ArrayMember {
        ArrayMember { name: format!("{PREFIX}{name}"), array: OnceLock::new() }
    }

    /// It runs. Only the first call counts.
    pub fn started(&self, array: Arc<dyn Target>) {
        // Set before: it runs already.
        let _ = self.array.set(array);
    }
}

impl Opener for ArrayMember {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        match self.array.get() {
            Some(array) => array.open(shard),
            None => Err(OpenError {
                name: self.name.clone(),
                why: "the array is not running".to_string(),
            }),
        }
    }
}

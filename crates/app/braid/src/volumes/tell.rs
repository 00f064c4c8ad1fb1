//! Who is told of progress, and of the end.

use braid_control::protocol::Answer;

/// Progress and answers go here; false when the client is gone.
pub type Tell<'a> = dyn FnMut(Answer) -> bool + 'a;

//! What is wanted of arrays and volumes: as it is typed, and as it is sent to a running server.
//!
//! | file | subject |
//! |---|---|
//! | `array` | the shape of a new array |
//! | `stack` | whether arrays of arrays are run |
//! | `volume` | a new volume |
//! | `weight` | the weight of a brick |
//! | `size` | sizes |
//! | `as_text` | types that are sent as the text that people write |

pub mod array;
pub mod as_text;
pub mod size;
pub mod stack;
pub mod volume;
pub mod weight;

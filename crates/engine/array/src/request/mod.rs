//! A request of a client, of an array above or of another shard: taken in, and handed to the step that carries it out.
//!
//! | file | subject |
//! |---|---|
//! | `device` | the array as a device |
//! | `received` | work that another shard sends, because this one owns the unit |
//! | `flush` | flushes, which the home shard carries out for all |
//! | `holes` | parts of the array that hold nothing, for whoever asks |
//! | `zeroing` | write-zeroes and discard, unit by unit |
//! | `tasks` | the kinds of tasks that requests start |

pub(crate) mod device;
pub(crate) mod flush;
pub(crate) mod holes;
pub(crate) mod received;
pub(crate) mod tasks;
pub(crate) mod zeroing;

use crate::engine::Engine;
use crate::engine::mesh::Msg;
use braid_shard::mailbox::MeshEnd;
use std::rc::Rc;

/// Lets requests reach a new engine: those that fail on a member are recovered, and with `end` the work that other
/// shards send is carried out.
pub(crate) fn open(engine: &Rc<Engine>, end: Option<MeshEnd<Msg>>) {
    engine.shard.spawn(crate::read::start::recover_failed(Rc::clone(engine)));
    let Some(end) = end else { return };
    let weak = Rc::downgrade(engine);
    engine.mesh.attach(end, move |from, id, work| {
        if let Some(engine) = weak.upgrade() {
            received::carry_out(&engine, from, id, work);
        }
    });
}

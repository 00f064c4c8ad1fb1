//! Events of arrays are told once a second: in the log, and to those whom the configuration names; and kept for those who look.

use super::running::Running;
use super::watch;
use crate::monitor::telling::Telling;
use crate::monitor::watching::Watching;
use crate::output;
use crate::protocol::Detail;
use anyhow::Result;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

/// The number of spares that an array is to have.
pub type Spares = dyn Fn(&Detail) -> Option<usize> + Send;

/// Has a thread watch. Lines are for everybody if `aloud`, else for who has asked for more (`BRAID_LOG=info`).
///
/// # Errors
/// When the system refuses a thread.
pub fn start(
    running: &Arc<Running>,
    (telling, aloud): (Telling, bool),
    spares: Box<Spares>,
) -> Result<()> {
    let watching = RefCell::new(Watching::default());
    watch::start(running, ("events", "that watches for events"), move |running| {
        watch::each_second(running, |running| {
            let events = watching.borrow_mut().look(running.details(), Instant::now(), &*spares);
            for event in events {
                match aloud {
                    true => output::tell(event.priority, format!("braid: {}", event.line())),
                    false => tracing::info!("{}", event.line()),
                }
                telling.tell(&event);
                running.events.keep(event);
            }
        });
    })
}

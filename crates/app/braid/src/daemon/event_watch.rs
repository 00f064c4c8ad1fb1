//! Events of arrays are told once a second: in the log, and to those whom the configuration names; and kept for those who look.

use super::running::Running;
use super::watch;
use crate::monitor::slow::Slow;
use crate::monitor::telling::Telling;
use crate::monitor::watching::Watching;
use crate::output;
use anyhow::Result;
use braid_control::protocol::Detail;
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
    let watching = RefCell::new((Watching::default(), Slow::default()));
    watch::start(running, ("events", "that watches for events"), move |running| {
        watch::each_second(running, |running| {
            let (watching, slow) = &mut *watching.borrow_mut();
            let (now, at) = (running.details(), Instant::now());
            let slow = match slow.is_due(at) {
                true => slow.look(running.stats(), &now, at),
                false => Vec::new(),
            };
            let mut events = watching.look(now, at, &*spares);
            events.extend(slow);
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

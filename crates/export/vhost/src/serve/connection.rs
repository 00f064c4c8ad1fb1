//! One front end, from its first message to the end of its last request.

use super::channel::{Channel, send};
use super::hub::Hub;
use super::offer::{Entered, Shared};
use super::session::{Session, SessionError};
use crate::protocol::config_changed;
use braid_device::Target;
use braid_export::{Connected, Connections, Disk};
use braid_shard::Shard;
use braid_shard::sync::Budget;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Nanoseconds between looks at the size of the target, which may have grown.
const SIZE_NANOS: u64 = 1_000_000_000;

/// The budgets of a shard, by their doors.
#[derive(Default)]
struct Budgets(RefCell<Vec<(u64, Rc<Budget>)>>);

fn budget_of(shard: &Shard, door: u64, bytes: u64) -> Rc<Budget> {
    let budgets = shard.local::<Budgets>();
    let mut all = budgets.0.borrow_mut();
    // Those of doors that are gone are nobody's but this list's.
    all.retain(|(of, budget)| *of == door || Rc::strong_count(budget) > 1);
    if let Some((_, known)) = all.iter().find(|(of, _)| *of == door) {
        return Rc::clone(known);
    }
    let budget = Budget::new(shard, bytes);
    all.push((door, Rc::clone(&budget)));
    budget
}

/// Serves a connected socket until its front end leaves or breaks a rule, the target is offered no longer, or the server
/// stops.
pub(super) async fn serve(
    shard: Shard,
    fd: OwnedFd,
    connected: &Connected,
    shared: Arc<Shared>,
) -> Result<(), SessionError> {
    let Some(entered) = shared.enter(connected.socket()) else { return Ok(()) };
    let Entered { target, figures, using: _using } = entered;
    let disk = Disk::open(&target, &shard)?;
    let budget = budget_of(&shard, connected.register().id(), shared.memory_of_a_shard());
    let socket = connected.socket();
    let hub = Hub::new(&shard, disk, target.info().name, (figures, budget), socket);
    Connections::enter(
        &shard,
        connected.register(),
        &(Rc::clone(&hub) as Rc<dyn braid_export::Hold>),
    );
    let channel = Channel::new(&shard, fd);
    let mut session = Session::new(&hub, Arc::clone(&target), shared.queues());
    shard.spawn(tell_of_growth(shard.clone(), Rc::downgrade(&hub), target, session.requests()));
    let result = exchange(&channel, &mut session).await;
    session.end();
    let result = hub.failure().map_or(result, |error| Err(error.into()));
    hub.wait_until(|| hub.in_flight() == 0).await;
    session.release();
    result
}

async fn exchange(channel: &Channel, session: &mut Session) -> Result<(), SessionError> {
    while let Some((header, message, files)) = channel.next().await? {
        if let Some((bytes, file)) = session.handle(header, message, files).await? {
            channel.send(&bytes, file.as_ref().map(AsFd::as_fd))?;
        }
    }
    Ok(())
}

/// Tells the front end when the target has another size.
async fn tell_of_growth(
    shard: Shard,
    hub: Weak<Hub>,
    target: Arc<dyn Target>,
    requests: Rc<Cell<Option<Rc<OwnedFd>>>>,
) {
    let mut known = target.info().device.size;
    loop {
        shard.sleep(SIZE_NANOS).await;
        if hub.upgrade().is_none_or(|hub| hub.has_ended()) {
            return;
        }
        let size = target.info().device.size;
        if size != known {
            known = size;
            let socket = requests.take();
            // One that takes nothing asks for the size at its next start.
            let _ = socket.as_ref().map(|socket| send(&**socket, &config_changed(), None));
            requests.set(socket);
        }
    }
}

//! A brick that was lost is used again, on the volume's shard: when somebody asks for it, and by itself where it is behind a
//! network.

use super::here::{self, Here};
use anyhow::{Result, bail};
use braid_device::Opener;
use braid_shard::{Nanos, Shard};
use braid_volume::assemble::{self, AssembleError, FoundBrick};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use uuid::Uuid;

const SECOND: Nanos = 1_000_000_000;
/// Between two looks for bricks behind a network that were lost.
const LOOK_EVERY: Nanos = SECOND;
/// The pause before the first try to reach one, and the longest: each is twice as long as the one before.
const FIRST_PAUSE: Nanos = SECOND;
const LONGEST_PAUSE: Nanos = 60 * SECOND;
/// For so long a brick is to be there before it counts as one that was never lost.
const CALM: Nanos = 120 * SECOND;

/// Opens a brick anew and reads its superblock.
///
/// # Errors
/// When it is not there, or no brick.
pub(super) async fn reach(shard: &Shard, opener: &dyn Opener) -> Result<FoundBrick> {
    let device = here::open(shard, opener)?;
    Ok(assemble::examine(shard, device).await?)
}

/// Uses brick `uuid` again, which was found by way of `opener`.
///
/// # Errors
/// When it is another, is not as it was when it was lost, or cannot be written.
pub(super) async fn take_back(
    here: &Here,
    uuid: Uuid,
    opener: Arc<dyn Opener>,
    found: FoundBrick,
) -> Result<()> {
    // Nobody notes meanwhile what has become of the bricks: the volume and the superblocks differ for a moment.
    let _turn = here.turn.take(1).await;
    if here.closing.get() {
        bail!("the volume is being unmounted");
    }
    let is = Uuid::from_bytes(found.superblock.brick_uuid);
    if is != uuid {
        let device = opener.name().to_string();
        return Err(AssembleError::Replaced { device, found: is, wanted: uuid }.into());
    }
    braid_volume::take_back(&here.opened, &here.volume, found).await?;
    if opener.is_remote() {
        here.remote.borrow_mut().insert(uuid, opener);
    }
    Ok(())
}

/// The tries to reach a brick that was lost.
struct Tries {
    pause: Nanos,
    next: Nanos,
    /// It has been there again since then.
    since: Option<Nanos>,
    /// Why it is not used yet, as it was said last.
    told: String,
}

impl Tries {
    fn new(now: Nanos) -> Tries {
        Tries { pause: FIRST_PAUSE, next: now + FIRST_PAUSE, since: None, told: String::new() }
    }

    fn ended(&mut self, now: Nanos, name: &str, result: Result<()>) {
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.next = now + self.pause;
        let Err(error) = result else {
            self.told.clear();
            tracing::warn!(brick = %name, "it can be reached again, and is used again");
            return;
        };
        let why = format!("{error:#}");
        // It is tried again and again; one line is enough.
        if why != self.told {
            tracing::warn!(brick = %name, "it is not used again yet: {why}");
        }
        self.told = why;
    }
}

/// As long as the volume is up: bricks behind a network that were lost are used again as soon as they can be reached.
pub(super) fn look_for_lost(here: &Rc<Here>) {
    let (weak, shard) = (Rc::downgrade(here), here.shard.clone());
    here.shard.spawn(async move {
        let mut tries: BTreeMap<Uuid, Tries> = BTreeMap::new();
        loop {
            shard.sleep(LOOK_EVERY).await;
            let Some(here) = weak.upgrade() else { return };
            let due = due(&here, &mut tries);
            // Its end does not wait for a server that does not answer.
            drop(here);
            for (uuid, opener) in due {
                let found = reach(&shard, &*opener).await;
                let Some(here) = weak.upgrade() else { return };
                let name = opener.name().to_string();
                let result = match found {
                    Ok(found) => take_back(&here, uuid, opener, found).await,
                    Err(error) => Err(error),
                };
                if let Some(tries) = tries.get_mut(&uuid) {
                    tries.ended(shard.now(), &name, result);
                }
            }
        }
    });
}

/// The bricks that it is time to try.
fn due(here: &Here, tries: &mut BTreeMap<Uuid, Tries>) -> Vec<(Uuid, Arc<dyn Opener>)> {
    let now = here.shard.now();
    let bricks = here.volume.bricks();
    let lost = |uuid: &Uuid| bricks.iter().any(|brick| brick.uuid == *uuid && !brick.is_there());
    tries.retain(|uuid, tries| match lost(uuid) {
        true => {
            if tries.since.take().is_some() {
                tries.next = now + tries.pause;
            }
            true
        }
        false => now < *tries.since.get_or_insert(now) + CALM,
    });
    let remote = here.remote.borrow();
    let due = remote.iter().filter(|(uuid, _)| {
        lost(uuid) && now >= tries.entry(**uuid).or_insert_with(|| Tries::new(now)).next
    });
    due.map(|(uuid, opener)| (*uuid, Arc::clone(opener))).collect()
}

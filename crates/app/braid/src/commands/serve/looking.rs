//! Looking for what was not there when the server started: members that were absent, busy or damaged, and the arrays that
//! wait for them.
//!
//! A thread of its own looks every few seconds. While nothing has come it opens only what is missing, so that members of
//! arrays that wait are free for other commands.

use super::announce::announce;
use super::starting::{Begun, How, named, say, start_all};
use crate::daemon::grouping::{Group, Trouble, group};
use crate::daemon::layers::{layer, only};
use crate::daemon::running::Running;
use crate::members::Member;
use crate::output;
use anyhow::{Context, Result};
use braid_format::superblock::Role;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What is looked for.
pub(super) struct Sought {
    /// What could not be used, and why.
    pub troubles: Vec<Trouble>,
    /// Members of arrays that wait for others.
    pub waiting: Vec<Member>,
    /// How arrays are started.
    pub how: How,
}

/// The thread that looks.
pub(super) struct Looking {
    end: Sender<()>,
    thread: JoinHandle<Sought>,
}

impl Looking {
    /// Begins to look.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn begin(running: &Arc<Running>, mut sought: Sought) -> Result<Looking> {
        let running = Arc::downgrade(running);
        let (end, ended) = mpsc::channel();
        let look = move || {
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(LOOK_EVERY) {
                if sought.troubles.is_empty() {
                    break;
                }
                if let Err(error) = sought.look(&running) {
                    output::note(format!("braid: looking for missing members: {error:#}"));
                }
            }
            sought
        };
        let thread = std::thread::Builder::new().name("looking".to_string()).spawn(look);
        Ok(Looking { end, thread: thread.context("starting the thread that looks for members")? })
    }

    /// Looks no more. True when something is missing still.
    pub(super) fn end(self) -> bool {
        // It may have ended by itself.
        let _ = self.end.send(());
        match self.thread.join() {
            Ok(sought) => !sought.troubles.is_empty() || !sought.waiting.is_empty(),
            // It panicked, which is reported on standard error; what it looked for is not served.
            Err(_) => true,
        }
    }
}

impl Sought {
    fn look(&mut self, running: &Weak<Running>) -> Result<()> {
        let Some(running) = running.upgrade() else { return Ok(()) };
        let home = running.home()?;
        let sought: Vec<Member> =
            self.troubles.iter().map(|trouble| trouble.member.clone()).collect();
        let (found, troubles) = group(home, &sought);
        let news: Vec<Trouble> = troubles
            .iter()
            .filter(|now| !self.troubles.iter().any(|known| known.why == now.why))
            .cloned()
            .collect();
        say(&news, true);
        self.troubles = troubles;
        if found.is_empty() {
            return Ok(());
        }
        // Their locks are taken anew, by whoever uses them.
        drop(found);
        let missing = |member: &Member| {
            self.troubles.iter().any(|trouble| trouble.member.name == member.name)
        };
        let mut members: Vec<Member> =
            sought.into_iter().filter(|member| !missing(member)).collect();
        members.append(&mut self.waiting);
        let (groups, more) = group(home, &members);
        say(&more, true);
        self.troubles.extend(more);
        let (known, new): (Vec<Group>, Vec<Group>) =
            groups.into_iter().partition(|group| running.runs(&group.uuid));
        known.into_iter().for_each(|group| take_back(&running, group));
        self.start(&running, new, &members)
    }

    fn start(&mut self, running: &Running, groups: Vec<Group>, members: &[Member]) -> Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        let (mut groups, notes) = layer(running.home()?, groups, self.how.stack)?;
        notes.iter().for_each(|note| output::note(format!("note: {note}")));
        if let Some(uuid) = &self.how.uuid {
            // Another array than the one that was asked for is none of ours.
            groups = only(groups, uuid).unwrap_or_default();
        }
        groups.iter_mut().for_each(|group| running.name_apart(group));
        let mut begun = Begun::default();
        let how = How { strict: false, ..self.how.clone() };
        start_all(running.remotes(), how.starts(groups)?, &how, &mut begun)?;
        self.waiting = named(members, &begun.waiting);
        for array in begun.arrays {
            let free = !begun.below.contains(array.name());
            running.enter_late(Arc::clone(&array), free)?;
            announce(&array, running.doors())?;
        }
        Ok(())
    }
}

/// Gives members back to their array, which runs without them: by its bitmap, or as the spares that they are.
fn take_back(running: &Running, group: Group) {
    let uuid = group.uuid;
    let members: Vec<(String, bool)> = group
        .openers
        .iter()
        .zip(group.superblocks())
        .map(|(opener, superblock)| {
            (opener.name().to_string(), superblock.own_role() == Role::Spare)
        })
        .collect();
    // Unlocks them.
    drop(group);
    for (name, spare) in members {
        match running.came_back(&uuid, &name, spare) {
            Ok(done) => output::note(format!("braid: {done}")),
            Err(error) => output::note(format!("braid: {name} is there again: {error:#}")),
        }
    }
}

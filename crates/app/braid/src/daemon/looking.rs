//! Arrays are started while the server runs: those that a command names, and those whose members were not there when it started.
//!
//! A thread of its own looks every few seconds. While nothing has come it opens only what is missing, so that members of
//! arrays that wait are free for other commands.

use super::announce::{announce, text};
use super::grouping::{Group, Trouble, group};
use super::layers::{layer, only};
use super::running::Running;
use super::sought::Sought;
use super::starting::{Begun, How, named, say, start_all};
use super::watch;
use crate::configuration::Configuration;
use crate::members::{Member, parse_one, same_device};
use crate::output;
use anyhow::{Result, bail};
use braid_control::protocol::Answer;
use braid_format::superblock::{Role, Superblock};
use braid_format::uuid_text;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Between two looks at all devices, while an array of the configuration does not run.
const SCAN_EVERY: Duration = Duration::from_secs(10);

/// The arrays that a command wants started.
pub(super) struct Wanted {
    /// Members, as they would be given to `serve`.
    pub(super) members: Vec<String>,
    /// Arrays, by name or UUID.
    pub(super) arrays: Vec<String>,
    /// All that the configuration names.
    pub(super) scan: bool,
    /// Also when members are missing that were there.
    pub(super) run: bool,
    /// Also when that may bring wrong blocks back.
    pub(super) force: bool,
}

/// The outcome, in sentences.
#[derive(Default)]
struct Brought {
    done: Vec<String>,
    refused: Vec<String>,
}

/// Has a thread look for what is missing until the server ends or [`Running::stop_looking`].
///
/// # Errors
/// When the system refuses a thread.
pub fn start(running: &Arc<Running>) -> Result<()> {
    watch::start(running, ("looking", "that looks for members"), |running| {
        loop {
            std::thread::sleep(LOOK_EVERY);
            let Some(running) = running.upgrade() else { return };
            let mut sought = running.sought();
            let Some(sought) = sought.as_mut() else { return };
            if let Err(error) = running.look(sought) {
                output::note(format!(
                    "braid: looking for missing members: {}",
                    output::said(&error)
                ));
            }
        }
    })
}

impl Running {
    fn sought(&self) -> MutexGuard<'_, Option<Sought>> {
        // A panic ends the process.
        self.sought.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks no more. True when something is missing still.
    pub fn stop_looking(&self) -> bool {
        let sought = self.sought().take();
        sought.is_some_and(|sought| !sought.troubles.is_empty() || !sought.waiting.is_empty())
    }

    fn look(&self, sought: &mut Sought) -> Result<()> {
        self.scan_again(sought)?;
        let home = self.home()?;
        let missing: Vec<Member> =
            sought.troubles.iter().map(|trouble| trouble.member.clone()).collect();
        let (found, troubles) = group(home, &missing);
        let news: Vec<Trouble> = troubles
            .iter()
            .filter(|now| !sought.troubles.iter().any(|known| known.why == now.why))
            .cloned()
            .collect();
        say(&news, true);
        sought.troubles = troubles;
        // Their locks are taken anew, by whoever uses them.
        let any = !found.is_empty();
        drop(found);
        let overdue = sought.degraded_after.is_some_and(|after| sought.since.elapsed() >= after)
            && !sought.waiting.is_empty();
        if !any && !overdue {
            return Ok(());
        }
        let missing_still = |member: &Member| {
            sought.troubles.iter().any(|trouble| trouble.member.name == member.name)
        };
        let members = missing.into_iter().filter(|member| !missing_still(member)).collect();
        let how = How { run: sought.how.run || overdue, strict: false, ..sought.how.clone() };
        self.bring_in(sought, members, &how)?;
        if overdue {
            // An array that does not start without them is tried again when something comes.
            sought.since = Instant::now();
        }
        Ok(())
    }

    /// Starts arrays of these members and of those that wait.
    fn bring_in(&self, sought: &mut Sought, new: Vec<Member>, how: &How) -> Result<Brought> {
        let home = self.home()?;
        let mut brought = Brought::default();
        let mut members = new;
        let before = sought.waiting.len();
        let waited = std::mem::take(&mut sought.waiting);
        members.extend(waited);
        let (groups, more) = group(home, &members);
        say(&more, true);
        brought.refused.extend(more.iter().map(|trouble| trouble.why.clone()));
        sought.troubles.extend(more);
        let (known, new): (Vec<Group>, Vec<Group>) =
            groups.into_iter().partition(|group| self.runs(&group.uuid));
        known.into_iter().for_each(|group| take_back(self, group, &mut brought));
        let stopped = self.stopped().clone();
        let new: Vec<Group> =
            new.into_iter().filter(|group| !stopped.contains(&group.uuid)).collect();
        if new.is_empty() {
            return Ok(brought);
        }
        let (mut groups, notes) = layer(home, new, how.stack)?;
        notes.iter().for_each(|note| output::note(format!("note: {note}")));
        if let Some(uuid) = &how.uuid {
            // Another array than the one that was asked for is none of ours.
            groups = only(groups, uuid).unwrap_or_default();
        }
        groups.iter_mut().for_each(|group| self.name_apart(group));
        let mut begun = Begun::default();
        start_all(self.remotes(), how.starts(groups)?, how, &mut begun)?;
        sought.waiting = named(&members, &begun.waiting);
        if sought.waiting.len() != before {
            sought.since = Instant::now();
        }
        brought.refused.extend(begun.refused);
        for array in begun.arrays {
            let free = !begun.below.contains(array.name());
            self.enter_late(Arc::clone(&array), free)?;
            announce(&array, self.doors())?;
            brought.done.extend(text(&array, self.doors()));
        }
        Ok(brought)
    }

    /// Starts what a command wants.
    ///
    /// # Errors
    /// Nothing that was named was found, or this server starts no arrays later.
    pub(super) fn start(&self, wanted: &Wanted) -> Result<Answer> {
        let mut kept = self.sought();
        let Some(sought) = kept.as_mut() else {
            bail!("this server only reads, or is about to end: it starts no more arrays");
        };
        let mut done = Vec::new();
        let mut members = Vec::new();
        for text in &wanted.members {
            let member = parse_one(text)?;
            match self.array_with(&member) {
                Some(array) => {
                    done.push(format!("{} is a member of array {array}, which runs", member.name))
                }
                None => members.push(member),
            }
        }
        let mut missing = Vec::new();
        for name in &wanted.arrays {
            if self.find(Some(name)).is_ok() {
                done.push(format!("array {name} runs already"));
            } else {
                missing.push(name.clone());
            }
        }
        if wanted.scan || !missing.is_empty() {
            members.extend(self.search(sought, wanted.scan, &missing)?);
        }
        // A command takes back what another has stopped.
        self.start_again(&members);
        sought
            .troubles
            .retain(|trouble| !members.iter().any(|new| new.name == trouble.member.name));
        let how = How {
            run: wanted.run || sought.how.run,
            force: wanted.force || sought.how.force,
            strict: false,
            ..sought.how.clone()
        };
        let members = distinct(members, &sought.waiting);
        for member in &members {
            if !self.known().contains(&member.name) {
                self.known().push(member.name.clone());
            }
        }
        let brought = if members.is_empty() && sought.waiting.is_empty() {
            Brought::default()
        } else {
            self.bring_in(sought, members, &how)?
        };
        done.extend(brought.done);
        if let (Some(after), false) = (sought.degraded_after, sought.waiting.is_empty()) {
            let seconds = after.saturating_sub(sought.since.elapsed()).as_secs();
            done.push(format!(
                "what waits is started without its missing members in {seconds} s (degraded-after)"
            ));
        }
        let (mut waiting, path) = (brought.refused, sought.configuration.clone());
        drop(kept);
        if let Some(path) = path.filter(|_| wanted.scan) {
            // Some may lie on arrays that have just been started.
            let (mounted, not) = self.mount_all_of(&Configuration::read(&path)?);
            done.extend(mounted);
            waiting.extend(not);
        }
        Ok(Answer::Started { done, waiting })
    }

    /// The array that has the device of `member`.
    pub(super) fn array_with(&self, member: &Member) -> Option<String> {
        let same = |name: &str| match (parse_one(name).ok(), member.path()) {
            (Some(known), Some(path)) => known.path().is_some_and(|known| same_device(known, path)),
            _ => name == member.name,
        };
        self.names_of_members().into_iter().find(|(_, name)| same(name)).map(|(array, _)| array)
    }

    /// Members that do not run: of arrays that the configuration wants if `all`, and of those that are called by one of `names`.
    fn search(&self, sought: &mut Sought, all: bool, names: &[String]) -> Result<Vec<Member>> {
        let configuration = match &sought.configuration {
            Some(path) => Configuration::read(path)?,
            None if all => bail!(
                "this server has no configuration to scan by; start it with `braid daemon`, or name the members: braid \
                 start MEMBER…"
            ),
            None => Configuration::of_devices(
                self.known().iter().filter(|name| name.starts_with('/')).cloned(),
            ),
        };
        let found = names.iter().map(|_| std::cell::Cell::new(false)).collect::<Vec<_>>();
        let scanned = sought.scanner.scan(&configuration, &self.paths(), &|superblock| {
            let named = names.iter().zip(&found).any(|(name, found)| {
                let is = is_called(superblock, name);
                found.set(found.get() || is);
                is
            });
            named || all && configuration.wants(superblock)
        });
        sought.scanned = Some(Instant::now());
        for note in &scanned.notes {
            output::note(format!("note: {note}"));
        }
        if let Some((name, _)) = names.iter().zip(&found).find(|(_, found)| !found.get()) {
            bail!(
                "no member of an array {name:?} was found; name its members: braid start MEMBER…, or say in {} where to look",
                configuration.path.display()
            );
        }
        sought.how.groups.extend(scanned.groups);
        scanned.members.iter().map(|path| parse_one(&path.display().to_string())).collect()
    }

    /// Paths of members that run or wait.
    fn paths(&self) -> Vec<PathBuf> {
        let names = self.names_of_members().into_iter().map(|(_, name)| PathBuf::from(name));
        names.filter(|path| path.is_absolute()).collect()
    }

    /// Looks at all devices now and then, while an array that the configuration wants does not run.
    fn scan_again(&self, sought: &mut Sought) -> Result<()> {
        let due = sought.scanned.is_none_or(|last| last.elapsed() >= SCAN_EVERY);
        let Some(path) = sought.configuration.clone().filter(|_| due) else { return Ok(()) };
        // Its mistakes were told when it was read first, and `braid config check` tells them.
        let Ok(configuration) = Configuration::read(&path) else { return Ok(()) };
        let stopped = self.stopped().clone();
        let runs = |uuid: &[u8; 16]| self.runs(uuid) || stopped.contains(uuid);
        let lacks = configuration
            .arrays
            .iter()
            .any(|entry| entry.start && entry.uuid.is_none_or(|uuid| !runs(&uuid)));
        if !lacks {
            return Ok(());
        }
        sought.scanned = Some(Instant::now());
        let mut known = self.paths();
        known.extend(sought.waiting.iter().filter_map(|member| member.path().map(Path::to_owned)));
        let troubles = sought.troubles.iter().filter_map(|trouble| trouble.member.path());
        known.extend(troubles.map(Path::to_owned));
        let scanned = sought.scanner.scan(&configuration, &known, &|superblock| {
            configuration.wants(superblock) && !runs(&superblock.set_uuid)
        });
        if scanned.members.is_empty() {
            return Ok(());
        }
        sought.how.groups.extend(scanned.groups);
        let members = scanned.members.iter().map(|path| parse_one(&path.display().to_string()));
        let (members, how) = (members.collect::<Result<Vec<_>>>()?, sought.how.clone());
        self.bring_in(sought, members, &How { strict: false, ..how }).map(|_| ())
    }

    /// UUIDs of arrays that a command has stopped: they are not started by themselves.
    pub(super) fn stopped(&self) -> MutexGuard<'_, HashSet<[u8; 16]>> {
        // Every change is a single call.
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_again(&self, members: &[Member]) {
        if self.stopped().is_empty() {
            return;
        }
        for path in members.iter().filter_map(Member::path) {
            let examined = crate::discover::examine(path);
            if let Ok(Some(superblock)) =
                examined.map(|examined| examined.superblock.ok().flatten())
            {
                self.stopped().remove(&superblock.set_uuid);
            }
        }
    }
}

fn is_called(superblock: &Superblock, wanted: &str) -> bool {
    let name = &superblock.set_name;
    let by_name = name.bytes() == wanted.as_bytes() || name.short() == wanted.as_bytes();
    by_name || uuid_text::parse(wanted).is_ok_and(|uuid| uuid == superblock.set_uuid)
}

/// Those of `members` that are not there twice, nor among `others`.
fn distinct(members: Vec<Member>, others: &[Member]) -> Vec<Member> {
    let mut all: Vec<Member> = Vec::new();
    for member in members {
        let same = |other: &Member| match (other.path(), member.path()) {
            (Some(one), Some(other)) => one == other || same_device(one, other),
            _ => other.name == member.name,
        };
        if !all.iter().chain(others).any(same) {
            all.push(member);
        }
    }
    all
}

/// Gives members back to their array, which runs without them: by its bitmap, or as the spares that they are.
fn take_back(running: &Running, group: Group, brought: &mut Brought) {
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
            Ok(done) => {
                output::note(format!("braid: {done}"));
                brought.done.push(done);
            }
            Err(error) => {
                let why = format!("{name} is there again: {}", output::said(&error));
                output::note(format!("braid: {why}"));
                brought.refused.push(why);
            }
        }
    }
}

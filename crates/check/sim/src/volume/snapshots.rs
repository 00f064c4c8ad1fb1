//! Snapshots are taken, looked into and removed while files change: each shows the files of one moment, between the call
//! and its answer, and the same for ever, through crashes, jobs and other snapshots.
//!
//! Each has a model of its own of what it shows, which is held against it as the model of the volume is against the volume: the first
//! time as what a crash leaves, since the moment is not known; from then on exactly.

use super::meta::{Id, Node, ROOT};
use super::run::VolumeRun;
use super::taken::{Going, Taken, Taking};
use crate::waiting::{Over, wait};
use braid_filesystem::{
    Caller, Errno, FileSystem, Ino, Kind, NewNode, RenameFlags, SetAttr, XattrMode,
};
use braid_format::volume::snapshot::in_snapshot;
use braid_volume::{SnapshotStatus, VolumeError};
use std::rc::Rc;

/// Steps for which it is waited that what a removed snapshot had is freed.
const STEPS: u32 = 20_000;

impl VolumeRun {
    /// Now and then a snapshot is taken, removed, or looked into.
    pub(super) fn snapshot_now_and_then(&mut self) -> Result<(), Over> {
        let Some(plan) = self.plan.snapshots.clone() else { return Ok(()) };
        self.look_at_snapshot_calls()?;
        if self.snapshots_rng.range(0..1000) < plan.taken_often {
            let full = self.snapshots.taken.len() + self.snapshots.in_doubt.len() >= plan.most;
            if !full && self.snapshots.taking.is_none() {
                self.take_snapshot()?;
            }
        }
        if self.snapshots_rng.range(0..1000) < plan.removed_often {
            self.remove_some_snapshot()?;
        }
        if self.snapshots_rng.range(0..1000) < plan.seen_often {
            self.look_into_snapshots(false)?;
        }
        Ok(())
    }

    fn folder_for_snapshot(&mut self) -> Result<Id, Over> {
        let folders = self.plan.snapshots.as_ref().is_some_and(|plan| plan.folders);
        let (Some(life), Some(model)) = (&self.life, &self.model) else { return Err(Over) };
        let is_folder = |node: &Node| node.is_dir() && node.nlink > 0;
        let usable = |(id, node): (&Id, &Node)| {
            (is_folder(node) && life.client.has(*id) && model.numbers.contains_key(id))
                .then_some(*id)
        };
        let all: Vec<Id> = model.now.nodes.iter().filter_map(usable).collect();
        match folders && self.snapshots_rng.percent(60) {
            true => Ok(all.get(self.snapshots_rng.below(all.len())).copied().unwrap_or(ROOT)),
            false => Ok(ROOT),
        }
    }

    fn take_snapshot(&mut self) -> Result<(), Over> {
        let is_alone = self.snapshots_rng.percent(50);
        if is_alone {
            self.drain()?;
        }
        let folder = self.folder_for_snapshot()?;
        if folder != ROOT && !is_alone {
            self.drain()?;
        }
        let model = self.model.as_ref().ok_or(Over)?;
        if model.now.nodes.get(&folder).is_none_or(|node| node.nlink == 0) {
            // It was removed just now.
            return Ok(());
        }
        // Of what failed it is not known yet what it has left.
        if !self.life()?.client.nothing_failed() {
            return Ok(());
        }
        self.snapshots.count += 1;
        self.begin_to_take(folder, is_alone || folder != ROOT)?;
        if self.snapshots.taking.as_ref().is_some_and(|taking| taking.alone.is_some()) {
            // Power may fail meanwhile.
            if self.snapshots_rng.percent(15) {
                for _ in 0..self.snapshots_rng.log_range(1..300) {
                    self.life()?.machine.step();
                }
                self.look_at_snapshot_calls()?;
                let again = self.snapshots.taking.is_some();
                self.cut_power()?;
                self.mount()?;
                if again && folder != ROOT {
                    // It may have got halfway, and is asked for once more, as people would.
                    self.snapshots.count += 1;
                    self.begin_to_take(folder, true)?;
                    self.wait_for_snapshot_calls()?;
                }
                return Ok(());
            }
            self.wait_for_snapshot_calls()?;
        }
        Ok(())
    }

    fn begin_to_take(&mut self, folder: Id, is_alone: bool) -> Result<(), Over> {
        let name = format!("s{}", self.snapshots.count);
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
            return Err(Over);
        };
        let Some((ino, _)) = model.numbers.get(&folder).copied() else { return Ok(()) };
        let since = model.pin();
        let alone = is_alone.then(|| model.frozen(folder, since));
        let text = format!("snapshot {name} of f{folder}");
        self.world.trace(|| text.clone());
        life.client.history.note(&[], text);
        let (volume, called) = (Rc::clone(&life.volume), name.clone());
        let later = life.machine.begin(async move { volume.take_snapshot(ino, &called).await });
        self.snapshots.taking = Some(Taking { name, folder, since, alone, later });
        Ok(())
    }

    fn remove_some_snapshot(&mut self) -> Result<(), Over> {
        let count = self.snapshots.taken.len();
        if count == 0 || self.snapshots.going.is_some() || self.snapshots.taking.is_some() {
            return Ok(());
        }
        let at = self.snapshots_rng.below(count);
        self.begin_to_remove(at)
    }

    fn begin_to_remove(&mut self, at: usize) -> Result<(), Over> {
        let taken = self.snapshots.taken.remove(at);
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_mut()) else {
            return Err(Over);
        };
        model.loses_snapshot(taken.folder);
        let text = format!("remove snapshot {} of f{}", taken.name, taken.folder);
        self.world.trace(|| text.clone());
        life.client.history.note(&[], text);
        let (volume, name) = (Rc::clone(&life.volume), taken.name.clone());
        let ino = model.numbers.get(&taken.folder).map_or(0, |(ino, _)| *ino);
        let later = life.machine.begin(async move { volume.remove_snapshot(ino, &name).await });
        self.snapshots.going = Some(Going { taken, later });
        Ok(())
    }

    /// Looks at what became of calls.
    pub(super) fn look_at_snapshot_calls(&mut self) -> Result<(), Over> {
        let ended = |later: &Taking| later.later.borrow().is_some();
        if let Some(taking) = self.snapshots.taking.take_if(|taking| ended(taking)) {
            let result = taking.later.borrow_mut().take();
            if let Some(result) = result {
                self.was_taken(taking, result)?;
            }
        }
        let ended = |going: &Going| going.later.borrow().is_some();
        if let Some(going) = self.snapshots.going.take_if(|going| ended(going)) {
            let result = going.later.borrow_mut().take();
            match result {
                Some(Err(error)) if !self.is_faulty() => {
                    let text = format!("removing snapshot {}: {error}", going.taken.name);
                    return self.told("commands_succeed", &text);
                }
                Some(Err(_)) | None => {
                    let model = self.model.as_mut().ok_or(Over)?;
                    model.has_snapshot(going.taken.folder);
                    self.snapshots.taken.push(going.taken);
                }
                Some(Ok(())) => {
                    self.world.trace(|| format!("snapshot {} is gone", going.taken.name))
                }
            }
        }
        Ok(())
    }

    fn was_taken(
        &mut self,
        taking: Taking,
        result: Result<SnapshotStatus, VolumeError>,
    ) -> Result<(), Over> {
        let model = self.model.as_mut().ok_or(Over)?;
        let status = match result {
            Ok(status) => status,
            Err(error) => {
                model.unpin();
                return self.was_refused(&taking, &error);
            }
        };
        let shows = taking.alone.unwrap_or_else(|| model.frozen(taking.folder, taking.since));
        // All that came before is durable.
        model.unpin();
        model.make_durable(taking.since, taking.since, None);
        model.has_snapshot(taking.folder);
        self.world.trace(|| format!("snapshot {} is number {}", taking.name, status.id));
        let (name, folder, id) = (taking.name, taking.folder, status.id);
        self.snapshots.taken.push(Taken { name, folder, id, shows, seen: false });
        Ok(())
    }

    /// A folder whose files have names elsewhere has no snapshots; all else must go well.
    fn was_refused(&mut self, taking: &Taking, error: &VolumeError) -> Result<(), Over> {
        let model = self.model.as_ref().ok_or(Over)?;
        let inside = model.now.below(taking.folder);
        let has_other = |id: &Id| {
            let names = model.now.names.iter();
            let mut names = names.filter(|(_, named)| *named == id);
            names.any(|((dir, _), _)| !inside.contains(dir))
        };
        let is_file = |id: &Id| model.now.nodes.get(id).is_some_and(|node| !node.is_dir());
        let is_linked = inside.iter().any(|id| is_file(id) && has_other(id));
        let is_full = self.plan.metadata.is_some();
        let is_right = match error {
            VolumeError::Refused(_) => is_linked || self.is_faulty(),
            VolumeError::File { errno: Errno::NoSpace, .. } => is_full,
            VolumeError::File { errno: Errno::Io, .. } => self.is_faulty(),
            _ => is_full || self.is_faulty(),
        };
        self.world.trace(|| format!("snapshot {}: {error}", taking.name));
        match is_right {
            true => Ok(()),
            false => self.told("commands_succeed", &format!("snapshot {}: {error}", taking.name)),
        }
    }

    /// None is being taken or removed any more.
    pub(super) fn wait_for_snapshot_calls(&mut self) -> Result<(), Over> {
        while self.snapshots.taking.is_some() || self.snapshots.going.is_some() {
            self.step()?;
            self.look_at_snapshot_calls()?;
        }
        Ok(())
    }

    /// Power fails: what is under way may be there, or not.
    pub(super) fn snapshots_in_doubt(&mut self) {
        let Some(model) = &self.model else { return };
        if let Some(taking) = self.snapshots.taking.take() {
            let shows = taking.alone.unwrap_or_else(|| model.frozen(taking.folder, taking.since));
            let (name, folder) = (taking.name, taking.folder);
            self.snapshots.in_doubt.push(Taken { name, folder, id: 0, shows, seen: false });
        }
        if let Some(going) = self.snapshots.going.take() {
            self.snapshots.in_doubt.push(going.taken);
        }
    }

    /// After a mount: there are those that were taken, and no others but what was under way.
    pub(super) fn snapshots_after_mount(&mut self) -> Result<(), Over> {
        if self.plan.snapshots.is_none() {
            return Ok(());
        }
        let there = self.list_snapshots()?;
        let model = self.model.as_mut().ok_or(Over)?;
        for mut taken in std::mem::take(&mut self.snapshots.in_doubt) {
            let found = there.iter().find(|status| status.name == taken.name);
            if let Some(status) = found.filter(|status| !status.is_going) {
                taken.id = status.id;
                model.has_snapshot(taken.folder);
                self.snapshots.taken.push(taken);
            }
        }
        let is_known = |status: &&SnapshotStatus| {
            status.is_going || self.snapshots.taken.iter().any(|taken| taken.id == status.id)
        };
        if let Some(stray) = there.iter().find(|status| !is_known(status)) {
            return self
                .told("snapshots_are_there", &format!("{stray:?} is there, and was removed"));
        }
        self.look_into_snapshots(self.snapshots_rng.percent(30))
    }

    fn list_snapshots(&mut self) -> Result<Vec<SnapshotStatus>, Over> {
        let life = self.life()?;
        let volume = Rc::clone(&life.volume);
        let later = life.machine.begin(async move { volume.snapshots().await });
        wait(&life.machine, "the list of snapshots", &later)
    }

    /// Looks into one snapshot, or all: each is found by its name, shows what it must, and does not change.
    pub(super) fn look_into_snapshots(&mut self, all: bool) -> Result<(), Over> {
        let count = self.snapshots.taken.len();
        let chosen = self.snapshots_rng.below(count.max(1));
        for at in 0..count {
            if all || at == chosen {
                self.look_into(at)?;
            }
        }
        Ok(())
    }

    fn look_into(&mut self, at: usize) -> Result<(), Over> {
        let (Some(life), Some(model)) = (self.life.as_mut(), self.model.as_ref()) else {
            return Err(Over);
        };
        let Some(taken) = self.snapshots.taken.get_mut(at) else { return Ok(()) };
        let Some((folder, _)) = model.numbers.get(&taken.folder).copied() else { return Ok(()) };
        let number = in_snapshot(folder, taken.id);
        let (volume, name) = (Rc::clone(&life.volume), taken.name.clone());
        let later = life.machine.begin(async move { find(&*volume, folder, &name).await });
        let found = wait(&life.machine, "a look-up of a snapshot", &later)?;
        if found != Ok(number) {
            let text = format!("snapshot {}, {number:#x}, is found as {found:x?}", taken.name);
            return self.told("snapshots_are_there", &text);
        }
        let text = format!("a look into snapshot {}, number {}", taken.name, taken.id);
        self.world.trace(|| text.clone());
        life.client.history.note(&[], text);
        taken.shows.inside = taken.id;
        match taken.seen {
            true => life.client.compare_all(&life.machine, &mut taken.shows)?,
            false => life.client.recover(&life.machine, &mut taken.shows)?,
        }
        taken.seen = true;
        let inside: Vec<(Ino, Kind)> = taken
            .shows
            .numbers
            .iter()
            .filter_map(|(id, (ino, _))| Some((*ino, taken.shows.now.nodes.get(id)?.kind)))
            .collect();
        let (ino, kind) = *self.snapshots_rng.pick(&inside);
        let what = self.snapshots_rng.range(0..6);
        let (volume, ino) = (Rc::clone(&life.volume), in_snapshot(ino, taken.id));
        let later = life.machine.begin(async move { change(&*volume, ino, kind, what).await });
        match wait(&life.machine, "a change of a snapshot", &later)? {
            Err(Errno::ReadOnly) => Ok(()),
            other => {
                let text = format!("a change of {kind:?} {ino:#x} in a snapshot gave {other:?}");
                self.told("snapshots_do_not_change", &text)
            }
        }
    }

    /// At the end of some runs all are removed, and nothing is left of them.
    pub(super) fn end_snapshots(&mut self) -> Result<(), Over> {
        if self.plan.snapshots.is_none() {
            return Ok(());
        }
        self.wait_for_snapshot_calls()?;
        self.look_into_snapshots(true)?;
        if self.snapshots_rng.percent(40) {
            return Ok(());
        }
        while !self.snapshots.taken.is_empty() {
            self.begin_to_remove(0)?;
            self.wait_for_snapshot_calls()?;
        }
        for _ in 0..STEPS {
            let life = self.life()?;
            let volume = Rc::clone(&life.volume);
            let later = life.machine.begin(async move { volume.sync_all().await });
            let synced = wait(&life.machine, "a sync", &later)?;
            let life = self.life()?;
            let pairs = life.metadata();
            let left = pairs.keys().filter(|key| matches!(key.first(), Some(b'N' | b'Z'))).count();
            if left == 0 || synced.is_err() {
                return Ok(());
            }
            for _ in 0..20 {
                life.machine.step();
            }
        }
        self.told("what_snapshots_had_is_freed", "something is left of removed snapshots")
    }

    /// Snapshots have something of what files have.
    pub(super) fn has_snapshots(&self) -> bool {
        let pairs = self.metadata.pairs();
        pairs.keys().any(|key| matches!(key.first(), Some(b'N' | b'Z')))
    }
}

/// The number of a snapshot, found as people find it.
async fn find<F: FileSystem>(fs: &F, folder: Ino, name: &str) -> Result<Ino, Errno> {
    let list = fs.lookup(folder, b".snapshots").await?.attr.ino;
    let found = fs.lookup(list, name.as_bytes()).await.map(|entry| entry.attr.ino);
    fs.forget(list, 1);
    fs.forget(found?, 1);
    found
}

/// Tries to change a file in a snapshot.
async fn change<F: FileSystem>(fs: &F, ino: Ino, kind: Kind, what: u64) -> Result<(), Errno> {
    let caller = Caller::default();
    match (what, kind) {
        (0, _) => {
            let set = SetAttr { perm: Some(0o600), ..SetAttr::default() };
            fs.set_attr(caller, ino, set).await.map(drop)
        }
        (1, Kind::Directory) => {
            let node = NewNode { kind: Kind::File, perm: 0o600, umask: 0, rdev: 0, target: b"" };
            fs.make(caller, ino, b"new", node).await.map(drop)
        }
        (2, Kind::Directory) => fs.unlink(ino, b"n0").await,
        (3, Kind::Directory) => fs.rename(ino, b"n0", ino, b"n1", RenameFlags(0)).await,
        (1..4, Kind::File) => {
            let set = SetAttr { size: Some(what), ..SetAttr::default() };
            fs.set_attr(caller, ino, set).await.map(drop)
        }
        _ => fs.set_xattr(ino, b"user.new", b"", XattrMode::Any).await,
    }
}

//! The reference: what a POSIX file system holds after the requests so far, and what it may hold after a crash.
//!
//! Requests that are under way together do not touch the same things (`rules` says what each touches), so the order
//! in which they take effect makes no difference and there is one present. What a crash leaves of names and
//! attributes is a *cut*: everything that had ended by some moment, nothing that began later, and of what was under
//! way then, each request as a whole or not at all. The moment is not before the last request that made things
//! durable. What it leaves of the bytes is said by `file`.
//!
//! Does not know who asks, nor what of.

use super::call::{Call, What};
use super::cut::{Candidates, Cut, Record};
use super::expected::{Need, Plan};
use super::extents::Extents;
use super::file::{FileData, NEVER, Shown};
use super::meta::{Change, Id, Key, Meta, Moment, Node, ROOT, Span};
use super::project_limits::OfProjects;
use super::rules;
use super::seen::{Number, Observed};
use super::stamp::{self, VERSIONS, Version};
use super::{OpNr, Tick};
use braid_filesystem::{Attr, Errno, FileFlags, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A request under way.
#[derive(Clone, Debug)]
pub struct Begun {
    /// Its number.
    pub op: OpNr,
    /// When.
    pub tick: Tick,
    /// When, by the clock.
    pub at: Moment,
    /// What is to come of it.
    pub plan: Plan,
    /// If it makes things durable: names and attributes as of then.
    pub reach: Tick,
    /// Files whose attributes others changed meanwhile, or might have.
    pub disturbed: BTreeSet<Id>,
    /// Entries that others changed meanwhile, or might have.
    pub names: BTreeSet<(Id, Vec<u8>)>,
    /// Those of them that were not there for a while, or might not have been.
    pub vanished: BTreeSet<(Id, Vec<u8>)>,
}

/// What was written when, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// To which file.
    pub id: Id,
    /// By which request.
    pub op: OpNr,
}

/// See the module's documentation.
pub struct Model {
    /// The seed that contents depend on.
    pub seed: u64,
    /// The present.
    pub now: Meta,
    pub(super) base: Meta,
    pub(super) log: Vec<Record>,
    /// By file.
    pub data: BTreeMap<Id, FileData>,
    /// Requests under way.
    pub begun: BTreeMap<OpNr, Begun>,
    /// What the file system calls a file.
    pub numbers: BTreeMap<Id, Number>,
    ids: BTreeMap<Number, Id>,
    next_id: Id,
    next_op: OpNr,
    pub(super) tick: Tick,
    durable: Tick,
    /// By file: when the last change of its attributes ended, and of its size.
    changed: BTreeMap<Id, Tick>,
    sized: BTreeMap<Id, Tick>,
    /// Who wrote each version.
    pub writers: Vec<Writer>,
    /// What projects may have.
    pub limits: OfProjects,
    /// Bricks fail: who writes where something is lost makes room first.
    pub bricks_fail: bool,
    /// The snapshot that it is of; 0: the volume.
    pub inside: u32,
    /// Calls of `make_durable` for when the history is not needed any more (`pin`).
    pinned: Option<Vec<(Tick, Tick, Option<Id>)>>,
}

impl Model {
    /// An empty file system whose root has these attributes.
    pub fn new(seed: u64, generation: u64, root: &Attr) -> Model {
        let zero = Span::at(0);
        let mut node = Node {
            kind: Kind::Directory,
            rdev: root.rdev,
            target: Vec::new(),
            perm: root.perm,
            uid: root.uid,
            gid: root.gid,
            size: 0,
            size_most: 0,
            nlink: root.nlink,
            atime: zero,
            mtime: zero,
            ctime: zero,
            crtime: zero,
            parent: ROOT,
            unnamed: false,
            flags: FileFlags::default(),
            subvolume: ROOT,
        };
        node.seen(root);
        let meta = Meta { nodes: BTreeMap::from([(ROOT, node)]), ..Meta::default() };
        let number = (root.ino, generation);
        Model {
            seed,
            now: meta.clone(),
            base: meta,
            log: Vec::new(),
            data: BTreeMap::new(),
            begun: BTreeMap::new(),
            numbers: BTreeMap::from([(ROOT, number)]),
            ids: BTreeMap::from([(number, ROOT)]),
            next_id: ROOT + 1,
            next_op: 1,
            tick: 1,
            durable: 0,
            changed: BTreeMap::new(),
            sized: BTreeMap::new(),
            writers: vec![Writer { id: ROOT, op: 0 }],
            limits: OfProjects::new(),
            bricks_fail: false,
            inside: 0,
            pinned: None,
        }
    }

    fn tick(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// The version of the next write, while there are any left.
    pub fn next_version(&self) -> Option<Version> {
        Version::try_from(self.writers.len()).ok().filter(|version| *version < VERSIONS)
    }

    /// The file that the file system calls so.
    pub fn id_of(&self, number: Number) -> Option<Id> {
        self.ids.get(&number).copied()
    }

    /// What is to come of `call`; `None` when it would get in the way of what is under way.
    pub fn plan(&self, call: &Call) -> Option<Plan> {
        let plan = rules::plan(&self.now, call, self.next_id);
        let free = |need: &Need| {
            let mut needs = self.begun.values().flat_map(|begun| &begun.plan.needs);
            needs.all(|other| !need.excludes(other))
        };
        plan.needs.iter().all(free).then_some(plan)
    }

    /// A request begins.
    pub fn begin(&mut self, call: &Call, plan: Plan, at: Moment) -> OpNr {
        let (op, tick) = (self.next_op, self.tick());
        self.next_op += 1;
        self.next_id += Id::from(plan.makes.is_some());
        if let What::Write(_, _, version) = call.what
            && version as usize == self.writers.len()
        {
            self.writers.push(Writer { id: call.on, op });
        }
        for bytes in &plan.bytes {
            let file = self.data.entry(bytes.id).or_default();
            if self.bricks_fail && !bytes.firm {
                file.may_forget(op, bytes.range.clone());
            }
            file.begin(op, bytes.range.clone(), bytes.version, bytes.firm);
        }
        // The file as it is now must be there after a crash, and so all that came before its last change.
        let last = |changes: &BTreeMap<Id, Tick>| changes.get(&call.on).map_or(0, |tick| tick + 1);
        let reach = match call.what {
            What::Fsync(true) => last(&self.sized),
            What::Fsync(false) => last(&self.changed),
            _ => tick,
        };
        let (disturbed, names, vanished) = Default::default();
        let mut begun = Begun { op, tick, at, plan, reach, disturbed, names, vanished };
        for other in self.begun.values_mut() {
            disturb(other, &begun.plan.changes, &self.now);
            disturb(&mut begun, &other.plan.changes, &self.now);
        }
        if !begun.plan.changes.is_empty() {
            let (changes, during) = (begun.plan.changes.clone(), Span::at(at));
            self.log.push(Record { op, begun: tick, ended: NEVER, changes, during });
        }
        self.begun.insert(op, begun);
        op
    }

    /// A request has ended as it should, and `at` that moment.
    pub fn end(&mut self, op: OpNr, at: Moment) -> Option<Begun> {
        let begun = self.begun.remove(&op)?;
        let (tick, during) = (self.tick(), Span { from: begun.at, to: at });
        for change in &begun.plan.changes {
            let size = |meta: &Meta, id| meta.nodes.get(&id).map(|node| node.size);
            let before = change.sizes().map(|id| (id, size(&self.now, id)));
            self.now.apply(change, during, true);
            if let Some((id, before)) = before
                && size(&self.now, id) != before
            {
                self.sized.insert(id, tick);
            }
            if let (Key::Node(id), false) = (change.key(), change.is_perhaps()) {
                self.changed.insert(id, tick);
            }
        }
        for record in self.log.iter_mut().filter(|record| record.op == op) {
            (record.ended, record.during) = (tick, during);
        }
        for bytes in &begun.plan.bytes {
            self.data.entry(bytes.id).or_default().end(op, tick);
        }
        Some(begun)
    }

    /// A request was refused and has changed nothing.
    pub fn refuse(&mut self, op: OpNr) -> Option<Begun> {
        let begun = self.begun.remove(&op)?;
        self.log.retain(|record| record.op != op);
        for bytes in &begun.plan.bytes {
            self.data.entry(bytes.id).or_default().refuse(op);
        }
        Some(begun)
    }

    /// A request failed on its way: its bytes may be there in part. Its needs stay until [`settled`](Model::settled).
    pub fn fail(&mut self, op: OpNr) {
        let tick = self.tick();
        let Some(begun) = self.begun.get(&op) else { return };
        for bytes in &begun.plan.bytes {
            let size = self.now.nodes.get(&bytes.id).map_or(u64::MAX, |node| node.size);
            self.data.entry(bytes.id).or_default().fail(op, tick, size);
        }
    }

    /// The name of the next file that is made.
    pub fn next_id(&self) -> Id {
        self.next_id
    }

    /// The bytes at `at` in words, for people.
    pub fn describe(&self, offset: u64, bytes: &[u8], at: u64) -> String {
        let index = (at.saturating_sub(offset)) as usize;
        if bytes.get(index).is_none() {
            return "nothing".to_string();
        }
        let around = &bytes[index..(index + 8).min(bytes.len())];
        if around.iter().all(|byte| *byte == 0) {
            return "zeroes".to_string();
        }
        match stamp::recognise(self.seed, offset, bytes, index) {
            Some((version, place)) => match self.writers.get(version as usize) {
                Some(writer) => {
                    format!("write #{version} of f{} for its byte {place}", writer.id)
                }
                None => "bytes that were never written".to_string(),
            },
            None => "part of something".to_string(),
        }
    }

    /// What a failed write left was read: the size, and `bytes` of its range as far as the file goes, but for what
    /// could not be read, `unread`. Gives the first byte that cannot be.
    pub fn settled(
        &mut self,
        op: OpNr,
        at: Moment,
        id: Id,
        size: u64,
        (bytes, unread): (&[u8], &[Range<u64>]),
    ) -> Option<u64> {
        let begun = self.begun.remove(&op)?;
        let tick = self.tick();
        let during = Span { from: begun.at, to: at };
        let mut wrong = None;
        let first = begun.plan.bytes.first().map_or(0, |bytes| bytes.range.start);
        for change in &begun.plan.bytes {
            // Nothing was read behind the end of the file.
            let at = |end: u64| ((end - first) as usize).min(bytes.len());
            let file = self.data.entry(id).or_default();
            let left = (&bytes[at(change.range.start)..at(change.range.end)], unread);
            let found = file.settle(self.seed, op, tick, change.range.clone(), left);
            wrong = wrong.or(found);
        }
        let changes = vec![
            Change::Grow(id, size),
            Change::Touch(id, super::meta::Touch { mtime: true, ctime: true, perhaps: true }),
        ];
        let size_of = |meta: &Meta| meta.nodes.get(&id).map(|node| node.size);
        let before = size_of(&self.now);
        for change in &changes {
            self.now.apply(change, during, true);
        }
        if size_of(&self.now) != before {
            self.sized.insert(id, tick);
        }
        for record in self.log.iter_mut().filter(|record| record.op == op) {
            record.changes = changes.clone();
            (record.ended, record.during) = (tick, during);
        }
        wrong
    }

    /// The file system calls the file so.
    pub fn name_it(&mut self, id: Id, number: Number) {
        self.numbers.insert(id, number);
        self.ids.insert(number, id);
    }

    /// What was seen of a file while nobody changed it.
    pub fn seen(&mut self, id: Id, attr: &Attr) {
        if let Some(node) = self.now.nodes.get_mut(&id) {
            node.seen(attr);
        }
    }

    /// Something that makes things durable and began at `since` has ended: all data, or that of one file, and names
    /// and attributes as of `reach`.
    pub fn make_durable(&mut self, since: Tick, reach: Tick, of: Option<Id>) {
        if let Some(pinned) = &mut self.pinned {
            return pinned.push((since, reach, of));
        }
        let keep = self.begun.values().map(|begun| begun.tick).min().unwrap_or(NEVER);
        match of {
            Some(id) => {
                if let Some(data) = self.data.get_mut(&id) {
                    data.make_durable(since, keep);
                }
            }
            None => self.data.values_mut().for_each(|data| data.make_durable(since, keep)),
        }
        self.durable = self.durable.max(reach);
        let (durable, base) = (self.durable, &mut self.base);
        let mut ended: Vec<&Record> =
            self.log.iter().filter(|record| record.ended < durable).collect();
        ended.sort_by_key(|record| record.ended);
        for record in ended {
            for change in &record.changes {
                base.apply(change, record.during, true);
            }
        }
        self.log.retain(|record| record.ended >= durable);
    }

    /// Everything that has ended is durable.
    pub fn make_all_durable(&mut self) {
        let tick = self.tick();
        self.make_durable(tick, tick, None);
    }

    /// The history from now on is kept until [`unpin`](Model::unpin). Gives this moment.
    pub fn pin(&mut self) -> Tick {
        self.pinned.get_or_insert_default();
        self.tick()
    }

    /// See [`pin`](Model::pin).
    pub fn unpin(&mut self) {
        for (since, reach, of) in self.pinned.take().unwrap_or_default() {
            self.make_durable(since, reach, of);
        }
    }

    /// The model of a snapshot of `folder` that was taken at some moment from `since` on until now, of a history that was
    /// kept.
    pub fn frozen(&self, folder: Id, since: Tick) -> Model {
        let (mut base, mut log) = (self.base.clone(), Vec::new());
        let mut ended = self.log.clone();
        ended.sort_by_key(|record| record.ended);
        for record in ended {
            match record.ended < since {
                true => {
                    record.changes.iter().for_each(|change| base.apply(change, record.during, true))
                }
                false => log.push(record),
            }
        }
        base.root = folder;
        let mut data = self.data.clone();
        let (mut numbers, mut ids) = (self.numbers.clone(), self.ids.clone());
        if folder != ROOT {
            let inside = base.below(folder);
            base.nodes.retain(|id, _| inside.contains(id));
            base.names.retain(|(dir, _), _| inside.contains(dir));
            base.xattrs.retain(|(id, _), _| inside.contains(id));
            data.retain(|id, _| inside.contains(id));
            numbers.retain(|id, _| inside.contains(id));
            ids.retain(|_, id| inside.contains(id));
        }
        data.values_mut().for_each(|file| file.make_durable(since, NEVER));
        let now = base.clone();
        let writers = self.writers.clone();
        let limits = OfProjects::new();
        let (begun, changed, sized, pinned) = Default::default();
        let (seed, next_id, next_op, tick, durable) =
            (self.seed, self.next_id, self.next_op, self.tick, 0);
        let (bricks_fail, inside) = (false, 0);
        Model {
            seed,
            now,
            base,
            log,
            data,
            begun,
            numbers,
            ids,
            next_id,
            next_op,
            tick,
            durable,
            changed,
            sized,
            writers,
            limits,
            bricks_fail,
            inside,
            pinned,
        }
    }

    /// A snapshot of the folder was taken, and is there: so its files belong to it.
    pub fn has_snapshot(&mut self, folder: Id) {
        let inside = self.now.below(folder);
        for meta in [&mut self.now, &mut self.base] {
            let home = meta.nodes.get(&folder).map(|node| node.subvolume);
            let own = meta
                .nodes
                .iter_mut()
                .filter(|(id, node)| inside.contains(id) && Some(node.subvolume) == home);
            own.for_each(|(_, node)| node.subvolume = folder);
            *meta.snapshots.entry(folder).or_default() += 1;
        }
    }

    /// A snapshot of the folder is going.
    pub fn loses_snapshot(&mut self, folder: Id) {
        for meta in [&mut self.now, &mut self.base] {
            let count = meta.snapshots.entry(folder).or_default();
            *count = count.saturating_sub(1);
        }
    }

    /// Finds the cut that `observed` is and goes on from there, with the bytes still to be looked at by
    /// [`recover`](Model::recover). Gives the first moment whose cut it is, and who of those under way are surely in it.
    ///
    /// # Errors
    /// When it is none: what is wrong with the nearest one.
    pub fn crash(
        &mut self,
        observed: &Observed,
        at: Moment,
    ) -> Result<(Tick, Vec<OpNr>), (String, Vec<Id>)> {
        self.unpin();
        self.begun.clear();
        let candidates = Candidates {
            log: &self.log,
            base: &self.base,
            tick: self.tick,
            numbers: &self.numbers,
            ids: &self.ids,
            observed,
            at,
        };
        let Cut { until, among, sure, numbers } = candidates.find()?;
        let mut meta = self.base.clone();
        let mut log = std::mem::take(&mut self.log);
        log.sort_by_key(|record| record.ended);
        for record in &log {
            if record.ended < until || among.contains(&record.op) {
                let during = Span { from: record.during.from, to: record.during.to.max(at) };
                let whole = record.ended < until;
                let during = if whole { record.during } else { during };
                record.changes.iter().for_each(|change| meta.apply(change, during, whole));
            }
        }
        for (number, id) in &numbers {
            self.name_it(*id, *number);
        }
        let named = meta.named();
        meta.nodes.retain(|id, _| named.contains(id));
        meta.xattrs.retain(|(id, _), _| named.contains(id));
        for (number, attr) in &observed.attrs {
            if let Some(node) = self.id_of(*number).and_then(|id| meta.nodes.get_mut(&id)) {
                node.seen(attr);
            }
        }
        self.data.retain(|id, _| named.contains(id));
        self.numbers.retain(|id, _| named.contains(id));
        self.ids.retain(|_, id| named.contains(id));
        self.sized.clear();
        self.changed.clear();
        self.base = meta.clone();
        self.now = meta;
        self.durable = 0;
        Ok((until, sure))
    }

    /// Compares bytes of a file that a crash left, from `offset` on. Gives the first that cannot be.
    pub fn recover(
        &mut self,
        cut: &(Tick, Vec<OpNr>),
        id: Id,
        offset: u64,
        bytes: &[u8],
        found: &mut Extents,
    ) -> Option<u64> {
        let seed = self.seed;
        let shown = Shown { until: cut.0, among: &cut.1 };
        self.data.entry(id).or_default().recover(seed, &shown, offset, bytes, found)
    }

    /// The file is what was found after a crash, but for what could not be read, `unread`.
    pub fn restart(
        &mut self,
        cut: &(Tick, Vec<OpNr>),
        id: Id,
        found: Extents,
        unread: &[Range<u64>],
    ) {
        let shown = Shown { until: cut.0, among: &cut.1 };
        self.data.entry(id).or_default().restart(&shown, found, unread);
    }

    /// The right errors of a plan, for messages.
    pub fn names_of(errors: &[Errno]) -> String {
        let names: Vec<String> = errors.iter().map(|error| format!("{error:?}")).collect();
        names.join(" or ")
    }
}

fn disturb(begun: &mut Begun, changes: &[Change], now: &Meta) {
    for change in changes {
        if let Change::Name(dir, name, id) = change {
            let key = (*dir, name.clone());
            if id.is_none() || !now.names.contains_key(&key) {
                begun.vanished.insert(key);
            }
        }
        match change.key() {
            Key::Node(id) => {
                begun.disturbed.insert(id);
            }
            Key::Name(dir, name) => {
                begun.names.insert((dir, name));
            }
            Key::Xattr(..) => {}
        }
    }
}

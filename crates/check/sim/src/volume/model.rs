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
use super::extents::Extents;
use super::file::{FileData, NEVER, Shown};
use super::meta::{Change, Id, Key, Meta, Moment, Node, ROOT, Span};
use super::rules::{self, Need, Plan};
use super::stamp::{VERSIONS, Version};
use super::{OpNr, Tick};
use braid_filesystem::{Attr, Errno, Ino, Kind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A request that changes names or attributes, since the durable point.
#[derive(Clone, Debug)]
struct Record {
    op: OpNr,
    begun: Tick,
    ended: Tick,
    changes: Vec<Change>,
    during: Span,
}

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
}

/// Number and generation of a file, as the file system names it.
pub type Number = (Ino, u64);

/// What was written when, for messages.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// To which file.
    pub id: Id,
    /// By which request.
    pub op: OpNr,
}

/// What stands in a volume after a crash.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// By directory's number and name.
    pub names: Vec<(Number, Vec<u8>, Number)>,
    /// By number.
    pub attrs: BTreeMap<Number, Attr>,
    /// What symbolic links point to.
    pub targets: BTreeMap<Number, Vec<u8>>,
    /// Extended attributes.
    pub xattrs: BTreeMap<(Number, Vec<u8>), Vec<u8>>,
}

/// See the module's documentation.
pub struct Model {
    /// The seed that contents depend on.
    pub seed: u64,
    /// The present.
    pub now: Meta,
    base: Meta,
    log: Vec<Record>,
    /// By file.
    pub data: BTreeMap<Id, FileData>,
    /// Requests under way.
    pub begun: BTreeMap<OpNr, Begun>,
    /// What the file system calls a file.
    pub numbers: BTreeMap<Id, Number>,
    ids: BTreeMap<Number, Id>,
    next_id: Id,
    next_op: OpNr,
    tick: Tick,
    durable: Tick,
    /// By file: when the last change of its attributes ended, and of its size.
    changed: BTreeMap<Id, Tick>,
    sized: BTreeMap<Id, Tick>,
    /// Who wrote each version.
    pub writers: Vec<Writer>,
    /// Bricks fail: who writes where something is lost makes room first.
    pub bricks_fail: bool,
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
            bricks_fail: false,
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
        let (disturbed, names) = (BTreeSet::new(), BTreeSet::new());
        let mut begun = Begun { op, tick, at, plan, reach, disturbed, names };
        for other in self.begun.values_mut() {
            disturb(other, &begun.plan.changes);
            disturb(&mut begun, &other.plan.changes);
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
        for change in &begun.plan.bytes {
            let len = (change.range.end - change.range.start).min(bytes.len() as u64) as usize;
            let file = self.data.entry(id).or_default();
            let left = (&bytes[..len], unread);
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
        self.begun.clear();
        let candidates = Candidates { model: self, observed, at };
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

fn disturb(begun: &mut Begun, changes: &[Change]) {
    for change in changes {
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

/// The search for the cut that was left.
struct Candidates<'a> {
    model: &'a Model,
    observed: &'a Observed,
    at: Moment,
}

/// A cut that fits.
struct Cut {
    /// What ended before is in it.
    until: Tick,
    /// Who of those under way then.
    among: Vec<OpNr>,
    /// Those of them that are in all cuts that fit: others may have left what shows.
    sure: Vec<OpNr>,
    /// Files whose numbers were not known.
    numbers: BTreeMap<Number, Id>,
}

/// What is not as it should be, and whose.
type Wrong = Vec<(String, Id)>;

/// The same as the model's table, from what was observed.
struct Seen<'a> {
    names: BTreeMap<(Id, Vec<u8>), Id>,
    attrs: BTreeMap<Id, &'a Attr>,
    targets: BTreeMap<Id, &'a [u8]>,
    xattrs: BTreeMap<(Id, Vec<u8>), &'a [u8]>,
    new: BTreeMap<Number, Id>,
}

/// More requests than that are never under way together.
const TOGETHER: usize = 16;

impl<'a> Candidates<'a> {
    fn find(&self) -> Result<Cut, (String, Vec<Id>)> {
        let seen = self.translate()?;
        let mut log: Vec<&Record> = self.model.log.iter().collect();
        log.sort_by_key(|record| record.ended);
        let mut meta = self.model.base.clone();
        let touched: BTreeSet<Key> =
            log.iter().flat_map(|record| record.changes.iter().map(Change::key)).collect();
        self.rest(&meta, &seen, &touched)?;
        // Cuts just before each end, and the last.
        let mut best: Option<Wrong> = None;
        let mut found: Option<(Tick, Vec<OpNr>, Vec<OpNr>)> = None;
        for at in 0..=log.len() {
            let until = log.get(at).map_or(self.model.tick + 1, |record| record.ended);
            let until = until.min(self.model.tick + 1);
            let open: Vec<&Record> =
                log[at..].iter().filter(|record| record.begun < until).copied().collect();
            match self.fits(&meta, &seen, &touched, &open) {
                Ok(choices) => {
                    let ended = |op: &OpNr| {
                        log.iter().any(|record| record.op == *op && record.ended < until)
                    };
                    let first = choices.first().cloned().unwrap_or_default();
                    let (_, _, sure) = found.get_or_insert_with(|| (until, first.clone(), first));
                    sure.retain(|op| ended(op) || choices.iter().all(|among| among.contains(op)));
                    if sure.is_empty() {
                        break;
                    }
                }
                Err(wrong) => {
                    if best.as_ref().is_none_or(|best| wrong.len() <= best.len()) {
                        best = Some(wrong);
                    }
                }
            }
            let Some(record) = log.get(at).filter(|record| record.ended != NEVER) else { break };
            record.changes.iter().for_each(|change| meta.apply(change, record.during, true));
        }
        if let Some((until, among, sure)) = found {
            return Ok(Cut { until, among, sure, numbers: seen.new });
        }
        // The cut that comes nearest is told.
        let best = best.unwrap_or_default();
        let told: Vec<&str> = best.iter().take(4).map(|(why, _)| why.as_str()).collect();
        let text = format!(
            "no moment fits; at the nearest, {} things do not: {}",
            best.len(),
            told.join("; ")
        );
        Err((text, best.iter().map(|(_, id)| *id).collect()))
    }

    /// Observed numbers become ids.
    fn translate(&self) -> Result<Seen<'a>, (String, Vec<Id>)> {
        let (model, observed) = (self.model, self.observed);
        let mut made = BTreeMap::new();
        for change in model.log.iter().flat_map(|record| &record.changes) {
            if let Change::Name(dir, name, Some(id)) = change
                && !model.numbers.contains_key(id)
            {
                made.insert((*dir, name.as_slice()), *id);
            }
        }
        let mut new = BTreeMap::new();
        let mut names = BTreeMap::new();
        // Directories come before what is in them.
        for (dir, name, number) in &observed.names {
            let known = |number: &Number| model.id_of(*number).or_else(|| new.get(number).copied());
            let text = String::from_utf8_lossy(name);
            let Some(dir) = known(dir) else {
                return Err((format!("{text} is in a directory that was never made"), Vec::new()));
            };
            let id = match known(number) {
                Some(id) => id,
                None => match made.get(&(dir, name.as_slice())) {
                    Some(id) => {
                        new.insert(*number, *id);
                        *id
                    }
                    None => {
                        let text = format!("{text} in f{dir} is a file that was never made there");
                        return Err((text, vec![dir]));
                    }
                },
            };
            names.insert((dir, name.clone()), id);
        }
        let known = |number: &Number| model.id_of(*number).or_else(|| new.get(number).copied());
        let attrs = observed.attrs.iter().filter_map(|(of, attr)| Some((known(of)?, attr)));
        let targets =
            observed.targets.iter().filter_map(|(of, target)| Some((known(of)?, &target[..])));
        let xattrs = observed
            .xattrs
            .iter()
            .filter_map(|((of, name), value)| Some(((known(of)?, name.clone()), &value[..])));
        let (attrs, targets, xattrs) = (attrs.collect(), targets.collect(), xattrs.collect());
        Ok(Seen { names, attrs, targets, xattrs, new })
    }

    /// What nobody changed since the durable point is as it was.
    fn rest(
        &self,
        base: &Meta,
        seen: &Seen<'_>,
        touched: &BTreeSet<Key>,
    ) -> Result<(), (String, Vec<Id>)> {
        let names = base.names.keys().chain(seen.names.keys());
        let names = names.map(|(dir, name)| Key::Name(*dir, name.clone()));
        let xattrs = base.xattrs.keys().chain(seen.xattrs.keys());
        let xattrs = xattrs.map(|(id, name)| Key::Xattr(*id, name.clone()));
        let nodes = seen.attrs.keys().map(|id| Key::Node(*id));
        for key in names.chain(xattrs).chain(nodes).filter(|key| !touched.contains(key)) {
            compare(base, seen, &key).map_err(|(why, id)| (why, vec![id]))?;
        }
        Ok(())
    }

    /// Who of `open` may be in, so that everything is as observed when all that ended is `meta`: all that fits, or only
    /// nobody.
    fn fits(
        &self,
        meta: &Meta,
        seen: &Seen<'_>,
        touched: &BTreeSet<Key>,
        open: &[&Record],
    ) -> Result<Vec<Vec<OpNr>>, Wrong> {
        let keys =
            |record: &Record| record.changes.iter().map(Change::key).collect::<BTreeSet<Key>>();
        let unsure: BTreeSet<Key> = open.iter().flat_map(|record| keys(record)).collect();
        let sure = touched.iter().filter(|key| !unsure.contains(*key));
        let wrong: Wrong = sure.filter_map(|key| compare(meta, seen, key).err()).collect();
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let open = &open[..open.len().min(TOGETHER)];
        let (mut best, mut fitting): (Option<Wrong>, _) = (None, Vec::new());
        // The fewest first: where both would fit, less is asked of the bytes.
        for choice in 0..1_u32 << open.len() {
            let in_it = |at: usize| choice & 1 << at != 0;
            let chosen = open.iter().enumerate().filter(|(at, _)| in_it(*at));
            let mut part = part_of(meta, &unsure);
            let mut among = Vec::new();
            for (_, record) in chosen {
                let during = Span { from: record.during.from, to: self.at };
                record.changes.iter().for_each(|change| part.apply(change, during, false));
                among.push(record.op);
            }
            let wrong = unsure.iter().filter_map(|key| compare(&part, seen, key).err());
            let wrong: Wrong = wrong.collect();
            if wrong.is_empty() {
                fitting.push(among);
                if choice == 0 {
                    break;
                }
                continue;
            }
            if best.as_ref().is_none_or(|best| wrong.len() < best.len()) {
                best = Some(wrong);
            }
        }
        if fitting.is_empty() { Err(best.unwrap_or_default()) } else { Ok(fitting) }
    }
}

/// The rows of `meta` that `keys` name.
fn part_of(meta: &Meta, keys: &BTreeSet<Key>) -> Meta {
    let mut part = Meta::default();
    for key in keys {
        match key {
            Key::Node(id) => {
                part.nodes.extend(meta.nodes.get(id).map(|node| (*id, node.clone())));
            }
            Key::Name(dir, name) => {
                let key = (*dir, name.clone());
                part.names.extend(meta.names.get(&key).map(|id| (key, *id)));
            }
            Key::Xattr(id, name) => {
                let key = (*id, name.clone());
                part.xattrs.extend(meta.xattrs.get(&key).map(|value| (key, value.clone())));
            }
        }
    }
    part
}

/// Compares one row. A file that nobody can get at has no attributes to compare.
fn compare(meta: &Meta, seen: &Seen<'_>, key: &Key) -> Result<(), (String, Id)> {
    match key {
        Key::Name(dir, name) => {
            let key = (*dir, name.clone());
            let (should, is) = (meta.names.get(&key), seen.names.get(&key));
            let text = |id: Option<&Id>| id.map_or("nothing".to_string(), |id| format!("f{id}"));
            if should != is {
                let name = String::from_utf8_lossy(&name[..name.len().min(20)]).into_owned();
                let (should, is) = (text(should), text(is));
                return Err((format!("{name} in f{dir} is {is}, should be {should}"), *dir));
            }
        }
        Key::Xattr(id, name) => {
            let key = (*id, name.clone());
            let (should, is) = (meta.xattrs.get(&key), seen.xattrs.get(&key));
            let there = seen.attrs.contains_key(id);
            if there && should.map(Vec::as_slice) != is.copied() {
                let name = String::from_utf8_lossy(&name[..name.len().min(20)]).into_owned();
                return Err((format!("attribute {name} of f{id} is not what was set"), *id));
            }
        }
        Key::Node(id) => {
            let Some(attr) = seen.attrs.get(id) else { return Ok(()) };
            let Some(node) = meta.nodes.get(id) else {
                return Err((format!("f{id} is there, should not be"), *id));
            };
            if let Some(why) = node.differs(attr) {
                return Err((format!("f{id}: {why}"), *id));
            }
            if node.kind == Kind::Symlink && seen.targets.get(id) != Some(&node.target.as_slice()) {
                return Err((format!("the symbolic link f{id} points elsewhere"), *id));
            }
        }
    }
    Ok(())
}

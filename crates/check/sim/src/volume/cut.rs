//! The search for the moment that a crash left: of names and attributes, everything that had ended by then, and of what
//! was under way each request as a whole or not at all.

use super::file::NEVER;
use super::meta::{Change, Id, Key, Meta, Moment, Span};
use super::seen::{Number, Observed};
use super::{OpNr, Tick};
use braid_filesystem::{Attr, FileFlags, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// A request that changes names or attributes, since the durable point.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) op: OpNr,
    pub(super) begun: Tick,
    pub(super) ended: Tick,
    pub(super) changes: Vec<Change>,
    pub(super) during: Span,
}

/// The search for the cut that was left.
pub(super) struct Candidates<'a> {
    /// Changes since the durable point, which is `base`.
    pub(super) log: &'a [Record],
    pub(super) base: &'a Meta,
    /// The last tick.
    pub(super) tick: Tick,
    /// What the file system calls files, and the other way round.
    pub(super) numbers: &'a BTreeMap<Id, Number>,
    pub(super) ids: &'a BTreeMap<Number, Id>,
    pub(super) observed: &'a Observed,
    pub(super) at: Moment,
}

/// A cut that fits.
pub(super) struct Cut {
    /// What ended before is in it.
    pub(super) until: Tick,
    /// Who of those under way then.
    pub(super) among: Vec<OpNr>,
    /// Those of them that are in all cuts that fit: others may have left what shows.
    pub(super) sure: Vec<OpNr>,
    /// Files whose numbers were not known.
    pub(super) numbers: BTreeMap<Number, Id>,
}

/// What is not as it should be, and whose.
type Wrong = Vec<(String, Id)>;

/// The same as the model's table, from what was observed.
struct Seen<'a> {
    names: BTreeMap<(Id, Vec<u8>), Id>,
    attrs: BTreeMap<Id, &'a Attr>,
    targets: BTreeMap<Id, &'a [u8]>,
    flags: BTreeMap<Id, FileFlags>,
    xattrs: BTreeMap<(Id, Vec<u8>), &'a [u8]>,
    new: BTreeMap<Number, Id>,
}

/// More requests than that are never under way together.
const TOGETHER: usize = 16;

impl<'a> Candidates<'a> {
    /// The cut that fits, if there is one.
    pub(super) fn find(&self) -> Result<Cut, (String, Vec<Id>)> {
        let seen = self.translate()?;
        let mut log: Vec<&Record> = self.log.iter().collect();
        log.sort_by_key(|record| record.ended);
        let mut meta = self.base.clone();
        let touched: BTreeSet<Key> =
            log.iter().flat_map(|record| record.changes.iter().map(Change::key)).collect();
        self.rest(&meta, &seen, &touched)?;
        // Cuts just before each end, and the last.
        let mut best: Option<Wrong> = None;
        let mut found: Option<(Tick, Vec<OpNr>, Vec<OpNr>)> = None;
        for at in 0..=log.len() {
            let until = log.get(at).map_or(self.tick + 1, |record| record.ended);
            let until = until.min(self.tick + 1);
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
        let observed = self.observed;
        let mut made = BTreeMap::new();
        for change in self.log.iter().flat_map(|record| &record.changes) {
            if let Change::Name(dir, name, Some(id)) = change
                && !self.numbers.contains_key(id)
            {
                made.insert((*dir, name.as_slice()), *id);
            }
        }
        let mut new = BTreeMap::new();
        let mut names = BTreeMap::new();
        // Directories come before what is in them.
        for (dir, name, number) in &observed.names {
            let known = |number: &Number| {
                self.ids.get(number).copied().or_else(|| new.get(number).copied())
            };
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
        let known =
            |number: &Number| self.ids.get(number).copied().or_else(|| new.get(number).copied());
        let attrs = observed.attrs.iter().filter_map(|(of, attr)| Some((known(of)?, attr)));
        let targets =
            observed.targets.iter().filter_map(|(of, target)| Some((known(of)?, &target[..])));
        let xattrs = observed
            .xattrs
            .iter()
            .filter_map(|((of, name), value)| Some(((known(of)?, name.clone()), &value[..])));
        let flags = observed.flags.iter().filter_map(|(of, flags)| Some((known(of)?, *flags)));
        let (attrs, targets, xattrs) = (attrs.collect(), targets.collect(), xattrs.collect());
        Ok(Seen { names, attrs, targets, flags: flags.collect(), xattrs, new })
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
            if let Some(flags) = seen.flags.get(id).filter(|flags| **flags != node.flags) {
                return Err((format!("f{id} has {flags:?}, should have {:?}", node.flags), *id));
            }
            if node.kind == Kind::Symlink && seen.targets.get(id) != Some(&node.target.as_slice()) {
                return Err((format!("the symbolic link f{id} points elsewhere"), *id));
            }
        }
    }
    Ok(())
}

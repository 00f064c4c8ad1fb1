//! Everything in a file system, or in a snapshot, is compared with the model: as it must be, or as a crash may have left it.

use super::client::Client;
use super::extents::Extents;
use super::file::without;
use super::meta::Id;
use super::model::Model;
use super::observe::walk;
use super::readable::{Readable, read_blocks};
use super::seen::Observed;
use super::{OpNr, Tick, stamp};
use crate::machine::Machine;
use crate::waiting::{Over, wait};
use braid_filesystem::{FileSystem, Kind, ROOT};
use braid_format::volume::BLOCK;
use braid_format::volume::snapshot::in_snapshot;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of one read.
const PIECE: u64 = 256 << 10;
/// Files up to this size are read as a whole; of larger ones, what is around the places that were written.
const WHOLE: u64 = 256 << 20;

impl<F: FileSystem + 'static> Client<F> {
    fn observe(&self, machine: &Machine, model: &Model) -> Result<Observed, Over> {
        let fs = Rc::clone(&self.fs);
        let inside = model.inside;
        let root =
            model.numbers.get(&model.now.root).map_or(ROOT, |(ino, _)| in_snapshot(*ino, inside));
        let (plus, with_flags) = (self.rng.percent(50), self.calls);
        let later = machine.begin(async move { walk(&*fs, root, plus, with_flags).await });
        match wait(machine, "a walk over all files", &later)? {
            Ok(observed) if inside == 0 => Ok(observed),
            Ok(observed) => {
                observed.names.iter().for_each(|(_, _, (ino, _))| self.fs.forget(*ino, 1));
                Ok(observed.outside())
            }
            Err((what, errno)) => {
                self.fail("everything_can_be_read", &format!("{what}: {errno:?}"), &[]);
                Err(Over)
            }
        }
    }

    /// What is there after a crash, or a clean stop, is taken for the present, if it may be.
    ///
    /// # Errors
    /// When the run has failed.
    pub fn recover(&mut self, machine: &Machine, model: &mut Model) -> Result<(), Over> {
        let observed = self.observe(machine, model)?;
        let cut = match model.crash(&observed, self.now()) {
            Ok(cut) => cut,
            Err((why, ids)) => {
                self.fail("names_are_of_one_moment", &why, &ids);
                return Err(Over);
            }
        };
        self.hold(model, &observed);
        let ids: Vec<Id> = model.now.nodes.keys().copied().collect();
        for id in ids {
            self.recover_file(machine, model, &cut, id)?;
        }
        if model.inside == 0 {
            self.history.note(&[], format!("RECOVERED to a moment before tick {}", cut.0));
        }
        Ok(())
    }

    /// The walk has looked all names up.
    fn hold(&mut self, model: &Model, observed: &Observed) {
        let names = observed.names.iter().filter(|_| model.inside == 0);
        for (_, _, number) in names {
            if let Some(id) = model.id_of(*number) {
                self.add_reference(id);
            }
        }
    }

    fn recover_file(
        &mut self,
        machine: &Machine,
        model: &mut Model,
        cut_at: &(Tick, Vec<OpNr>),
        id: Id,
    ) -> Result<(), Over> {
        let (mut found, mut unread) = (Extents::default(), Vec::new());
        for range in ranges(model, id) {
            let (bytes, not) = self.read_for(machine, model, id, &range)?;
            for part in without(range.clone(), &not) {
                let mut start = part.start;
                while start < part.end {
                    let bytes = cut(&bytes, range.start, &(start..part.end));
                    let wrong = model.recover(cut_at, id, start, bytes, &mut found);
                    let Some(at) = wrong else { break };
                    if !self.is_excused_as_old(model, id, at) {
                        let what = model.describe(start, bytes, at);
                        let (until, among) = cut_at;
                        let text = format!(
                            "f{id}: after a crash its byte {at} is {what}; names are of before tick {until}, with {among:?}"
                        );
                        self.fail("sectors_are_durable_or_newer", &text, &[id]);
                        return Err(Over);
                    }
                    start = ((at / BLOCK + 1) * BLOCK).min(part.end);
                    found.set((at / BLOCK * BLOCK).max(part.start)..start, stamp::UNKNOWN);
                }
            }
            unread.extend(not);
        }
        model.restart(cut_at, id, found, &unread);
        Ok(())
    }

    /// See [`may_be_old`](Client::may_be_old): byte `at` of a file.
    fn is_excused_as_old(&self, model: &Model, id: Id, at: u64) -> bool {
        let known = model.numbers.get(&id).filter(|_| model.inside == 0);
        let ranges = known.and_then(|(ino, _)| self.may_be_old.get(ino));
        ranges.into_iter().flatten().any(|(from, to)| (*from..*to).contains(&at))
    }

    /// Everything is as the model has it; nothing is under way.
    ///
    /// # Errors
    /// When it is not.
    pub fn compare_all(&mut self, machine: &Machine, model: &mut Model) -> Result<(), Over> {
        if model.inside == 0 {
            self.unread.clear();
        }
        let observed = self.observe(machine, model)?;
        self.hold(model, &observed);
        let names: Vec<_> = observed
            .names
            .iter()
            .map(|(dir, name, number)| ((model.id_of(*dir), name), model.id_of(*number)))
            .collect();
        let same = names.len() == model.now.names.len()
            && names.iter().all(|((dir, name), id)| {
                let known = dir.and_then(|dir| model.now.names.get(&(dir, name.to_vec())));
                known.copied() == *id && id.is_some()
            });
        if !same {
            self.fail("answers_are_right", "a walk over all files gives other names", &[]);
            return Err(Over);
        }
        for (number, attr) in &observed.attrs {
            let Some(id) = model.id_of(*number) else { continue };
            if let Some(why) = model.now.nodes.get(&id).and_then(|node| node.differs(attr)) {
                self.fail("attributes_are_right", &format!("f{id}: {why}"), &[id]);
                return Err(Over);
            }
            model.seen(id, attr);
        }
        for (number, flags) in &observed.flags {
            let Some(id) = model.id_of(*number) else { continue };
            if model.now.nodes.get(&id).is_some_and(|node| node.flags != *flags) {
                let text = format!("f{id} has {flags:?}, which was not set");
                self.fail("attributes_are_right", &text, &[id]);
                return Err(Over);
            }
        }
        for ((number, name), value) in &observed.xattrs {
            let Some(id) = model.id_of(*number) else { continue };
            if model.now.xattrs.get(&(id, name.clone())) != Some(value) {
                let name = String::from_utf8_lossy(name);
                let text = format!("attribute {name} of f{id} is not what was set");
                self.fail("attributes_are_right", &text, &[id]);
                return Err(Over);
            }
        }
        let ids: Vec<Id> = observed.attrs.keys().filter_map(|of| model.id_of(*of)).collect();
        for id in ids {
            for range in ranges(model, id) {
                let (bytes, not) = self.read_for(machine, model, id, &range)?;
                for part in without(range.clone(), &not) {
                    let bytes = cut(&bytes, range.start, &part);
                    let data = model.data.entry(id).or_default();
                    if let Some((at, should)) = data.check(model.seed, part.start, bytes) {
                        let what = model.describe(part.start, bytes, at);
                        let text = format!("f{id}: its byte {at} is {what}, should be #{should}");
                        self.fail("reads_return_what_was_written", &text, &[id]);
                        return Err(Over);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads a range, but for what a brick that failed has taken with it.
    fn read_for(
        &mut self,
        machine: &Machine,
        model: &Model,
        id: Id,
        range: &Range<u64>,
    ) -> Result<Readable, Over> {
        let Some((ino, _)) = model.numbers.get(&id).copied() else {
            self.fail("numbers_are_unique", &format!("f{id} has none"), &[id]);
            return Err(Over);
        };
        let ino = in_snapshot(ino, model.inside);
        let (fs, at, len) = (Rc::clone(&self.fs), range.start, (range.end - range.start) as usize);
        let later = machine.begin(async move { read_blocks(&*fs, ino, at, len).await });
        match wait(machine, "a read of a whole file", &later)? {
            Ok((bytes, unread)) if bytes.len() == len => {
                if let (Some(first), None) = (unread.first(), self.may_fail) {
                    let text = format!("f{id}: at {} nothing can be read", first.start);
                    self.fail("everything_can_be_read", &text, &[id]);
                    return Err(Over);
                }
                if model.inside == 0 {
                    self.unread.extend(unread.iter().map(|range| (id, range.clone())));
                }
                Ok((bytes, unread))
            }
            Ok((bytes, _)) => {
                let text = format!("f{id}: read {} bytes at {at}, should be {len}", bytes.len());
                self.fail("everything_can_be_read", &text, &[id]);
                Err(Over)
            }
            Err(errno) => {
                let text = format!("f{id}: read of {len} bytes at {at}: {errno:?}");
                self.fail("everything_can_be_read", &text, &[id]);
                Err(Over)
            }
        }
    }
}

/// The bytes of `part`, of those that were read at `start`.
fn cut<'a>(bytes: &'a [u8], start: u64, part: &Range<u64>) -> &'a [u8] {
    &bytes[(part.start - start) as usize..(part.end - start) as usize]
}

/// What to read of a file: all of it, or what is around its places when it is very long.
fn ranges(model: &Model, id: Id) -> Vec<Range<u64>> {
    let Some(node) = model.now.nodes.get(&id).filter(|node| node.kind == Kind::File) else {
        return Vec::new();
    };
    if node.size <= WHOLE {
        return pieces(0..node.size).collect();
    }
    let whole = {
        let places = model.data.get(&id).map(|data| data.places()).unwrap_or_default();
        // Cuts reach to the end of all numbers.
        let near = places.into_iter().flat_map(|place| {
            let end = place.end.min(node.size);
            let long = end.saturating_sub(place.start) > WHOLE;
            let ends = if long { place.start..place.start + PIECE } else { place.start..end };
            [ends, end.saturating_sub(PIECE)..end]
        });
        let end = node.size - PIECE..node.size;
        near.map(|place| place.start / 4096 * 4096..(place.end + PIECE).min(node.size))
            .chain([end])
            .collect()
    };
    joined(whole).into_iter().flat_map(pieces).collect()
}

fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn pieces(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let piece = at..(at + PIECE).min(range.end);
        at = piece.end;
        (!piece.is_empty()).then_some(piece)
    })
}

//! Commands over several members of a running array: `fail`, `remove`, `add` and `re-add`, with mdadm's words in place of
//! members.
//!
//! Everything is checked before the first member is changed. Where a later one is refused all the same, the answer says
//! what was done to those before it.

use super::membership::{As, Candidate, select};
use super::orders::{order, outlook, status};
use super::running::Running;
use super::stacking;
use crate::discover;
use crate::members::{Member, parse_one, same_device};
use crate::source::Source;
use anyhow::{Result, bail};
use braid_array::array::Array;
use braid_array::options::MemberSelector;
use braid_array::state::flags::MemberFlags;
use braid_array::status::{MemberState, MemberStatus};
use braid_control::protocol::{Answer, MemberDone};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};

/// A member that was meant, and its name.
pub(super) type Selected = (MemberSelector, String);

impl Running {
    /// Fails members.
    ///
    /// # Errors
    /// When one of them is no member, or the array cannot do without all of them: none is failed then.
    pub(super) fn fail(&self, array: &Arc<Array>, texts: &[String]) -> Result<Answer> {
        let selected = selected(array, texts, |word, member| match word {
            "detached" => Some(is_detached(member) && !is_faulty(member)),
            _ => None,
        })?;
        let members = selectors(&selected);
        order(array, move |control| async move { control.membership().check_fail(&members) })?;
        Ok(each(selected.into_iter().map(|(member, name)| {
            let failed =
                order(
                    array,
                    move |control| async move { control.membership().fail(&member).await },
                );
            let next = failed.and_then(|()| Ok(outlook(&status(array)?)));
            let done = next.map(|next| {
                format!("member {name} of array {} is faulty now; {next}", array.name())
            });
            (name, done)
        })))
    }

    /// Removes members; with `keep` their superblocks stay as they are.
    ///
    /// # Errors
    /// When one of them is no member, or in use: none is removed then.
    pub(super) fn remove(
        &self,
        array: &Arc<Array>,
        texts: &[String],
        keep: bool,
    ) -> Result<Answer> {
        let selected = selected(array, texts, |word, member| match word {
            "failed" | "faulty" => Some(is_faulty(member)),
            "detached" => Some(is_detached(member) && !is_in_use(member)),
            _ => None,
        })?;
        let members = selectors(&selected);
        order(array, move |control| async move { control.membership().check_remove(&members) })?;
        // Any other member may take its time and changes nothing in which array uses which.
        let any_array = selected.iter().any(|(_, name)| stacking::array_of(name).is_some());
        let _turn = any_array.then(|| self.stack_turn());
        Ok(each(selected.into_iter().map(|(member, name)| {
            let removed = self.remove_one(array, member, &name, keep);
            let mut known = self.known();
            if removed.is_ok() && !known.contains(&name) {
                known.push(name.clone());
            }
            (name, removed)
        })))
    }

    fn remove_one(
        &self,
        array: &Arc<Array>,
        member: MemberSelector,
        name: &str,
        keep: bool,
    ) -> Result<String> {
        let unmarked = order(array, move |control| async move {
            control.membership().remove_as(&member, keep).await
        })?;
        self.offer_free(stacking::array_of(name).into_iter())?;
        let done = format!("member {name} was removed from array {}", array.name());
        Ok(match unmarked {
            None => done,
            Some(why) => format!(
                "{done}; its superblock does not say so ({why}): erase it before the device is used elsewhere, or \
                 it may be taken for an array of its own"
            ),
        })
    }

    /// Adds members.
    ///
    /// # Errors
    /// When one of them cannot be added: none is added then.
    pub(super) fn add_all(
        &self,
        array: &Arc<Array>,
        texts: &[String],
        force: bool,
        flags: MemberFlags,
    ) -> Result<Answer> {
        let _turn = self.turn_for(texts.iter().map(String::as_str))?;
        let candidate = |text: &String| self.candidate(array, text, (As::Member, force));
        let candidates = texts.iter().map(candidate).collect::<Result<Vec<_>>>()?;
        distinct(candidates.iter())?;
        Ok(each(candidates.into_iter().map(|candidate| {
            let name = candidate.member.name.clone();
            (name, self.add_candidate(array, candidate, (As::Member, force), flags))
        })))
    }

    /// Adds a device as the write journal.
    ///
    /// # Errors
    /// When it is in use, or the array does not take it.
    pub(super) fn add_journal(
        &self,
        array: &Arc<Array>,
        text: &str,
        force: bool,
    ) -> Result<Answer> {
        let _turn = self.turn_for([text].into_iter())?;
        let candidate = self.candidate(array, text, (As::Journal, force))?;
        let name = candidate.member.name.clone();
        let added =
            self.add_candidate(array, candidate, (As::Journal, force), MemberFlags::default());
        Ok(each([(name, added)].into_iter()))
    }

    /// Takes members back.
    ///
    /// # Errors
    /// When one of them cannot be taken back: none is then.
    pub(super) fn re_add_all(&self, array: &Arc<Array>, texts: &[String]) -> Result<Answer> {
        let mut wanted: Vec<String> = Vec::new();
        for text in texts {
            match text.as_str() {
                "missing" => wanted.extend(self.missing(array)?),
                _ => wanted.push(text.clone()),
            }
        }
        let _turn = self.turn_for(wanted.iter().map(String::as_str))?;
        let former = |text: &String| self.former(array, text);
        let all = wanted.iter().map(former).collect::<Result<Vec<_>>>()?;
        distinct(all.iter())?;
        Ok(each(all.into_iter().map(|former| {
            let name = former.member.name.clone();
            (name, self.re_add_former(array, former))
        })))
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Vec<String>> {
        // Every change of the list is a single call, so a panic elsewhere leaves it whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices that the server knows of, that say they belong to the array, and that are no members of it.
    fn missing(&self, array: &Array) -> Result<Vec<String>> {
        let members = status(array)?.members;
        let is_member = |known: &Member| {
            let same = |member: &MemberStatus| {
                let other = Path::new(&member.name);
                member.name == known.name
                    || known.path().is_some_and(|path| same_device(other, path))
            };
            members.iter().any(same)
        };
        let known = self.known().clone();
        let is_missing = |name: &String| {
            let known = parse_one(name).ok()?;
            if is_member(&known) || known.path().is_none() && !known.is_remote() {
                return None;
            }
            let source = Source::of(array.home(), &known).ok()?;
            let superblock = discover::examine_source(&source, name).ok()?.superblock.ok()??;
            (superblock.set_uuid == array.uuid()).then_some(())
        };
        Ok(known.into_iter().filter(|name| is_missing(name).is_some()).collect())
    }
}

/// The members that are meant by `texts`, each once. `by_word` says of a word whether it means a member; `None`: it is no
/// word of the command's.
fn selected(
    array: &Array,
    texts: &[String],
    by_word: impl Fn(&str, &MemberStatus) -> Option<bool>,
) -> Result<Vec<Selected>> {
    let members = status(array)?.members;
    let mut all: Vec<Selected> = Vec::new();
    for text in texts {
        let meant: Option<Vec<&MemberStatus>> = match members.iter().any(|m| m.name == *text) {
            true => None,
            false => {
                let meant = members.iter().filter_map(|member| {
                    by_word(text, member).map(|meant| meant.then_some(member))
                });
                let meant: Vec<_> = meant.collect();
                (!meant.is_empty()).then(|| meant.into_iter().flatten().collect())
            }
        };
        let more = match meant {
            Some(meant) => {
                let one =
                    |member: &MemberStatus| (MemberSelector::Nr(member.nr), member.name.clone());
                meant.into_iter().map(one).collect()
            }
            None => vec![select(array, text)?],
        };
        let new = more.into_iter().filter(|(_, name)| all.iter().all(|(_, known)| known != name));
        let new: Vec<Selected> = new.collect();
        all.extend(new);
    }
    Ok(all)
}

fn selectors(selected: &[Selected]) -> Vec<MemberSelector> {
    selected.iter().map(|(member, _)| member.clone()).collect()
}

fn is_faulty(member: &MemberStatus) -> bool {
    member.state == MemberState::Faulty
}

fn is_in_use(member: &MemberStatus) -> bool {
    member.slot.is_some()
}

/// Nothing is at the member's path any more, or a device that cannot be opened since it is gone.
fn is_detached(member: &MemberStatus) -> bool {
    let Ok(parsed) = parse_one(&member.name) else { return false };
    let Some(path) = parsed.path() else { return false };
    match std::fs::File::open(path) {
        Ok(_) => false,
        Err(error) => {
            let no_device = rustix::io::Errno::from_io_error(&error).is_some_and(|errno| {
                matches!(errno, rustix::io::Errno::NXIO | rustix::io::Errno::NODEV)
            });
            no_device || error.kind() == ErrorKind::NotFound
        }
    }
}

/// Refuses a device that was named twice.
pub(super) fn distinct<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Result<()> {
    let candidates: Vec<&Candidate> = candidates.collect();
    for (at, one) in candidates.iter().enumerate() {
        let same = |other: &&&Candidate| match (one.member.path(), other.member.path()) {
            (Some(one), Some(other)) => one == other || same_device(one, other),
            _ => one.member.name == other.member.name,
        };
        if let Some(other) = candidates.iter().skip(at + 1).find(same) {
            bail!("{} and {} are the same: name it once", one.member.name, other.member.name);
        }
    }
    Ok(())
}

/// Carries out one after the other, until one is refused.
pub(super) fn each(all: impl Iterator<Item = (String, Result<String>)>) -> Answer {
    let mut done = Vec::new();
    for (member, outcome) in all {
        match outcome {
            Ok(text) => done.push(MemberDone { member, done: text }),
            Err(error) => {
                return Answer::Members { done, error: Some(crate::output::said(&error)) };
            }
        }
    }
    Answer::Members { done, error: None }
}

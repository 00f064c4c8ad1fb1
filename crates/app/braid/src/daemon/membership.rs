//! Members of running arrays: added, taken back, and found by what users call them; and arrays that are taken from their
//! clients to be members of others.

use super::orders::{order, outlook, status};
use super::running::Running;
use super::stacking;
use crate::discover::{self, Found, look_again};
use crate::members::{self, parse_one};
use crate::on_shard;
use crate::output;
use crate::source::Source;
use anyhow::{Result, bail};
use braid_array::array::Array;
use braid_array::options::MemberSelector;
use braid_array::stacking::ArrayMember;
use braid_array::state::flags::MemberFlags;
use braid_array::state::view::MemberNr;
use braid_array::status::MemberStatus;
use braid_device::file::Mode;
use braid_device::{Opener, Target};
use braid_format::superblock::{Role, Superblock};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

impl Running {
    /// The array `name` as a member, taken from its clients; under [`Running::stack_turn`].
    ///
    /// # Errors
    /// When somebody uses it.
    pub(super) fn take(&self, name: &str) -> Result<()> {
        self.unused(name)?;
        if let Err(clients) = self.doors.withdraw_unused(name) {
            bail!(
                "array {name} is in use by {clients} connections of clients: disconnect them first"
            );
        }
        Ok(())
    }

    /// The array `name`, which no other has as a member, to be one.
    ///
    /// # Errors
    /// When another has it, or it does not run or is only read.
    pub(super) fn unused(&self, name: &str) -> Result<Arc<dyn Opener>> {
        let array = self.find(Some(name))?;
        if self.is_stopping(&array) {
            bail!("array {name} is being stopped");
        }
        if let Some(user) = stacking::users(&self.arrays())?.get(array.name()) {
            bail!("array {name} is a member of array {user} already");
        }
        self.no_brick(name)?;
        Ok(Arc::new(ArrayMember::new(array)))
    }

    /// Arrays that may have become free are offered to clients again; under [`Running::stack_turn`].
    pub(super) fn offer_free<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<()> {
        let arrays = self.arrays().clone();
        let users = stacking::users(&arrays)?;
        for name in names {
            let array = arrays.iter().find(|array| array.name() == name);
            let free = || {
                !users.contains_key(name) && self.no_brick(name).is_ok() && !self.doors.offers(name)
            };
            if let Some(array) = array.filter(|_| free()) {
                self.doors.offer(Arc::clone(array) as Arc<dyn Target>)?;
            }
        }
        Ok(())
    }

    /// Adds a member; one that was of the array before may catch up.
    ///
    /// # Errors
    /// When it is in use, holds something that `force` does not give up, or the array does not take it.
    pub(super) fn add(
        &self,
        array: &Arc<Array>,
        text: &str,
        force: bool,
        flags: MemberFlags,
    ) -> Result<String> {
        let _turn = self.turn_for([text].into_iter())?;
        let wanted = (As::Member, force);
        let candidate = self.candidate(array, text, wanted)?;
        self.add_candidate(array, candidate, wanted, flags)
    }

    /// Other members change nothing in which array uses which, and may take their time to answer.
    pub(super) fn turn_for<'a>(
        &self,
        texts: impl Iterator<Item = &'a str>,
    ) -> Result<Option<MutexGuard<'_, ()>>> {
        let members = texts.map(parse_one).collect::<Result<Vec<_>>>()?;
        let any = members.iter().any(|member| member.array().is_some());
        Ok(any.then(|| self.stack_turn()))
    }

    /// Looks at a device that is to be added, and checks that the array would take it: nothing is changed. Under
    /// [`Running::turn_for`].
    ///
    /// # Errors
    /// As [`Running::add`].
    pub(super) fn candidate(
        &self,
        array: &Arc<Array>,
        text: &str,
        (part, force): (As, bool),
    ) -> Result<Candidate> {
        let mut member = parse_one(text)?;
        let mut found = None;
        if let Some(below) = member.array() {
            if stacking::is_below(&self.arrays(), array.name(), below)? {
                bail!(
                    "array {below} cannot be a member of array {}: it lies above it",
                    array.name()
                );
            }
            let opener = self.unused(below)?;
            member.found(opener);
            found = Some(refuse_occupied_array(array, &member, force)?);
        } else if member.in_memory() {
            let number = self.next_in_memory.fetch_add(1, Ordering::Relaxed);
            member.name = format!("{}#{number}", member.name);
        } else {
            if let Some(user) = self.array_with(&member) {
                bail!("{} is a member of array {user} already", member.name);
            }
            found = Some(refuse_occupied(array, &member, force)?);
        }
        let opener = member.prepare(Mode::ReadWrite)?;
        let asked = Arc::clone(&opener);
        order(array, move |control| async move {
            let membership = control.membership();
            match part {
                As::Member => membership.check_add(&*asked, force).await,
                As::Journal => membership.check_add_journal(&*asked, force).await,
            }
        })?;
        Ok(Candidate { member, found, opener })
    }

    /// Adds a candidate. Under [`Running::turn_for`].
    ///
    /// # Errors
    /// As [`Running::add`].
    pub(super) fn add_candidate(
        &self,
        array: &Arc<Array>,
        candidate: Candidate,
        (part, force): (As, bool),
        flags: MemberFlags,
    ) -> Result<String> {
        let Candidate { member, found, opener } = candidate;
        if let Some(below) = member.array() {
            self.take(below)?;
        }
        let doing = format!("adding {} to array {}", member.name, array.name());
        let locked = found.iter().map(|found| (found, &opener));
        let added = look_again(array.home(), &doing, locked).and_then(|()| {
            let opener = Arc::clone(&opener);
            order(array, move |control| async move {
                match part {
                    As::Member => control.membership().add_with(opener, force, flags).await,
                    As::Journal => control.membership().add_journal(opener, force).await,
                }
            })
        });
        drop(opener);
        if added.is_err() {
            self.offer_free(member.array().into_iter())?;
        }
        let added = added?;
        if part == As::Journal {
            return Ok(format!("{} is the journal of array {} now", member.name, array.name()));
        }
        let next = outlook(&status(array)?);
        let what = if added.re_added { "re-added to" } else { "added to" };
        Ok(format!("{} was {what} array {}; {next}", member.name, array.name()))
    }

    /// A member of the running array `uuid` is there again that was missing when the server started. `spare`: it holds
    /// nothing.
    ///
    /// # Errors
    /// When the array does not run any more, or does not take it without being told to.
    pub fn came_back(&self, uuid: &[u8; 16], text: &str, spare: bool) -> Result<String> {
        let array = self.arrays().iter().find(|array| array.uuid() == *uuid).cloned();
        let Some(array) = array else { bail!("its array has been stopped") };
        match spare {
            true => self.add(&array, text, false, MemberFlags::default()),
            false => self.re_add(&array, text),
        }
    }

    /// Takes the faulty member `nr` back, of whose device it is known that it had gone: it is there again, if it can be
    /// reached.
    ///
    /// # Errors
    /// When it is not there, is another device now, or the array does not take it.
    pub(super) fn take_back(&self, array: &Arc<Array>, nr: MemberNr, name: &str) -> Result<String> {
        let opener = parse_one(name)?.prepare(Mode::ReadWrite)?;
        let examined = on_shard::examine(array.home(), &opener)?;
        if let Some(superblock) =
            examined.superblock.filter(|found| self.held_nothing(array, found))
        {
            drop(opener);
            let member = MemberSelector::Nr(nr);
            order(array, move |control| async move {
                control.membership().remove_as(&member, true).await
            })?;
            let added = self.add(array, name, false, MemberFlags::of(&superblock));
            return added.inspect_err(|error| {
                output::note(format!(
                    "braid: {name} was a spare and is there again: {error}",
                    error = crate::output::said(error)
                ));
            });
        }
        order(
            array,
            move |control| async move { control.membership().come_back(nr, opener).await },
        )?;
        let next = outlook(&status(array)?);
        Ok(format!("{name} is there again and was re-added to array {}; {next}", array.name()))
    }

    /// It was a spare of the array, or not filled yet: there is nothing on it that it could be taken back for.
    fn held_nothing(&self, array: &Array, superblock: &Superblock) -> bool {
        let half_filled = superblock.recovery_offset.is_some() && !superblock.recovery_by_bitmap;
        let role = superblock.own_role();
        superblock.set_uuid == array.uuid() && (role == Role::Spare || half_filled)
    }

    /// Takes a member back that was one before.
    ///
    /// # Errors
    /// When it is in use, or the array does not take it.
    pub(super) fn re_add(&self, array: &Arc<Array>, text: &str) -> Result<String> {
        let _turn = self.turn_for([text].into_iter())?;
        let former = self.former(array, text)?;
        self.re_add_former(array, former)
    }

    /// Looks at a former member, and checks that the array would take it back: nothing is changed. Under
    /// [`Running::turn_for`].
    ///
    /// # Errors
    /// As [`Running::re_add`].
    pub(super) fn former(&self, array: &Arc<Array>, text: &str) -> Result<Candidate> {
        let mut member = parse_one(text)?;
        if member.path().is_some() {
            // What is on it is what it is taken back for, unless somebody uses it.
            refuse_occupied(array, &member, true)?;
        }
        if let Some(below) = member.array().map(str::to_string) {
            member.found(self.unused(&below)?);
        }
        let opener = member.prepare(Mode::ReadWrite)?;
        let asked = Arc::clone(&opener);
        order(
            array,
            move |control| async move { control.membership().check_re_add(&*asked).await },
        )?;
        Ok(Candidate { member, found: None, opener })
    }

    /// Takes a former member back. Under [`Running::turn_for`].
    ///
    /// # Errors
    /// As [`Running::re_add`].
    pub(super) fn re_add_former(&self, array: &Arc<Array>, former: Candidate) -> Result<String> {
        let Candidate { member, opener, .. } = former;
        if let Some(below) = member.array() {
            self.take(below)?;
        }
        let added =
            order(array, move |control| async move { control.membership().re_add(opener).await });
        if added.is_err() {
            self.offer_free(member.array().into_iter())?;
        }
        added?;
        let next = outlook(&status(array)?);
        Ok(format!("{} was re-added to array {}; {next}", member.name, array.name()))
    }
}

/// The part that a device is to have in an array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum As {
    /// A spare, or its slot again.
    Member,
    /// The write journal.
    Journal,
}

/// A device that the array would take.
pub(super) struct Candidate {
    pub(super) member: members::Member,
    found: Option<Found>,
    opener: Arc<dyn Opener>,
}

/// The member that was meant: by its name, as the same device by another path, or by the number that
/// `detail` shows. With its name.
pub(super) fn select(array: &Array, text: &str) -> Result<(MemberSelector, String)> {
    let members = status(array)?.members;
    let named = members.iter().find(|member| member.name == text);
    let number = text.parse().ok();
    let by_number = || members.iter().find(|member| Some(member.dev_number) == number);
    // Last of all: to look at a file of a file system that does not answer would wait for it.
    let same =
        |member: &&MemberStatus| members::same_device(Path::new(&member.name), Path::new(text));
    let by_path = || members.iter().find(same);
    Ok(match named.or_else(by_number).or_else(by_path) {
        Some(member) => (MemberSelector::Nr(member.nr), member.name.clone()),
        // The array says which members it has.
        None => (MemberSelector::Name(text.to_string()), text.to_string()),
    })
}

fn refuse_occupied(array: &Array, member: &members::Member, force: bool) -> Result<Found> {
    let source = Source::of(array.home(), member)?;
    let superblock = discover::examine_source(&source, &member.name)?.superblock;
    let own = matches!(&superblock, Ok(Some(found)) if found.set_uuid == array.uuid());
    let found = discover::look_at(array.home(), member)?;
    if let Some(user) = &found.in_use {
        bail!("adding {} to array {}: {user}", member.name, array.name());
    }
    // Whether a member of this array or of another may be added is for the array to say.
    let other = |line: &&braid_format::signature::Signature| line.kind != "linux_raid_member";
    refuse_content(array, &member.name, found.signatures.iter().filter(other), force || own)?;
    Ok(found)
}

/// Refuses an array whose users have something on it, other than it being a member.
fn refuse_occupied_array(array: &Array, member: &members::Member, force: bool) -> Result<Found> {
    let found = discover::look_through(array.home(), member)?;
    let other = |line: &&braid_format::signature::Signature| line.kind != "linux_raid_member";
    refuse_content(array, &member.name, found.signatures.iter().filter(other), force)?;
    Ok(found)
}

fn refuse_content<'a>(
    array: &Array,
    name: &str,
    signatures: impl Iterator<Item = &'a braid_format::signature::Signature>,
    force: bool,
) -> Result<()> {
    let lines: Vec<&str> = signatures.map(|signature| signature.what.as_str()).collect();
    if !force && !lines.is_empty() {
        bail!(
            "adding {name} to array {}: refused, because it would destroy what is on it: {}; if that is not needed \
             any more: --force",
            array.name(),
            lines.join("; ")
        );
    }
    Ok(())
}

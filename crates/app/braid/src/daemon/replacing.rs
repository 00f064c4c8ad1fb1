//! Members of a running array that are to be replaced: each checked, with who is to take its place, before anything is
//! changed.

use super::membership::{As, Candidate, select};
use super::orders::{order, status};
use super::running::Running;
use super::several::{Selected, distinct, each};
use anyhow::{Result, bail};
use braid_array::array::Array;
use braid_array::options::MemberSelector;
use braid_array::state::flags::MemberFlags;
use braid_array::status::{MemberState, MemberStatus};
use braid_control::protocol::Answer;
use std::sync::Arc;

/// The member that takes the place of another.
enum New {
    /// Any spare, or the next that is added.
    Any,
    /// A spare of the array.
    Spare(MemberSelector),
    /// A device that is to be added.
    Device(Box<Candidate>),
}

impl New {
    fn spare(&self) -> Option<MemberSelector> {
        match self {
            New::Spare(spare) => Some(spare.clone()),
            New::Any | New::Device(_) => None,
        }
    }
}

impl Running {
    /// Replaces members, each by the one of `with` at the same place: a spare, or a device that is added for it. Members
    /// beyond those take any spare.
    ///
    /// # Errors
    /// When one of them cannot be replaced, or one of `with` not be added: nothing is changed then.
    pub(super) fn replace(
        &self,
        array: &Arc<Array>,
        texts: &[String],
        with: &[String],
        force: bool,
    ) -> Result<Answer> {
        if with.len() > texts.len() {
            bail!("more members are given with --with than are to be replaced");
        }
        let mut olds: Vec<Selected> = Vec::new();
        for text in texts {
            let old = select(array, text)?;
            if olds.iter().any(|(_, name)| *name == old.1) {
                bail!("{text} is named twice");
            }
            olds.push(old);
        }
        let named: Vec<Selected> =
            with.iter().map(|text| select(array, text)).collect::<Result<_>>()?;
        let now = status(array)?;
        let known = |name: &str| now.members.iter().any(|member| member.name == name);
        let devices = || with.iter().zip(&named).filter(|(_, (_, name))| !known(name));
        let _turn = self.turn_for(devices().map(|(text, _)| text.as_str()))?;
        if let Some((text, _)) = devices().next()
            && now.degraded > 0
        {
            let name = array.name();
            bail!(
                "array {name} is degraded: {text} is needed for the slot that has no member; `braid add {name} {text}` \
                 first, and replace when the array is whole"
            );
        }
        let mut news: Vec<New> = Vec::new();
        for (text, (member, name)) in with.iter().zip(&named) {
            news.push(match known(name) {
                true => New::Spare(member.clone()),
                false => New::Device(Box::new(self.candidate(array, text, (As::Member, force))?)),
            });
        }
        news.resize_with(olds.len(), || New::Any);
        distinct(news.iter().filter_map(|new| match new {
            New::Device(candidate) => Some(&**candidate),
            New::Any | New::Spare(_) => None,
        }))?;
        let spares: Vec<_> = news.iter().map(New::spare).collect();
        for (at, spare) in spares.iter().enumerate() {
            if spare.is_some() && spares.iter().skip(at + 1).any(|other| other == spare) {
                bail!("the same spare cannot replace two members");
            }
        }
        let pairs: Vec<_> = olds.iter().map(|(old, _)| old.clone()).zip(spares).collect();
        order(array, move |control| async move {
            let membership = control.membership();
            for (old, new) in &pairs {
                membership.check_replace(old, new.as_ref())?;
            }
            Ok(())
        })?;
        Ok(each(olds.into_iter().zip(news).map(|((old, name), new)| {
            let replaced = self.replace_one(array, old, &name, new, force);
            (name, replaced)
        })))
    }

    fn replace_one(
        &self,
        array: &Arc<Array>,
        old: MemberSelector,
        name: &str,
        new: New,
        force: bool,
    ) -> Result<String> {
        let with = match new {
            New::Any => None,
            New::Spare(spare) => Some(spare),
            New::Device(candidate) => {
                let new = candidate.member.name.clone();
                self.add_candidate(array, *candidate, (As::Member, force), MemberFlags::default())?;
                Some(MemberSelector::Name(new))
            }
        };
        let named = with.clone();
        order(array, move |control| async move {
            control.membership().replace(&old, named.as_ref()).await
        })?;
        let members = status(array)?.members;
        let is_new = |member: &&MemberStatus| match &with {
            Some(MemberSelector::Nr(nr)) => member.nr == *nr,
            Some(MemberSelector::Name(name)) => member.name == *name,
            None => false,
        };
        let array = array.name();
        let follow = format!("which serves meanwhile; `braid wait {array}` follows it");
        let any_spare = members.iter().any(|member| {
            matches!(member.state, MemberState::Spare | MemberState::Replacing { .. })
        });
        Ok(match members.iter().find(is_new) {
            Some(new) => format!("{} is to replace {name} in array {array}, {follow}", new.name),
            None if any_spare => format!("a spare is to replace {name} in array {array}, {follow}"),
            None => format!(
                "{name} of array {array} is to be replaced as soon as there is a spare; `braid add {array} MEMBER` \
                 gives it one"
            ),
        })
    }
}

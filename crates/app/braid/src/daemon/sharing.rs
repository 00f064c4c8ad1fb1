//! A spare is taken from one array and added to another.
//!
//! The array that has it records that it has left before anything is written to it; it is a member of the other when its own superblock
//! says so. So whatever the moment of a crash at most one of both finds it, and it holds no data.

use super::orders::{order, status};
use super::running::Running;
use super::spares::choice::{Move, Sharing, choose};
use super::stacking;
use anyhow::{Context, Result};
use braid_array::array::Array;
use braid_array::options::MemberSelector;
use braid_array::state::flags::MemberFlags;
use braid_array::status::{ArrayState, ArrayStatus, JobKind, MemberState};
use std::sync::Arc;

impl Running {
    /// Moves spares to arrays that lack a member and have none, as long as there are any.
    pub fn share_spares(&self) {
        while let Some(next) = self.next_move() {
            if let Err(error) = self.move_spare(&next) {
                tracing::error!("moving a spare between arrays: {error:#}");
                return;
            }
        }
    }

    fn next_move(&self) -> Option<Move> {
        let arrays = self.arrays().clone();
        let sharing: Vec<Sharing> = arrays.iter().filter_map(|array| self.sharing(array)).collect();
        choose(&sharing, |uuid, spare| self.spares.may_take(*uuid, spare))
    }

    /// An array in a group; `None`: in none, or it has been stopped.
    fn sharing(&self, array: &Array) -> Option<Sharing> {
        let (uuid, group) = (array.uuid(), self.spares.group(&array.uuid())?);
        let status = status(array).ok().filter(|_| !self.is_stopping(array))?;
        Some(Sharing { uuid, group, lacks: lacks(&status), spares: to_spare(&status) })
    }

    /// Moves a spare. If the array that lacks a member does not take it, that is said and remembered, and another may be had.
    fn move_spare(&self, next: &Move) -> Result<()> {
        let find = |uuid: &[u8; 16]| {
            let arrays = self.arrays();
            let found = arrays.iter().find(|array| array.uuid() == *uuid);
            found.cloned().context("it has been stopped")
        };
        let (from, to): (Arc<Array>, Arc<Array>) = (find(&next.from)?, find(&next.to)?);
        let (spare, from_name, to_name) = (&next.spare, from.name(), to.name());
        let selector = || MemberSelector::Name(spare.clone());
        let asked = selector();
        let opener =
            order(&from, move |control| async move { control.membership().spare(&asked) })?;
        let candidate = Arc::clone(&opener);
        let fits = order(&to, move |control| async move {
            control.membership().check_add(&*candidate, true).await
        });
        if let Err(why) = fits {
            if self.spares.refuse(next.to, spare) {
                tracing::warn!(
                    "array {to_name} lacks a member, and does not take {spare}, a spare of array {from_name}: {why:#}"
                );
            }
            return Ok(());
        }
        let given = selector();
        order(&from, move |control| async move { control.membership().give_spare(&given).await })
            .with_context(|| format!("taking {spare} from array {from_name}"))?;
        let taken = Arc::clone(&opener);
        let added = order(&to, move |control| async move {
            control.membership().add_with(taken, true, MemberFlags::default()).await
        });
        if let Err(why) = added {
            self.spares.refuse(next.to, spare);
            let back = order(&from, move |control| async move {
                control.membership().add_with(opener, true, MemberFlags::default()).await
            });
            let where_to = match back {
                Ok(_) => format!("it is a spare of array {from_name} again"),
                Err(error) => format!(
                    "array {from_name} does not take it back either ({error:#}): braid add {from_name} {spare}"
                ),
            };
            tracing::error!(
                "array {to_name} did not take {spare} from array {from_name}: {why:#}; {where_to}"
            );
            return Ok(());
        }
        let group = self.spares.group(&next.to).map(|group| group.to_string()).unwrap_or_default();
        tracing::warn!(
            "array {to_name} lacked a member: {spare}, a spare of array {from_name}, is its own now (spare group {group})"
        );
        self.spares.has_moved(next.to, format!("{spare} came from array {from_name}"));
        self.spares.has_moved(next.from, format!("{spare} went to array {to_name}"));
        Ok(())
    }
}

/// Slots that a spare from elsewhere could fill now.
fn lacks(status: &ArrayStatus) -> usize {
    let is = |state: ArrayState| status.state.contains(&state);
    let waits = !status.level.has_redundancy()
        || status.reshape.is_some()
        || is(ArrayState::Failed)
        || is(ArrayState::ReadOnly);
    if waits {
        return 0;
    }
    let fills =
        |state: MemberState| matches!(state, MemberState::Spare | MemberState::Rebuilding { .. });
    let filled = status.members.iter().filter(|member| fills(member.state)).count();
    status.degraded.saturating_sub(filled)
}

/// Spares of an array that has no need of any: it is whole, nothing is to be replaced, and it is not on its way to another shape.
fn to_spare(status: &ArrayStatus) -> Vec<(String, u64)> {
    let busy = status.reshape.is_some()
        || status.following.is_some()
        || status.job.as_ref().is_some_and(|job| job.kind == JobKind::Recover);
    let replaces = status.members.iter().any(|member| {
        member.want_replacement || matches!(member.state, MemberState::Replacing { .. })
    });
    if busy || replaces || status.degraded > 0 {
        return Vec::new();
    }
    let spares = status.members.iter().filter(|member| member.state == MemberState::Spare);
    // An array that is a member of another goes nowhere by itself.
    let apart = spares.filter(|member| stacking::array_of(&member.name).is_none());
    apart.map(|member| (member.name.clone(), member.size)).collect()
}

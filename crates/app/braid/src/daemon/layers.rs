//! Arrays that are members of others: found out before the first one is started.
//!
//! The users' side of each array is read through its members, without starting it and without writing: when it
//! holds an md superblock it may be a member of another array. That one is entered among the groups like any other,
//! and comes after those that it is made of.
//!
//! An array may also be the disk of another machine that has its own arrays on it. So an array is only made of
//! arrays by itself when it says that it was created on this machine or says no host, or when one of its members was
//! given as a device.

use super::grouping::{Group, enter, name_all};
use crate::on_shard;
use anyhow::{Result, bail};
use braid_array::metadata::superblock::{Examined, examine};
use braid_array::salvage::salvage;
use braid_array::stacking::ArrayMember;
use braid_control::wanted::stack::StackPolicy;
use braid_device::Opener;
use braid_format::superblock::Superblock;
use braid_format::uuid_text;
use braid_shard::mailbox::Remote;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// An array that is a member of another: both UUIDs, and which of the other's openers it is.
struct Below {
    lower: [u8; 16],
    upper: [u8; 16],
    opener: usize,
}

/// Adds the arrays that are made of those given, names all, and puts each after those that it is made of. With a
/// note for each that was left alone.
///
/// # Errors
/// When the shard is gone.
pub fn layer(
    home: &Remote,
    mut groups: Vec<Group>,
    policy: StackPolicy,
) -> Result<(Vec<Group>, Vec<String>)> {
    let (mut below, mut notes): (Vec<Below>, Vec<String>) = (Vec::new(), Vec::new());
    let mut looked: HashSet<[u8; 16]> = HashSet::new();
    let here = this_host();
    let given: HashSet<[u8; 16]> = groups.iter().map(|group| group.uuid).collect();
    loop {
        // Those that have all their members first: others may get theirs from them.
        let fresh = |group: &&Group| !looked.contains(&group.uuid);
        let whole = groups.iter().filter(fresh).find(|group| group.is_as_it_was_left());
        let next = whole.or_else(|| groups.iter().find(fresh));
        let Some(group) = next.filter(|_| policy != StackPolicy::Never) else { break };
        let lower = group.uuid;
        looked.insert(lower);
        let Some((opener, superblock, block)) = look_above(home, group)? else { continue };
        let upper = superblock.set_uuid;
        // An array that would lie above itself is damaged or a trap.
        if upper == lower || lies_above(&below, lower, upper) {
            continue;
        }
        // Seen already, when it was short of a member that came from another array since.
        if below.iter().any(|known| known.lower == lower) {
            continue;
        }
        let belongs = given.contains(&upper) || is_of(&superblock, here.as_deref());
        if policy == StackPolicy::Auto && !belongs {
            notes.push(format!(
                "array {} holds a member of array {}, which another machine created; --stack always runs that one \
                 here",
                group.recorded().escaped(),
                superblock.set_name.escaped()
            ));
            continue;
        }
        enter(&mut groups, opener, superblock, block);
        let place = groups.iter().find(|group| group.uuid == upper);
        let opener = place.map_or(0, |group| group.openers.len() - 1);
        below.push(Below { lower, upper, opener });
        looked.remove(&upper);
    }
    name_all(&mut groups);
    join(&mut groups, &below);
    Ok((bottom_up(groups, &below), notes))
}

/// Keeps only the array with this UUID and those that it is made of.
///
/// # Errors
/// A text that is no UUID, or that of no array here.
pub fn only(groups: Vec<Group>, uuid: &str) -> Result<Vec<Group>> {
    let wanted = uuid_text::parse(uuid)?;
    if !groups.iter().any(|group| group.uuid == wanted) {
        let there: Vec<String> = groups
            .iter()
            .map(|group| format!("{} ({})", uuid_text::format(&group.uuid), group.name))
            .collect();
        bail!("none of the members belongs to array {uuid}; they belong to {}", there.join(", "));
    }
    let mut kept: Vec<Group> = Vec::new();
    // Each comes after those that it is made of, so from the end every user is met before what it uses.
    for mut group in groups.into_iter().rev() {
        let name = group.as_member.as_ref().map(|member| member.name().to_string());
        let used =
            |user: &Group| user.openers.iter().any(|opener| Some(opener.name()) == name.as_deref());
        if kept.iter().any(used) {
            kept.push(group);
        } else if group.uuid == wanted {
            group.as_member = None;
            kept.push(group);
        }
    }
    kept.reverse();
    Ok(kept)
}

type Above = (Arc<dyn Opener>, Superblock, u32);

/// What the users of an array would find to be a superblock, when it can be read without starting it.
fn look_above(home: &Remote, group: &Group) -> Result<Option<Above>> {
    let (openers, uuid) = (group.openers.clone(), group.uuid);
    let name = uuid_text::format(&uuid);
    on_shard::run(home, move |shard| async move {
        let context = on_shard::context(&shard, &[shard.remote()]);
        // What cannot be read is said when it is started.
        let array = salvage(&context, openers, name, Some(uuid)).await.ok()?;
        let opener: Arc<dyn Opener> = Arc::new(ArrayMember::new(Arc::new(array)));
        let Examined { superblock, device, .. } = examine(&shard, &*opener).await.ok()?;
        Some((opener, superblock?, device.logical_block))
    })
}

fn this_host() -> Option<String> {
    let system = rustix::system::uname();
    Some(system.nodename().to_str().ok()?.to_string()).filter(|name| !name.is_empty())
}

/// The array says that it was created on `host`, or does not say where.
fn is_of(superblock: &Superblock, host: Option<&str>) -> bool {
    match superblock.set_name.as_text().map(|name| name.split_once(':')) {
        Some(Some((recorded, _))) => Some(recorded) == host,
        Some(None) => true,
        None => false,
    }
}

fn lies_above(below: &[Below], top: [u8; 16], from: [u8; 16]) -> bool {
    let mut at = vec![from];
    let mut seen = HashSet::new();
    while let Some(lower) = at.pop() {
        if lower == top {
            return true;
        }
        if seen.insert(lower) {
            at.extend(below.iter().filter(|one| one.lower == lower).map(|one| one.upper));
        }
    }
    false
}

/// Puts in the place of what was only looked through the arrays as they will run.
fn join(groups: &mut [Group], below: &[Below]) {
    for Below { lower, upper, opener } in below {
        let Some(group) = groups.iter_mut().find(|group| group.uuid == *lower) else { continue };
        let member = Arc::new(ArrayMember::later(&group.name));
        group.as_member = Some(Arc::clone(&member));
        let upper = groups.iter_mut().find(|group| group.uuid == *upper);
        if let Some(place) = upper.and_then(|upper| upper.openers.get_mut(*opener)) {
            *place = member;
        }
    }
}

fn bottom_up(groups: Vec<Group>, below: &[Below]) -> Vec<Group> {
    let mut height: HashMap<[u8; 16], usize> = groups.iter().map(|group| (group.uuid, 0)).collect();
    // No array lies above itself, so that after as many rounds nothing changes any more.
    for _ in 0..groups.len() {
        for Below { lower, upper, .. } in below {
            let least = height.get(lower).map_or(0, |lower| lower + 1);
            height.entry(*upper).and_modify(|upper| *upper = least.max(*upper));
        }
    }
    let mut groups = groups;
    groups.sort_by_key(|group| height.get(&group.uuid).copied().unwrap_or(0));
    groups
}

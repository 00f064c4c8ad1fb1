//! The attributes of members, /sys/block/mdN/md/dev-NAME, and the links `rdN` to those that hold slots.

use super::entry::{folder, text};
use braid_control::protocol::{Detail, Flags, Member, Request};
use braid_view::{Listed, Node, Rights};

/// The beginning of a member's folder.
pub(super) const PREFIX: &str = "dev-";

/// The name of each member as md would show it: the last part of its path, without characters that scripts stumble on.
pub(super) fn short_names(detail: &Detail) -> Vec<String> {
    let plain = |member: &Member| {
        let last = member.name.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let allowed =
            |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        last.chars().map(allowed).collect::<String>()
    };
    let names: Vec<String> = detail.members.iter().map(plain).collect();
    let twice = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
    let apart = |(member, name): (&Member, &String)| match twice(name) || name.is_empty() {
        true => format!("{name}_{}", member.number),
        false => name.clone(),
    };
    detail.members.iter().zip(&names).map(apart).collect()
}

/// Folders and links in the folder of the array's attributes.
pub(super) fn list(detail: &Detail) -> Vec<Listed> {
    let names = short_names(detail);
    let folders = names.iter().map(|name| folder(format!("{PREFIX}{name}")));
    let links = detail.members.iter().zip(&names).filter_map(|(member, name)| {
        let slot =
            member.slot.filter(|_| member.state != "faulty" && member.state != "replacing")?;
        Some(Listed { name: format!("rd{slot}"), node: Node::Link(format!("{PREFIX}{name}")) })
    });
    folders.chain(links).collect()
}

/// The member of that short name.
pub(super) fn find<'a>(detail: &'a Detail, name: &str) -> Option<&'a Member> {
    let index = short_names(detail).iter().position(|known| known == name)?;
    detail.members.get(index)
}

/// The attributes of each.
pub(super) fn attributes() -> Vec<Listed> {
    let rights = |name| if name == "state" { Rights::Both } else { Rights::Read };
    ["state", "errors", "slot", "offset", "size", "recovery_start"]
        .map(|name| text(name, rights(name)))
        .into()
}

/// The value of one; `None` when there is none.
pub(super) fn read(member: &Member, name: &str) -> Option<String> {
    Some(match name {
        "state" => state(member),
        "errors" => member.errors.to_string(),
        "slot" => match (member.state.as_str(), member.slot) {
            ("journal", _) => "journal".to_string(),
            (_, Some(slot)) => slot.to_string(),
            (_, None) => "none".to_string(),
        },
        "offset" => (member.data_offset / 512).to_string(),
        "size" => (member.data_size / 1024).to_string(),
        "recovery_start" => match member.recovered {
            Some(bytes) => (bytes / 512).to_string(),
            None => "none".to_string(),
        },
        _ => return None,
    })
}

/// The words of `state_show` (drivers/md/md.c), in its order.
fn state(member: &Member) -> String {
    let is = |state: &str| member.state == state;
    let filled = is("rebuilding") || is("replacing") || is("spare");
    [
        (is("faulty"), "faulty"),
        (is("active sync"), "in_sync"),
        (is("journal"), "journal"),
        (member.write_mostly, "write_mostly"),
        (filled, "spare"),
        (member.want_replacement, "want_replacement"),
        (is("replacing"), "replacement"),
        (member.failfast, "failfast"),
    ]
    .into_iter()
    .filter_map(|(holds, word)| holds.then_some(word))
    .collect::<Vec<_>>()
    .join(",")
}

/// The request that a value means.
pub(super) fn order(detail: &Detail, member: &Member, name: &str, value: &str) -> Option<Request> {
    if name != "state" {
        return None;
    }
    let (array, member) = (detail.name.clone(), member.name.clone());
    let flags = |write_mostly, failfast| {
        let (array, member) = (array.clone(), member.clone());
        Request::Member { array, member, write_mostly, failfast }
    };
    Some(match value {
        "faulty" => Request::Fail { array, members: vec![member] },
        "remove" => Request::Remove { array, members: vec![member], keep: false },
        "re-add" => Request::ReAdd { array, members: vec![member] },
        "want_replacement" => {
            Request::Replace { array, members: vec![member], with: Vec::new(), force: false }
        }
        "writemostly" => flags(Some(true), None),
        "-writemostly" => flags(Some(false), None),
        "failfast" => flags(None, Some(true)),
        "-failfast" => flags(None, Some(false)),
        _ => return None,
    })
}

/// The request that adds the block device of these numbers, `MAJOR:MINOR`.
pub(super) fn add(detail: &Detail, numbers: &str) -> Option<Request> {
    let (major, minor) = numbers.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let members = vec![format!("/dev/block/{major}:{minor}")];
    let array = detail.name.clone();
    Some(Request::Add { array, members, force: false, flags: Flags::default() })
}

//! The layers of an array as rows of a tree: the array, below it its members, below those that are arrays theirs.
//!
//! And which arrays stand at the top, when nobody said which one is meant.

use crate::client::{Client, unexpected};
use crate::output;
use crate::output::tree::branch;
use anyhow::Result;
use braid_control::protocol::{Answer, Io, MemberIo, Request, Stat};

/// One row.
pub struct Row<'a> {
    /// Its name with the tree's lines before it, as `├─ disk[0]`.
    pub label: String,
    /// What stands below the label in further lines of the same row.
    pub below: String,
    /// The array or the member.
    pub what: Layer<'a>,
}

/// See the module's documentation.
#[derive(Clone, Copy)]
pub enum Layer<'a> {
    /// An array at the top.
    Array(&'a Stat),
    /// A member, be it an array or not.
    Member(&'a MemberIo),
}

impl<'a> Layer<'a> {
    /// What was asked of it; `None` where nobody counts.
    pub fn io(self) -> Option<&'a Io> {
        match self {
            Layer::Array(array) => Some(&array.io),
            Layer::Member(member) => member.io.as_ref(),
        }
    }
}

/// All rows of an array, from the top.
pub fn rows(stat: &Stat) -> Vec<Row<'_>> {
    let below = if stat.members.is_empty() { "" } else { "│  " };
    let mut all = vec![Row {
        label: format!("{} {}", stat.name, stat.level),
        below: below.to_string(),
        what: Layer::Array(stat),
    }];
    add_members(&mut all, stat, "");
    all
}

fn add_members<'a>(all: &mut Vec<Row<'a>>, stat: &'a Stat, before: &str) {
    for (nr, member) in stat.members.iter().enumerate() {
        let (branch, on) = branch(nr + 1 == stat.members.len());
        let below = format!("{before}{on}");
        let has_members = member.array.as_ref().is_some_and(|array| !array.members.is_empty());
        all.push(Row {
            label: format!("{before}{branch}{}", title(member)),
            below: format!("{below}{}", if has_members { "│  " } else { "" }),
            what: Layer::Member(member),
        });
        if let Some(array) = &member.array {
            add_members(all, array, &below);
        }
    }
}

/// As /proc/mdstat names a member: `disk[0]`, `disk (faulty)`, `array:m0[1] raid1`.
fn title(member: &MemberIo) -> String {
    let slot = member.slot.map(|slot| format!("[{slot}]")).unwrap_or_default();
    let level = member.array.as_ref().map(|array| format!(" {}", array.level)).unwrap_or_default();
    let state = match member.state.as_str() {
        "active sync" => String::new(),
        other => format!(" ({other})"),
    };
    format!("{}{slot}{level}{state}", member.name)
}

/// What the array of that name has done; without a name, what all have done that are not below another.
///
/// # Errors
/// When there is no such array, or none at all, or the server went away.
pub fn ask(client: &mut Client, name: Option<&str>) -> Result<Vec<Stat>> {
    if name.is_some() {
        return Ok(vec![client.stat(name)?]);
    }
    let listed = match client.ask(&Request::List)? {
        Answer::List { arrays } => arrays,
        other => return Err(unexpected(&other)),
    };
    let (mut stats, mut refused) = (Vec::new(), Vec::new());
    for array in &listed {
        match client.stat(Some(&array.uuid)) {
            Ok(stat) => stats.push(stat),
            Err(error) => refused.push(error),
        }
    }
    if stats.is_empty() {
        // Without any array the server says so itself.
        return match refused.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(vec![client.stat(None)?]),
        };
    }
    refused.iter().for_each(|error| {
        output::note(format!("braid: {error}", error = crate::output::said(error)))
    });
    Ok(tops(stats))
}

fn tops(stats: Vec<Stat>) -> Vec<Stat> {
    fn below<'a>(stat: &'a Stat, names: &mut Vec<&'a str>) {
        for nested in stat.nested() {
            names.push(&nested.uuid);
            below(nested, names);
        }
    }
    let mut names = Vec::new();
    stats.iter().for_each(|stat| below(stat, &mut names));
    let nested: Vec<String> = names.into_iter().map(str::to_string).collect();
    stats.into_iter().filter(|stat| !nested.contains(&stat.uuid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples;

    #[test]
    fn a_stack_is_a_tree() {
        let stack = samples::stack();
        let rows = rows(&stack);
        let labels: Vec<&str> = rows.iter().map(|row| row.label.as_str()).collect();
        assert_eq!(
            labels,
            ["top raid0", "├─ array:m0[0] raid1", "│  ├─ a[0]", "│  └─ b[1]", "└─ ram:1M[1]"]
        );
        let below: Vec<&str> = rows.iter().map(|row| row.below.as_str()).collect();
        assert_eq!(below, ["│  ", "│  │  ", "│  │  ", "│     ", "   "]);
        assert!(rows[4].what.io().is_none());
    }

    #[test]
    fn arrays_below_others_are_no_tops() {
        let stack = samples::stack();
        let below = stack.nested().next().unwrap().clone();
        let names: Vec<String> =
            tops(vec![below, stack]).into_iter().map(|stat| stat.name).collect();
        assert_eq!(names, ["top"]);
    }
}

//! `examine --brief`: one `ARRAY` line for each array, for `mdadm.conf`.

use super::read::Read;
use super::v0;
use crate::output::words;
use braid_format::superblock::{Name, Role, Version};
use braid_format::uuid_text;

/// One line for each array, and one below it where it has spares or, if `verbose`, with its devices. Arrays
/// stand in the order in which their first member was given.
pub(super) fn lines(members: &[&Read], verbose: bool) -> Vec<String> {
    let mut arrays: Vec<Vec<&Read>> = Vec::new();
    for member in members {
        let same = |array: &&mut Vec<&Read>| {
            array
                .first()
                .is_some_and(|first| first.superblock.set_uuid == member.superblock.set_uuid)
        };
        match arrays.iter_mut().find(same) {
            Some(array) => array.push(member),
            None => arrays.push(vec![member]),
        }
    }
    let mut lines = Vec::new();
    for array in &arrays {
        let Some(first) = array.first() else { continue };
        lines.push(array_line(first, verbose));
        let spares = array.iter().filter(|member| !is_active(member)).count();
        let mut more = String::new();
        if spares > 0 {
            more.push_str(&format!("   spares={spares}"));
        }
        if verbose {
            let names: Vec<String> =
                array.iter().map(|member| member.path.display().to_string()).collect();
            more.push_str(&format!("   devices={}", names.join(",")));
        }
        if !more.is_empty() {
            lines.push(more);
        }
    }
    lines
}

fn is_active(member: &Read) -> bool {
    let superblock = &member.superblock;
    match superblock.version {
        Version::V0_90 => v0::own_in_sync(&member.examined.raw),
        _ => matches!(superblock.own_role(), Role::Slot(_)) && !superblock.replacement,
    }
}

fn array_line(member: &Read, verbose: bool) -> String {
    let superblock = &member.superblock;
    let uuid = uuid_text::format(&superblock.set_uuid);
    let (level, disks) = (words::level(superblock.level), superblock.raid_disks);
    if superblock.version == Version::V0_90 {
        let shape =
            if verbose { format!(" level={level} num-devices={disks}") } else { String::new() };
        return format!("ARRAY /dev/md{}{shape} UUID={uuid}", superblock.v0.md_minor);
    }
    let mut line = "ARRAY ".to_string();
    let short = String::from_utf8_lossy(superblock.set_name.short()).into_owned();
    if superblock.set_name != Name::default() {
        line.push_str(&format!("/dev/md/{short} "));
    }
    if verbose {
        line.push_str(&format!(" level={level}"));
    }
    line.push_str(&format!(" metadata={} ", superblock.version));
    if verbose {
        line.push_str(&format!("num-devices={disks} "));
    }
    line.push_str(&format!("UUID={uuid}"));
    if superblock.set_name != Name::default() {
        line.push_str(&format!(" name={}", words::quoted(&superblock.set_name.escaped())));
    }
    line
}

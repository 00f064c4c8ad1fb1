//! The cases, a file for each family of calls.

use crate::case::Case;

pub mod acl;
pub mod chmod;
pub mod chown;
pub mod create;
pub mod data;
pub mod direct;
pub mod directories;
pub mod errors;
pub mod flags;
pub mod link;
pub mod locks;
pub mod mapping;
pub mod names;
pub mod open;
pub mod remove;
pub mod rename;
pub mod rights;
pub mod space;
pub mod sticky;
pub mod symlink;
pub mod times;
pub mod truncate;
pub mod xattr;

/// All of them, in the order in which they are played.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        errors::cases(),
        chmod::cases(),
        chown::cases(),
        create::cases(),
        open::cases(),
        link::cases(),
        symlink::cases(),
        rename::cases(),
        remove::cases(),
        sticky::cases(),
        truncate::cases(),
        times::cases(),
        xattr::cases(),
        acl::cases(),
        flags::cases(),
        names::cases(),
        directories::cases(),
        data::cases(),
        space::cases(),
        mapping::cases(),
        direct::cases(),
        rights::cases(),
        locks::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Those whose names begin with one of `prefixes`; all where there are none.
#[must_use]
pub fn chosen(prefixes: &[String]) -> Vec<Case> {
    let wanted = |case: &Case| {
        prefixes.is_empty() || prefixes.iter().any(|prefix| case.name.starts_with(prefix))
    };
    all().into_iter().filter(wanted).collect()
}

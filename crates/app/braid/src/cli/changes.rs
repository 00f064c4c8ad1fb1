//! The verbs that change some members of a running array: fail, remove, re-add, replace.

use super::common::Control;
use clap::Args;

/// `braid fail` and `braid re-add`.
#[derive(Debug, Args)]
#[command(
    after_help = "In place of a member: `failed` for remove, all that have failed; `detached` for fail and remove, all \
    whose device is not there any more; `missing` for re-add, all that the server was given for the array, or has \
    removed from it, and that are no members now.\n\n\
    Everything is checked before the first member is changed; where a later one fails all the same, what was done \
    to those before it is said."
)]
pub struct SomeMembers {
    /// The array: its name or UUID.
    pub name: String,
    /// The members: their paths, the names that `braid detail` shows, or their numbers there.
    #[arg(required = true, value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Let go of faulty members and spares.
#[derive(Debug, Args)]
#[command(
    long_about = "Let go of faulty members and spares: their devices are closed. The superblock of a faulty one that still \
    takes writes is marked, so that neither mdadm -I nor braid starts it as an array of its own; re-add takes it back all \
    the same."
)]
pub struct Remove {
    #[command(flatten)]
    pub some: SomeMembers,
    /// Leave its superblock as it is: a mirror's half can then be started as an array of its own.
    #[arg(long)]
    pub keep: bool,
}

/// Replace members while they serve: each is copied to another, which takes its place.
#[derive(Debug, Args)]
#[command(
    long_about = "Replace members while they serve, without losing redundancy: what a member holds is copied to a spare, \
    which gets all writes from then on, and takes the member's place when it is whole. What the member cannot read is \
    computed from the others. The old member is faulty then; remove lets go of it. As mdadm's --replace and --with."
)]
pub struct Replace {
    /// The array: its name or UUID.
    pub name: String,
    /// The members that are to be replaced, as `braid detail` shows them.
    #[arg(required = true, value_name = "OLD")]
    pub members: Vec<String>,
    /// The new members, in the same order: spares of the array, or devices that are added for it [default: any spare,
    /// or the next that is added].
    #[arg(long, value_name = "NEW", num_args = 1..)]
    pub with: Vec<String>,
    /// Overwrite what is on the new members.
    #[arg(short, long)]
    pub force: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

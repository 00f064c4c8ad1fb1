//! Before anything is written: does another host use the array? Then a heartbeat of this one's own, where one is wanted.
//!
//! ```text
//!  look ─► somebody beats: wait for two beats and a second, look again ─► it beats on: refuse
//!    │                                                               └─► it does not: it crashed
//!    └─► write one's own on all members ─► wait for one beat, look again ─► another's stands there: refuse
//! ```
//!
//! The second wait is for hosts that start at the same moment: the last to write finds its own beat, all others find that.
//! A beat of another start under the same kernel is not waited for where members are locked within a host, or where its
//! process has ended, nor one of an owner of whom the caller knows it, by a lease that has run out; two servers of one host that reach members over a network are strangers otherwise. These
//! are the rules of ext4's multi-mount protection (fs/ext4/mmp.c: `ext4_multi_mount_protect`), over several members.
//!
//! Members' disks that can are reserved for this host before anything is written to them, and taken from a host that has
//! crashed or hangs: should that one go on after all, the disks refuse its writes.
//!
//! A process that has the array from another one of this host goes on with that one's beat, and so with its key: at no moment
//! does the array look unused to others, nor do the disks take their writes.
//!
//! A host without a heartbeat looks, too, so it is kept off by one that has it.

use super::choose::{Choice, Chosen};
use crate::control::record::members::Standing;
use crate::error::AssembleError;
use crate::metadata::heartbeat::{
    FirstBeat, GRACE, end, host, interval, look, patience, place, send,
};
use crate::metadata::reservations::{Held, Reserving, Taking, key_of, leave};
use crate::metadata::superblock::read_superblock;
use crate::options::{AssembleOptions, Context, Host};
use braid_device::Device;
use braid_format::heartbeat::{Found, Heartbeat};
use braid_shard::plant::planted;
use std::rc::Rc;

/// A member that has a place for a heartbeat.
struct Post {
    name: String,
    /// Its number in the array.
    number: u32,
    device: Rc<dyn Device>,
    /// Byte of the member.
    at: u64,
    events: u64,
    /// As it was found with the superblock.
    beat: Option<Heartbeat>,
}

/// A start that no other host disputes.
pub(crate) struct Claim {
    posts: Vec<Post>,
    /// `None` without a heartbeat.
    first: Option<FirstBeat>,
}

impl Claim {
    /// The first beat, which those of control go on from.
    pub(crate) fn first(&self) -> Option<FirstBeat> {
        self.first.clone()
    }

    /// The start has failed: nobody need wait for this host.
    pub(super) async fn give_up(&self, ctx: &Context) {
        let Some(FirstBeat { beat, held, .. }) = &self.first else { return };
        for post in &self.posts {
            end(&ctx.shard, &post.device, post.at, beat).await;
        }
        leave_all(held).await;
    }
}

/// See the module's documentation. Writes nothing but heartbeats, and none when the assembly is read-only.
///
/// # Errors
/// Another host uses the array, or no member has a place for the heartbeat that is wanted.
pub(super) async fn claim(
    ctx: &Context,
    choice: &Choice,
    options: &AssembleOptions,
) -> Result<Claim, AssembleError> {
    let title = choice.title();
    let posts: Vec<Post> = choice.members.iter().filter_map(post).collect();
    let array = choice.shared.set_uuid;
    // As they were found with the superblocks: who sees none and wants none asks no member anything more.
    let beats = posts.iter().enumerate().filter_map(|(nr, post)| Some((nr, post.beat.clone()?)));
    let uses_it = |(_, beat): &(usize, Heartbeat)| beat.array == array && beat.beating;
    let seen: Vec<(usize, Heartbeat)> = beats.filter(uses_it).collect();
    let may_live = |(_, beat): &&(usize, Heartbeat)| !has_ended(ctx, options, beat);
    if let Some((_, beat)) = seen.iter().find(may_live) {
        if options.read_only {
            tracing::warn!(
                "array {title}: {} has said that it uses it, and not that it stopped: what is read may change meanwhile",
                user(beat, &options.host)
            );
            return Ok(Claim { posts, first: None });
        }
        if !planted("beat-not-waited-for") {
            wait_for_beats(ctx, (&title, &options.host), (&posts, array), &seen).await?;
        }
    }
    if options.read_only {
        return Ok(Claim { posts, first: None });
    }
    let handed_over = seen.iter().map(|(_, beat)| beat);
    let handed_over =
        handed_over.filter(|beat| options.handed_over && is_of_this_host(beat, &options.host));
    let before = handed_over.max_by_key(|beat| beat.sequence);
    let own = |millis: u32| Heartbeat {
        array,
        owner: before.map(|beat| beat.owner).or(options.owner).unwrap_or_else(|| (ctx.new_uuid)()),
        boot: options.host.boot,
        sequence: before.map_or(1, |beat| beat.sequence.wrapping_add(1)),
        time: (ctx.wall_clock)(),
        interval: millis,
        beating: true,
        host: options.host.name.clone(),
        process: options.host.process,
    };
    let Some(millis) = options.heartbeat_ms else {
        if !seen.is_empty() {
            // Nobody need wait for one that has crashed any more, nor hold what it had reserved.
            let beat = Heartbeat { beating: false, ..own(0) };
            if let Some(reserving) = reserving(options, &posts, &beat) {
                leave_all(&reserve_all(&title, &posts, &reserving).await?).await;
            }
            write_all(ctx, &posts, &beat).await;
        }
        return Ok(Claim { posts, first: None });
    };
    let beat = own(millis);
    let reserving = reserving(options, &posts, &beat);
    if let (Some(before), None) = (before, &reserving) {
        for post in &posts {
            leave(&post.device, key_of(&before.owner)).await;
        }
    }
    // First: a disk that a crashed host had reserved takes no beat before.
    let held = match &reserving {
        Some(reserving) => reserve_all(&title, &posts, reserving).await?,
        None => Vec::new(),
    };
    let on = write_all(ctx, &posts, &beat).await;
    if on.is_empty() {
        leave_all(&held).await;
        return Err(AssembleError::NoHeartbeat { array: title });
    }
    ctx.shard.sleep(interval(&beat)).await;
    let found = look_at(ctx, &posts, array).await.beats;
    let claim = Claim { posts, first: Some(FirstBeat { beat: beat.clone(), on, reserving, held }) };
    // A beat that has been waited for stands where this host's could not be written.
    let disputes =
        |seen_now: &&(usize, Heartbeat)| seen_now.1.owner != beat.owner && !seen.contains(seen_now);
    let other = found.iter().find(disputes);
    let disputed = match other {
        Some((nr, other)) => {
            Some(used_elsewhere((&title, &options.host), &claim.posts, *nr, other))
        }
        None => changed(ctx, &title, &claim.posts).await,
    };
    match disputed {
        Some(why) => {
            claim.give_up(ctx).await;
            Err(why)
        }
        None => Ok(claim),
    }
}

fn post(chosen: &Chosen) -> Option<Post> {
    if matches!(chosen.standing, Standing::Faulty(_)) {
        return None;
    }
    let found = &chosen.found;
    Some(Post {
        name: found.name.clone(),
        number: found.superblock.dev_number,
        device: Rc::clone(&found.device),
        at: place(&found.superblock)?,
        events: found.superblock.events,
        beat: found.beat.clone(),
    })
}

/// Nobody beats so any more, by the caller's word or the kernel's, or he has handed the array over to this start.
fn has_ended(ctx: &Context, options: &AssembleOptions, beat: &Heartbeat) -> bool {
    if options.ended == Some(beat.owner) {
        return true;
    }
    let host = &options.host;
    let over = || beat.process.is_some_and(|process| (ctx.has_ended)(&process));
    is_of_this_host(beat, host)
        && (host.locks || options.handed_over || over() || planted("beat-of-own-host-ignored"))
}

fn is_of_this_host(beat: &Heartbeat, host: &Host) -> bool {
    beat.boot == host.boot && host.boot != [0; 16]
}

/// The reservations of a start whose beat is `beat`.
fn reserving(options: &AssembleOptions, posts: &[Post], beat: &Heartbeat) -> Option<Reserving> {
    let beats = posts.iter().filter_map(|post| post.beat.as_ref());
    let mut earlier: Vec<u64> =
        beats.filter(|found| found.array == beat.array).map(|found| key_of(&found.owner)).collect();
    earlier.sort_unstable();
    earlier.dedup();
    options.reservations.then(|| Reserving { key: key_of(&beat.owner), earlier })
}

/// Reserves the disks of all members that can. One after the other, in the order of their numbers: of two hosts that
/// begin at the same moment one gets all of them.
async fn reserve_all(
    title: &str,
    posts: &[Post],
    reserving: &Reserving,
) -> Result<Vec<Held>, AssembleError> {
    let mut held = Vec::new();
    let mut posts: Vec<&Post> = posts.iter().collect();
    posts.sort_by_key(|post| post.number);
    for post in posts {
        match reserving.take(&post.name, &post.device).await {
            Taking::Held(disk) => held.push(disk),
            Taking::Unable(why) => tracing::info!(
                "array {title}: {} is not reserved for this host: {why}; its heartbeat alone keeps other hosts off",
                post.name
            ),
            Taking::Elsewhere => {
                leave_all(&held).await;
                let (array, name) = (title.to_string(), post.name.clone());
                return Err(AssembleError::ReservedElsewhere { array, name });
            }
        }
    }
    Ok(held)
}

async fn leave_all(held: &[Held]) {
    for disk in held {
        disk.leave().await;
    }
}

/// The findings of a look at the posts.
struct Looked {
    /// The beats of whoever uses the array, with the number of the post.
    beats: Vec<(usize, Heartbeat)>,
    /// Posts that could not be read. They say nothing, neither that somebody beats nor that he has stopped; such a member
    /// fails by other reads.
    unread: Vec<usize>,
}

async fn look_at(ctx: &Context, posts: &[Post], array: [u8; 16]) -> Looked {
    let mut looked = Looked { beats: Vec::new(), unread: Vec::new() };
    for (nr, post) in posts.iter().enumerate() {
        match look(&ctx.shard, &post.device, post.at).await {
            Ok(Found::Beat(beat)) if beat.array == array && beat.beating => {
                looked.beats.push((nr, beat));
            }
            Ok(_) => {}
            Err(_) => looked.unread.push(nr),
        }
    }
    looked
}

/// Waits for as long as somebody who lives would need for another beat.
async fn wait_for_beats(
    ctx: &Context,
    titled: (&str, &Host),
    (posts, array): (&[Post], [u8; 16]),
    seen: &[(usize, Heartbeat)],
) -> Result<(), AssembleError> {
    let Some((_, slowest)) = seen.iter().max_by_key(|(_, beat)| beat.interval) else {
        return Ok(());
    };
    let (title, own) = titled;
    tracing::warn!(
        "array {title}: {} used it and has not said that it stopped; waiting {} s to see whether it still does",
        user(slowest, own),
        patience(slowest).div_ceil(1_000_000_000)
    );
    for pause in [interval(slowest), interval(slowest), GRACE] {
        ctx.shard.sleep(pause).await;
        let Looked { beats: now, unread } = look_at(ctx, posts, array).await;
        // One that has ended meanwhile lived, and has changed what was read.
        let same = |seen: &(usize, Heartbeat)| now.contains(seen) || unread.contains(&seen.0);
        if let Some((nr, beat)) = seen.iter().find(|seen| !same(seen)) {
            let latest = now.iter().find(|(other, _)| other == nr).map_or(beat, |(_, beat)| beat);
            return Err(used_elsewhere(titled, posts, *nr, latest));
        }
        if let Some((nr, beat)) = now.iter().find(|now| !seen.contains(now)) {
            return Err(used_elsewhere(titled, posts, *nr, beat));
        }
    }
    Ok(())
}

/// Writes `beat` to all that have a place for it. Gives the names of those that took it.
async fn write_all(ctx: &Context, posts: &[Post], beat: &Heartbeat) -> Vec<String> {
    let mut taken = Vec::new();
    for post in posts {
        let free = look(&ctx.shard, &post.device, post.at).await;
        match free {
            Ok(Found::Nothing | Found::Beat(_)) => {
                if send(&ctx.shard, &post.device, post.at, beat).await.is_ok() {
                    taken.push(post.name.clone());
                }
            }
            Ok(Found::Foreign) => tracing::warn!(
                "{}: something else stands where its heartbeat would (a boot loader?), so it has none",
                post.name
            ),
            Err(_) => {}
        }
    }
    taken
}

/// A superblock is not what was read before the array was claimed: another host has stopped the array in between.
async fn changed(ctx: &Context, title: &str, posts: &[Post]) -> Option<AssembleError> {
    for post in posts {
        let now = read_superblock(&ctx.shard, &post.device, &post.name).await;
        if let Ok(Some(now)) = now
            && now.events != post.events
        {
            let (array, name) = (title.to_string(), post.name.clone());
            return Some(AssembleError::ChangedMeanwhile { array, name });
        }
    }
    None
}

/// The owner of a beat, for messages.
fn user(beat: &Heartbeat, own: &Host) -> String {
    match is_of_this_host(beat, own) {
        true => "another server on this host".to_string(),
        false => host(beat),
    }
}

fn used_elsewhere(
    (title, own): (&str, &Host),
    posts: &[Post],
    nr: usize,
    beat: &Heartbeat,
) -> AssembleError {
    AssembleError::UsedElsewhere {
        array: title.to_string(),
        host: user(beat, own),
        name: posts.get(nr).map_or_else(String::new, |post| post.name.clone()),
    }
}

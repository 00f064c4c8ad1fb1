//! Makes a running array of its members.
//!
//! `choose` decides from the superblocks who takes part, `journal` replays a write journal, `rescue` who else does when it cannot start otherwise and somebody
//! insists, `renumbered` what slots a member means that missed an update in which they got other numbers, `reshape` what an array has become that is being reshaped, `doubt` what may be wrong after a start by force, `heartbeat` whether another host uses it, `outlook` tells all that without starting anything;
//! this file reads them, checks what was
//! chosen against the array's shape, and starts engines and control.
//!
//! An internal bitmap says which parts an unclean stop leaves to be resynced, and what a member that was
//! being brought up to date lacks (`crate::metadata::bitmap::load`).
//!
//! Does not write anything itself; the first superblocks are written by control, after all checks.

pub(crate) mod bad_blocks;
pub(crate) mod choose;
mod doubt;
pub(crate) mod heartbeat;
mod journal;
mod logged;
pub mod outlook;
mod renumbered;
mod rescue;
mod reshape;
mod running;

use crate::array::{Array, ArrayParts, new_id};
use crate::control::record::bad_list::Bad;
use crate::control::record::members::{Member, NewMember, Roster, Standing};
use crate::control::{Control, Given};
use crate::error::AssembleError;
use crate::metadata::bitmap::load::{Loaded, Source, Unsupported, Wanted, load};
use crate::metadata::component::used_size;
use crate::metadata::heartbeat::FirstBeat;
use crate::metadata::holder::Holder;
use crate::metadata::journal::Begun;
use crate::metadata::ppl::replay::Logs;
use crate::metadata::superblock::read_with_beat;
use crate::options::{AssembleOptions, Context};
use crate::state::array_size::ArraySize;
use crate::state::bad_blocks::BadBlocks;
use crate::state::geometry::Geometry;
use crate::state::in_doubt::InDoubt;
use braid_device::meter::Metered;
use braid_device::{Device, DeviceInfo, Opener};
use braid_format::SECTOR;
use braid_format::superblock::Superblock;
use braid_layout::{Layout, Level, Parity, Slot, Spec};
use braid_shard::Shard;
use braid_shard::plant::planted;
use choose::{Choice, Chosen, Found, choose, missing_text};
use journal::Journal;
use std::rc::Rc;
use std::sync::Arc;

const SECTOR_BYTES: u64 = SECTOR as u64;

/// Assembles the array whose members `openers` are, in any order, and starts it. A member that is
/// not up to date, or whose bad-block log is lost, is left out (the status says so) and can be added again as a spare.
///
/// A read-only assembly writes no byte. Else the superblocks are brought up to date, and a recovery
/// or resync that is due starts in the background.
///
/// # Errors
/// Says which member or number is at fault and what to do. Nothing was written then, except that
/// [`AssembleError::Start`] may come after some superblocks were.
pub async fn assemble(
    ctx: &Context,
    openers: Vec<Arc<dyn Opener>>,
    options: AssembleOptions,
) -> Result<Arc<Array>, AssembleError> {
    let prepared = prepare(ctx, openers, &options).await?;
    let lost = prepared.journal.is_lost() && !planted("started-without-journal");
    let read_only = options.read_only || lost;
    let options = AssembleOptions { read_only, ..options };
    if let Some(name) = Control::running(&ctx.shard, prepared.choice.shared.set_uuid) {
        return Err(AssembleError::Running { array: name });
    }
    let claim = heartbeat::claim(ctx, &prepared.choice, &options).await?;
    let started = start(ctx, prepared, options, claim.first()).await;
    if started.is_err() {
        claim.give_up(ctx).await;
    }
    started
}

/// Starts what was prepared. `beat`: the first of its heartbeat, which stands on members.
async fn start(
    ctx: &Context,
    prepared: Prepared,
    options: AssembleOptions,
    beat: Option<FirstBeat>,
) -> Result<Arc<Array>, AssembleError> {
    let Prepared { mut choice, level, layout, logs, journal, resynced, taken, in_doubt, forced } =
        prepared;
    let title = choice.title();
    for (_, line) in &taken {
        tracing::warn!(
            "array {title}: taken by force, although the array went on without it: {line}"
        );
    }
    if let Some(why) = forced {
        tracing::warn!("array {title}: {why}");
    }
    let logged = logs.as_ref().map(|logs| logged::judge(logs, &choice, &layout));
    let logs_say_clean = logged.as_ref().is_some_and(|logged| logged.clean);
    if level.is_parity()
        && !choice.shared.is_clean()
        && !logs_say_clean
        && let Some(chosen) = choice.members.iter().find(|chosen| !chosen.found.bad.is_empty())
    {
        tracing::warn!(
            "array {title}: it was not stopped cleanly and {} has bad blocks recorded: those near writes of that \
             moment may come back wrong (the write hole)",
            chosen.found.name
        );
    }
    let used = used_size(&choice.shared);
    choice.shared.size = used;
    choice.members.iter_mut().for_each(|chosen| chosen.found.superblock.size = used);
    let geometry = geometry(ctx, &choice, level, layout)?;

    let id = new_id();
    let name = match &options.name {
        Some(name) => name.clone(),
        None => String::from_utf8_lossy(choice.shared.set_name.short()).into_owned(),
    };
    let name = if name.is_empty() { format!("array-{id}") } else { name };
    let devices: Vec<Rc<dyn Device>> =
        choice.data_members().map(|chosen| Rc::clone(&chosen.found.device)).collect();
    let geometries = reshape::geometries(&choice, &geometry)?;
    // Users see the size of before until a reshape has ended, and what is to be cut off was cut off before.
    let size = geometries.before().whole_blocks().min(geometry.whole_blocks());
    let device = DeviceInfo { size, ..running::device_info(&name, &geometry, &devices) };
    let bitmap = if options.read_only || !geometry.level.has_redundancy() {
        None
    } else {
        bitmap(ctx, &choice, Wanted { covers: geometry.sync_size(), resynced }).await?
    };
    let loaded = bitmap.as_ref().map_or((resynced, false), |b| (b.resynced, b.usable));
    let there = u16::try_from(ctx.remotes.len()).unwrap_or(u16::MAX);
    let (settings, refused) = options.settings.suited(&geometry, there, options.memory_max);
    for why in refused {
        tracing::warn!("array {name}: {why}; it starts with \"auto\" instead");
    }
    geometries.set_owners(settings.shards.unwrap_or(there));
    let refused = match (&logs, &logged) {
        (Some(logs), Some(logged)) => logged::replay(ctx, &title, &geometry, logs, logged).await?,
        _ => Vec::new(),
    };
    let begun = match journal.log() {
        Some(log) => {
            replay_journal(ctx, &title, &geometry, &mut choice, log, options.read_only).await?
        }
        None => None,
    };
    let options = AssembleOptions { settings, ..options };
    let (mut roster, left_out) = roster(&ctx.shard, choice, level, loaded);
    logged::disown(&mut roster, &geometry, &title, refused)?;
    let keeper = bitmap.map(|loaded| loaded.keeper);
    let openers = roster.members.iter().map(|member| (member.nr, Arc::clone(&member.opener)));
    let start = running::Start {
        id,
        info: device.clone(),
        size: Arc::new(ArraySize::new(device.size)),
        openers: openers.collect(),
        update: roster.view(&geometries, options.read_only, &[]),
        recorded: logged::policy(&roster, keeper.as_ref(), options.read_only),
        settings: (options.settings, options.memory_max),
        aggregate: options.aggregate,
        reports: Arc::default(),
    };
    let size = Arc::clone(&start.size);
    let engine = running::start_engines(ctx, start, &title).await?;
    let uuid = roster.shared.set_uuid;
    let name_of = name.clone();
    let parts =
        crate::control::Parts { id, name: name_of, engine, roster, keeper, journal: begun, beat };
    let taken = taken.into_iter().map(|(_, line)| line).collect();
    let given = Given { left_out, taken_by_force: taken, in_doubt: in_doubt.map(Arc::new) };
    let control = Control::start(ctx, &options, parts, given);
    control.begin().await;
    if control.record.roster.borrow().broken {
        control.stop().await;
        let why = "a member that the data depends on does not take them; check it".to_string();
        return Err(AssembleError::Start { array: title, why });
    }
    Ok(Arc::new(Array::new(ArrayParts {
        id,
        name,
        uuid,
        description: running::description(&geometry),
        device,
        size,
        read_only: options.read_only,
        remotes: ctx.remotes.clone(),
        home: ctx.shard.remote(),
    })))
}

/// Carries out what the journal's log asks for; a read-only assembly leaves it as it is.
async fn replay_journal(
    ctx: &Context,
    title: &str,
    geometry: &Geometry,
    choice: &mut Choice,
    log: &journal::Log,
    read_only: bool,
) -> Result<Option<Begun>, AssembleError> {
    let Some(parity) = geometry.parity() else { return Ok(None) };
    if read_only {
        if !log.is_empty() {
            tracing::warn!(
                "array {title}: its journal holds writes that the members may lack, and a read-only assembly does not \
                 replay it: what is read may be older than what was written last"
            );
        }
        return Ok(None);
    }
    loop {
        let begun = replay_once(ctx, title, parity, choice, log).await;
        // What the log has for it is in the parity of the others.
        match begun {
            Err(AssembleError::Replay { name, error, .. })
                if drop_refusing(choice, geometry, &name) =>
            {
                tracing::warn!(
                    "array {title}: {name} is faulty: what the journal has for it could not be written: {error}"
                );
            }
            other => return other.map(Some),
        }
    }
}

/// Leaves a member out that did not take what a log has for it, where the level can do without it. False: it cannot.
fn drop_refusing(choice: &mut Choice, geometry: &Geometry, name: &str) -> bool {
    let missing = choice.slots_not_in_sync();
    let refusing = choice.members.iter_mut().find(|chosen| chosen.found.name == name);
    let Some(refusing) = refusing else { return false };
    let Some(lost) = refusing.standing.slot() else { return false };
    if !geometry.survives(|slot| slot != lost && !missing.contains(&slot)) {
        return false;
    }
    let why = "what the journal has for it could not be written".to_string();
    refusing.standing = Standing::Faulty(why);
    // A replacement takes the slot as it is, and gets what the journal has when that is replayed again.
    choose::replacements(choice);
    true
}

async fn replay_once(
    ctx: &Context,
    title: &str,
    parity: &Parity,
    choice: &mut Choice,
    log: &journal::Log,
) -> Result<Begun, AssembleError> {
    let holders: Vec<Holder> = choice.members.iter().filter_map(logged::holder).collect();
    let journal = choice.members.iter_mut().find(|chosen| chosen.standing == Standing::Journal);
    let Some(Chosen { found, .. }) = journal else {
        return Err(AssembleError::NoMember);
    };
    let any = u64::from_le_bytes((ctx.new_uuid)().first_chunk().copied().unwrap_or_default());
    let device = (&Rc::clone(&found.device), &mut found.superblock);
    journal::replay(&ctx.shard, title, parity, log, &holders, device, any >> 32).await
}

/// An assembly of which everything is known that superblocks and bad-block logs say.
pub(crate) struct Prepared {
    pub(crate) choice: Choice,
    level: Level,
    layout: Layout,
    /// The partial parity logs, when the array has some and needs them.
    logs: Option<Logs>,
    /// The write journal, when the array has one.
    journal: Journal,
    /// Redundancy holds below this byte.
    resynced: u64,
    /// Members that were taken by force: their names, and a line on each.
    pub(crate) taken: Vec<(String, String)>,
    /// The bytes that may be wrong, since it is started by force.
    in_doubt: Option<InDoubt>,
    /// What has to be said of a start by force.
    forced: Option<String>,
}

/// Reads everything that an assembly decides by, and decides. Writes nothing.
pub(crate) async fn prepare(
    ctx: &Context,
    openers: Vec<Arc<dyn Opener>>,
    options: &AssembleOptions,
) -> Result<Prepared, AssembleError> {
    let found = examine_all(ctx, openers).await?;
    let given: Vec<String> = found.iter().map(|found| found.name.clone()).collect();
    let mut choice = choose(found, options.uuid)?;
    if !options.read_only {
        reshape::settle(&mut choice);
    }
    let in_the_way = reshape::in_the_way(&choice, options.force);
    choose::check_supported(&choice, options.read_only, in_the_way)?;
    let level = level(&choice)?;
    let mut taken = Vec::new();
    if options.take_stale {
        let known = choice.members.len();
        let shape = layout(&choice, level).ok();
        let lines = rescue::take(&mut choice, level, shape.as_ref());
        let names = choice.members.iter().skip(known).map(|chosen| chosen.found.name.clone());
        taken = names.zip(lines).collect();
    }
    read_bad_blocks(&ctx.shard, &mut choice).await;
    // It may have left out a member that is being replaced.
    choose::replacements(&mut choice);
    let logs = logged::read(ctx, &choice, options).await;
    let shape = layout(&choice, level);
    let mut journal = match &shape {
        Ok(layout) => journal::find(&ctx.shard, &choice, layout).await?,
        Err(_) => Journal::Absent,
    };
    if let Journal::Lost(why) = &journal {
        if options.force && !options.read_only {
            journal::give_up(&mut choice, why);
            journal = Journal::Absent;
        } else {
            choice.left_out.push(journal::read_only_line(why));
        }
    }
    let logs_say_clean = match (&logs, &shape) {
        (Some(logs), Ok(layout)) => logged::judge(logs, &choice, layout).clean,
        _ => false,
    };
    let dirty = !(choice.shared.is_clean() || logs_say_clean) || !taken.is_empty();
    let in_doubt = match &shape {
        Ok(Layout::Parity(parity)) if dirty && choice.shared.events > 0 => {
            in_doubt(ctx, &choice, parity, taken.is_empty()).await
        }
        _ => None,
    };
    let force = (&given[..], !taken.is_empty());
    let stopped = (!dirty, in_doubt.as_ref());
    let (resynced, forced) = check_complete(&choice, level, options, force, stopped)?;
    let resynced = match resynced {
        u64::MAX => u64::MAX,
        // Where it was counted from has another place when the reshape has ended.
        _ if choice.shared.reshape.is_some() => 0,
        resynced => resynced,
    };
    let layout = shape?;
    check_survives(&choice, level, &layout, &given)?;
    choice.leave_stale_out();
    Ok(Prepared { choice, level, layout, logs, journal, resynced, taken, in_doubt, forced })
}

/// The bytes that may be wrong of an array that was not stopped cleanly and lacks members; `None` where nothing is.
async fn in_doubt(
    ctx: &Context,
    choice: &Choice,
    parity: &Parity,
    bitmap_counts: bool,
) -> Option<InDoubt> {
    if choice.slots_not_in_sync().is_empty() {
        return None;
    }
    let wanted = Wanted { covers: parity.used_component_size(), resynced: 0 };
    // One that is of no use is complained about when the array starts.
    let loaded = bitmap(ctx, choice, wanted).await.ok().flatten();
    let usable = loaded.filter(|loaded| loaded.usable && bitmap_counts);
    let found = doubt::of(choice, parity, usable.as_ref().map(|loaded| &loaded.keeper));
    (!found.is_empty()).then_some(found)
}

pub(crate) async fn examine_all(
    ctx: &Context,
    openers: Vec<Arc<dyn Opener>>,
) -> Result<Vec<Found>, AssembleError> {
    if openers.is_empty() {
        return Err(AssembleError::NoMember);
    }
    let mut all: Vec<Found> = Vec::with_capacity(openers.len());
    for opener in openers {
        let name = opener.name().to_string();
        if all.iter().any(|known| known.name == name) {
            let what = "it was given twice".to_string();
            return Err(AssembleError::SameMember { first: name.clone(), second: name, what });
        }
        let device = opener.open(&ctx.shard)?;
        let (superblock, beat) = match read_with_beat(&ctx.shard, &device, &name).await {
            Err(_) if planted("unread-left-out") => continue,
            read => read?,
        };
        let superblock = superblock.ok_or(AssembleError::NoSuperblock { name: name.clone() })?;
        all.push(Found { name, opener, device, superblock, beat, bad: BadBlocks::default() });
    }
    Ok(all)
}

/// Reads the bad-block logs of all who take part. A member whose log is lost is left out, as by md: which of its blocks are
/// lost is known to nobody, so all that it holds would have to count as good. Its superblock still says what the others are.
async fn read_bad_blocks(shard: &Shard, choice: &mut Choice) {
    let title = choice.title();
    for mut chosen in std::mem::take(&mut choice.members) {
        match bad_blocks::bad_blocks(shard, &chosen.found).await {
            Ok(bad) => {
                chosen.found.superblock.bad_blocks = !bad.is_empty();
                chosen.found.bad = bad;
                choice.members.push(chosen);
            }
            Err(why) => {
                let line = format!(
                    "{}: its bad-block log cannot be used ({why}), so what is lost on it is not known: check it, \
                     then add it again as a spare, which fills it anew",
                    chosen.found.name
                );
                tracing::warn!("array {title}: left out: {line}");
                choice.left_out.push(line);
            }
        }
    }
}

pub(crate) fn level(choice: &Choice) -> Result<Level, AssembleError> {
    let number = choice.shared.level;
    Level::from_md(number)
        .ok_or_else(|| AssembleError::Level { array: choice.title(), level: number })
}

/// Refuses a degraded start that the caller did not ask for or that may invent data. Gives the byte
/// below which redundancy holds (`u64::MAX`: everywhere), and what has to be said when it starts by force. `clean`: it was stopped cleanly, or will be as if it had once the
/// logs are replayed; `in_doubt`: the bytes of parity levels that may be wrong else.
fn check_complete(
    choice: &Choice,
    level: Level,
    options: &AssembleOptions,
    (given, taken): (&[String], bool),
    (clean, in_doubt): (bool, Option<&InDoubt>),
) -> Result<(u64, Option<String>), AssembleError> {
    let shared = &choice.shared;
    let clean = clean || !level.has_redundancy();
    let missing = choice.slots_not_in_sync();
    let whole = u64::MAX;
    // Writes that a member taken by force lacks may be anywhere.
    let unsynced = || if taken { 0 } else { unsynced(shared) };
    if missing.is_empty() {
        return Ok((if clean { whole } else { unsynced() }, None));
    }
    let (array, left_out) = (choice.title(), choice.all_left_out());
    let empty = choice.empty_slots();
    // Said before anything that an option could allow.
    let hopeless = !level.has_redundancy()
        || (level.is_parity() && missing.len() > level.parity_count())
        || missing.len() >= shared.raid_disks as usize;
    if hopeless {
        return Err(not_enough(choice, level, given));
    }
    // Insisting on stale members says more than --run does, as for mdadm.
    if !empty.is_empty() && !options.start_degraded && !taken {
        return Err(AssembleError::Degraded { array, missing: missing_text(&empty), left_out });
    }
    if clean {
        return Ok((whole, None));
    }
    // An array that has never run holds nothing that a wrong parity could spoil.
    let never_ran = shared.events == 0;
    if level.is_parity() && !never_ran {
        if !options.force {
            let in_doubt = in_doubt.cloned().unwrap_or_else(|| InDoubt::of_slots(missing.clone()));
            let (missing, in_doubt) = (missing_text(&missing), Box::new(in_doubt));
            return Err(AssembleError::DirtyDegraded { array, missing, left_out, in_doubt });
        }
        let forced = (!shared.is_clean()).then(|| {
            format!(
                "started by force although it was not stopped cleanly and {}: blocks of theirs near writes of that moment \
                 may come back wrong (the write hole); {}",
                missing_text(&missing),
                in_doubt.map_or_else(String::new, InDoubt::to_string)
            )
        });
        // As mdadm does: what is there counts as right, where nothing is left to compare it with.
        let nothing_left = choice.slots_without_data().len() >= level.parity_count();
        return Ok((if nothing_left { whole } else { unsynced() }, forced));
    }
    Ok((unsynced(), None))
}

fn unsynced(shared: &Superblock) -> u64 {
    // MAX would mean that all is in sync.
    shared.resync_offset.saturating_mul(SECTOR_BYTES).min(u64::MAX - 1)
}

pub(crate) fn not_enough(choice: &Choice, level: Level, given: &[String]) -> AssembleError {
    let missing = choice.slots_not_in_sync();
    let raid_disks = choice.shared.raid_disks as usize;
    AssembleError::NotEnough {
        array: choice.title(),
        have: raid_disks - missing.len().min(raid_disks),
        raid_disks,
        level,
        missing: missing_text(&missing).into(),
        left_out: choice.all_left_out(),
        by_force: rescue::offer(choice, level, layout(choice, level).ok().as_ref()).into(),
        given: given.join(" ").into(),
    }
}

/// md's numbers of the layout and the sectors of a chunk, those at the end of a reshape that is under way.
fn final_shape(shared: &Superblock) -> (u32, u32) {
    match shared.reshape {
        Some(reshape) => (reshape.new_layout, reshape.new_chunk_sectors),
        None => (shared.layout, shared.chunk_sectors),
    }
}

fn layout(choice: &Choice, level: Level) -> Result<Layout, AssembleError> {
    let shared = &choice.shared;
    let by_slot = |slot: Slot| {
        let chosen = choice.members.iter().find(|chosen| chosen.standing.slot() == Some(slot));
        chosen.map(|chosen| chosen.found.superblock.data_size.saturating_mul(SECTOR_BYTES))
    };
    let (number, chunk_sectors) = final_shape(shared);
    let spec = Spec {
        level,
        layout: if level == Level::Raid0 && !shared.raid0_layout { 0 } else { number },
        chunk_size: u64::from(chunk_sectors) * SECTOR_BYTES,
        raid_disks: shared.raid_disks as usize,
        component_size: shared.size.saturating_mul(SECTOR_BYTES),
        member_sizes: (0..shared.raid_disks as usize).map_while(by_slot).collect(),
    };
    Layout::new(&spec).map_err(|source| AssembleError::Layout { array: choice.title(), source })
}

fn check_survives(
    choice: &Choice,
    level: Level,
    layout: &Layout,
    given: &[String],
) -> Result<(), AssembleError> {
    let missing = choice.slots_not_in_sync();
    let there = |slot: Slot| !missing.contains(&slot);
    if layout.survives(there) && reshape::old_shape_survives(choice, there) {
        return Ok(());
    }
    Err(not_enough(choice, level, given))
}

fn geometry(
    ctx: &Context,
    choice: &Choice,
    level: Level,
    layout: Layout,
) -> Result<Arc<Geometry>, AssembleError> {
    let shared = &choice.shared;
    let component_size = shared.size.saturating_mul(SECTOR_BYTES);
    let mut logical_block = SECTOR as u32;
    for chosen in choice.data_members() {
        let (name, superblock) = (&chosen.found.name, &chosen.found.superblock);
        let have = superblock.data_size.saturating_mul(SECTOR_BYTES);
        if have < component_size {
            return Err(AssembleError::MemberTooSmall {
                array: choice.title(),
                name: name.clone(),
                have,
                need: component_size,
            });
        }
        let block = chosen.found.device.info().logical_block.max(SECTOR as u32);
        logical_block = logical_block.max(block);
        for (what, bytes) in [
            ("a chunk", layout.chunk_size()),
            ("a data offset", superblock.data_offset.saturating_mul(SECTOR_BYTES)),
            (
                "a new data offset",
                superblock.new_data_offset().unwrap_or(0).saturating_mul(SECTOR_BYTES),
            ),
        ] {
            if !bytes.is_multiple_of(u64::from(block)) {
                let (array, name) = (choice.title(), name.clone());
                return Err(AssembleError::NotAligned { array, name, block, what, bytes });
            }
        }
    }
    let shards = u16::try_from(ctx.remotes.len()).unwrap_or(u16::MAX);
    let (number, _) = final_shape(shared);
    let merges = choice.members.iter().any(|chosen| chosen.found.device.info().wants_plug);
    let geometry = Geometry::new(level, number, layout, logical_block, component_size, shards);
    Ok(Arc::new(if merges { geometry.in_runs() } else { geometry }))
}

/// Reads the bitmap, when the array has one.
async fn bitmap(
    ctx: &Context,
    choice: &Choice,
    wanted: Wanted,
) -> Result<Option<Loaded>, AssembleError> {
    if choice.shared.bitmap_offset == 0 {
        return Ok(None);
    }
    let in_sync = |chosen: &&Chosen| matches!(chosen.standing, Standing::InSync(_));
    let sources: Vec<Source> = choice
        .members
        .iter()
        .filter(in_sync)
        .map(|Chosen { found, .. }| Source {
            name: found.name.clone(),
            device: Rc::clone(&found.device),
            // That of all, also where power failed before this one was told.
            superblock: Superblock {
                bitmap_offset: choice.shared.bitmap_offset,
                ..found.superblock.clone()
            },
        })
        .collect();
    let loaded = load(&ctx.shard, &choice.shared, &sources, &wanted).await;
    loaded.map(Some).map_err(|Unsupported(what)| {
        let array = choice.title();
        AssembleError::Unsupported { array, what }
    })
}

fn roster(
    shard: &Shard,
    choice: Choice,
    level: Level,
    (resynced, usable): (u64, bool),
) -> (Roster, Vec<String>) {
    let Choice { shared, begun, members, left_out, .. } = choice;
    // The content of a journal is written again to who holds a slot, and to nobody else.
    let doubtful = (!shared.is_clean() && resynced == u64::MAX)
        || (shared.journal && !planted("replacement-behind-journal"));
    let members: Vec<Member> = members
        .into_iter()
        .zip(0..)
        .map(|(chosen, nr)| {
            let Chosen { found, standing } = chosen;
            let Found { opener, device, superblock, bad, .. } = found;
            // The recovery position on disk holds, except at level 10, where recovery starts anew.
            let standing = match standing {
                Standing::Rebuilding { slot, by_bitmap, .. } if level == Level::Raid10 => {
                    let by_bitmap = by_bitmap && usable;
                    Standing::Rebuilding { slot, recovered: 0, checkpoint: 0, by_bitmap }
                }
                // So does that of a replacement, unless nothing will make the same what was being written to both.
                Standing::Replacing { slot, checkpoint, .. }
                    if doubtful || (level == Level::Raid10 && checkpoint != u64::MAX) =>
                {
                    Standing::Replacing { slot, recovered: 0, checkpoint: 0 }
                }
                Standing::Rebuilding { slot, recovered, checkpoint, by_bitmap } => {
                    let by_bitmap = by_bitmap && usable;
                    Standing::Rebuilding { slot, recovered, checkpoint, by_bitmap }
                }
                other => other,
            };
            let (bad, device) = (Bad::logged(bad), Metered::new(shard, device));
            Member::new(NewMember { nr, opener, device, superblock, standing, bad })
        })
        .collect();
    let next_nr = members.iter().map(|member| member.nr + 1).max().unwrap_or(0);
    let roster = Roster {
        members,
        shared,
        begun,
        dirty: false,
        resynced,
        resync_checkpoint: resynced,
        broken: false,
        next_nr,
        handing_over: None,
    };
    (roster, left_out)
}

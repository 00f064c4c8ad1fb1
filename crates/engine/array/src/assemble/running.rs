//! Starting the engines of an array on all its shards, and what the array is as a device.

use crate::control::for_engines::Controlled;
use crate::control::shards::{Engines, ask};
use crate::engine::home::Home;
use crate::engine::mesh::{Mesh, Msg};
use crate::engine::recorded::Recorded;
use crate::engine::{Engine, Setup};
use crate::error::AssembleError;
use crate::options::Context;
use crate::settings::Settings;
use crate::state::ArrayId;
use crate::state::array_size::ArraySize;
use crate::state::geometry::Geometry;
use crate::state::reports::Reports;
use crate::state::view::{MemberNr, ViewUpdate};
use braid_device::{Device, DeviceInfo, OpenError, Opener};
use braid_layout::{Layout, layout_name};
use braid_shard::Shard;
use braid_shard::mailbox::{MeshEnd, Remote, mesh};
use std::rc::Rc;
use std::sync::Arc;

/// Messages that one shard may have sent to another and that are not taken yet; more wait with the
/// sender.
const MESH_CAPACITY: usize = 1024;

/// The arguments that every engine is started with.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) id: ArrayId,
    pub(super) info: DeviceInfo,
    /// Its size, shared by the engines and the array's handle.
    pub(super) size: Arc<ArraySize>,
    pub(super) openers: Vec<(MemberNr, Arc<dyn Opener>)>,
    pub(super) update: ViewUpdate,
    /// The consistency policy.
    pub(super) recorded: Recorded,
    /// Settings, and bytes that caches may take at most.
    pub(super) settings: (Settings, u64),
    /// See [`AssembleOptions::aggregate`](crate::options::AssembleOptions::aggregate).
    pub(super) aggregate: bool,
    /// Shared by the engines.
    pub(super) reports: Arc<Reports>,
}

/// Starts an engine on every shard and gives the home shard's. When one does not start, none is
/// left.
pub(super) async fn start_engines(
    ctx: &Context,
    start: Start,
    title: &str,
) -> Result<Rc<Engine>, AssembleError> {
    let home = ctx.shard.remote();
    let mut ends: Vec<Option<MeshEnd<Msg>>> = match ctx.remotes.len() {
        0 | 1 => Vec::new(),
        _ => mesh::<Msg>(&ctx.remotes, MESH_CAPACITY).into_iter().map(Some).collect(),
    };
    let id = start.id;
    let mut answers = Vec::with_capacity(ctx.remotes.len());
    for (nr, remote) in ctx.remotes.iter().enumerate() {
        let end = ends.get_mut(nr).and_then(Option::take);
        let (start, home) = (start.clone(), home.clone());
        answers.push(ask(&ctx.shard, remote, move |shard| start_here(shard, start, home, end)));
    }
    let mut problem = None;
    for answer in answers {
        match answer.get().await {
            Some(Ok(())) => {}
            Some(Err(error)) => problem = Some(AssembleError::Open(error)),
            None => problem = Some(gone(title)),
        }
    }
    let engine = Engine::find(&ctx.shard, id);
    match (problem, engine) {
        (None, Some(engine)) => Ok(engine),
        (problem, _) => {
            Engines::new(&ctx.shard, &ctx.remotes, id).stop().await;
            Err(problem.unwrap_or_else(|| gone(title)))
        }
    }
}

fn gone(title: &str) -> AssembleError {
    let why = "a shard is gone; restart braid".to_string();
    AssembleError::Start { array: title.to_string(), why }
}

fn start_here(
    shard: &Shard,
    start: Start,
    home: Remote,
    end: Option<MeshEnd<Msg>>,
) -> Result<(), OpenError> {
    let Start { id, info, size, openers, update, recorded, settings, aggregate, reports } = start;
    let mesh = Mesh::new(shard);
    let home = Home::new(home, &Controlled, id);
    let tasks = crate::request::tasks::of(shard);
    let (settings, memory_max) = settings;
    let view = update.clone();
    let setup = Setup {
        home,
        tasks,
        info,
        size,
        mesh,
        update,
        recorded,
        settings,
        memory_max,
        aggregate,
        reports,
    };
    let engine = Engine::start(shard, id, setup);
    crate::request::open(&engine, end);
    for (nr, opener) in openers {
        engine.open_member(nr, &*opener)?;
    }
    engine.members.apply(view);
    Ok(())
}

/// The array as a device, from its shape and the devices of its members.
pub(super) fn device_info(
    name: &str,
    geometry: &Geometry,
    members: &[Rc<dyn Device>],
) -> DeviceInfo {
    let all = |what: fn(&DeviceInfo) -> bool| members.iter().all(|member| what(member.info()));
    let any = |what: fn(&DeviceInfo) -> bool| members.iter().any(|member| what(member.info()));
    let largest = |what: fn(&DeviceInfo) -> u32| {
        members.iter().map(|member| what(member.info())).max().unwrap_or(0)
    };
    let redundant = geometry.level.has_redundancy();
    let likes = largest(|info| info.optimal_io);
    let (minimum_io, optimal_io) = io_sizes(geometry, largest(|info| info.minimum_io), likes);
    DeviceInfo {
        name: name.to_string(),
        size: geometry.whole_blocks(),
        logical_block: geometry.logical_block,
        physical_block: largest(|info| info.physical_block).max(geometry.logical_block),
        minimum_io,
        optimal_io,
        // Where there is redundancy a discard becomes write-zeroes, since it must keep matching.
        discards: all(if redundant { |info| info.writes_zeroes } else { |info| info.discards }),
        writes_zeroes: all(|info| info.writes_zeroes),
        volatile_cache: any(|info| info.volatile_cache),
        // To an array above this one: what goes through here is worth merging where it is worth it below.
        wants_plug: any(|info| info.wants_plug),
        rotational: any(|info| info.rotational),
        direct: all(|info| info.direct),
    }
}

/// `minimum_io` and `optimal_io` of the array, from the largest of its members' (0: they do not say).
///
/// The optimal size is written without reading first and keeps every member busy: as many chunks as hold data
/// in a stripe. Where members are arrays themselves each of them gets a whole stripe of its own out of it, unless
/// its size and the chunk go together too badly.
fn io_sizes(geometry: &Geometry, minimum: u32, optimal: u32) -> (u32, u32) {
    let (chunk, width) = match &geometry.layout {
        Layout::Parity(parity) => (parity.chunk_size(), parity.stripe_size() / parity.chunk_size()),
        Layout::Striped(striped) => (striped.chunk_size(), striped.slots() as u64),
        Layout::Raid10(raid10) => {
            (raid10.chunk_size(), (raid10.slots() / raid10.copy_count()).max(1) as u64)
        }
        Layout::Mirror(_) | Layout::Linear(_) => return (minimum, optimal),
    };
    let each = match u64::from(optimal) {
        0 => chunk,
        wanted if chunk.is_multiple_of(wanted) => chunk,
        wanted if wanted.is_multiple_of(chunk) => wanted,
        _ => chunk,
    };
    let fits = |bytes: u64| u32::try_from(bytes).ok();
    let minimum = fits(chunk).map_or(minimum, |chunk| chunk.max(minimum));
    (minimum, fits(each * width).or(fits(chunk * width)).unwrap_or(optimal))
}

/// One line for people: `raid5 left-symmetric, 4 members, chunk 512K`.
pub(super) fn description(geometry: &Geometry) -> String {
    let mut line = geometry.level.to_string();
    if let Some(layout) = layout_name(geometry.level, geometry.layout_number) {
        line.push(' ');
        line.push_str(&layout);
    }
    line.push_str(&format!(", {} members", geometry.slots()));
    let chunk = geometry.layout.chunk_size();
    if chunk > 0 {
        line.push_str(&format!(", chunk {}", braid_device::spec::show_size(chunk)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_layout::{Level, Spec};

    const KIB: u32 = 1 << 10;

    /// `io_min` and `io_opt` in KiB of `raid_disks` members with 64 KiB chunks that say `minimum` and `optimal`.
    fn sizes(level: Level, raid_disks: usize, minimum: u32, optimal: u32) -> (u32, u32) {
        let size = 1 << 30;
        let spec = Spec {
            level,
            layout: braid_layout::default_layout(level),
            chunk_size: 64 << 10,
            raid_disks,
            component_size: size,
            member_sizes: vec![size; raid_disks],
        };
        let layout = Layout::new(&spec).unwrap();
        let geometry = Geometry::new(level, spec.layout, layout, 512, size, 1);
        let (minimum, optimal) = io_sizes(&geometry, minimum * KIB, optimal * KIB);
        (minimum / KIB, optimal / KIB)
    }

    #[test]
    fn a_whole_stripe_is_the_optimal_request_and_a_chunk_the_smallest() {
        assert_eq!(sizes(Level::Raid0, 4, 0, 0), (64, 256));
        assert_eq!(sizes(Level::Raid5, 5, 4, 0), (64, 256));
        assert_eq!(sizes(Level::Raid6, 10, 0, 0), (64, 512));
        assert_eq!(sizes(Level::Raid10, 4, 0, 0), (64, 128));
        assert_eq!(sizes(Level::Raid1, 3, 4, 128), (4, 128));
    }

    #[test]
    fn in_a_stack_every_lower_array_gets_a_whole_stripe_out_of_the_optimal_request() {
        // A stripe over two RAID5 of 4+1: both get 256 KiB.
        assert_eq!(sizes(Level::Raid0, 2, 64, 256), (64, 512));
        // Members whose size is not made of chunks, such as a disk that says 33553920 bytes, do not count.
        assert_eq!(sizes(Level::Raid0, 4, 4, 32767), (64, 256));
        assert_eq!(sizes(Level::Raid0, 4, 128, 16), (128, 256));
    }
}

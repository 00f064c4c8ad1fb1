//! Arrays made of arrays under a load: how fast they are, and how large the requests are that each layer
//! hands down.

use crate::loads::virtual_time::VirtualClock;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::create;
use braid_array::options::{AssembleOptions, Context, CreateOptions};
use braid_array::stacking::ArrayMember;
use braid_device::spec::MemberSpec;
use braid_device::{Device, Opener, Target};
use braid_layout::Level;
use braid_load::error::LoadError;
use braid_load::generator::Generator;
use braid_load::measure::{Slice, Until};
use braid_load::offsets::Region;
use braid_load::options::{Clock, Options, OptionsError, Pattern};
use braid_load::under_test::{context, prepare};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// Longer than any load: an array that marks itself clean, and has those below it do so, moves the heads of all disks
/// once, and a short load would be mostly that.
const SAFE_MODE_DELAY_MS: u64 = 3_600_000;

/// An array whose members may be arrays. Sizes in bytes.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Its level.
    pub level: Level,
    /// md's layout number; `None`: the level's default.
    pub layout: Option<u32>,
    /// Its chunk, where the level has chunks.
    pub chunk: u64,
    /// Its members.
    pub members: Vec<Below>,
}

/// A member of a [`Stack`].
#[derive(Clone, Debug)]
pub enum Below {
    /// A device.
    Device(MemberSpec),
    /// Another array.
    Array(Stack),
}

impl Stack {
    /// With 64 KiB chunks and the level's default layout.
    pub fn new(level: Level, members: Vec<Below>) -> Stack {
        Stack { level, layout: None, chunk: 64 << 10, members }
    }

    /// Over devices that are all alike.
    pub fn of_devices(level: Level, device: &MemberSpec, count: usize) -> Stack {
        Stack::new(level, vec![Below::Device(device.clone()); count])
    }

    /// Over arrays, each on its own devices.
    pub fn of_arrays(level: Level, arrays: impl IntoIterator<Item = Stack>) -> Stack {
        Stack::new(level, arrays.into_iter().map(Below::Array).collect())
    }
}

/// A load on a stack, on one shard.
#[derive(Clone, Debug)]
pub struct StackLoad {
    /// What it goes to.
    pub stack: Stack,
    /// Order and direction.
    pub pattern: Pattern,
    /// Bytes of a request.
    pub block: u64,
    /// Requests in flight.
    pub depth: u32,
    /// How long it is measured, after a fourth of that to fill queues and caches.
    pub until: Until,
    /// What is collected and merged; false: each layer hands down what it cuts.
    pub aggregate: bool,
}

/// What the arrays of one layer handed to their members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerFigures {
    /// Requests as the layer cut them.
    pub requests_in: u64,
    /// Requests as the members got them.
    pub requests_out: u64,
    /// Bytes of both.
    pub bytes: u64,
}

impl LayerFigures {
    /// Mean size of what members got, in bytes.
    pub fn size_out(&self) -> f64 {
        self.bytes as f64 / self.requests_out.max(1) as f64
    }

    /// Mean size before merging, in bytes.
    pub fn size_in(&self) -> f64 {
        self.bytes as f64 / self.requests_in.max(1) as f64
    }
}

/// What a load gave.
#[derive(Clone, Debug)]
pub struct StackFigures {
    /// The load itself, with latencies.
    pub slice: Slice,
    /// From the top layer down to the one whose members are devices.
    pub layers: Vec<LayerFigures>,
}

impl StackFigures {
    /// Bytes per second.
    pub fn rate(&self) -> f64 {
        self.slice.bytes as f64 / self.slice.seconds.max(1e-9)
    }

    /// Mean bytes of a request to a device.
    pub fn device_request(&self) -> f64 {
        self.layers.last().map_or(0.0, LayerFigures::size_out)
    }

    /// Median latency in nanoseconds.
    pub fn median_latency(&self) -> u64 {
        self.slice.latency.as_ref().map_or(0, |all| all.value_at_quantile(0.5))
    }
}

/// Runs the load in the time of its members, which must be modelled ones: the figures are the same on every
/// machine.
///
/// # Errors
/// When an array cannot be made, or a request fails.
pub fn stack_in_virtual_time(load: &StackLoad) -> Result<StackFigures, LoadError> {
    let shard = Shard::with_reactor(0, Rc::new(VirtualClock::default()));
    let figures = shard.block_on(run(shard.clone(), vec![shard.remote()], load.clone()))?;
    shard.abandon();
    Ok(figures)
}

/// Runs the load on a shard of its own, on the wall clock. What the devices held is lost.
///
/// # Errors
/// As [`stack_in_virtual_time`].
pub fn stack_on_the_clock(load: &StackLoad) -> Result<StackFigures, LoadError> {
    let shards = braid_shard::threads::start(1)?;
    let gone = || LoadError::ShardGone("stack".to_owned());
    let home = shards.remotes().first().ok_or_else(gone)?;
    let (remotes, load) = (shards.remotes().to_vec(), load.clone());
    let figures = home.call_async(move |shard, done| {
        let running = run(shard.clone(), remotes, load);
        shard.spawn(async move { done(running.await) });
    });
    figures.unwrap_or_else(|| Err(gone()))
}

/// The arrays of each layer, the top one first, and the number of devices so far.
#[derive(Default)]
struct Built {
    layers: Vec<Vec<Arc<Array>>>,
    devices: usize,
}

async fn run(
    shard: Shard,
    remotes: Vec<Remote>,
    load: StackLoad,
) -> Result<StackFigures, LoadError> {
    let ctx = context(&shard, remotes);
    let mut built = Built::default();
    let top = build(&ctx, &load.stack, load.aggregate, 0, &mut built).await?;
    let device: Rc<dyn Device> = top.open(&shard)?;
    let size = device.info().size;
    let block = load.block;
    let region = Region::share(0..size, block, 0, 1);
    let region = region.ok_or(OptionsError::TooSmall { size, shards: 1, block })?;
    let options = Options {
        depth: load.depth,
        latency: true,
        clock: Clock::Wall,
        ..Options::new(load.stack.level, Vec::new(), load.pattern, block)
    };
    let generator = Generator::new(&shard, vec![(device, region)], options.traffic());
    let failed = |error| LoadError::Io { contender: "stack".to_owned(), error };
    let warm_up = match load.until {
        Until::Nanos(nanos) => Until::Nanos(nanos / 4),
        Until::Requests(requests) => Until::Requests(requests / 4),
    };
    Rc::clone(&generator).slice(warm_up).await.map_err(failed)?;
    let before = figures(&shard, &built).await;
    let slice = generator.slice(load.until).await.map_err(failed)?;
    let after = figures(&shard, &built).await;
    for array in built.layers.iter().flatten() {
        if let Some(control) = Control::find(&shard, array.id()) {
            control.stop().await;
        }
    }
    let layers = after.into_iter().zip(before).map(|(after, before)| LayerFigures {
        requests_in: after.requests_in - before.requests_in,
        requests_out: after.requests_out - before.requests_out,
        bytes: after.bytes - before.bytes,
    });
    Ok(StackFigures { slice, layers: layers.collect() })
}

type Building<'a> = Pin<Box<dyn Future<Output = Result<Arc<Array>, LoadError>> + 'a>>;

/// Makes and starts an array after those that it is made of.
fn build<'a>(
    ctx: &'a Context,
    stack: &'a Stack,
    aggregate: bool,
    layer: usize,
    built: &'a mut Built,
) -> Building<'a> {
    Box::pin(async move {
        let mut openers: Vec<Arc<dyn Opener>> = Vec::new();
        for member in &stack.members {
            openers.push(match member {
                Below::Device(spec) => {
                    built.devices += 1;
                    prepare(spec, built.devices)?
                }
                Below::Array(lower) => {
                    let array = build(ctx, lower, aggregate, layer + 1, built).await?;
                    Arc::new(ArrayMember::new(array))
                }
            });
        }
        while built.layers.len() <= layer {
            built.layers.push(Vec::new());
        }
        let number = built.layers.get(layer).map_or(0, Vec::len);
        let name = format!("layer{layer}-{number}");
        let wanted = CreateOptions {
            layout: stack.layout,
            chunk_size: (stack.level != Level::Raid1).then_some(stack.chunk),
            assume_clean: true,
            ..CreateOptions::new(name, stack.level, openers.len())
        };
        let slots = openers.iter().cloned().map(Some).collect();
        create(ctx, slots, wanted).await?;
        let options = AssembleOptions {
            aggregate,
            safe_mode_delay_ms: SAFE_MODE_DELAY_MS,
            ..AssembleOptions::default()
        };
        let array = assemble(ctx, openers, options).await?;
        if let Some(arrays) = built.layers.get_mut(layer) {
            arrays.push(Arc::clone(&array));
        }
        Ok(array)
    })
}

async fn figures(shard: &Shard, built: &Built) -> Vec<LayerFigures> {
    let mut layers = Vec::new();
    for arrays in &built.layers {
        let mut sum = LayerFigures::default();
        for array in arrays {
            let Some(control) = Control::find(shard, array.id()) else { continue };
            for member in control.status().await.members {
                sum.requests_in += member.io.requests_in;
                sum.requests_out += member.io.requests_out;
                sum.bytes += member.io.bytes;
            }
        }
        layers.push(sum);
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe_over_mirrors(pattern: Pattern, block: u64, depth: u32, aggregate: bool) -> StackLoad {
        let device: MemberSpec = "model:sata-ssd,34M".parse().unwrap();
        let mirror = Stack::of_devices(Level::Raid1, &device, 3);
        let stack = Stack::of_arrays(Level::Raid0, vec![mirror; 4]);
        StackLoad { stack, pattern, block, depth, until: Until::Nanos(50_000_000), aggregate }
    }

    #[test]
    fn what_reaches_the_members_of_a_stripe_over_mirrors_is_no_smaller_than_what_was_submitted() {
        for pattern in [Pattern::Read, Pattern::Write] {
            let on = stack_in_virtual_time(&stripe_over_mirrors(pattern, 64 << 10, 32, true));
            let on = on.unwrap();
            assert_eq!(on.layers.len(), 2);
            assert!(on.device_request() >= 65536.0, "{pattern}: {on:?}");
            let off = stack_in_virtual_time(&stripe_over_mirrors(pattern, 64 << 10, 32, false));
            assert!(on.device_request() > 1.5 * off.unwrap().device_request(), "{pattern}");
        }
    }

    #[test]
    fn large_requests_are_put_together_again_at_any_depth_above_one() {
        let load = stripe_over_mirrors(Pattern::Write, 1 << 20, 4, true);
        let figures = stack_in_virtual_time(&load).unwrap();
        assert!(figures.device_request() >= 1_000_000.0, "{figures:?}");
        let same = stack_in_virtual_time(&load).unwrap();
        assert_eq!(same.layers, figures.layers);
    }

    #[test]
    fn a_stack_runs_on_the_wall_clock_too() {
        let mut load = stripe_over_mirrors(Pattern::Read, 64 << 10, 4, true);
        load.until = Until::Requests(64);
        assert_eq!(stack_on_the_clock(&load).unwrap().slice.requests, 64);
    }
}

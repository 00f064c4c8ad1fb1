//! So many requests on one shard without a machine: for a program that counts instructions.
//!
//! There is no io_uring and no second thread here, and every request is the same in every run.

use crate::loads::virtual_time::VirtualClock;
use braid_array::control::Control;
use braid_array::settings::{Settings, StripeCacheSize};
use braid_device::{Device, OpenError, Opener, Target};
use braid_load::error::LoadError;
use braid_load::generator::Generator;
use braid_load::measure::{Slice, Until};
use braid_load::offsets::Region;
use braid_load::options::{Options, OptionsError};
use braid_load::under_test::{context, create_and_assemble, prepare, wanted};
use braid_shard::Shard;
use std::rc::Rc;
use std::sync::Arc;

/// What the requests go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The first member by itself: what the generator and a device cost.
    Member,
    /// The array.
    Array,
}

/// Lines of the stripe cache: so few that it is full before long, and requests cost the same from then on.
const STRIPE_CACHE_LINES: u32 = 256;

/// Carries out `count` requests of the load of `options` on what `on` says, and stops. Members must be in
/// memory. The array has a stripe cache of 256 lines, which the first few hundred requests fill.
///
/// # Errors
/// As [`run`](braid_load::run()).
pub fn count_requests(options: &Options, on: Counted, count: u64) -> Result<Slice, LoadError> {
    options.check()?;
    let shard = Shard::with_reactor(0, Rc::new(VirtualClock::default()));
    let openers = options
        .members
        .iter()
        .enumerate()
        .map(|(nr, spec)| prepare(spec, nr))
        .collect::<Result<Vec<Arc<dyn Opener>>, OpenError>>()?;
    let (options, own) = (options.clone(), shard.clone());
    let slice = shard.block_on(async move {
        let (device, control): (Rc<dyn Device>, _) = match (on, openers.first()) {
            (Counted::Member, Some(member)) => (member.open(&own)?, None),
            _ => {
                let ctx = context(&own, vec![own.remote()]);
                let (array, _) = create_and_assemble(ctx, openers, wanted(&options)).await?;
                let control = Control::find(&own, array.id())
                    .ok_or_else(|| LoadError::ShardGone("array".to_owned()))?;
                let stripe_cache_size = StripeCacheSize::Lines(STRIPE_CACHE_LINES);
                control.set(Settings { stripe_cache_size, ..Settings::default() }).await?;
                let control = Some(control);
                (Arc::clone(&array).open(&own)?, control)
            }
        };
        let size = device.info().size;
        let (block, shards) = (options.block, options.shards);
        let region = Region::share(0..size, block, 0, 1);
        let region = region.ok_or(OptionsError::TooSmall { size, shards, block })?;
        let generator = Generator::new(&own, vec![(device, region)], options.traffic());
        let slice = generator.slice(Until::Requests(count)).await;
        if let Some(control) = control {
            control.stop().await;
        }
        slice.map_err(|error| LoadError::Io { contender: format!("{on:?}"), error })
    })?;
    shard.abandon();
    Ok(slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::spec::MemberSpec;
    use braid_layout::Level;
    use braid_load::options::Pattern;

    #[test]
    fn as_many_requests_are_done_as_were_asked_for_on_each() {
        for pattern in [Pattern::RandRead, Pattern::RandWrite] {
            let members = vec![MemberSpec::Ram(16 << 20); 5];
            let options = Options::new(Level::Raid5, members, pattern, 4096);
            for on in [Counted::Member, Counted::Array] {
                let slice = count_requests(&options, on, 100).unwrap();
                assert_eq!((slice.requests, slice.bytes), (100, 409_600), "{pattern} {on:?}");
            }
        }
    }
}

//! Sweeps of settings in virtual time, for modelled members.
//!
//! The clock jumps to the next event whenever the shard has nothing to do, so the engine itself takes
//! no time and the figures are those of the members alone: what the array asks of them. They are the
//! same on every machine and in every run.

use crate::loads::sweep::Variant;
use braid_array::control::Control;
use braid_device::{Device, Target};
use braid_load::error::LoadError;
use braid_load::generator::Generator;
use braid_load::measure::{Measured, Until};
use braid_load::offsets::Region;
use braid_load::options::{Options, OptionsError};
use braid_load::report::Report;
use braid_load::under_test::{create_and_assemble, prepare, wanted};
use braid_shard::{Nanos, Reactor, Shard};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// A clock that nobody waits for: when nothing is runnable it is at once as late as whoever waits wants it to be.
#[derive(Default)]
pub struct VirtualClock(Cell<Nanos>);

impl Reactor for VirtualClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn poll(&self) -> bool {
        false
    }

    fn park(&self, deadline: Option<Nanos>, still_idle: &dyn Fn() -> bool) {
        if let (Some(deadline), true) = (deadline, still_idle()) {
            self.0.set(self.0.get().max(deadline));
        }
    }
}

/// As [`sweep`](crate::loads::sweep::sweep()), on one shard in virtual time. There is one round: another would give
/// the same. Members must be modelled ones, since nothing else completes without a machine.
///
/// # Errors
/// As [`sweep`](crate::loads::sweep::sweep()).
pub fn sweep_in_virtual_time(options: &Options, variants: &[Variant]) -> Result<Report, LoadError> {
    options.check()?;
    let mut measured = Vec::new();
    for variant in variants {
        measured.push(one(options, variant)?);
    }
    let report = Report::of(options.describe(), 1, &measured, Vec::new());
    Ok(Report { virtual_time: true, ..report })
}

fn one(options: &Options, variant: &Variant) -> Result<Measured, LoadError> {
    let shard = Shard::with_reactor(0, Rc::new(VirtualClock::default()));
    let context = braid_load::under_test::context(&shard, vec![shard.remote()]);
    let openers = options
        .members
        .iter()
        .enumerate()
        .map(|(nr, spec)| prepare(spec, nr))
        .collect::<Result<Vec<_>, _>>()?;
    let (options, settings, own) = (options.clone(), variant.settings, shard.clone());
    let slice = shard.block_on(async move {
        let (array, _) = create_and_assemble(context, openers, wanted(&options)).await?;
        let control = Control::find(&own, array.id())
            .ok_or_else(|| LoadError::ShardGone("array".to_owned()))?;
        control.set(settings).await?;
        let device: Rc<dyn Device> = Arc::clone(&array).open(&own)?;
        let size = device.info().size;
        let (block, shards) = (options.block, options.shards);
        let region = Region::share(0..size, block, 0, 1).ok_or(OptionsError::TooSmall {
            size,
            shards,
            block,
        })?;
        let generator = Generator::new(&own, vec![(device, region)], options.traffic());
        let failed = |error| LoadError::Io { contender: "array".to_owned(), error };
        let until = options.slice();
        // Caches and queues fill first.
        let warm_up = match until {
            Until::Nanos(nanos) => Until::Nanos(nanos / 4),
            Until::Requests(requests) => Until::Requests(requests / 4),
        };
        Rc::clone(&generator).slice(warm_up).await.map_err(failed)?;
        let slice = generator.slice(until).await.map_err(failed)?;
        control.stop().await;
        Ok::<_, LoadError>(slice)
    })?;
    shard.abandon();
    Ok(Measured { name: variant.name.clone(), worth: Some(1.0), slices: vec![slice] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_array::settings::{Settings, StripeSize};
    use braid_layout::Level;
    use braid_load::options::{Length, Pattern};

    #[test]
    fn figures_are_the_same_every_time_and_a_tall_line_costs_small_writes() {
        let member = "model:sata-ssd,34M".parse().unwrap();
        let options = Options {
            length: Length::Seconds(0.05),
            rounds: 1,
            ..Options::new(Level::Raid5, vec![member; 4], Pattern::RandWrite, 4096)
        };
        let variant = |name: &str, stripe_size| Variant {
            name: name.to_owned(),
            settings: Settings { stripe_size, ..Settings::default() },
        };
        let variants =
            [variant("auto", StripeSize::Auto), variant("64K", StripeSize::Bytes(64 << 10))];
        let first = sweep_in_virtual_time(&options, &variants).unwrap();
        let again = sweep_in_virtual_time(&options, &variants).unwrap();
        assert_eq!(first.absolutes, again.absolutes);
        assert!(first.ratio("auto", "64K").unwrap().median > 3.0, "{first}");
    }
}

#[cfg(test)]
#[path = "read_balance_tests.rs"]
mod read_balance_tests;

//! One load on one array under several settings, changed between slices while the array runs.

use braid_array::settings::Settings;
use braid_load::error::LoadError;
use braid_load::measure::{Contender, Slice, Until, in_turn};
use braid_load::on_shards::OnShards;
use braid_load::options::{Options, Over};
use braid_load::report::Report;
use braid_load::run::{fill, fill_all, on_array};
use braid_load::served::Served;
use braid_load::under_test::UnderTest;
use std::cell::RefCell;
use std::rc::Rc;

/// Settings to be measured, and how tables name them.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// What is set.
    pub settings: Settings,
}

/// The array with certain settings.
struct Under<'a> {
    variant: &'a Variant,
    under_test: &'a UnderTest,
    load: Rc<RefCell<OnShards>>,
}

impl Contender for Under<'_> {
    fn name(&self) -> &str {
        &self.variant.name
    }

    fn slice(&mut self, until: Until) -> Result<Slice, LoadError> {
        self.under_test.set(self.variant.settings)?;
        self.load.borrow_mut().slice(until)
    }
}

/// Runs the load of `options` under each of `variants` in turn; ratios are those of the first to each
/// of the others. What the members held is lost. Must not be called on a shard's thread.
///
/// # Errors
/// As [`run`](braid_load::run()); also settings that the array refuses.
pub fn sweep(options: &Options, variants: &[Variant]) -> Result<Report, LoadError> {
    options.check()?;
    let under_test = UnderTest::start(options)?;
    let notes = under_test.notes();
    fill_all(options, &under_test)?;
    let served = match options.over {
        Over::Engine => None,
        Over::Nbd => Some(Served::start(under_test.array(), under_test.remotes(), options.shards)?),
    };
    let load = match &served {
        None => on_array("array", under_test.remotes(), &options.traffic(), &under_test)?,
        Some(served) => served.generators(&options.traffic())?,
    };
    let load = Rc::new(RefCell::new(load));
    let mut all: Vec<Under<'_>> = variants
        .iter()
        .map(|variant| Under { variant, under_test: &under_test, load: Rc::clone(&load) })
        .collect();
    let mut contenders: Vec<&mut dyn Contender> =
        all.iter_mut().map(|one| one as &mut dyn Contender).collect();
    let measured = in_turn(&mut contenders, options.rounds, options.slice())?;
    let report = Report::of(options.describe(), options.rounds, &measured, notes);
    Ok(Report { processor_time: options.processor_time(), ..report })
}

/// An array and its load on so many shards.
struct OnSoMany {
    name: String,
    load: OnShards,
    _under_test: UnderTest,
}

impl Contender for OnSoMany {
    fn name(&self) -> &str {
        &self.name
    }

    fn slice(&mut self, until: Until) -> Result<Slice, LoadError> {
        self.load.slice(until)
    }
}

/// Runs the load of `options` on as many shards as each of `shards` says, in turn, each on an array of
/// its own; ratios are those of the first to each of the others.
///
/// # Errors
/// As [`run`](braid_load::run()).
pub fn scaling(options: &Options, shards: &[u16]) -> Result<Report, LoadError> {
    let mut all = Vec::new();
    let mut notes = Vec::new();
    for count in shards {
        let depth = options.depth * u32::from(*count);
        let options = Options { shards: *count, depth, ..options.clone() };
        options.check()?;
        let under_test = UnderTest::start(&options)?;
        notes = under_test.notes();
        fill(&options, &under_test)?;
        let load = on_array("array", under_test.remotes(), &options.traffic(), &under_test)?;
        let name = if *count == 1 { "1 shard".to_owned() } else { format!("{count} shards") };
        all.push(OnSoMany { name, load, _under_test: under_test });
    }
    let mut contenders: Vec<&mut dyn Contender> =
        all.iter_mut().map(|one| one as &mut dyn Contender).collect();
    let measured = in_turn(&mut contenders, options.rounds, options.slice())?;
    Ok(Report::of(options.describe(), options.rounds, &measured, notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_array::settings::StripeSize;
    use braid_device::spec::MemberSpec;
    use braid_layout::Level;
    use braid_load::options::{Length, Pattern};

    fn quick(pattern: Pattern, block: u64) -> Options {
        Options {
            length: Length::Requests(64),
            rounds: 2,
            ..Options::new(Level::Raid5, vec![MemberSpec::Ram(34 << 20); 4], pattern, block)
        }
    }

    #[test]
    fn one_array_is_measured_under_each_setting() {
        let variant = |name: &str, bytes| Variant {
            name: name.to_owned(),
            settings: Settings { stripe_size: bytes, ..Settings::default() },
        };
        let variants =
            [variant("auto", StripeSize::Auto), variant("8K", StripeSize::Bytes(8 << 10))];
        let report = sweep(&quick(Pattern::RandWrite, 4096), &variants).unwrap();
        assert!(report.ratio("auto", "8K").is_some());
        let refused = [variant("3K", StripeSize::Bytes(3 << 10))];
        assert!(sweep(&quick(Pattern::RandWrite, 4096), &refused).is_err());
    }

    #[test]
    fn one_and_two_shards_are_measured_side_by_side() {
        let options = quick(Pattern::RandWrite, 4096);
        let report =
            scaling(&Options { clock: braid_load::options::Clock::Wall, ..options }, &[2, 1])
                .unwrap();
        assert!(report.ratio("2 shards", "1 shard").is_some());
    }
}

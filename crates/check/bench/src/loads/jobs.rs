//! A rebuild, check or reshape in virtual time, on modelled members: alone, as close to what the members can do as it comes,
//! and beside a client, as little as it stands in the way.

use crate::loads::virtual_time::VirtualClock;
use braid_array::control::Control;
use braid_array::control::reshaping::WantedShape;
use braid_array::error::ControlError;
use braid_array::options::{CreateOptions, MemberSelector, Scrub};
use braid_device::{Device, Opener, Target};
use braid_layout::Level;
use braid_load::error::LoadError;
use braid_load::generator::{Generator, Traffic};
use braid_load::measure::{Measured, Slice, Until};
use braid_load::offsets::Region;
use braid_load::options::{Options, OptionsError};
use braid_load::report::Report;
use braid_load::under_test::{context, create_and_assemble, prepare, wanted};
use braid_shard::Shard;
use std::rc::Rc;
use std::sync::Arc;

/// Requests of the members by themselves.
const BLOCK: u64 = 1 << 20;
const DEPTH: u32 = 4;
/// Where data starts on disks of 128 GiB and more: how far it can move decides on the first windows of a reshape.
const DATA_OFFSET: u64 = 129 << 20;

/// The job that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Job {
    /// A member has failed, and its place is filled from the others.
    Rebuild,
    /// Everything is read and compared.
    Check,
    /// One more member.
    Reshape,
}

/// The quotients of a job.
pub struct Outcome {
    /// Seconds of the slowest member if it did nothing but its part, in order, ÷ seconds of the job, with no other load.
    pub of_member: f64,
    /// p99 of a client beside the job ÷ p99 of the same client alone.
    pub p99: f64,
    /// The figures: the job, the members by themselves, and the client.
    pub report: Report,
}

/// Measures a job of an array of `options`, whose pattern, block and depth are those of the client.
///
/// # Errors
/// An array that cannot be or cannot do this, a job that does not come to its end.
pub fn job_in_virtual_time(options: &Options, job: Job) -> Result<Outcome, LoadError> {
    options.check()?;
    let ((read, heads), (write, _)) = (by_itself(options, 100)?, by_itself(options, 0)?);
    let (alone, component) = in_array(options, job, Load::None)?;
    let ideal = ideal_seconds(options, job, (component, heads), (rate(&read), rate(&write)));
    let of_member = ideal / alone.seconds;
    // Beside a client the job takes no less than without.
    let nanos = (0.8e9 * alone.seconds) as u64;
    let (quiet, _) = in_array(options, job, Load::Client { beside: false, nanos })?;
    let (beside, _) = in_array(options, job, Load::Client { beside: true, nanos })?;
    let p99 = |slice: &Slice| {
        slice.latency.as_ref().map_or(0.0, |all| all.value_at_quantile(0.99) as f64)
    };
    let of_client = p99(&beside) / p99(&quiet).max(1.0);
    let measured = |name: &str, slice: Slice| Measured {
        name: name.to_owned(),
        worth: None,
        slices: vec![slice],
    };
    let all = [
        measured("job", alone),
        measured("member reads", read),
        measured("member writes", write),
        measured("client alone", quiet),
        measured("client beside the job", beside),
    ];
    let report = Report::of(format!("{job:?}, {}", options.describe()), 1, &all, Vec::new());
    let report = Report { virtual_time: true, ..report };
    Ok(Outcome { of_member, p99: of_client, report })
}

fn rate(slice: &Slice) -> f64 {
    slice.bytes as f64 / slice.seconds
}

/// Seconds that the slowest member needs for its part, at the rates at which it reads and writes in order.
fn ideal_seconds(
    options: &Options,
    job: Job,
    (component, heads): (u64, bool),
    (read, write): (f64, f64),
) -> f64 {
    let component = component as f64;
    let parities = if options.level == Level::Raid6 { 2 } else { 1 };
    match job {
        Job::Check => component / read,
        Job::Rebuild => (component / read).max(component / write),
        Job::Reshape => {
            // Parity is not read, but heads pass over it. The rows behind the data, which is in fewer of them afterwards,
            // are written as well: nothing in the superblocks could say that redundancy does not hold there yet.
            let disks = options.members.len() as f64;
            let data = component * (disks - f64::from(parities));
            let passed = if heads { component } else { data / disks };
            passed / read + component / write
        }
    }
}

/// One member without an array, from its beginning to its end; and if it has heads.
fn by_itself(options: &Options, reads: u8) -> Result<(Slice, bool), LoadError> {
    let shard = Shard::with_reactor(0, Rc::new(VirtualClock::default()));
    let Some(spec) = options.members.first() else { return Err(gone()) };
    let (device, own) = (prepare(spec, 0)?.open(&shard)?, shard.clone());
    let (size, heads) = (device.info().size, device.info().rotational);
    let region = Region::share(0..size, BLOCK, 0, 1).ok_or(OptionsError::TooSmall {
        size,
        shards: 1,
        block: BLOCK,
    })?;
    let traffic = Traffic {
        block: BLOCK,
        depth: DEPTH,
        reads,
        random: false,
        latency: false,
        ..options.traffic()
    };
    let generator = Generator::new(&own, vec![(device, region)], traffic);
    let slice = shard.block_on(generator.slice(Until::Requests(size / BLOCK)));
    shard.abandon();
    let failed = |error| LoadError::Io { contender: "member".to_owned(), error };
    slice.map(|slice| (slice, heads)).map_err(failed)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// The job to its end.
    None,
    /// The client, and the job meanwhile or not.
    Client { beside: bool, nanos: u64 },
}

/// The job alone, or the client with or without it; and the bytes of each component.
fn in_array(options: &Options, job: Job, load: Load) -> Result<(Slice, u64), LoadError> {
    let shard = Shard::with_reactor(0, Rc::new(VirtualClock::default()));
    let context = context(&shard, vec![shard.remote()]);
    let members = options.members.iter().enumerate();
    let openers: Vec<_> = members.map(|(nr, spec)| prepare(spec, nr)).collect::<Result<_, _>>()?;
    let one_more = match options.members.first() {
        Some(spec) => prepare(spec, options.members.len())?,
        None => return Err(gone()),
    };
    let (options, own) = (options.clone(), shard.clone());
    let result = shard.block_on(async move {
        let wanted = CreateOptions { data_offset: Some(DATA_OFFSET), ..wanted(&options) };
        let (array, _) = create_and_assemble(context, openers, wanted).await?;
        let control = Control::find(&own, array.id()).ok_or_else(gone)?;
        let component = control.status().await.component_size;
        let runs = !matches!(load, Load::Client { beside: false, .. });
        let began = own.now();
        if runs {
            begin(&control, job, one_more).await?;
        }
        let slice = match load {
            Load::None => {
                control.jobs().wait_idle().await;
                let seconds = (own.now() - began) as f64 / 1e9;
                Slice { requests: 1, bytes: component, seconds, latency: None }
            }
            Load::Client { nanos, .. } => client(&own, &array, &options, nanos).await?,
        };
        let goes_on = control.status().await.job.is_some();
        if runs && goes_on != matches!(load, Load::Client { .. }) {
            let why =
                format!("{job:?}: {}", if goes_on { "is not done" } else { "is done too early" });
            return Err(LoadError::Rebuild(why));
        }
        control.stop().await;
        Ok((slice, component))
    });
    shard.abandon();
    result
}

async fn begin(
    control: &Rc<Control>,
    job: Job,
    one_more: Arc<dyn Opener>,
) -> Result<(), ControlError> {
    match job {
        Job::Rebuild => {
            let status = control.status().await;
            let holder = status.slots.first().copied().flatten();
            let holder = status.members.into_iter().find(|member| Some(member.nr) == holder);
            if let Some(member) = holder {
                control.membership().fail(&MemberSelector::Name(member.name)).await?;
            }
            control.membership().add(one_more, true).await?;
        }
        Job::Check => {
            control.jobs().start_scrub(Scrub::default())?;
        }
        Job::Reshape => {
            control.membership().add(one_more, true).await?;
            let raid_disks = Some(control.status().await.raid_disks + 1);
            Rc::clone(control)
                .reshape(WantedShape { raid_disks, ..WantedShape::default() }, false)
                .await?;
        }
    }
    Ok(())
}

async fn client(
    own: &Shard,
    array: &Arc<braid_array::array::Array>,
    options: &Options,
    nanos: u64,
) -> Result<Slice, LoadError> {
    let device: Rc<dyn Device> = Arc::clone(array).open(own)?;
    let (size, block) = (device.info().size, options.block);
    let region = Region::share(0..size, block, 0, 1).ok_or(OptionsError::TooSmall {
        size,
        shards: 1,
        block,
    })?;
    let traffic = Traffic { latency: true, ..options.traffic() };
    let generator = Generator::new(own, vec![(device, region)], traffic);
    let failed = |error| LoadError::Io { contender: "client".to_owned(), error };
    generator.slice(Until::Nanos(nanos)).await.map_err(failed)
}

fn gone() -> LoadError {
    LoadError::ShardGone("array".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_load::options::{Length, Pattern};

    #[test]
    fn jobs_come_to_their_end_and_a_client_goes_on_beside_them() {
        let member = "model:sata-ssd,192M".parse().unwrap();
        let options = Options {
            depth: 4,
            length: Length::Seconds(0.02),
            rounds: 1,
            ..Options::new(Level::Raid5, vec![member; 4], Pattern::RandRead, 4096)
        };
        for job in [Job::Rebuild, Job::Check, Job::Reshape] {
            let outcome = job_in_virtual_time(&options, job).unwrap();
            assert!(
                outcome.of_member > 0.1 && outcome.of_member < 1.05,
                "{job:?}: {}",
                outcome.of_member
            );
            assert!(outcome.p99 >= 0.5, "{job:?}: {}", outcome.p99);
        }
    }
}

//! The array that a load runs on: made of its members, failed where asked, and taken down again.
//!
//! Owns the shards and the members' memory for the length of a run. Does not know loads.

use crate::error::LoadError;
use crate::options::{Options, OptionsError};
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::control::Control;
use braid_array::create::{Created, create};
use braid_array::error::ControlError;
use braid_array::options::{AssembleOptions, Context, CreateOptions, MemberSelector};
use braid_array::status::{ArrayStatus, JobOutcome};
use braid_device::spec::MemberSpec;
use braid_device::{Device, OpenError, Opener};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::threads::Shards;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// A member under a name of its own, so that `ram:256M` can be given five times.
struct Named {
    name: String,
    inner: Arc<dyn Opener>,
}

impl Opener for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        self.inner.open(shard)
    }

    fn notes(&self) -> Vec<String> {
        self.inner.notes()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }
}

/// Opens `spec`; its name gets the number `nr` unless it is a path, which is one of a kind.
pub fn prepare(spec: &MemberSpec, nr: usize) -> Result<Arc<dyn Opener>, OpenError> {
    let inner = spec.prepare()?;
    Ok(match spec {
        MemberSpec::Path(_) => inner,
        _ => Arc::new(Named { name: format!("{spec}#{nr}"), inner }),
    })
}

/// A running array with its shards and members. Dropping it stops the array.
pub struct UnderTest {
    array: Arc<Array>,
    created: Created,
    openers: Vec<Arc<dyn Opener>>,
    shards: Shards,
}

impl UnderTest {
    /// Creates and starts the array of `options`, without a first resync: nothing that is on the
    /// members matters. What they held is lost.
    pub fn start(options: &Options) -> Result<UnderTest, LoadError> {
        let shards = braid_shard::threads::start(options.shards.into())?;
        let openers = options
            .members
            .iter()
            .enumerate()
            .map(|(nr, spec)| prepare(spec, nr))
            .collect::<Result<Vec<_>, OpenError>>()?;
        let (remotes, given) = (shards.remotes().to_vec(), openers.clone());
        let wanted = wanted(options);
        let started = home(&shards)?.call_async(move |shard, done| {
            let ctx = context(shard, remotes);
            shard.spawn(async move { done(create_and_assemble(ctx, given, wanted).await) });
        });
        let (array, created) =
            started.unwrap_or_else(|| Err(LoadError::ShardGone("array".to_owned())))?;
        let own = UnderTest { array, created, openers, shards };
        own.fail_members(options)?;
        Ok(own)
    }

    fn fail_members(&self, options: &Options) -> Result<(), LoadError> {
        for nr in 0..options.failed {
            match self.fail(nr) {
                Err(LoadError::Control(error)) if is_last(&error) => {
                    return Err(OptionsError::Failed {
                        failed: options.failed,
                        level: options.level,
                        members: options.members.len(),
                        tolerance: nr,
                    }
                    .into());
                }
                failed => failed?,
            }
        }
        Ok(())
    }

    /// The array.
    pub fn array(&self) -> &Arc<Array> {
        &self.array
    }

    /// Changes the array's settings.
    pub fn set(&self, settings: braid_array::settings::Settings) -> Result<(), LoadError> {
        let set = self.array.control(move |control| async move { control.set(settings).await });
        Ok(set.ok_or_else(gone)??)
    }

    /// The array's shards.
    pub fn remotes(&self) -> &[Remote] {
        self.shards.remotes()
    }

    /// Members by slot, and the bytes of each that hold array data.
    pub fn member(&self, slot: usize) -> Option<(Arc<dyn Opener>, std::ops::Range<u64>)> {
        let opener = self.openers.get(slot)?;
        let created = self.created.members.iter().find(|member| member.slot == Some(slot))?;
        let used = match self.created.component_size {
            0 => created.data_size,
            used => used,
        };
        Some((Arc::clone(opener), created.data_offset..created.data_offset + used))
    }

    /// Sentences that the user should read about the members.
    pub fn notes(&self) -> Vec<String> {
        self.openers.iter().flat_map(|opener| opener.notes()).collect()
    }

    /// Fails the member in `slot`.
    pub fn fail(&self, slot: usize) -> Result<(), LoadError> {
        self.with_holder(
            slot,
            |control, member| async move { control.membership().fail(&member).await },
        )
    }

    /// Takes the failed member named `name` out.
    pub fn remove(&self, name: String) -> Result<(), LoadError> {
        let member = MemberSelector::Name(name);
        let done =
            self.array.control(|control| async move { control.membership().remove(&member).await });
        Ok(done.ok_or_else(gone)??)
    }

    /// Adds a member and waits until its slot is whole again.
    pub fn add_and_wait(&self, opener: Arc<dyn Opener>) -> Result<(), LoadError> {
        let added = self.array.control(|control| async move {
            control.membership().add(opener, true).await?;
            control.jobs().wait_idle().await;
            Ok::<_, ControlError>(control.status().await)
        });
        let status = added.ok_or_else(gone)??;
        match status.last_job.as_ref().map(|job| &job.outcome) {
            Some(JobOutcome::Done) if status.degraded == 0 => Ok(()),
            other => Err(LoadError::Rebuild(format!("{other:?}, {}", status.state_line()))),
        }
    }

    /// The name of the member that holds `slot`.
    pub fn holder(&self, slot: usize) -> Result<String, LoadError> {
        let status = self.status()?;
        let nr = status.slots.get(slot).copied().flatten();
        let found = status.members.into_iter().find(|member| Some(member.nr) == nr);
        found.map(|member| member.name).ok_or_else(gone)
    }

    /// What the array says of itself.
    pub fn status(&self) -> Result<ArrayStatus, LoadError> {
        self.array.control(|control| async move { control.status().await }).ok_or_else(gone)
    }

    fn with_holder<W>(
        &self,
        slot: usize,
        job: impl FnOnce(Rc<braid_array::control::Control>, MemberSelector) -> W + Send + 'static,
    ) -> Result<(), LoadError>
    where
        W: Future<Output = Result<(), ControlError>> + 'static,
    {
        let member = MemberSelector::Name(self.holder(slot)?);
        let done = self.array.control(|control| job(control, member));
        Ok(done.ok_or_else(gone)??)
    }
}

impl Drop for UnderTest {
    fn drop(&mut self) {
        self.array.control(|control| async move { control.stop().await });
    }
}

/// The array cannot do without the member.
fn is_last(error: &ControlError) -> bool {
    matches!(error, ControlError::LastRedundancy { .. } | ControlError::NoRedundancy { .. })
}

fn gone() -> LoadError {
    LoadError::ShardGone("array".to_owned())
}

fn home(shards: &Shards) -> Result<&Remote, LoadError> {
    shards.remotes().first().ok_or_else(gone)
}

/// Where an array is made and run: on `shard`, and those of `remotes`.
pub fn context(shard: &Shard, remotes: Vec<Remote>) -> Context {
    let seconds =
        || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Context {
        shard: shard.clone(),
        remotes,
        wall_clock: Arc::new(seconds),
        new_uuid: Arc::new(|| uuid::Uuid::new_v4().into_bytes()),
        has_ended: Arc::new(|_| false),
    }
}

/// The array of a load: nothing that is on the members matters, so there is no first resync.
pub fn wanted(options: &Options) -> CreateOptions {
    CreateOptions {
        layout: options.layout,
        chunk_size: (options.level != braid_layout::Level::Raid1).then_some(options.chunk),
        assume_clean: true,
        bitmap: options.bitmap,
        ppl: options.ppl,
        ..CreateOptions::new("load", options.level, options.members.len())
    }
}

/// Makes an array of members that are overwritten, and runs it.
///
/// # Errors
/// When it cannot be made, or a member fails.
pub async fn create_and_assemble(
    ctx: Context,
    openers: Vec<Arc<dyn Opener>>,
    wanted: CreateOptions,
) -> Result<(Arc<Array>, Created), LoadError> {
    let slots = openers.iter().map(|opener| Some(Arc::clone(opener))).collect();
    let created = create(&ctx, slots, wanted).await?;
    let has_bitmap = created.bitmap_chunk.is_some();
    if has_bitmap {
        // A new bitmap has all bits set, so that no write would have to wait for one. A stop clears them.
        let array = assemble(&ctx, openers.clone(), AssembleOptions::default()).await?;
        if let Some(control) = Control::find(&ctx.shard, array.id()) {
            control.stop().await;
        }
    }
    let array = assemble(&ctx, openers, AssembleOptions::default()).await?;
    Ok((array, created))
}

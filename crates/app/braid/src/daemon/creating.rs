//! Arrays that are made while the server runs: over arrays that it has, or over devices.
//!
//! Invariant: when a request is refused, every array is exported and used as it was before.

use super::running::Running;
use super::starting::leased;
use crate::creating::report::{Report, text};
use crate::creating::{Plan, Refusal, Wish, make, plan};
use crate::exit::refused;
use crate::members::{Member, parse_all};
use crate::on_shard;
use crate::settings::{ArraySettings, Assignment};
use anyhow::{Context, Result, anyhow, bail};
use braid_array::assemble::assemble;
use braid_array::create::Created;
use braid_array::options::AssembleOptions;
use braid_array::state::flags::MemberFlags;
use braid_control::array_name::ArrayName;
use braid_control::protocol::{Answer, Code};
use braid_control::wanted::array::Shape;
use braid_device::{Opener, Target};
use std::sync::Arc;

/// What is asked for.
pub struct Wanted {
    /// The array's name.
    pub name: String,
    /// Its shape.
    pub shape: Shape,
    /// Its members, as typed.
    pub members: Vec<String>,
    /// Flags of the members, in their order; those beyond the end have none.
    pub flags: Vec<MemberFlags>,
    /// Settings, as names and values.
    pub settings: Vec<(String, String)>,
    /// Only say what it would be.
    pub dry_run: bool,
}

impl Running {
    /// Makes an array, runs it and exports it in place of the arrays that it is made of.
    ///
    /// # Errors
    /// A shape that cannot be, a member that is in use or holds something, a device that fails.
    pub(super) fn create(&self, wanted: &Wanted) -> Result<Answer> {
        let name: ArrayName =
            wanted.name.parse().map_err(|why| anyhow!("array name {:?}: {why}", wanted.name))?;
        let name = name.as_str();
        let _turn = self.stack_turn();
        self.refuse_known(name)?;
        let mut members = parse_all(&wanted.members, true)?;
        for member in members.iter_mut().flatten() {
            if let Some(below) = member.array().map(str::to_string) {
                let opener =
                    self.unused(&below).with_context(|| format!("creating array {name}"))?;
                member.found(opener);
            }
        }
        let asked: Vec<Assignment> = wanted
            .settings
            .iter()
            .map(|(name, value)| Assignment { name: name.clone(), value: value.clone() })
            .collect();
        let settings = ArraySettings::default().with(&asked)?;
        let home = self.remotes.first().context("a server has a shard")?;
        let Wanted { shape, flags, .. } = wanted;
        let wish = Wish { name, shape, members: &members, flags, force: shape.force };
        let mut found = None;
        let plan = plan(home, &wish, &mut |table| {
            found = Some(table);
            Ok(())
        });
        let plan = match plan {
            Ok(plan) => plan,
            Err(Refusal::Occupied(why)) => return Err(refused(Code::NeedsForce, why)),
            Err(Refusal::Other(error)) => return Err(error),
        };
        let shards = u16::try_from(self.remotes.len()).unwrap_or(u16::MAX);
        plan.check(&settings, shards, self.memory_max)?;
        let warnings = plan.warnings.clone();
        let created = if wanted.dry_run {
            plan.planned
        } else {
            self.make_and_run(name, plan, &members, &settings)?
        };
        let mut said = text(&created, &asked, wanted.dry_run);
        if !wanted.dry_run {
            said.push_str(&format!("\n  it runs; `braid detail {name}` shows it"));
        }
        Ok(Answer::Created {
            found,
            warnings,
            text: said,
            report: serde_json::to_value(Report::of(&created, &settings, wanted.dry_run))
                .context("making the report")?,
        })
    }

    fn refuse_known(&self, name: &str) -> Result<()> {
        let running = self.arrays().iter().any(|array| array.name() == name);
        if running || self.salvaged().iter().any(|array| array.info().name == name) {
            bail!("an array {name} is running here already; choose another name");
        }
        Ok(())
    }

    fn make_and_run(
        &self,
        name: &str,
        plan: Plan,
        members: &[Option<Member>],
        settings: &ArraySettings,
    ) -> Result<Created> {
        let below: Vec<&str> = members.iter().flatten().filter_map(Member::array).collect();
        let made = below
            .iter()
            .try_for_each(|name| self.take(name))
            .and_then(|()| self.make_taken(name, plan, settings));
        if made.is_err() {
            self.offer_free(below.into_iter())?;
        }
        made
    }

    fn make_taken(&self, name: &str, plan: Plan, settings: &ArraySettings) -> Result<Created> {
        if *settings != ArraySettings::default() {
            self.setter.prepare()?;
        }
        let home = self.remotes.first().context("a server has a shard")?;
        let openers: Vec<Arc<dyn Opener>> = plan.openers().into_iter().flatten().collect();
        let created = make(home, plan)?;
        self.setter.keep(&created.uuid, name, settings)?;
        self.scrubs.set_hours(created.uuid, settings.check_between);
        self.spares.set_group(created.uuid, settings.spare_group);
        let options = AssembleOptions {
            name: Some(name.to_string()),
            uuid: Some(created.uuid),
            settings: settings.path,
            sync_speed: settings.sync_speed(),
            sync_range: settings.sync_range(),
            memory_max: self.memory_max,
            ..AssembleOptions::default()
        };
        let options = self.guard.applied(options, &openers);
        let options = leased(self.lease.as_deref(), (&created.uuid, name), options)?;
        let remotes = self.remotes.clone();
        let array = on_shard::run(home, move |shard| async move {
            assemble(&on_shard::context(&shard, &remotes), openers, options).await
        })??;
        self.enter(array)?;
        Ok(created)
    }
}

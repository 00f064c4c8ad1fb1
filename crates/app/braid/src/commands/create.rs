//! `braid create`: makes an array in this process; over running arrays, has the server do it that runs them.

use crate::cli;
use crate::client::{Client, member_argument, unexpected};
use crate::creating::report::{Report, text};
use crate::creating::{Refusal, Wish, make, plan};
use crate::exit::FAILED;
use crate::members::{MISSING, parse_all};
use crate::memory::Memory;
use crate::on_shard;
use crate::output;
use crate::settings::kept::Kept;
use crate::settings::{ArraySettings, Assignment, list};
use anyhow::{Context, Result, anyhow};
use braid_array::stacking;
use braid_control::protocol::{Answer, Flags, Request};
use std::process::ExitCode;

pub fn run(options: cli::Create) -> Result<ExitCode> {
    // The journal comes last.
    let mut names = options.members.names.clone();
    names.extend(options.shape.write_journal.clone());
    if options.start || names.iter().any(|member| member.starts_with(stacking::PREFIX)) {
        return over_running_arrays(options, &names);
    }
    let shards = on_shard::start_shards(1)?;
    let home = shards.remotes().first().context("one shard was started")?;
    let wish = Wish {
        name: options.name.as_str(),
        shape: &options.shape,
        members: &parse_all(&names, true)?,
        flags: &options.members.flags,
        force: options.shape.force,
    };
    for member in wish.members.iter().flatten().filter(|member| member.in_memory()) {
        output::note(format!(
            "warning: {} is in the memory of this command, and the array ends with it: `braid serve --create` makes one \
             that stays for as long as it is served",
            member.name
        ));
    }
    let mut show = |table| if options.json { Ok(()) } else { output::line(table) };
    let plan = match plan(home, &wish, &mut show) {
        Ok(plan) => plan,
        Err(Refusal::Occupied(why)) => {
            output::note(format!("braid: {why}"));
            return Ok(ExitCode::from(FAILED));
        }
        Err(Refusal::Other(error)) => return Err(error),
    };
    for warning in &plan.warnings {
        output::note(format!("warning: {warning}"));
    }
    let asked: Vec<Assignment> = options.stripe_size.iter().cloned().collect();
    let settings = ArraySettings::default().with(&asked)?;
    plan.check(&settings, u16::MAX, Memory::default().for_caches())?;
    let kept = Kept::new(options.state.state_dir.as_deref());
    let created = if options.dry_run {
        plan.planned
    } else {
        if !asked.is_empty() {
            kept.prepare()?;
        }
        let created = make(home, plan)?;
        kept.store(&created.uuid, &created.name, &settings).with_context(|| {
            let name = &created.name;
            format!("array {name} was created; give {} to `braid set` when it runs", list(&asked))
        })?;
        created
    };
    if options.json {
        output::json(&Report::of(&created, &settings, options.dry_run))?;
    } else {
        output::line(text(&created, &asked, options.dry_run))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the server make it that runs the arrays below it, or that is to run it.
fn over_running_arrays(options: cli::Create, names: &[String]) -> Result<ExitCode> {
    let as_given = |text: &String| match text.as_str() {
        MISSING => Ok(text.clone()),
        _ => member_argument(text),
    };
    let request = Request::Create {
        name: options.name.as_str().to_string(),
        shape: Box::new(options.shape),
        members: names.iter().map(as_given).collect::<Result<_>>()?,
        flags: options.members.flags.into_iter().map(Flags::from).collect(),
        settings: options.stripe_size.into_iter().map(|one| (one.name, one.value)).collect(),
        dry_run: options.dry_run,
    };
    let mut client = Client::connect(&options.control.path())?;
    // The user reads what is to be known before anything is written.
    if !options.dry_run {
        let Request::Create { name, shape, members, flags, settings, .. } = request.clone() else {
            return Err(anyhow!("the request to create an array is another one"));
        };
        let planned = Request::Create { name, shape, members, flags, settings, dry_run: true };
        if let Answer::Created { warnings, .. } = client.ask(&planned)? {
            warnings.iter().for_each(|warning| output::note(format!("warning: {warning}")));
        }
    }
    let answer = client.ask(&request)?;
    let Answer::Created { found, warnings, text, report } = answer else {
        return Err(unexpected(&answer));
    };
    if options.json {
        output::json(&report)?;
    } else {
        found.into_iter().try_for_each(output::line)?;
        output::line(text)?;
    }
    for warning in warnings.iter().filter(|_| options.dry_run) {
        output::note(format!("warning: {warning}"));
    }
    Ok(ExitCode::SUCCESS)
}

//! What each request on the control socket does.
//!
//! Invariant: each is answered once, and whoever has the answer to the one that ended the last array finds no server any more.

use super::End;
use super::creating::Wanted;
use super::details::{self, Outside};
use super::jobs::job_of;
use super::looking;
use super::orders::{NoSuchArray, order, status, stopped};
use super::running::Running;
use super::scrubs::Known;
use super::{flags, levels, resizing, salvaged, stacking};
use crate::exit::Refused;
use anyhow::{Result, bail};
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::error::{ControlError, ExamineError};
use braid_array::state::flags::MemberFlags;
use braid_control::api::serving::Handler;
use braid_control::protocol::{Answer, Code, Detail, Lease, Listed, Refusal, Request};
use braid_device::OpenError;
use braid_device::Target;
use braid_format::uuid_text;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

impl Running {
    /// The handler for the control socket.
    pub fn handler(self: &Arc<Running>) -> Arc<Handler> {
        let running = Arc::clone(self);
        Arc::new(move |request, answer| running.answer(request, answer))
    }

    /// The answer to a request, without the progress before it.
    pub fn ask(&self, request: Request) -> Option<Answer> {
        let mut last = None;
        self.answer(request, &mut |answer| {
            last = Some(answer);
            true
        });
        last
    }

    fn answer(&self, request: Request, answer: &mut dyn FnMut(Answer) -> bool) {
        let about_volumes = matches!(request, Request::Volume { .. });
        let stops = about_volumes || matches!(request, Request::Stop { .. });
        let asked = about_volumes.then(|| self.volumes.ask());
        let done = match &asked {
            Some(None) => Ok(Answer::Refused(Refusal::new(Code::Ending, "this server is ending"))),
            _ => self.carry_out(request, answer),
        };
        // Before the answer: whoever has it and asks again finds no server, and not one that is about to end.
        let closed = stops && self.closes_if_idle(usize::from(about_volumes));
        match done {
            Ok(last) => {
                answer(last);
            }
            Err(error) => {
                let said = crate::output::said(&error);
                answer(Answer::Refused(Refusal::new(code_of(&error), said)));
            }
        }
        drop(asked);
        // The answer has left by now: the process may end.
        if closed || stops && self.closes_if_idle(0) {
            self.end(End::Stopped);
        }
    }

    fn carry_out(
        &self,
        request: Request,
        answer: &mut dyn FnMut(Answer) -> bool,
    ) -> Result<Answer> {
        Ok(match request {
            Request::Create { name, shape, members, flags, settings, dry_run } => {
                let flags = flags.into_iter().map(MemberFlags::from).collect();
                let wish = Wanted { name, shape: *shape, members, flags, settings, dry_run };
                self.create(&wish)?
            }
            Request::Ping => done("here".to_string()),
            Request::List => Answer::List { arrays: self.list()? },
            Request::Detail { array } => {
                if let Some(array) = self.find_salvaged(array.as_deref()) {
                    let detail = salvaged::detail(&array, self.outside(&array.info().name));
                    return Ok(Answer::Detail { detail: Box::new(detail) });
                }
                let array = self.find(array.as_deref())?;
                Answer::Detail { detail: Box::new(self.detail(&array)?) }
            }
            Request::Fail { array, members } => self.fail(&self.find(Some(&array))?, &members)?,
            Request::Remove { array, members, keep } => {
                self.remove(&self.find(Some(&array))?, &members, keep)?
            }
            Request::Replace { array, members, with, force } => {
                self.replace(&self.find(Some(&array))?, &members, &with, force)?
            }
            Request::Add { array, members, force, flags } => {
                self.add_all(&self.find(Some(&array))?, &members, force, flags.into())?
            }
            Request::AddJournal { array, member, force } => {
                self.add_journal(&self.find(Some(&array))?, &member, force)?
            }
            Request::ReAdd { array, members } => {
                self.re_add_all(&self.find(Some(&array))?, &members)?
            }
            Request::Member { array, member, write_mostly, failfast } => {
                let array = self.find(Some(&array))?;
                done(flags::change(&array, &member, write_mostly, failfast)?)
            }
            Request::Bitmap { array, internal, chunk } => {
                let array = self.find(Some(&array))?;
                done(change_bitmap(&array, internal, chunk)?)
            }
            Request::Resize { array, what, size, dry_run } => {
                let array = self.find(Some(&array))?;
                resizing::resize(&array, what, size, dry_run)?
            }
            Request::Ppl { array } => {
                let array = self.find(Some(&array))?;
                order(&array, |control| async move { control.ppl().add().await })?;
                done(format!("array {} has a partial parity log now", array.name()))
            }
            Request::Resync { array } => {
                let array = self.find(Some(&array))?;
                done(no_policy(&array)?)
            }
            Request::Reshape { array, shape, dry_run } => {
                let array = self.find(Some(&array))?;
                levels::reshape(&array, &shape, dry_run)?
            }
            Request::Level { array, level, shape, dry_run } => {
                let array = self.find(Some(&array))?;
                levels::change(&array, level, &shape, dry_run)?
            }
            Request::Resume { array } => {
                let array = self.find(array.as_deref())?;
                let resume = |control: Rc<Control>| async move {
                    Ok((control.unanswered().resume().await, control.jobs().try_again()))
                };
                let name = array.name();
                done(match order(&array, resume)? {
                    (0, false) => {
                        format!(
                            "no write of array {name} waits for space, and no job to be tried again"
                        )
                    }
                    (0, true) => format!("the job of array {name} that had failed is tried again"),
                    (writes, _) => format!("{writes} writes of array {name} are tried again"),
                })
            }
            Request::Scrub { array, repair, parity_only } => {
                let array = self.find(array.as_deref())?;
                done(self.scrubs.start(&array, repair, parity_only)?)
            }
            Request::PauseScrub { array, paused } => {
                let array = self.find(array.as_deref())?;
                done(if paused {
                    self.scrubs.pause(&array)?
                } else {
                    self.scrubs.resume(&array)?
                })
            }
            Request::AcceptDoubt { array } => {
                let array = self.find(array.as_deref())?;
                done(self.scrubs.accept_doubt(&array)?)
            }
            Request::Scrubs { array } => {
                let array = self.find(array.as_deref())?;
                let Known { under_way, last, in_doubt, .. } = self.scrubs.known(&array)?;
                let (under_way, last) = (under_way.map(Box::new), last.map(Box::new));
                Answer::Scrubs { array: array.name().to_string(), under_way, last, in_doubt }
            }
            Request::Cancel { array } => {
                let array = self.find(array.as_deref())?;
                done(self.scrubs.cancel(&array)?)
            }
            Request::Wait { array } => {
                let array = self.find(array.as_deref())?;
                self.wait(&array, answer)?
            }
            Request::Speed { array, min_kib, max_kib } => {
                let array = self.find(array.as_deref())?;
                done(speed(&array, min_kib, max_kib)?)
            }
            Request::Set { array, settings, once } => {
                let array = self.find(Some(&array))?;
                done(self.setter.set(&array, settings, once)?)
            }
            Request::Get { array } => {
                let array = self.find(array.as_deref())?;
                let settings = self.setter.get(&array)?;
                Answer::Settings { array: array.name().to_string(), settings }
            }
            Request::Stat { array } => {
                let array = self.find(array.as_deref())?;
                Answer::Stat { stat: Box::new(self.stat(&array)?) }
            }
            Request::Events { after } => self.events.after(after.unwrap_or(0)),
            Request::Start { members, arrays, scan, run, force } => {
                self.start(&looking::Wanted { members, arrays, scan, run, force })?
            }
            Request::Stop { array, force } => self.stop(array.as_deref(), force)?,
            Request::TakeOver { at } => {
                self.end(End::TakeOver(at));
                done("the new process is told the rest".to_string())
            }
            Request::Volume { request } => self.volume(*request, answer)?,
        })
    }

    fn list(&self) -> Result<Vec<Listed>> {
        let arrays = self.arrays().clone();
        let listed = |array: &Arc<Array>| {
            let status = status(array)?;
            Ok(Listed {
                name: array.name().to_string(),
                uuid: uuid_text::format(&array.uuid()),
                state: status.state_line(),
                exports: self.doors.locations(array.name()),
            })
        };
        let mut all = arrays.iter().map(listed).collect::<Result<Vec<_>>>()?;
        for array in self.salvaged().iter() {
            let outside = self.outside(&array.info().name);
            let detail = salvaged::detail(array, outside);
            let (name, uuid, state) = (detail.name, detail.uuid, detail.state);
            all.push(Listed { name, uuid, state, exports: detail.exports });
        }
        Ok(all)
    }

    /// The state of all arrays that run.
    pub(super) fn details(&self) -> Vec<Detail> {
        let arrays = self.arrays().clone();
        // One that is stopped meanwhile has none.
        arrays.iter().filter_map(|array| self.detail(array).ok()).collect()
    }

    /// The array of that name as its clients see it.
    fn outside(&self, name: &str) -> Outside {
        Outside::of(&self.doors, name)
    }

    fn detail(&self, array: &Array) -> Result<Detail> {
        let known = self.scrubs.known(array)?;
        let mut detail = {
            let (uuid, outside) = (array.uuid(), self.outside(array.name()));
            let shared = (self.spares.group(&uuid), self.spares.moves(&uuid));
            details::detail(status(array)?, outside, known, shared)
        };
        detail.lease = self.lease_of(&array.uuid());
        for member in &mut detail.members {
            member.smart = self.smart.of(&member.name);
            let Some(below) = stacking::array_of(&member.name) else { continue };
            let found = self.arrays().iter().find(|array| array.name() == below).cloned();
            // One that was stopped below a running array is a faulty member without a state.
            let below = found.and_then(|array| self.detail(&array).ok());
            member.array = below.map(Box::new);
        }
        Ok(detail)
    }

    fn lease_of(&self, uuid: &[u8; 16]) -> Option<Lease> {
        let lease = self.lease.as_ref()?;
        let token = lease.taken(uuid)?.token;
        let left_ms = u64::try_from(lease.left().as_millis()).unwrap_or(u64::MAX);
        Some(Lease { place: lease.place().to_string(), number: lease.number(), token, left_ms })
    }

    fn wait(&self, array: &Arc<Array>, answer: &mut dyn FnMut(Answer) -> bool) -> Result<Answer> {
        let (send, idle) = mpsc::channel();
        let id = array.id();
        array.home().run(move |shard| {
            let Some(control) = Control::find(shard, id) else { return };
            shard.spawn(async move {
                control.jobs().wait_idle().await;
                // The command that waits may have gone away.
                let _ = send.send(());
            });
        });
        loop {
            match idle.recv_timeout(PROGRESS_EVERY) {
                Ok(()) => break,
                Err(RecvTimeoutError::Disconnected) => return Err(stopped(array)),
                Err(RecvTimeoutError::Timeout) => {
                    let Some(job) = status(array)?.job else { continue };
                    if !answer(Answer::Progress { job: job_of(&job) }) {
                        bail!("the client went away");
                    }
                }
            }
        }
        let detail = self.detail(array)?;
        Ok(Answer::Idle { last: detail.last_job.clone(), detail: Box::new(detail) })
    }
}

/// The kind of an error.
fn code_of(error: &anyhow::Error) -> Code {
    if let Some(Refused(refusal)) = error.downcast_ref() {
        return refusal.code;
    }
    if error.is::<NoSuchArray>() {
        return Code::NoSuchArray;
    }
    if error.is::<OpenError>() || error.is::<ExamineError>() {
        return Code::Io;
    }
    match error.downcast_ref::<ControlError>() {
        Some(ControlError::NoSuchMember { .. }) => Code::NoSuchMember,
        Some(ControlError::Busy { .. } | ControlError::SettingDuring { .. }) => Code::JobRuns,
        Some(ControlError::AlreadyMember { .. } | ControlError::NotRemovable { .. }) => Code::InUse,
        Some(ControlError::OtherArray { .. } | ControlError::RanApart { .. }) => Code::NeedsForce,
        Some(
            ControlError::Io { .. } | ControlError::Open { .. } | ControlError::Examine { .. },
        ) => Code::Io,
        _ => Code::Refused,
    }
}

fn done(text: String) -> Answer {
    Answer::Done { text }
}

fn change_bitmap(array: &Arc<Array>, internal: bool, chunk: Option<u64>) -> Result<String> {
    let name = array.name();
    if !internal {
        order(array, |control| async move { control.bitmap().remove().await })?;
        return Ok(format!("array {name} has no bitmap any more"));
    }
    let bitmap = order(array, move |control| async move { control.bitmap().add(chunk).await })?;
    let size = braid_device::spec::show_size(bitmap.chunk);
    Ok(format!(
        "array {name} has a write-intent bitmap now, {} bits, {size} for each bit",
        bitmap.bits
    ))
}

/// Takes away what the array has beside "active" in its superblocks.
fn no_policy(array: &Arc<Array>) -> Result<String> {
    let status = status(array)?;
    if status.has_bitmap {
        return change_bitmap(array, false, None);
    }
    if !status.has_ppl {
        bail!("array {}: its consistency policy is resync already", array.name());
    }
    order(array, |control| async move { control.ppl().remove().await })?;
    Ok(format!("array {} has no partial parity log any more", array.name()))
}

fn speed(array: &Array, min_kib: Option<u64>, max_kib: Option<u64>) -> Result<String> {
    let now = status(array)?.sync_speed;
    let (min, max) = (min_kib.unwrap_or(now.min_kib), max_kib.unwrap_or(now.max_kib));
    order(array, move |control| async move { control.jobs().set_sync_speed(min, max) })?;
    let most = if max == u64::MAX { "no limit".to_string() } else { format!("{max} KiB/s") };
    Ok(format!("speed of jobs of array {}: at least {min} KiB/s, at most {most}", array.name()))
}

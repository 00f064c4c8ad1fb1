//! The arrays that run in this server, and what each request on the control socket does to them.
//!
//! Owns the list of arrays. Everything is asked of an array's control on its home shard; nothing here
//! runs on a shard.

use super::End;
use super::control_socket::{Door, Handler};
use super::creating::Wanted;
use super::details::{self, job_of};
use super::grouping::Group;
use super::membership::select;
use super::protocol::{Answer, Detail, Listed, Request};
use super::setting::Setter;
use super::volumes::ToRunning;
use super::{flags, salvaged, stacking};
use crate::settings::kept::Kept;
use crate::volumes::Volumes;
use anyhow::{Context, Result, bail};
use braid_array::array::Array;
use braid_array::control::Control;
use braid_array::error::ControlError;
use braid_array::salvage::Salvage;
use braid_array::state::ArrayId;
use braid_array::state::flags::MemberFlags;
use braid_array::status::{ArrayStatus, JobKind, JobStatus, MemberState, MemberStatus};
use braid_device::Target;
use braid_format::uuid_text;
use braid_nbd::serve::Server;
use braid_shard::mailbox::Remote;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// See the module's documentation.
pub struct Running {
    arrays: Mutex<Vec<Arc<Array>>>,
    /// Arrays that are only read, beside the engine.
    salvaged: Mutex<Vec<Arc<Salvage>>>,
    /// Where arrays are exported that are no members of others.
    pub(super) server: Option<Arc<Server>>,
    pub(super) remotes: Vec<Remote>,
    /// Bytes that the caches of an array may take.
    pub(super) memory_max: u64,
    pub(super) setter: Setter,
    /// Held while arrays are made, stacked or chosen to be stopped: which array uses which does not change otherwise.
    stack: Mutex<()>,
    /// Arrays that are being stopped: nothing is made of them any more.
    pub(super) stopping: Mutex<Vec<ArrayId>>,
    /// Some array could not be left as a stop should leave it.
    pub(super) unwell: AtomicBool,
    pub(super) volumes: Volumes,
    pub(super) ends: Mutex<Sender<End>>,
    pub(super) door: Door,
    /// The number of the next member in memory, so that its name is its own.
    pub(super) next_in_memory: AtomicU64,
}

/// What arrays run on.
pub struct Around {
    /// All shards, the home shard first.
    pub remotes: Vec<Remote>,
    /// Where settings are kept.
    pub kept: Kept,
    /// Bytes that the caches of an array may take.
    pub memory_max: u64,
    /// The way in, to be closed when nothing is left to be served.
    pub door: Door,
}

/// No array of that name.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoSuchArray(String);

impl Running {
    /// `arrays` and `salvaged`, exported by `server`; `ends` is told when the last one was stopped.
    pub fn new(
        arrays: Vec<Arc<Array>>,
        salvaged: Vec<Arc<Salvage>>,
        server: Option<Arc<Server>>,
        around: Around,
        ends: Sender<End>,
    ) -> Arc<Running> {
        let Around { remotes, kept, memory_max, door } = around;
        Arc::new_cyclic(|own| Running {
            arrays: Mutex::new(arrays),
            salvaged: Mutex::new(salvaged),
            server,
            memory_max,
            volumes: Volumes::new(
                remotes.clone(),
                kept.clone(),
                Arc::new(ToRunning(Weak::clone(own))),
            ),
            remotes,
            setter: Setter::new(kept),
            stack: Mutex::new(()),
            stopping: Mutex::default(),
            unwell: AtomicBool::new(false),
            ends: Mutex::new(ends),
            door,
            next_in_memory: AtomicU64::new(1000),
        })
    }

    /// The handler for the control socket.
    pub fn handler(self: &Arc<Running>) -> Arc<Handler> {
        let running = Arc::clone(self);
        Arc::new(move |request, answer| running.answer(request, answer))
    }

    /// Memory is short: caches that size themselves give back half of what they have.
    pub fn shrink_caches(&self) {
        let arrays = self.arrays().clone();
        for array in arrays {
            // One that has been stopped meanwhile has no cache.
            let _ = array.control(|control| async move { control.shrink_caches().await });
        }
    }

    pub(super) fn stack_turn(&self) -> MutexGuard<'_, ()> {
        // It protects no data, only an order.
        self.stack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn arrays(&self) -> MutexGuard<'_, Vec<Arc<Array>>> {
        // Every change of the list is a single call, so a panic elsewhere leaves it whole.
        self.arrays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn salvaged(&self) -> MutexGuard<'_, Vec<Arc<Salvage>>> {
        self.salvaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array of that name if it is one that is only read; the only one there is, without a name.
    pub(super) fn find_salvaged(&self, wanted: Option<&str>) -> Option<Arc<Salvage>> {
        let none_runs = self.arrays().is_empty();
        let salvaged = self.salvaged();
        match (wanted, salvaged.as_slice()) {
            (Some(wanted), _) => {
                salvaged.iter().find(|array| salvaged::is_called(array, wanted)).cloned()
            }
            (None, [only]) if none_runs => Some(Arc::clone(only)),
            (None, _) => None,
        }
    }

    pub(super) fn find(&self, wanted: Option<&str>) -> Result<Arc<Array>> {
        if let Some(array) = self.find_salvaged(wanted) {
            bail!(
                "array {} is only read, as its members hold it; `braid detail` and `braid stop` are what it knows",
                array.info().name
            );
        }
        let arrays = self.arrays();
        let salvaged: Vec<String> = self.salvaged().iter().map(|array| array.info().name).collect();
        let names = || {
            let running = arrays.iter().map(|array| array.name());
            running.chain(salvaged.iter().map(String::as_str)).collect::<Vec<_>>().join(", ")
        };
        let Some(wanted) = wanted else {
            return match arrays.as_slice() {
                [only] if salvaged.is_empty() => Ok(Arc::clone(only)),
                [] if salvaged.is_empty() => {
                    Err(NoSuchArray("no array is running".to_string()).into())
                }
                _ => bail!("several arrays are running, say which: {}", names()),
            };
        };
        let uuid = uuid_text::parse(wanted).ok();
        let found =
            arrays.iter().find(|array| array.name() == wanted || Some(array.uuid()) == uuid);
        match found {
            Some(array) => Ok(Arc::clone(array)),
            None => Err(NoSuchArray(format!(
                "no array {wanted:?} is running here; there is: {}",
                names()
            ))
            .into()),
        }
    }

    fn answer(&self, request: Request, answer: &mut dyn FnMut(Answer) -> bool) {
        let about_volumes = matches!(request, Request::Volume { .. });
        let stops = about_volumes || matches!(request, Request::Stop { .. });
        let asked = about_volumes.then(|| self.volumes.ask());
        let done = match &asked {
            Some(None) => Ok(Answer::Ending),
            _ => self.carry_out(request, answer),
        };
        // Before the answer: whoever has it and asks again finds no server, and not one that is about to end.
        let closed = stops && self.closes_if_idle(usize::from(about_volumes));
        match done {
            Ok(last) => {
                answer(last);
            }
            Err(error) => {
                let no_such_array = error.downcast_ref::<NoSuchArray>().is_some();
                answer(Answer::Refused { error: format!("{error:#}"), no_such_array });
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
            Request::List => Answer::List { arrays: self.list()? },
            Request::Detail { array } => {
                if let Some(array) = self.find_salvaged(array.as_deref()) {
                    let detail = salvaged::detail(&array, self.exports(&array.info().name));
                    return Ok(Answer::Detail { detail: Box::new(detail) });
                }
                let array = self.find(array.as_deref())?;
                Answer::Detail { detail: Box::new(self.detail(&array)?) }
            }
            Request::Fail { array, member } => {
                let array = self.find(Some(&array))?;
                let (member, name) = select(&array, &member)?;
                order(&array, move |control| async move { control.fail(&member).await })?;
                let next = outlook(&status(&array)?);
                done(format!("member {name} of array {} is faulty now; {next}", array.name()))
            }
            Request::Remove { array, member } => {
                let array = self.find(Some(&array))?;
                let (member, name) = select(&array, &member)?;
                let below = stacking::array_of(&name);
                // Any other member may take its time and changes nothing in which array uses which.
                let _turn = below.map(|_| self.stack_turn());
                order(&array, move |control| async move { control.remove(&member).await })?;
                self.offer_free(below.into_iter())?;
                done(format!("member {name} was removed from array {}", array.name()))
            }
            Request::Add { array, member, force, flags } => {
                let array = self.find(Some(&array))?;
                done(self.add(&array, &member, force, flags.into())?)
            }
            Request::Member { array, member, write_mostly, failfast } => {
                let array = self.find(Some(&array))?;
                done(flags::change(&array, &member, write_mostly, failfast)?)
            }
            Request::ReAdd { array, member } => {
                let array = self.find(Some(&array))?;
                done(self.re_add(&array, &member)?)
            }
            Request::Bitmap { array, internal, chunk } => {
                let array = self.find(Some(&array))?;
                done(change_bitmap(&array, internal, chunk)?)
            }
            Request::Resume { array } => {
                let array = self.find(array.as_deref())?;
                let resume = |control: Rc<Control>| async move { Ok(control.resume().await) };
                let name = array.name();
                done(match order(&array, resume)? {
                    0 => format!("no write of array {name} waits for space"),
                    writes => format!("{writes} writes of array {name} are tried again"),
                })
            }
            Request::Scrub { array, repair } => {
                let array = self.find(array.as_deref())?;
                order(&array, move |control| async move {
                    if repair { control.start_repair() } else { control.start_check() }
                })?;
                let what = if repair { "repair" } else { "check" };
                let name = array.name();
                done(format!("{what} of array {name} started; `braid wait {name}` follows it"))
            }
            Request::Cancel { array } => self.cancel(array.as_deref())?,
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
            Request::Stop { array, force } => self.stop(array.as_deref(), force)?,
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
                exports: self.exports(array.name()),
            })
        };
        let mut all = arrays.iter().map(listed).collect::<Result<Vec<_>>>()?;
        for array in self.salvaged().iter() {
            let exports = self.exports(&array.info().name);
            let detail = salvaged::detail(array, exports);
            let (name, uuid, state) = (detail.name, detail.uuid, detail.state);
            all.push(Listed { name, uuid, state, exports: detail.exports });
        }
        Ok(all)
    }

    fn exports(&self, name: &str) -> Vec<String> {
        match &self.server {
            Some(server) if server.offers(name) => {
                server.addresses().iter().map(|address| address.uri(name)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn detail(&self, array: &Array) -> Result<Detail> {
        let mut detail = details::detail(status(array)?, self.exports(array.name()));
        for member in &mut detail.members {
            let Some(below) = stacking::array_of(&member.name) else { continue };
            let found = self.arrays().iter().find(|array| array.name() == below).cloned();
            // One that was stopped below a running array is a faulty member without a state.
            let below = found.and_then(|array| self.detail(&array).ok());
            member.array = below.map(Box::new);
        }
        Ok(detail)
    }

    /// All shards.
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// The shard that arrays have their control on.
    ///
    /// # Errors
    /// When there is none.
    pub fn home(&self) -> Result<&Remote> {
        self.remotes.first().context("a server has a shard")
    }

    /// Where arrays are exported.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_deref()
    }

    /// An array with this UUID runs here.
    pub fn runs(&self, uuid: &[u8; 16]) -> bool {
        self.arrays().iter().any(|array| array.uuid() == *uuid)
    }

    /// Gives an array that is about to be started a name that no other has here.
    pub fn name_apart(&self, group: &mut Group) {
        let known = self.arrays().iter().any(|array| array.name() == group.name);
        if known || self.salvaged().iter().any(|array| array.info().name == group.name) {
            let uuid = uuid_text::format(&group.uuid);
            group.name = format!("{}-{}", group.name, uuid.split(':').next().unwrap_or_default());
        }
    }

    /// Enters an array that was started while others ran; `free`: no other is made of it.
    ///
    /// # Errors
    /// When it cannot be offered to clients.
    pub fn enter_late(&self, array: Arc<Array>, free: bool) -> Result<()> {
        let _turn = self.stack_turn();
        if free {
            return self.enter(array);
        }
        self.arrays().push(array);
        Ok(())
    }

    /// Enters an array that was started, and offers it to clients.
    pub(super) fn enter(&self, array: Arc<Array>) -> Result<()> {
        self.arrays().push(Arc::clone(&array));
        match &self.server {
            Some(server) => Ok(server.offer(array)?),
            None => Ok(()),
        }
    }

    fn cancel(&self, array: Option<&str>) -> Result<Answer> {
        let array = self.find(array)?;
        let status = status(&array)?;
        let scrub = |job: &JobStatus| matches!(job.kind, JobKind::Check | JobKind::Repair);
        let Some(job) = status.job.filter(scrub) else {
            bail!("no check or repair of array {} is running", array.name());
        };
        order(&array, |control| async move {
            control.cancel_job();
            Ok(())
        })?;
        Ok(done(format!("{} of array {} cancelled", job.kind, array.name())))
    }

    fn wait(&self, array: &Arc<Array>, answer: &mut dyn FnMut(Answer) -> bool) -> Result<Answer> {
        let (send, idle) = mpsc::channel();
        let id = array.id();
        array.home().run(move |shard| {
            let Some(control) = Control::find(shard, id) else { return };
            shard.spawn(async move {
                control.wait_idle().await;
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

fn done(text: String) -> Answer {
    Answer::Done { text }
}

pub(super) fn stopped(array: &Array) -> anyhow::Error {
    NoSuchArray(format!("array {} has been stopped", array.name())).into()
}

pub(super) fn status(array: &Array) -> Result<ArrayStatus> {
    array.control(|control| async move { control.status().await }).ok_or_else(|| stopped(array))
}

/// Has the array's control do something that it may refuse.
pub(super) fn order<T, F, W>(array: &Array, job: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce(Rc<Control>) -> W + Send + 'static,
    W: Future<Output = Result<T, ControlError>> + 'static,
{
    Ok(array.control(job).ok_or_else(|| stopped(array))??)
}

fn change_bitmap(array: &Arc<Array>, internal: bool, chunk: Option<u64>) -> Result<String> {
    let name = array.name();
    if !internal {
        order(array, |control| async move { control.remove_bitmap().await })?;
        return Ok(format!("array {name} has no bitmap any more"));
    }
    let bitmap = order(array, move |control| async move { control.add_bitmap(chunk).await })?;
    let size = braid_device::spec::show_size(bitmap.chunk);
    Ok(format!(
        "array {name} has a write-intent bitmap now, {} bits, {size} for each bit",
        bitmap.bits
    ))
}

fn speed(array: &Array, min_kib: Option<u64>, max_kib: Option<u64>) -> Result<String> {
    let now = status(array)?.sync_speed;
    let (min, max) = (min_kib.unwrap_or(now.min_kib), max_kib.unwrap_or(now.max_kib));
    order(array, move |control| async move { control.set_sync_speed(min, max) })?;
    let most = if max == u64::MAX { "no limit".to_string() } else { format!("{max} KiB/s") };
    Ok(format!("speed of jobs of array {}: at least {min} KiB/s, at most {most}", array.name()))
}

/// What happens next by itself, or has to be done.
pub(super) fn outlook(status: &ArrayStatus) -> String {
    let name = &status.name;
    let helps = |member: &MemberStatus| {
        matches!(member.state, MemberState::Spare | MemberState::Rebuilding { .. })
    };
    if status.degraded == 0 {
        return "every slot has a member in sync".to_string();
    }
    match status.members.iter().find(|member| helps(member)) {
        Some(spare) => format!("{} is being rebuilt; `braid wait {name}` follows it", spare.name),
        None => format!("the array is degraded; `braid add {name} MEMBER` gives it a new one"),
    }
}

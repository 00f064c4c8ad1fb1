//! The volumes that are mounted in this server, and what each request does to them.
//!
//! Owns the list. Everything is asked of a volume on its shard; nothing here runs on a shard.

use super::bricks::HowAdded;
use super::creating::{self, Wish};
use super::finding;
use super::here::How;
use super::hosted::{Events, Hosted, Start, locked};
use super::kept;
use crate::daemon::protocol::Answer;
use crate::daemon::protocol::volume::{FileName, VolumeAnswer, VolumeRequest};
use crate::members::{Member, parse_bricks};
use crate::output;
use crate::output::size;
use crate::settings::kept::Kept;
use anyhow::{Context, Result, bail};
use braid_device::Opener;
use braid_device::file::Mode;
use braid_shard::mailbox::Remote;
use braid_volume::VolumeStatus;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// For so long a volume that was unmounted may take until its bricks are closed, before who mounts it is told to wait.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The arrays of the same server, which may be bricks.
pub trait Arrays {
    /// The array as it is, to look at its content.
    ///
    /// # Errors
    /// When it does not run, or is a member of another.
    fn look(&self, name: &str) -> Result<Arc<dyn Opener>>;

    /// The array, taken from its clients.
    ///
    /// # Errors
    /// When somebody uses it.
    fn take(&self, name: &str) -> Result<Arc<dyn Opener>>;

    /// Arrays that were taken, and are not needed any more.
    fn give_back(&self, names: &[String]);
}

/// See the module's documentation.
pub struct Volumes {
    list: Mutex<Vec<Arc<Hosted>>>,
    remotes: Vec<Remote>,
    pub(super) kept: Kept,
    events: Arc<dyn Events>,
    /// Held while volumes are made, mounted or changed: one at a time.
    turn: Mutex<()>,
    /// The number of the next brick in memory, so that its name is its own.
    next_in_memory: AtomicU64,
    /// Requests that are not answered yet, and [`ENDING`].
    asked: AtomicUsize,
}

/// Set in the count of requests when no further one is carried out.
const ENDING: usize = 1 << (usize::BITS - 1);

/// A request that is not answered yet.
pub struct Asked<'a>(&'a AtomicUsize);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Progress and answers go here; false when the client is gone.
pub type Tell<'a> = dyn FnMut(Answer) -> bool + 'a;

impl Volumes {
    /// On these shards; `events` is told of what happens by itself.
    pub fn new(remotes: Vec<Remote>, kept: Kept, events: Arc<dyn Events>) -> Volumes {
        Volumes {
            list: Mutex::default(),
            remotes,
            kept,
            events,
            turn: Mutex::default(),
            next_in_memory: AtomicU64::new(0),
            asked: AtomicUsize::new(0),
        }
    }

    /// A request comes; it is answered when what is given is dropped. `None`: the server ends.
    pub fn ask(&self) -> Option<Asked<'_>> {
        let before = self.asked.fetch_add(1, Ordering::AcqRel);
        let asked = Asked(&self.asked);
        (before & ENDING == 0).then_some(asked)
    }

    /// Ends it when no volume is mounted and nobody but `own` requests waits for an answer: none is carried out from
    /// then on. True when it has ended.
    pub fn end_if_idle(&self, own: usize) -> bool {
        // Whoever mounts a volume puts it on the list before the request is over.
        let list = locked(&self.list);
        let (from, to) = (own, own | ENDING);
        let ends = || self.asked.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        list.is_empty() && (self.asked.load(Ordering::Acquire) & ENDING != 0 || ends().is_ok())
    }

    /// The volumes that are mounted.
    pub fn all(&self) -> Vec<Arc<Hosted>> {
        locked(&self.list).clone()
    }

    /// Takes a volume that has ended off the list.
    pub fn forget(&self, hosted: &Arc<Hosted>) {
        locked(&self.list).retain(|known| !Arc::ptr_eq(known, hosted));
    }

    /// The volume that has this array as a brick.
    pub fn user_of(&self, array: &str) -> Option<String> {
        let brick = format!("{}{array}", braid_array::stacking::PREFIX);
        let uses = |hosted: &&Arc<Hosted>| hosted.bricks().iter().any(|held| held.name == brick);
        self.all().iter().find(uses).map(|hosted| hosted.name.clone())
    }

    /// Clients of files that are exported.
    pub fn clients(&self) -> Vec<String> {
        self.all().iter().flat_map(|hosted| hosted.clients()).collect()
    }

    /// Unmounts all, also those in use. False when one could not be unmounted in order.
    pub fn unmount_all(&self) -> bool {
        let mut well = true;
        for hosted in self.all() {
            if let Err(error) = hosted.unmount_at_end() {
                well = false;
                output::note(format!("braid: volume {}: {error:#}", hosted.name));
            }
            self.forget(&hosted);
        }
        well
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// Whatever keeps it from being done.
    pub fn answer(
        &self,
        request: VolumeRequest,
        arrays: &dyn Arrays,
        tell: &mut Tell<'_>,
    ) -> Result<Answer> {
        Ok(match request {
            VolumeRequest::Create { name, bricks, new, dry_run } => {
                let _turn = locked(&self.turn);
                if let Some(mounted) = self.all().iter().find(|hosted| hosted.name == name) {
                    bail!(
                        "creating volume {name}: a volume of that name is mounted at {} ({}); choose another name",
                        mounted.dir.display(),
                        mounted.uuid
                    );
                }
                let wish = Wish { name: &name, bricks: &bricks, new: &new, dry_run };
                let (home, members) = (self.home()?, self.members(&bricks)?);
                self.refuse_used(home, &members)?;
                let doing = format!("creating volume {name}");
                let prepared = creating::prepare(home, &doing, members, new.force, arrays)?;
                let created = creating::create(home, &wish, &prepared, &self.kept);
                arrays.give_back(&prepared.arrays());
                about(VolumeAnswer::Created { created: created? })
            }
            request @ VolumeRequest::Mount { .. } => done(self.mount(request, arrays)?),
            VolumeRequest::Unmount { volume, lazy } => done(self.unmount(&volume, lazy)?),
            VolumeRequest::List => {
                let volumes =
                    self.all().iter().map(|hosted| hosted.listed()).collect::<Result<_>>()?;
                about(VolumeAnswer::List { volumes })
            }
            VolumeRequest::Status { volume } => {
                let status = Box::new(self.find(volume.as_deref())?.detail()?);
                about(VolumeAnswer::Status { status })
            }
            VolumeRequest::Add { volume, bricks, weight, proxy, force } => {
                let hosted = self.find(Some(&volume))?;
                let _turn = locked(&self.turn);
                let members = self.members(&bricks)?;
                done(self.add(&hosted, members, HowAdded { weight, proxy, force }, arrays)?)
            }
            VolumeRequest::Start { volume, job } => {
                done(self.find(Some(&volume))?.start_job(&job)?)
            }
            VolumeRequest::Weight { volume, brick, weight } => {
                done(self.find(Some(&volume))?.set_weight(&brick, weight)?)
            }
            VolumeRequest::GrowMetadata { volume, size } => {
                done(self.find(Some(&volume))?.grow_metadata(size)?)
            }
            VolumeRequest::Pin { volume, files, pinned } => {
                done(self.find(Some(&volume))?.set_pinned(&files, pinned)?)
            }
            VolumeRequest::Proxy { volume, brick } => {
                done(self.find(Some(&volume))?.set_proxy(brick.as_deref())?)
            }
            VolumeRequest::LastCheck { volume } => {
                let report = self.find(Some(&volume))?.last_check()?;
                about(VolumeAnswer::Check { report })
            }
            VolumeRequest::Job { volume, deed, check } => {
                done(self.find(volume.as_deref())?.steer_job(deed, check, tell)?)
            }
            VolumeRequest::Export { volume, file, nbd, read_only } => {
                let hosted = self.find(Some(&volume))?;
                let _turn = locked(&self.turn);
                done(match nbd {
                    Some(address) => hosted.export(&file, &address, read_only)?,
                    None => hosted.end_export(&file)?,
                })
            }
        })
    }

    /// A brick was emptied and let go.
    pub fn brick_gone(&self, hosted: &Hosted, uuid: Uuid, arrays: &dyn Arrays) {
        let Some(held) = hosted.let_go(uuid) else { return };
        let name = held.name.clone();
        let array = held.name.strip_prefix(braid_array::stacking::PREFIX).map(str::to_string);
        drop(held);
        arrays.give_back(&array.into_iter().collect::<Vec<_>>());
        self.note_bricks(hosted, Some(&name));
    }

    /// Notes where the bricks of a volume are now, of which `gone` is none any more. What cannot be noted is said and
    /// no reason to fail.
    pub(super) fn note_bricks(&self, hosted: &Hosted, gone: Option<&str>) {
        let mut names: Vec<String> = hosted.bricks().into_iter().map(|held| held.name).collect();
        let missing = |status: &VolumeStatus| status.bricks.iter().any(|brick| !brick.is_there);
        if hosted.status().is_ok_and(|status| missing(&status)) {
            // Those that are missing may come back where they were.
            for known in kept::named(&self.kept, &hosted.uuid.to_string()) {
                let away = |name: &String| !names.contains(name) && Some(name.as_str()) != gone;
                let away: Vec<String> = known.bricks.into_iter().filter(away).collect();
                names.extend(away);
            }
        }
        if let Err(error) = kept::store(&self.kept, &hosted.name, hosted.uuid, &names) {
            output::note(format!(
                "note: {error:#}; give the bricks to `braid volume mount` next time"
            ));
        }
    }

    /// The volume that is meant.
    ///
    /// # Errors
    /// When there is none, or several could be meant.
    pub fn find(&self, wanted: Option<&str>) -> Result<Arc<Hosted>> {
        let all = self.all();
        let names = || all.iter().map(|hosted| hosted.name.as_str()).collect::<Vec<_>>().join(", ");
        let Some(wanted) = wanted else {
            return match all.as_slice() {
                [only] => Ok(Arc::clone(only)),
                [] => bail!("no volume is mounted; `braid volume mount NAME DIR` mounts one"),
                _ => bail!("several volumes are mounted, say which: {}", names()),
            };
        };
        let uuid = Uuid::parse_str(wanted).ok();
        let is = |hosted: &&Arc<Hosted>| {
            hosted.name == wanted || Some(hosted.uuid) == uuid || hosted.is_at(wanted)
        };
        let found: Vec<_> = all.iter().filter(is).collect();
        match found.as_slice() {
            [only] => Ok(Arc::clone(only)),
            [] if all.is_empty() => {
                bail!("no volume {wanted} is mounted; `braid volume mount {wanted} DIR` mounts it")
            }
            [] => bail!("no volume {wanted} is mounted here; there is: {}", names()),
            _ => bail!("several volumes are called {wanted}: give the directory or UUID of one"),
        }
    }

    fn home(&self) -> Result<&Remote> {
        self.remotes.first().context("a server has a shard")
    }

    /// The shard with the fewest volumes.
    fn least_used(&self) -> Result<Remote> {
        let all = self.all();
        let volumes = |remote: &&Remote| {
            all.iter().filter(|hosted| hosted.home().id() == remote.id()).count()
        };
        Ok(self.remotes.iter().min_by_key(volumes).context("a server has a shard")?.clone())
    }

    /// Understands bricks; those in memory get names that no other has.
    fn members(&self, texts: &[String]) -> Result<Vec<Member>> {
        let mut members = parse_bricks(texts)?;
        for member in &mut members {
            if member.in_memory() {
                let number = self.next_in_memory.fetch_add(1, Ordering::Relaxed);
                let kind = member.name.split('#').next().unwrap_or_default();
                member.name = format!("{kind}#{number}");
            }
        }
        Ok(members)
    }

    /// Opens bricks for use; arrays are taken from their clients.
    pub(super) fn open(
        &self,
        members: &[Member],
        mode: Mode,
        arrays: &dyn Arrays,
    ) -> Result<Vec<(Member, Arc<dyn Opener>)>> {
        let mut taken = Vec::new();
        let opened = members
            .iter()
            .map(|member| {
                let mut member = member.clone();
                if let Some(array) = member.array().map(str::to_string) {
                    member.found(arrays.take(&array)?);
                    taken.push(array);
                }
                let opener = member.prepare(mode)?;
                Ok((member, opener))
            })
            .collect::<Result<Vec<_>>>();
        if opened.is_err() {
            arrays.give_back(&taken);
        }
        opened
    }

    /// Waits until a volume that somebody has unmounted is closed: umount(8) does not wait for that.
    fn wait_for_end(&self, name: &str) -> Result<()> {
        let until = Instant::now() + ENDS_WITHIN;
        while self.find(Some(name)).is_ok_and(|known| known.is_ending()) {
            if Instant::now() > until {
                bail!(
                    "volume {name} was unmounted, but is still being written to its bricks after {} s; \
                     mount it when `braid volume list` does not show it any more",
                    ENDS_WITHIN.as_secs()
                );
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn mount(&self, request: VolumeRequest, arrays: &dyn Arrays) -> Result<String> {
        let VolumeRequest::Mount {
            name,
            dir,
            bricks,
            degraded,
            take_back,
            read_only,
            allow_other,
            create,
        } = request
        else {
            bail!("not a mount");
        };
        self.wait_for_end(&name)?;
        let _turn = locked(&self.turn);
        if let Ok(known) = self.find(Some(&name)) {
            bail!(
                "volume {name} is mounted already, at {}; a volume can be mounted once",
                known.dir.display()
            );
        }
        refuse_as_mount_point(Path::new(&dir))?;
        let home = self.least_used()?;
        let mut notes = Vec::new();
        let opened = match &create {
            Some(new) => {
                let wish = Wish { name: &name, bricks: &bricks, new, dry_run: false };
                let doing = format!("creating volume {name}");
                let members = self.members(&bricks)?;
                self.refuse_used(&home, &members)?;
                let prepared = creating::prepare(&home, &doing, members, new.force, arrays)?;
                let made = creating::create(&home, &wish, &prepared, &self.kept);
                if made.is_err() {
                    arrays.give_back(&prepared.arrays());
                }
                notes.extend(made?.notes);
                prepared.bricks
            }
            None => {
                let look = |array: &str| arrays.look(array);
                let found = finding::find(&home, &name, &bricks, &self.kept, &look)?;
                notes.extend(found.notes);
                let members: Vec<Member> =
                    found.bricks.into_iter().map(|brick| brick.member).collect();
                let mode = if read_only { Mode::ReadOnly } else { Mode::ReadWrite };
                self.open(&members, mode, arrays)?
            }
        };
        let start = Start {
            bricks: opened
                .iter()
                .map(|(member, opener)| (member.name.clone(), Arc::clone(opener)))
                .collect(),
            how: How { degraded, take_back, read_only },
            dir: PathBuf::from(&dir),
            allow_other,
            home,
        };
        let (hosted, gone, more) = match Hosted::start(start, &self.events) {
            Ok(started) => started,
            Err(error) => {
                give_back(arrays, &opened);
                // Why a brick that was noted is not among them may be what the user has to mend.
                let notes: String = notes.iter().map(|note| format!("\n  note: {note}")).collect();
                bail!("mounting volume {name}: {error:#}{notes}");
            }
        };
        notes.extend(more);
        locked(&self.list).push(Arc::clone(&hosted));
        if hosted.has_ended() {
            self.forget(&hosted);
            bail!("volume {name} was unmounted at once by somebody else");
        }
        self.note_bricks(&hosted, None);
        for brick in gone {
            self.brick_gone(&hosted, brick, arrays);
        }
        let listed = hosted.listed()?;
        let count = listed.bricks.len();
        let mut said = format!(
            "volume {} is mounted at {}: {} in {count} bricks, {}\n  `braid volume unmount {}` unmounts it",
            hosted.name,
            hosted.dir.display(),
            size::human(listed.size),
            listed.state,
            hosted.name
        );
        for note in notes {
            said.push_str(&format!("\n  note: {note}"));
        }
        Ok(said)
    }

    fn unmount(&self, wanted: &str, lazy: bool) -> Result<String> {
        let hosted = self.find(Some(wanted))?;
        if let Some(export) = hosted.exported().first().filter(|_| !lazy) {
            bail!(
                "{} of volume {} is exported; first: braid volume export {} {} --off",
                export.file,
                hosted.name,
                hosted.name,
                export.file
            );
        }
        hosted.unmount(lazy)?;
        Ok(match lazy {
            true => format!(
                "volume {} is out of the tree; it ends when its last user does",
                hosted.name
            ),
            false => format!("volume {} is unmounted", hosted.name),
        })
    }
}

fn give_back(arrays: &dyn Arrays, opened: &[(Member, Arc<dyn Opener>)]) {
    let names: Vec<Member> = opened.iter().map(|(member, _)| member.clone()).collect();
    arrays.give_back(&array_names(&names));
}

fn array_names(members: &[Member]) -> Vec<String> {
    members.iter().filter_map(Member::array).map(str::to_string).collect()
}

/// What cannot be a mount point is said before bricks are touched.
fn refuse_as_mount_point(dir: &Path) -> Result<()> {
    match braid_fuse::metadata_now(dir) {
        Ok(found) if found.is_dir() => {
            let above = std::fs::metadata(dir.join(".."));
            if above.is_ok_and(|above| above.dev() != found.dev()) {
                bail!(
                    "mounting at {}: something is mounted there; unmount it first or take another directory",
                    dir.display()
                );
            }
            Ok(())
        }
        Ok(_) => bail!("mounting at {}: it is not a directory", dir.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "mounting at {}: there is no such directory; make it with mkdir -p",
                dir.display()
            )
        }
        // What a server that died has left there is looked at when it is mounted over.
        Err(_) => Ok(()),
    }
}

/// A file of the volume that is mounted at `dir`, as a path from its root.
pub(super) fn inside(dir: &Path, file: &FileName) -> String {
    let below = Path::new(&file.absolute).strip_prefix(dir).ok();
    let path = below.map_or_else(|| file.typed.clone(), |below| below.display().to_string());
    format!("/{}", path.trim_start_matches('/').trim_end_matches('/'))
}

pub(super) fn done(text: String) -> Answer {
    Answer::Done { text }
}

fn about(volume: VolumeAnswer) -> Answer {
    Answer::Volume { volume }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_from_the_root_of_its_volume() {
        let name = |typed: &str, absolute: &str| {
            let file = FileName { typed: typed.into(), absolute: absolute.into() };
            inside(Path::new("/srv/pool"), &file)
        };
        assert_eq!(name("pool/a", "/srv/pool/a"), "/a");
        assert_eq!(name("/srv/pool/a/b/", "/srv/pool/a/b"), "/a/b");
        assert_eq!(name("a/b", "/root/a/b"), "/a/b");
        assert_eq!(name("/a", "/a"), "/a");
        assert_eq!(name("/srv/pool", "/srv/pool"), "/");
    }
}

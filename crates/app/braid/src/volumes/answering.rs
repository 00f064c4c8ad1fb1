//! What each request about volumes does.
//!
//! Everything is asked of a volume on its shard; nothing here runs on a shard.

use super::arrays::{Arrays, names_of};
use super::bricks::HowAdded;
use super::creating::{self, Wish};
use super::finding;
use super::here::How;
use super::hosted::{Hosted, Start, locked};
use super::registry::Volumes;
use super::tell::Tell;
use super::unmounted::Unmounted;
use crate::members::Member;
use crate::output::size;
use anyhow::{Context, Result, bail};
use braid_control::protocol::Answer;
use braid_control::protocol::volume::{VolumeAnswer, VolumeRequest};
use braid_device::file::Mode;
use braid_fuse::Without;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// For so long a volume that was unmounted may take until its bricks are closed, before who mounts it is told to wait.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Said after a mount through /dev/fuse on a kernel that could do otherwise; the figures are those of
/// docs/benchmarks/volume-fuse-memory.md.
const OVER_IO_URING: &str = "\n  note: FUSE over io_uring is switched off; with `echo Y > \
     /sys/module/fuse/parameters/enable_uring` before a mount direct requests of 1 MiB, one at a time, are up to a fifth \
     faster, many at a time slower: docs/volumes.md, \"FUSE over io_uring\"";

impl Volumes {
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
            VolumeRequest::Destroy { volume, bricks, force, dry_run } => {
                let which = Unmounted { volume: &volume, bricks: &bricks };
                done(self.destroy_unmounted(&which, (force, dry_run), arrays)?)
            }
            VolumeRequest::Rename { volume, name, bricks } => {
                let which = Unmounted { volume: &volume, bricks: &bricks };
                done(self.rename_unmounted(&which, &name, arrays)?)
            }
            VolumeRequest::CheckUnmounted { volume, bricks, repair } => {
                let which = Unmounted { volume: &volume, bricks: &bricks };
                let report = self.check_unmounted(&which, repair, arrays, tell)?;
                about(VolumeAnswer::Check { report })
            }
            VolumeRequest::Unmount { volume, lazy } => done(self.unmount(&volume, lazy)?),
            VolumeRequest::List => {
                let volumes =
                    self.all().iter().map(|hosted| hosted.listed()).collect::<Result<_>>()?;
                about(VolumeAnswer::List { volumes })
            }
            VolumeRequest::Status { volume } => {
                let hosted = self.find(volume.as_deref())?;
                let mut status = Box::new(hosted.detail()?);
                status.lease = self.lease_of(hosted.uuid);
                about(VolumeAnswer::Status { status })
            }
            VolumeRequest::Add {
                volume,
                bricks,
                weight,
                domain,
                proxy,
                force,
                in_place_of,
                dry_run,
            } => {
                let hosted = self.find(Some(&volume))?;
                let _turn = locked(&self.turn);
                let members = self.members(&bricks)?;
                let how = HowAdded { weight, domain, proxy, force, in_place_of, dry_run };
                done(self.add(&hosted, members, how, arrays)?)
            }
            VolumeRequest::Start { volume, job } => {
                done(self.find(Some(&volume))?.start_job(&job)?)
            }
            VolumeRequest::Weight { volume, brick, weight } => {
                done(self.find(Some(&volume))?.set_weight(&brick, weight)?)
            }
            VolumeRequest::TakeBack { volume, brick, device } => {
                let hosted = self.find(Some(&volume))?;
                let _turn = locked(&self.turn);
                done(self.take_back(&hosted, &brick, device.as_deref(), arrays)?)
            }
            VolumeRequest::GrowMetadata { volume, size } => {
                done(self.find(Some(&volume))?.grow_metadata(size)?)
            }
            VolumeRequest::Pin { volume, files, pinned } => {
                done(self.find(Some(&volume))?.set_pinned(&files, pinned)?)
            }
            VolumeRequest::Copies { volume, file } => {
                let copies = self.find(Some(&volume))?.copies(&file)?;
                about(VolumeAnswer::Copies { copies })
            }
            VolumeRequest::Snapshots { volume } => {
                let snapshots = self.find(Some(&volume))?.snapshots()?;
                about(VolumeAnswer::Snapshots { snapshots })
            }
            VolumeRequest::Snapshot { volume, folder, name } => {
                done(self.find(Some(&volume))?.take_snapshot(&folder, &name)?)
            }
            VolumeRequest::RemoveSnapshot { volume, folder, name, dry_run } => {
                done(self.find(Some(&volume))?.remove_snapshot(&folder, &name, dry_run)?)
            }
            VolumeRequest::Quotas { volume, folder } => {
                let quotas = self.find(Some(&volume))?.quotas(folder.as_deref())?;
                about(VolumeAnswer::Quotas { quotas })
            }
            VolumeRequest::Quota { volume, folder, bytes, files, remove } => {
                let hosted = self.find(Some(&volume))?;
                done(match remove {
                    true => hosted.remove_quota(&folder)?,
                    false => hosted.set_quota(&folder, bytes, files)?,
                })
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
            minority,
            take_back,
            read_only,
            allow_other,
            no_suid,
            no_dev,
            no_exec,
            lease,
            create,
        } = request
        else {
            bail!("not a mount");
        };
        self.has_lease_of(lease.as_deref())?;
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
        let (opened, claim) = match &create {
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
                let made = made?;
                notes.extend(made.notes);
                let claim = Uuid::parse_str(&made.uuid).context("the UUID of a new volume");
                let claim = claim.and_then(|uuid| self.claim(uuid, &name)).inspect_err(|_| {
                    arrays.give_back(&prepared.arrays());
                })?;
                (prepared.bricks, claim)
            }
            None => {
                let look = |array: &str| arrays.look(array);
                let found = finding::find(&home, &name, &bricks, &self.kept, &look)?;
                notes.extend(found.notes);
                let first = found.bricks.first().context("a volume has a brick")?;
                let uuid = Uuid::from_bytes(first.read.superblock.volume_uuid);
                let claim = self.claim(uuid, &name)?;
                let members: Vec<Member> =
                    found.bricks.into_iter().map(|brick| brick.member).collect();
                let mode = if read_only { Mode::ReadOnly } else { Mode::ReadWrite };
                (self.open(&members, mode, arrays)?, claim)
            }
        };
        let start = Start {
            bricks: opened
                .iter()
                .map(|(member, opener)| (member.name.clone(), Arc::clone(opener)))
                .collect(),
            how: How { degraded, take_back, read_only, minority },
            dir: PathBuf::from(&dir),
            allow_other,
            without: Without { setuid: no_suid, devices: no_dev, programs: no_exec },
            others: self.others_than(&home),
            home,
        };
        let (hosted, gone, more) = match Hosted::start(start, &self.events) {
            Ok(started) => started,
            Err(error) => {
                arrays.give_back(&names_of(&opened));
                // Why a brick that was noted is not among them may be what the user has to mend.
                let notes: String = notes.iter().map(|note| format!("\n  note: {note}")).collect();
                bail!(
                    "mounting volume {name}: {error}{notes}",
                    error = crate::output::said(&error)
                );
            }
        };
        notes.extend(more);
        claim.keep();
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
        let count = crate::output::count(listed.bricks.len(), "brick");
        let mut said = format!(
            "volume {} is mounted at {}: {} in {count}, {}\n  `braid volume unmount {}` unmounts it",
            hosted.name,
            hosted.dir.display(),
            size::human(listed.size),
            listed.state,
            hosted.name
        );
        for note in notes {
            said.push_str(&format!("\n  note: {note}"));
        }
        if !hosted.is_over_io_uring() && braid_fuse::io_uring_is_off() {
            said.push_str(OVER_IO_URING);
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

fn done(text: String) -> Answer {
    Answer::Done { text }
}

fn about(volume: VolumeAnswer) -> Answer {
    Answer::Volume { volume }
}

//! What is said of volumes: the requests, and the answers that `--json` prints as they are.
//!
//! `volume` is a name, a UUID or the directory where it is mounted; without it the server must have just one. Sizes
//! are bytes, shares parts of 1, times seconds.

use super::detail::Lease;
use super::job::Job;
use crate::wanted::volume::NewVolume;
use crate::wanted::weight::BrickWeight;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a command asks of volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum VolumeRequest {
    /// Make a volume of `bricks`, as they would be given to `create`. `dry_run`: only say what it would be.
    Create {
        name: String,
        bricks: Vec<String>,
        #[serde(default)]
        new: NewVolume,
        #[serde(default)]
        dry_run: bool,
    },
    /// Mount a volume at `dir`, an absolute path; `create`: make it first. Without bricks they are found.
    Mount {
        name: String,
        dir: String,
        #[serde(default)]
        bricks: Vec<String>,
        #[serde(default)]
        degraded: bool,
        /// With one of three bricks that hold the metadata.
        #[serde(default)]
        minority: bool,
        #[serde(default)]
        take_back: bool,
        #[serde(default)]
        read_only: bool,
        #[serde(default)]
        allow_other: bool,
        #[serde(default)]
        no_suid: bool,
        #[serde(default)]
        no_dev: bool,
        #[serde(default)]
        no_exec: bool,
        /// Only under a lease of this place, which the server has to have; `null`: as the server mounts volumes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease: Option<String>,
        create: Option<NewVolume>,
    },
    /// Erase the superblocks of a volume that is not mounted: all files on it are lost. `force`: also when bricks are missing
    /// or the superblocks say that it is in use.
    Destroy {
        volume: String,
        #[serde(default)]
        bricks: Vec<String>,
        #[serde(default)]
        force: bool,
        #[serde(default)]
        dry_run: bool,
    },
    /// Give a volume that is not mounted another name.
    Rename {
        volume: String,
        name: String,
        #[serde(default)]
        bricks: Vec<String>,
    },
    /// Check a volume that is not mounted, and wait for the end. Without `repair` nothing is written.
    CheckUnmounted {
        volume: String,
        #[serde(default)]
        bricks: Vec<String>,
        #[serde(default)]
        repair: bool,
    },
    /// Unmount a volume.
    Unmount {
        volume: String,
        #[serde(default)]
        lazy: bool,
    },
    /// Which volumes are mounted here.
    List,
    /// The state of one volume.
    Status { volume: Option<String> },
    /// Add bricks. Nothing moves.
    Add {
        volume: String,
        bricks: Vec<String>,
        weight: Option<BrickWeight>,
        /// The label of the domain that they are in; empty: each in its own.
        #[serde(default)]
        domain: String,
        #[serde(default)]
        proxy: bool,
        #[serde(default)]
        force: bool,
        /// The brick that the one which is added is to replace: its weight and domain are the new one's, where none are given.
        #[serde(default)]
        in_place_of: Option<String>,
        /// Check whether it could be done, do nothing.
        #[serde(default)]
        dry_run: bool,
    },
    /// Start a job.
    Start { volume: String, job: VolumeJob },
    /// Change a brick's weight. Nothing moves.
    Weight { volume: String, brick: String, weight: BrickWeight },
    /// Use a brick again that was lost, or was missing at the mount; `device`: where it is now. Without it is looked for.
    TakeBack {
        volume: String,
        brick: String,
        #[serde(default)]
        device: Option<String>,
    },
    /// Make the metadata region `size` bytes large.
    GrowMetadata { volume: String, size: u64 },
    /// Keep files where they are, or let them be moved.
    Pin { volume: String, files: Vec<FileName>, pinned: bool },
    /// The copies that a file is to have, or what is made in a folder.
    Copies { volume: String, file: FileName },
    /// All snapshots, oldest first.
    Snapshots { volume: String },
    /// Make a snapshot of a folder, with everything below it, called `name`. What the kernel holds back is written first.
    Snapshot { volume: String, folder: FileName, name: String },
    /// Remove a snapshot of a folder. It cannot be read any more when the answer comes; what it alone holds is freed after that.
    RemoveSnapshot {
        volume: String,
        folder: FileName,
        name: String,
        /// Only say whether it could be.
        #[serde(default)]
        dry_run: bool,
    },
    /// Projects, with what they take and may take; of `folder`, from the root of the volume: its own, and those of folders below it.
    Quotas {
        volume: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
    },
    /// Limit what is in a folder, which is counted as a project of its own from then on, unless it was given one (chattr -p) before:
    /// that has the limit then. What is not given stays as it was.
    Quota {
        volume: String,
        folder: FileName,
        #[serde(default)]
        bytes: Option<QuotaLimit>,
        #[serde(default)]
        files: Option<QuotaLimit>,
        /// Take its limits away, and its project.
        #[serde(default)]
        remove: bool,
    },
    /// Make a brick the proxy; `None`: have none.
    Proxy { volume: String, brick: Option<String> },
    /// What the last check found.
    LastCheck { volume: String },
    /// Do something about the job under way; `check`: about the check, also where another job is under way.
    Job {
        volume: Option<String>,
        deed: JobDeed,
        #[serde(default)]
        check: bool,
    },
    /// Offer a file at an NBD address; `None`: no longer.
    Export {
        volume: String,
        file: FileName,
        nbd: Option<String>,
        #[serde(default)]
        read_only: bool,
    },
}

/// A file as it was typed, and as an absolute path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileName {
    /// As typed.
    pub typed: String,
    /// With symbolic links followed, where it is there.
    pub absolute: String,
}

/// What a project may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QuotaLimit {
    /// Any number.
    None,
    /// At most so many: bytes, or files.
    Most(u64),
}

/// A job that can be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeJob {
    /// Stripes go where they belong.
    Balance,
    /// A brick is emptied and let go; `dry_run`: only say whether it could be.
    Remove { brick: String, dry_run: bool },
    /// The proxy is emptied.
    Flush,
    /// Files go to a brick.
    Migrate { files: Vec<FileName>, brick: String },
    /// The pieces of files are brought together.
    Defrag,
    /// Metadata and bricks are compared; `repair`: and corrected.
    Check { repair: bool },
    /// All data is read and held against its checksums.
    Scrub,
    /// A file, or a folder with everything in it, gets so many copies of its data, 1 to 4. What is missing is made and what
    /// is too much is freed, in all of the volume.
    Copies { file: FileName, copies: u8 },
}

/// What is done about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobDeed {
    /// It moves nothing until it is resumed.
    Pause,
    /// It goes on.
    Resume,
    /// It ends.
    Cancel,
    /// Answer when it has ended, with progress meanwhile.
    Wait,
    /// It moves at most so many bytes per second; `None`: no limit.
    Speed { bytes: Option<u64> },
    /// It slows down while requests of files take longer than so many microseconds; `None`: 20,000 where a brick has
    /// heads, else 2,000.
    Latency { micros: Option<u64> },
}

/// What the server answers about volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum VolumeAnswer {
    /// A volume was made, or would be.
    Created { created: CreatedVolume },
    /// The volumes that are mounted.
    List { volumes: Vec<ListedVolume> },
    /// The state of one.
    Status { status: Box<VolumeDetail> },
    /// What a check found.
    Check { report: CheckDetail },
    /// Projects, by number.
    Quotas { quotas: Vec<QuotaDetail> },
    /// The copies that a file is to have.
    Copies { copies: CopiesDetail },
    /// Snapshots, oldest first.
    Snapshots { snapshots: Vec<SnapshotDetail> },
}

/// A snapshot of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotDetail {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The folder, from the root of the volume; `None`: the folder is gone.
    pub folder: Option<String>,
    /// Where it can be read, as an absolute path; `None`: nowhere, since it or its folder is gone.
    pub path: Option<String>,
    /// When it was made, in seconds since 1970.
    pub created: i64,
    /// It was removed, and what it alone holds is still being freed.
    pub removing: bool,
}

/// The copies of a file's data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CopiesDetail {
    /// The file or folder, from the root of the volume.
    pub file: String,
    /// The copies that it is to have; of a folder: those of what is made in it.
    pub copies: u8,
    /// Some files of the volume, this or others, have fewer copies than they are to have, or copies that missed a write.
    #[serde(default, alias = "incomplete")]
    pub volume_incomplete: bool,
}

/// A project: files that are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaDetail {
    /// Its number.
    pub project: u32,
    /// The folder that got the project by its limit, from the root of the volume; `None`: it was given to files and folders.
    pub folder: Option<String>,
    /// Bytes that it may take; `None`: any number.
    pub limit: Option<u64>,
    /// Bytes that it takes.
    pub used: u64,
    /// Files and folders that it may have; `None`: any number.
    pub files_limit: Option<u64>,
    /// Files and folders that it has.
    pub files: u64,
    /// What is in the folder is still being counted.
    pub counting: bool,
}

/// A volume that was made, or would be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedVolume {
    /// Its name.
    pub name: String,
    /// Its UUID; empty where nothing was made.
    pub uuid: String,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Blocks of files have checksums.
    #[serde(default)]
    pub checksums: bool,
    /// Copies of each file, each on another brick.
    #[serde(default)]
    pub copies: u8,
    /// Its bricks.
    pub bricks: Vec<CreatedBrick>,
    /// What was found on the bricks, as a table.
    pub found: Option<String>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A brick of a new volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedBrick {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Its weight: 1 is the share that its size is due.
    pub weight: f64,
    /// Room for data.
    pub data: u64,
    /// Room for metadata, where it holds it.
    pub metadata: u64,
}

/// A volume in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedVolume {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Where it is mounted; `None`: it is not, as far as is known.
    pub dir: Option<String>,
    /// In words.
    pub state: String,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that it holds.
    pub size: u64,
    /// Its bricks, as they were given.
    pub bricks: Vec<String>,
}

/// The state of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeDetail {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// Where it is mounted.
    pub dir: String,
    /// Requests come from the kernel over io_uring, not through /dev/fuse.
    pub over_io_uring: bool,
    /// In words.
    pub state: String,
    /// Nothing can be changed.
    pub read_only: bool,
    /// Others than the user who has mounted it are let in, though that is not root.
    #[serde(default)]
    pub allow_other: bool,
    /// Setuid and setgid bits of programs have no effect.
    #[serde(default)]
    pub no_suid: bool,
    /// Names of devices cannot be opened.
    #[serde(default)]
    pub no_dev: bool,
    /// Programs cannot be run.
    #[serde(default)]
    pub no_exec: bool,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// Blocks of files have checksums.
    #[serde(default)]
    pub checksums: bool,
    /// Reads of blocks that were not what was written, since the mount.
    #[serde(default)]
    pub checksum_errors: u64,
    /// Of them, and of reads that failed, those of which another copy made up for the loss.
    #[serde(default)]
    pub checksum_mended: u64,
    /// Copies of what is made in the root folder.
    #[serde(default)]
    pub copies: u8,
    /// Domains that the bricks which take data are in: a brick without a label is in one of its own.
    #[serde(default)]
    pub domains: usize,
    /// These are fewer than the copies, so that copies lie in one domain and would be lost together.
    #[serde(default)]
    pub copies_share_domain: bool,
    /// Some files have fewer copies than they are to have, or copies that missed a write.
    #[serde(default)]
    pub incomplete: bool,
    /// Snapshots, without those that are being removed.
    #[serde(default)]
    pub snapshots: u64,
    /// Bytes, of those in use, that snapshots alone hold.
    #[serde(default)]
    pub snapshot_bytes: u64,
    /// Bytes in use.
    pub used: u64,
    /// Bytes that it holds.
    pub size: u64,
    /// Bytes that the metadata takes, and may take.
    pub metadata_used: u64,
    /// See above.
    pub metadata_size: u64,
    /// Names of the bricks that hold the metadata.
    pub metadata_on: Vec<String>,
    /// Stripes lie elsewhere than they belong; a balance moves them.
    pub unbalanced: bool,
    /// The number of the proxy.
    pub proxy: Option<u16>,
    /// Its bricks, by number.
    pub bricks: Vec<BrickDetail>,
    /// The job under way.
    pub job: Option<VolumeJobDetail>,
    /// Bytes per second that jobs may move; `None`: no limit.
    #[serde(default)]
    pub job_speed: Option<u64>,
    /// Microseconds that requests of files may take before jobs slow down; `None`: by the kind of the bricks.
    #[serde(default)]
    pub job_latency: Option<u64>,
    /// The check under way.
    pub check: Option<VolumeJobDetail>,
    /// Why nothing can be changed any more.
    pub failure: Option<String>,
    /// The lease under which it is mounted here.
    #[serde(default)]
    pub lease: Option<Lease>,
    /// Reads of files since the mount, by whoever asks this server; what the kernel has in its page cache it does not ask for.
    #[serde(default)]
    pub reads: u64,
    /// Bytes of them.
    #[serde(default)]
    pub read_bytes: u64,
    /// The time that they took, in nanoseconds, added up.
    #[serde(default)]
    pub read_ns: u64,
    /// Writes of files since the mount.
    #[serde(default)]
    pub writes: u64,
    /// Bytes of them.
    #[serde(default)]
    pub written_bytes: u64,
    /// The time that they took, in nanoseconds, added up.
    #[serde(default)]
    pub write_ns: u64,
    /// Seconds since the mount, to which these counts and those of the bricks belong.
    pub seconds: f64,
    /// Files that are offered as block devices.
    pub exports: Vec<ExportDetail>,
}

/// A brick of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BrickDetail {
    /// Its number.
    pub id: u16,
    /// Its UUID.
    pub uuid: String,
    /// Its path or kind.
    pub name: String,
    /// data, removing, proxy, metadata-only, missing or lost.
    pub state: String,
    /// Why it was let go.
    pub failure: Option<String>,
    /// Its weight: 1 is the share that its size is due.
    pub weight: f64,
    /// Its domain: bricks that may be lost together have the same; empty: it has none.
    #[serde(default)]
    pub domain: String,
    /// Room for data.
    pub size: u64,
    /// Of which so much is in use.
    pub used: u64,
    /// The part of the volume's data that belongs here.
    pub fair_share: f64,
    /// The part that is here.
    pub share: f64,
    /// Requests of reading since the mount.
    pub reads: u64,
    /// Bytes read since the mount.
    pub read_bytes: u64,
    /// Requests of writing since the mount.
    pub writes: u64,
    /// Bytes written since the mount.
    pub written_bytes: u64,
    /// Requests that failed since the mount.
    pub errors: u64,
    /// Bytes read per second, over the last second or so before the answer.
    pub read_rate: u64,
    /// Bytes written per second, likewise.
    pub write_rate: u64,
}

/// A job of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeJobDetail {
    /// How far it is.
    #[serde(flatten)]
    pub job: Job,
    /// The brick that it is about.
    pub brick: Option<String>,
    /// running, paused or failed.
    pub state: String,
    /// Why it failed.
    pub error: Option<String>,
}

/// A file that is offered as a block device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportDetail {
    /// The file, from the root of the volume.
    pub file: String,
    /// NBD URI.
    pub uri: String,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckDetail {
    /// The volume.
    pub name: String,
    /// Files looked at.
    pub files: u64,
    /// Directories looked at.
    pub directories: u64,
    /// Stripes looked at.
    pub stripes: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Problems, the first of them in words.
    pub problems: Vec<String>,
    /// Problems in all.
    pub found: u64,
    /// Problems that were corrected.
    pub repaired: u64,
    /// Bytes in use that belong to nobody.
    pub leaked: u64,
    /// Stripes of files, and of what snapshots see of them, that have fewer copies than asked.
    #[serde(default)]
    pub lacking: u64,
    /// What is lost with missing bricks.
    pub lost: Vec<LostDetail>,
    /// It was a scrub: data was read and held against its checksums.
    #[serde(default)]
    pub scrub: bool,
    /// Of a scrub: what is not as it was written.
    #[serde(default)]
    pub rotten: Vec<LostDetail>,
    /// Of a scrub: what one copy did not have as it was written, and was given by another.
    #[serde(default)]
    pub mended: Vec<LostDetail>,
    /// Of a scrub: bytes that had no checksum, and have one now.
    #[serde(default)]
    pub sealed: u64,
}

/// A file of which parts are lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostDetail {
    /// From the root of the volume.
    pub file: String,
    /// First byte and number of bytes of each part.
    pub ranges: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Answer, Request};

    #[test]
    fn requests_and_answers_come_back_from_their_lines() {
        let file = FileName { typed: "a".into(), absolute: "/srv/a".into() };
        let job = VolumeJob::Migrate { files: vec![file.clone()], brick: "1".into() };
        for request in [
            VolumeRequest::List,
            VolumeRequest::Create {
                name: "pool".into(),
                bricks: vec!["/a".into()],
                new: NewVolume {
                    weights: vec![("/a".into(), "3".parse().unwrap())],
                    ..NewVolume::default()
                },
                dry_run: true,
            },
            VolumeRequest::Start { volume: "pool".into(), job },
            VolumeRequest::Snapshot { volume: "pool".into(), folder: file, name: "daily".into() },
            VolumeRequest::Job { volume: None, deed: JobDeed::Speed { bytes: None }, check: false },
            VolumeRequest::Job {
                volume: None,
                deed: JobDeed::Latency { micros: Some(500) },
                check: false,
            },
        ] {
            let request = Request::Volume { request: Box::new(request) };
            let line = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        }
        let job = Job {
            kind: "balance".into(),
            done: 1,
            total: 2,
            rate: 3,
            eta_seconds: None,
            mismatches: 0,
        };
        let job = VolumeJobDetail { job, brick: None, state: "running".into(), error: None };
        let status = VolumeDetail { job: Some(job), ..VolumeDetail::default() };
        let answer = Answer::Volume { volume: VolumeAnswer::Status { status: Box::new(status) } };
        let line = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
    }
}

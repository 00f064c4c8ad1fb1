//! The verbs that change a mounted volume, its jobs, and its exports.

use crate::cli::common::{Control, EXIT_CODES};
use crate::cli::settings::State;
use braid_control::protocol::volume::QuotaLimit;
use braid_control::wanted::weight::BrickWeight;
use braid_nbd::Address;
use clap::Args;

/// Where the verbs that start a job leave it.
#[derive(Clone, Copy, Debug, Args)]
pub struct Follow {
    /// Come back at once; `braid volume jobs NAME --wait` follows the job.
    #[arg(short, long)]
    pub detach: bool,
    /// Answer in JSON; progress is a line of JSON each.
    #[arg(long)]
    pub json: bool,
}

/// Add bricks to a mounted volume and move its fair share to them.
#[derive(Debug, Args)]
#[command(
    long_about = "Add bricks to a mounted volume and move its fair share to them.\n\n\
    They take new stripes at once. Then a balance moves the part that is theirs: as many bytes as that part of the \
    volume's data, read from the others and written here, while files are read and written as ever. With \
    --no-balance nothing moves; several additions then cost one pass of `braid volume balance`. Where the metadata is \
    on fewer than three bricks, those that are added and have room get copies of it.",
    after_help = EXIT_CODES
)]
pub struct Add {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The bricks.
    #[arg(required = true, value_name = "BRICK")]
    pub bricks: Vec<String>,
    /// The weight of each new brick: its share is its size times that [default: 1].
    #[arg(long, value_name = "N")]
    pub weight: Option<BrickWeight>,
    /// The domain that the new bricks are in, a label: what they may be lost with, a host, a shelf or a controller
    /// [default: each its own].
    #[arg(long, value_name = "LABEL")]
    pub domain: Option<String>,
    /// Move nothing yet.
    #[arg(long)]
    pub no_balance: bool,
    /// The brick, one, becomes the proxy: it takes what is written first, and has no share of its own.
    #[arg(long, conflicts_with = "weight")]
    pub proxy: bool,
    /// Overwrite what is on the bricks.
    #[arg(short, long)]
    pub force: bool,
    /// Check whether it could be done, do nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// Put a new brick in the place of another, which is emptied and let go.
#[derive(Debug, Args)]
#[command(
    long_about = "Put a new brick in the place of another, which is emptied and let go.\n\n\
    The new one gets the weight and the domain of the old one and what lies on it: that much is read and written, and \
    nothing moves between the others, while files are read and written as ever. What the old one has lost, or cannot \
    give any more, is made again from other copies, where files have some. Once stripes move, it goes on by itself \
    after a crash; where it ended before that, `braid volume remove` of the old one goes on. Afterwards the superblock of the old one is wiped.",
    after_help = EXIT_CODES
)]
pub struct Replace {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The brick that goes: its path, its number or its UUID, as `braid volume status` shows.
    pub old: String,
    /// The brick that comes.
    pub new: String,
    /// The weight of the new brick: its share is its size times that [default: that of the old one].
    #[arg(long, value_name = "N")]
    pub weight: Option<BrickWeight>,
    /// The domain that the new brick is in [default: that of the old one].
    #[arg(long, value_name = "LABEL")]
    pub domain: Option<String>,
    /// Overwrite what is on the new brick.
    #[arg(short, long)]
    pub force: bool,
    /// Check whether it could be done, do nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// Move everything off a brick and let it go.
#[derive(Debug, Args)]
#[command(
    long_about = "Move everything off a brick and let it go.\n\n\
    It costs what lies on the brick: that much is read from it and written to the others, each in proportion to its \
    weight, while files are read and written as ever. It is refused before anything moves when the others have no room \
    for it, and for the last brick. A crash or --cancel in between loses nothing: the brick is a member until all is \
    off it. Afterwards its superblock is wiped.",
    after_help = EXIT_CODES
)]
pub struct Remove {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The brick: its path, its number or its UUID, as `braid volume status` shows.
    pub brick: String,
    /// Check whether it could be done, do nothing.
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// The verbs that start a job which is about the whole volume.
#[derive(Debug, Args)]
pub struct WholeVolume {
    /// The volume: its name, UUID or directory.
    pub name: String,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// Change a brick's weight and move what that shifts.
#[derive(Debug, Args)]
#[command(
    long_about = "Change a brick's weight and move what that shifts: the bytes by which the bricks' shares change, \
    no more. With --no-balance only new stripes follow the new weight.",
    after_help = EXIT_CODES
)]
pub struct Weight {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The brick: its path, its number or its UUID, as `braid volume status` shows.
    pub brick: String,
    /// Its new weight: 1 is the share that its size is due, 2 twice that, 0.5 half of it.
    #[arg(value_name = "N")]
    pub weight: BrickWeight,
    /// Move nothing yet.
    #[arg(long)]
    pub no_balance: bool,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// Use a brick again that was lost while the volume is mounted.
#[derive(Debug, Args)]
#[command(
    long_about = "Use a brick again that was lost while the volume is mounted, or was missing when it was mounted: a disk that \
    was pulled and is back.\n\n\
    What lies on it can be read again. Where files have copies, it gets what it has missed, and no more. Without copies, what \
    was written just before it was lost and had not been made durable may be missing: a check or a scrub tells. A device that \
    is not the one that was lost, or not as it was then, is refused.\n\n\
    Bricks of other machines (nbd://) come back by themselves when their servers answer again.",
    after_help = EXIT_CODES
)]
pub struct TakeBack {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The brick: its number or its UUID, as `braid volume status` shows, or where it is.
    pub brick: String,
    /// The device that it is now, if that has another name than before.
    #[arg(long)]
    pub device: Option<String>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Make the room for metadata larger.
#[derive(Debug, Args)]
#[command(
    long_about = "Make the room for metadata larger: names, attributes and the places of stripes.\n\n\
    Each brick with a metadata region gives the end of its data area to it. What lies there is read and written \
    elsewhere first, on the same brick or on another, while files are read and written as ever. It is refused before \
    anything moves when there is no room. A region grows up to 15 times and never becomes smaller; a crash in between \
    loses nothing, and the same command goes on. An older braid refuses the bricks afterwards.",
    after_help = EXIT_CODES
)]
pub struct GrowMetadata {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// Room for metadata on each brick that has some, in all, rounded up to MiB; a bare number is in KiB.
    #[arg(long, value_name = "SIZE", value_parser = braid_control::wanted::size::kib_or_size)]
    pub size: u64,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Move files to one brick.
#[derive(Debug, Args)]
#[command(
    long_about = "Move files to one brick, as one job: what of them lies elsewhere is read and written once, also what \
    was migrated there before and is elsewhere. They stay there when the volume is balanced; `braid volume unpin` lets \
    them go.",
    after_help = EXIT_CODES
)]
pub struct Migrate {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The files: paths below the mount point, or inside the volume.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// The brick: its path, its number or its UUID, as `braid volume status` shows.
    #[arg(long, value_name = "BRICK")]
    pub to: String,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// `braid volume pin` and `braid volume unpin`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct OneFileOrMore {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The files: paths below the mount point, or inside the volume.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Limit what folders take, or show the limits.
#[derive(Debug, Args)]
#[command(
    long_about = "Limit the space and the files of a folder, with everything below it; without an option, show the limits \
    and what is used.\n\n\
    The folder gets a project of its own (as chattr -p and +P give one), which what is made in it inherits; one that it was \
    given by chattr -p stays, and the limit is for all that have it. What is there already is \
    counted once, when the first limit is set: records are read and written, no data. Beyond the limit writes fail with \
    EDQUOT (disk quota exceeded), and statfs(2), so df(1), shows it as the size. A file of another folder is not renamed or linked into it: mv \
    copies then. A limit may be below what is used; nothing can be added then. A folder with a limit within another is counted for \
    itself alone. An older braid refuses a volume with limits.",
    after_help = EXIT_CODES
)]
pub struct Quota {
    /// The folder, or to show all limits the volume: its name, UUID or directory.
    #[arg(value_name = "FOLDER|VOLUME")]
    pub name: String,
    /// The space that it may take; a bare number is in KiB; `none` for any amount.
    #[arg(long, value_name = "SIZE", value_parser = bytes_limit)]
    pub limit: Option<QuotaLimit>,
    /// Files and folders that it may have, itself included; `none` for any number.
    #[arg(long, value_name = "N", value_parser = files_limit)]
    pub files: Option<QuotaLimit>,
    /// Take its limits away, and its project, unless that was given to it by chattr -p.
    #[arg(long, conflicts_with_all = ["limit", "files"])]
    pub none: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

fn bytes_limit(text: &str) -> Result<QuotaLimit, String> {
    match text {
        "none" => Ok(QuotaLimit::None),
        size => braid_control::wanted::size::kib_or_size(size).map(QuotaLimit::Most),
    }
}

fn files_limit(text: &str) -> Result<QuotaLimit, String> {
    match text {
        "none" => Ok(QuotaLimit::None),
        files => files
            .parse()
            .map(QuotaLimit::Most)
            .map_err(|_| "give a number of files, or none".to_string()),
    }
}

/// Give files several copies, each on another brick, or show how many they are to have.
#[derive(Debug, Args)]
#[command(
    long_about = "Give files several copies, each on another brick, or show how many they are to have.\n\n\
    Of a folder: everything in it now, and what is made there from now on; of a volume: all of it. A brick that is lost \
    takes no file along that has two copies, and what a disk garbled is mended from the other. Without a number it is \
    shown.\n\n\
    It costs the size of the files for each further copy: that much is read once and written, while files are read and \
    written as ever. Fewer copies cost a look at the metadata. The volume has checksums, which say which of two copies \
    is right, and at least as many bricks. An older braid refuses a volume with copies.",
    after_help = EXIT_CODES
)]
pub struct Copies {
    /// The file or folder, or for all of it the volume: its name, UUID or directory.
    #[arg(value_name = "FILE|FOLDER|VOLUME")]
    pub name: String,
    /// Copies, 1 to 4.
    #[arg(value_name = "N")]
    pub copies: Option<u8>,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// Have one brick take what is written first, or have none do so.
#[derive(Debug, Args)]
#[command(
    long_about = "Have one brick, a fast one, take what is written first; `braid volume flush` moves it on. A full \
    proxy is passed by.\n\n\
    The brick must be one of the volume's and have room for a stripe. It keeps what it holds and loses its fair share. \
    --off makes it an ordinary brick again; what it holds stays there until a balance.",
    after_help = EXIT_CODES
)]
pub struct Proxy {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The brick: its path, its number or its UUID, as `braid volume status` shows.
    #[arg(required_unless_present = "off", conflicts_with = "off")]
    pub brick: Option<String>,
    /// Have no proxy any more.
    #[arg(long)]
    pub off: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Compare the volume's metadata with its bricks, both ways.
#[derive(Debug, Args)]
#[command(
    long_about = "Compare the volume's metadata with its bricks, both ways: every place that a file names belongs to it \
    alone, every block in use belongs to a file, names and link counts agree. The metadata is read, not the files. \
    What is lost with a missing brick is listed by path and range.\n\n\
    It is a job that moves nothing, in small steps beside all others: files are used meanwhile, and `braid volume \
    jobs` shows, pauses, resumes and cancels it. A check that a crash or an unmount interrupted begins anew at the next \
    mount.\n\n\
    The volume must be mounted, read-only is enough without --repair; with --offline it must not be, and without --repair \
    nothing is written to its bricks. --repair frees what belongs to nobody and \
    corrects counts; it never frees what a file names.",
    after_help = EXIT_CODES
)]
pub struct Check {
    /// The volume: its name, UUID or directory. Not needed when only one is mounted.
    pub name: Option<String>,
    /// Correct what is found.
    #[arg(long)]
    pub repair: bool,
    /// Check nothing; show what the last check since the mount found.
    #[arg(long, conflicts_with_all = ["repair", "detach"])]
    pub last: bool,
    /// Check a volume that is not mounted.
    #[arg(long, conflicts_with_all = ["last", "detach"], requires = "name")]
    pub offline: bool,
    /// With --offline: its bricks, or folders to look for them in [default: those that this machine noted].
    #[arg(value_name = "BRICK", requires = "offline")]
    pub bricks: Vec<String>,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// Read all data of a volume and hold it against its checksums.
#[derive(Debug, Args)]
#[command(
    long_about = "Read all data of a volume and hold it against its checksums. What is not as it was written is listed by path \
    and range, and so is what cannot be read; the log names the brick and the byte on it. Data that has no checksum, \
    since it was being written over when the server was killed, gets one.\n\n\
    It runs beside all jobs, in small steps and as far as requests of files leave time: `braid volume jobs` shows, pauses, \
    resumes and cancels it, and its --speed holds here, too. One that a crash or an unmount interrupted begins anew at \
    the next mount.\n\n\
    The volume must be mounted, read-only is enough. A volume that was made with --checksums off has nothing that its \
    data could be held against.",
    after_help = EXIT_CODES
)]
pub struct Scrub {
    /// The volume: its name, UUID or directory. Not needed when only one is mounted.
    pub name: Option<String>,
    /// Read nothing; show what the last scrub or check since the mount found.
    #[arg(long, conflicts_with = "detach")]
    pub last: bool,
    #[command(flatten)]
    pub follow: Follow,
    #[command(flatten)]
    pub control: Control,
}

/// Show, pause, resume, cancel, slow down or wait for the job of a volume.
#[derive(Debug, Args)]
#[command(
    long_about = "Show, pause, resume, cancel, slow down or wait for the job of a volume. Each volume has one job at a \
    time, and a check beside it; one that a crash or an unmount interrupted goes on at the next mount.",
    after_help = EXIT_CODES
)]
#[group(id = "deed", multiple = false, args = ["pause", "resume", "cancel", "wait", "speed", "latency"])]
pub struct Jobs {
    /// The volume: its name, UUID or directory. Not needed when only one is mounted.
    pub name: Option<String>,
    /// Stop moving until --resume.
    #[arg(long)]
    pub pause: bool,
    /// Go on.
    #[arg(long)]
    pub resume: bool,
    /// End it; what was moved stays moved.
    #[arg(long)]
    pub cancel: bool,
    /// Wait for its end and show the progress.
    #[arg(short = 'W', long)]
    pub wait: bool,
    /// The check is meant, also when another job is under way.
    #[arg(long)]
    pub check: bool,
    /// Move at most so many bytes per second; a bare number is in KiB, `none` for no limit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub speed: Option<Rate>,
    /// Slow down while requests of files take longer than so many milliseconds; `auto` for what the bricks are due:
    /// 20 where one has heads, else 2.
    #[arg(long, value_name = "MS", value_parser = latency)]
    pub latency: Option<Latency>,
    /// Answer in JSON; progress is a line of JSON each.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// The latency of requests of files that jobs leave room for, in microseconds; `None`: by the kind of the bricks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency(pub Option<u64>);

fn latency(text: &str) -> Result<Latency, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(Latency(None));
    }
    let wrong =
        || format!("{text} is not a number of milliseconds, such as 5 or 0.5, and not \"auto\"");
    let millis: f64 = text.trim_end_matches("ms").trim().parse().map_err(|_| wrong())?;
    let micros = (millis * 1000.0).round();
    if !(1.0..=1e12).contains(&micros) {
        return Err(wrong());
    }
    Ok(Latency(Some(micros as u64)))
}

/// A limit on moving, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

fn rate(text: &str) -> Result<Rate, String> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Rate(None));
    }
    match braid_control::wanted::size::kib_or_size(text.trim_end_matches("/s")) {
        Ok(0) => Err("a rate of 0 would never end: give --pause instead".to_string()),
        Ok(bytes) => Ok(Rate(Some(bytes))),
        Err(why) => Err(why),
    }
}

/// Offer a file of a volume as a block device over NBD, or stop offering it.
#[derive(Debug, Args)]
#[command(
    long_about = "Offer a file of a volume as a block device over NBD, or stop offering it.\n\n\
    The device is as large as the file, which stays where it is; flushes are fsync, discards punch holes. As long as \
    it is offered, leave the file alone at the mount point: the kernel keeps its own copy of what it read there. The \
    volume cannot be unmounted meanwhile.",
    after_help = EXIT_CODES
)]
#[group(id = "whether", required = true, args = ["nbd", "off"])]
pub struct Export {
    /// The volume: its name, UUID or directory.
    pub name: String,
    /// The file: a path below the mount point, or inside the volume.
    pub file: String,
    /// Where NBD clients connect: unix:PATH or tcp:ADDR:PORT.
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Option<Address>,
    /// Disconnect its clients and offer it no longer.
    #[arg(long)]
    pub off: bool,
    /// Clients may read only.
    #[arg(short = 'o', long, conflicts_with = "off")]
    pub read_only: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

//! `braid volume`: the verbs of logical volumes and the help that says what each costs.

mod changes;
mod snapshot;

pub use changes::{
    Add, Check, Copies, Export, Follow, GrowMetadata, Jobs, Migrate, OneFileOrMore, Proxy, Quota,
    Remove, Replace, Scrub, TakeBack, Weight, WholeVolume,
};
pub use snapshot::Snapshot;

use super::common::{Control, EXIT_CODES};
use super::lease::LeaseAt;
use super::settings::State;
use crate::volumes::name::VolumeName;
use braid_control::wanted::volume::NewVolume;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The verbs of volumes.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Create(Create),
    Mount(Mount),
    #[command(visible_alias = "umount")]
    Unmount(Unmount),
    /// List the volumes that are mounted, and those that this machine knows.
    #[command(visible_alias = "ls")]
    List(List),
    /// Take a volume that is not mounted off the list of those that this machine knows.
    Forget(Forget),
    Rename(Rename),
    Destroy(Destroy),
    Status(Status),
    /// Show what the superblocks of bricks say.
    Examine(Examine),
    Salvage(Salvage),
    Add(Add),
    #[command(visible_alias = "delete")]
    Remove(Remove),
    Replace(Replace),
    /// Move stripes until every brick has its fair share.
    #[command(
        long_about = "Move stripes until every brick has its fair share.\n\n\
    Only the stripes that lie elsewhere than they belong are read and written; the metadata of every file is looked \
    through. Files that are pinned stay where they are.",
        after_help = EXIT_CODES
    )]
    Balance(WholeVolume),
    Weight(Weight),
    TakeBack(TakeBack),
    GrowMetadata(GrowMetadata),
    Migrate(Migrate),
    /// Keep files where they are: balance, proxy and defrag leave them.
    Pin(OneFileOrMore),
    /// Let files be moved again.
    Unpin(OneFileOrMore),
    Copies(Copies),
    Snapshot(Snapshot),
    Quota(Quota),
    Proxy(Proxy),
    /// Move what the proxy has taken to the other bricks.
    #[command(
        long_about = "Move what the proxy has taken to the other bricks, each its fair share: that much is read and \
    written. What is written meanwhile goes to the proxy and stays there until the next flush.",
        after_help = EXIT_CODES
    )]
    Flush(WholeVolume),
    /// Bring the pieces of files together, on every brick at once.
    #[command(
        long_about = "Bring the pieces of files together, on every brick at once. Only stripes that lie in more pieces than \
    they need are read and written.",
        after_help = EXIT_CODES
    )]
    Defrag(WholeVolume),
    Check(Check),
    Scrub(Scrub),
    Jobs(Jobs),
    Export(Export),
    /// Serve volumes and nothing else: what `mount` starts where no server runs.
    #[command(hide = true)]
    Host(Host),
    /// End a mount whose server is killed: what a server starts beside each of its mounts.
    #[command(hide = true)]
    Guard(Guard),
}

/// Make a volume of one or more bricks.
#[derive(Debug, Args)]
#[command(
    long_about = "Make a volume of one or more bricks: write their superblocks and the metadata of an empty \
    volume.\n\n\
    A brick is a file, a block device, array:NAME, an array that the running server has and no client uses, or an \
    export of another NBD server, nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH. First it is shown what \
    is found on each; when there is anything, it is refused unless --force is given. Files are cut into stripes, \
    which go to the bricks in proportion to their sizes, times the weights that were given. The metadata is mirrored on the first two that have room. What lies on a \
    brick that dies is lost, so give files copies with --copies, or make bricks of arrays, where that matters.\n\n\
    It takes a second or so, whatever the size. The volume is not mounted afterwards: `braid volume mount` does \
    that.",
    after_help = EXIT_CODES
)]
pub struct Create {
    /// The volume's name: letters, digits and . _ -
    pub name: VolumeName,
    /// The bricks.
    #[arg(required = true, value_name = "BRICK")]
    pub bricks: Vec<String>,
    #[command(flatten)]
    pub new: NewVolume,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
    /// Check everything and show the result, write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Accepted: braid asks no questions.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Mount a volume at a directory.
#[derive(Debug, Args)]
#[command(
    long_about = "Mount a volume at a directory.\n\n\
    The server at the control socket does it when one runs; else one is started in the background that ends with \
    its last volume. It takes as long as reading the metadata's index does; after an unclean stop the metadata is \
    verified first.\n\n\
    Bricks that are not given are those that this machine noted when the volume was made, or else all block devices \
    are looked at. A folder among the bricks stands for the files in it.",
    after_help = EXIT_CODES
)]
pub struct Mount {
    /// The volume: its name or UUID.
    pub name: String,
    /// Where: an existing directory on which nothing is mounted.
    pub dir: PathBuf,
    /// The bricks, in any order; or folders to look for them in.
    #[arg(value_name = "BRICK")]
    pub bricks: Vec<String>,
    /// Mount it although bricks are missing: what lies on them cannot be read.
    #[arg(long)]
    pub degraded: bool,
    /// Mount it with one of the three bricks that hold the metadata, where the other two are lost for good: what they took
    /// without this one is lost.
    #[arg(long, requires = "degraded")]
    pub minority: bool,
    /// Use bricks again that were away while the volume was in use; `braid volume check` afterwards says what of them is
    /// old.
    #[arg(long)]
    pub take_back: bool,
    /// Change no file, and write nothing to the bricks.
    #[arg(short = 'o', long, visible_alias = "readonly")]
    pub read_only: bool,
    /// Let other users in, within the permissions of the files [default: when root mounts].
    #[arg(long)]
    pub allow_other: bool,
    /// Setuid and setgid bits and capabilities of programs have no effect (mount(8): nosuid).
    #[arg(long, visible_alias = "nosuid")]
    pub no_suid: bool,
    /// Names of devices cannot be opened (nodev).
    #[arg(long, visible_alias = "nodev")]
    pub no_dev: bool,
    /// Programs cannot be run (noexec).
    #[arg(long, visible_alias = "noexec")]
    pub no_exec: bool,
    /// First make the volume of the bricks, as `braid volume create` does: for ram: and model: bricks, which are
    /// gone when the server ends.
    #[arg(long, requires = "bricks", conflicts_with_all = ["degraded", "read_only"])]
    pub create: bool,
    #[command(flatten, next_help_heading = "With --create")]
    pub new: NewVolume,
    /// Serve it in this process until it is unmounted or a signal comes.
    #[arg(long)]
    pub foreground: bool,
    #[command(flatten, next_help_heading = "Where several hosts reach the bricks")]
    pub lease: LeaseAt,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Unmount a volume; everything written is on its bricks afterwards.
#[derive(Debug, Args)]
#[command(
    long_about = "Unmount a volume; everything written is on its bricks afterwards.\n\n\
    It is refused while files are open or a process has its working directory there. umount and fusermount3 -u do \
    the same; a server that `mount` started ends with its last volume.",
    after_help = EXIT_CODES
)]
pub struct Unmount {
    /// The volume's name or UUID, or the directory, with a slash in it: ./DIR.
    pub name: String,
    /// Take it out of the tree at once, also when it is in use: it ends when its last user does.
    #[arg(short, long)]
    pub lazy: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid volume list`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct List {
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
}

/// `braid volume forget`.
#[derive(Debug, Args)]
pub struct Forget {
    /// The volume: its name or UUID.
    pub name: String,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
}

/// Give a volume that is not mounted another name.
#[derive(Debug, Args)]
#[command(
    long_about = "Give a volume that is not mounted another name.\n\n\
    Its superblocks are written, one brick after the other; an interruption leaves it with one of the two names. All \
    bricks must be there. What names the volume, fstab or /etc/braid/braid.toml, is not changed.",
    after_help = EXIT_CODES
)]
pub struct Rename {
    /// The volume: its name or UUID.
    pub name: String,
    /// The new name: letters, digits and . _ -
    pub new_name: VolumeName,
    /// Its bricks, or folders to look for them in [default: those that this machine noted].
    #[arg(value_name = "BRICK")]
    pub bricks: Vec<String>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
}

/// Destroy a volume that is not mounted, and all files on it.
#[derive(Debug, Args)]
#[command(
    long_about = "Destroy a volume that is not mounted, and all files on it.\n\n\
    The superblocks of its bricks are erased, so that they can be used for something else; the content of files is not \
    overwritten. It is refused while the volume is mounted and, unless --force is given, when a brick is missing or the \
    superblocks say that it is in use.",
    after_help = EXIT_CODES
)]
pub struct Destroy {
    /// The volume: its name or UUID.
    pub name: String,
    /// Its bricks, or folders to look for them in [default: those that this machine noted].
    #[arg(value_name = "BRICK")]
    pub bricks: Vec<String>,
    /// Do it: all files on the volume are lost.
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Show which bricks that would be; write nothing.
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Also when bricks are missing, or the superblocks say that the volume is in use.
    #[arg(short, long)]
    pub force: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
}

/// Show a mounted volume: its bricks, how full each is, what it does, the job under way.
#[derive(Debug, Args)]
#[command(
    long_about = "Show a mounted volume: its bricks, how full each is, what it does, the job under way.\n\n\
    SHARE is the part of the volume's data that a brick holds, FAIR the part that its weight asks for. Nothing is \
    read from the bricks for it.",
    after_help = EXIT_CODES
)]
pub struct Status {
    /// The volume: its name, UUID or directory. Not needed when only one is mounted.
    pub name: Option<String>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid volume examine`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct Examine {
    /// Files, block devices or NBD URIs; they may be in use.
    #[arg(required = true, value_name = "BRICK")]
    pub bricks: Vec<PathBuf>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
}

/// Copy the files of a volume off its bricks, whatever state those are in; nothing is written to the bricks.
#[derive(Debug, Args)]
#[command(
    long_about = "Copy the files of a volume off its bricks, whatever state those are in; nothing is written to the bricks.\n\n\
    For a volume that cannot be mounted: bricks are missing or failing, the metadata is damaged. Give all bricks that there \
    are; one of them must have a copy of the metadata. The volume must not be mounted meanwhile.\n\n\
    In DIR, files/ gets what is whole, incomplete/ the files of which parts are lost (zeroes there), nameless/ those \
    whose names are lost, and lost.txt says what is lost, where and why.",
    after_help = EXIT_CODES
)]
pub struct Salvage {
    /// Files, block devices or NBD URIs.
    #[arg(required = true, value_name = "BRICK")]
    pub bricks: Vec<String>,
    /// The folder to copy to: a new one, or an empty one.
    #[arg(long, value_name = "DIR")]
    pub into: PathBuf,
    /// Copy also what each snapshot shows, to .snapshots/NAME in its folder.
    ///
    /// Each is copied as a whole, so that DIR needs room for all of them.
    #[arg(long)]
    pub snapshots: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid volume unmount` names what `mount` made; `host` is what serves it.
#[derive(Debug, Args)]
pub struct Host {
    #[command(flatten)]
    pub lease: LeaseAt,
    #[command(flatten)]
    pub state: State,
    #[command(flatten)]
    pub control: Control,
}

/// The numbers come from the server that starts it.
#[derive(Debug, Args)]
pub struct Guard {
    /// The server's process.
    pub server: u32,
    /// The thread of it that has started this one.
    pub thread: u32,
    /// The connection in /sys/fs/fuse/connections.
    pub connection: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use braid_control::wanted::weight::BrickWeight;
    use clap::Parser;

    fn parsed(words: &str) -> Result<Verb, clap::Error> {
        match Cli::try_parse_from(words.split_whitespace())?.command {
            Command::Volume(verb) => Ok(verb),
            other => panic!("not a volume: {other:?}"),
        }
    }

    fn weighs(brick: &str, weight: &str) -> (String, BrickWeight) {
        (brick.to_string(), weight.parse().unwrap())
    }

    #[test]
    fn a_volume_is_made_as_its_help_says() {
        let words = "braid volume create pool --stripe 128K --weight /dev/a=2 --weight b=c=3 --metadata 64M /dev/a b=c";
        let Verb::Create(create) = parsed(words).unwrap() else { panic!("create was typed") };
        assert_eq!(create.new.stripe, Some(128 << 10));
        assert_eq!(create.new.weights, [weighs("/dev/a", "2"), weighs("b=c", "3")]);
        assert_eq!((create.new.metadata, create.new.force), (Some(64 << 20), false));
        assert_eq!(create.bricks, ["/dev/a", "b=c"]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_parser() {
        for (words, says) in [
            ("braid volume create pool", "BRICK"),
            ("braid volume create a/b brick", "'/'"),
            ("braid volume create pool --weight x=0 x", "leave the brick empty"),
            ("braid volume create pool --weight x x", "BRICK=N"),
            ("braid volume weight pool brick 0", "braid volume remove"),
            ("braid volume weight pool brick -1", "unexpected"),
            ("braid volume mount pool", "DIR"),
            ("braid volume mount pool dir --create", "BRICK"),
            ("braid volume mount pool dir --create --degraded brick", "cannot be used"),
            ("braid volume proxy pool", "BRICK"),
            ("braid volume proxy pool brick --off", "cannot be used"),
            ("braid volume migrate pool --to brick", "FILE"),
            ("braid volume quota /srv/a --limit 1G --none", "cannot be used"),
            ("braid volume quota /srv/a --files many", "a number"),
            ("braid volume copies /srv/a many", "invalid"),
            ("braid volume snapshot", "FOLDER"),
            ("braid volume snapshot /srv/a --remove", "NAME"),
            ("braid volume snapshot /srv/a daily --yes", "--remove"),
            ("braid volume snapshot /srv/a daily --remove --yes --dry-run", "cannot be used"),
            ("braid volume jobs pool --pause --resume", "cannot be used"),
            ("braid volume jobs pool --speed 1M --latency 2", "cannot be used"),
            ("braid volume jobs pool --latency 0", "milliseconds"),
            ("braid volume jobs pool --latency soon", "milliseconds"),
            ("braid volume export pool file", "--nbd"),
            ("braid volume check pool brick", "--offline"),
            ("braid volume rename pool a/b", "'/'"),
            ("braid volume destroy pool --yes --dry-run", "cannot be used"),
        ] {
            let error = parsed(words).map(|verb| format!("{verb:?}")).unwrap_err().to_string();
            assert!(error.contains(says), "{words}: {error}");
        }
    }

    #[test]
    fn all_else_that_the_help_shows_is_taken() {
        for words in [
            "braid volume mount pool /srv a b --degraded --read-only --foreground",
            "braid volume mount pool /srv a --degraded --minority",
            "braid volume mount pool /srv --nosuid --no-dev --noexec",
            "braid volume mount pool /srv --create --stripe 64K ram:1G ram:1G",
            "braid volume umount /srv --lazy",
            "braid volume ls --json",
            "braid volume status",
            "braid volume examine a b --json",
            "braid volume add pool a b --no-balance --weight 0.5",
            "braid volume remove pool a --detach",
            "braid volume balance pool",
            "braid volume weight pool a 3 --no-balance",
            "braid volume migrate pool f g --to a",
            "braid volume pin pool f g",
            "braid volume unpin pool f",
            "braid volume copies pool --json",
            "braid volume copies /srv/pool/a 2",
            "braid volume create pool --copies 2 --domain a=east --domain b=west a b",
            "braid volume add pool c --domain east",
            "braid volume snapshot pool --json",
            "braid volume snapshot /srv/pool/a daily",
            "braid volume snapshot /srv/pool/a daily --remove --dry-run",
            "braid volume snapshot /srv/pool/a daily --remove --yes --json",
            "braid volume quota pool --json",
            "braid volume quota /srv/pool/a --limit 10G --files 100000",
            "braid volume quota /srv/pool/a --limit none",
            "braid volume quota /srv/pool/a --none",
            "braid volume proxy pool a",
            "braid volume proxy pool --off",
            "braid volume flush pool",
            "braid volume defrag pool --detach",
            "braid volume check pool --repair",
            "braid volume check pool --offline --repair a b",
            "braid volume rename pool other a b",
            "braid volume destroy pool --dry-run a b",
            "braid volume destroy pool --yes --force",
            "braid volume jobs pool --wait",
            "braid volume jobs pool --speed 100M",
            "braid volume jobs pool --speed none",
            "braid volume jobs pool --latency 0.5",
            "braid volume jobs pool --latency 5ms",
            "braid volume jobs pool --latency auto",
            "braid volume export pool disk.img --nbd unix:/run/x.sock",
            "braid volume export pool disk.img --off",
        ] {
            if let Err(error) = parsed(words) {
                panic!("{words}: {error}");
            }
        }
    }
}

//! `braid volume snapshot`.

use crate::cli::common::{Control, EXIT_CODES};
use clap::Args;

/// Make, list or remove snapshots of folders.
#[derive(Debug, Args)]
#[command(
    long_about = "Make, list or remove snapshots of folders.\n\n\
    A snapshot of a folder keeps everything below it as it is now, read-only, in FOLDER/.snapshots/NAME. That directory is \
    reached by its name and not listed, so that `rm -r` and backups of the folder pass it by; `cp -a` puts a file back. \
    Without NAME the snapshots of the folder, and of folders below it, are listed.\n\n\
    What programs have written and the kernel still holds is in it: that is written first. Making one takes no space, and the same \
    short time whatever the folder holds; the first of a folder also marks all that is in it. From then on space is taken by what changes, and a first write to a \
    stripe also copies the rest of that stripe. What snapshots alone hold is in `braid volume status`, and does not count in limits of \
    folders.\n\n\
    Files are not renamed or linked across the border of a folder with snapshots: mv copies then. Such a folder cannot be \
    removed before its snapshots are.",
    after_help = EXIT_CODES
)]
pub struct Snapshot {
    /// The folder, or for all of it the volume: its name, UUID or directory.
    #[arg(value_name = "FOLDER|VOLUME")]
    pub path: String,
    /// The snapshot's name: up to 255 bytes, no slash.
    pub name: Option<String>,
    /// Remove it: what it alone holds is lost, and freed in the background.
    #[arg(long, requires = "name")]
    pub remove: bool,
    /// Do it: with --remove.
    #[arg(short = 'y', long, requires = "remove")]
    pub yes: bool,
    /// With --remove: say whether it could be done, do nothing.
    #[arg(long, requires = "remove", conflicts_with = "yes")]
    pub dry_run: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

//! `braid volume forget`: a volume that is not mounted is taken off the list of those that this machine knows.

use super::asking::mounted;
use crate::cli::volume::Forget;
use crate::commands::done::say_done;
use crate::settings::kept::Kept;
use crate::volumes::kept;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub fn run(options: &Forget) -> Result<ExitCode> {
    let state = Kept::new(options.state.state_dir.as_deref());
    let known = kept::named(&state, &options.name);
    let [volume] = known.as_slice() else {
        match known.len() {
            0 => bail!(
                "no volume {} is known here; `braid volume list` shows those that are",
                options.name
            ),
            _ => bail!(
                "several volumes are called {}: give the UUID of one, from `braid volume list`",
                options.name
            ),
        }
    };
    if let Some(one) = mounted(&options.control)?.iter().find(|one| one.uuid == volume.uuid) {
        let dir = one.dir.as_deref().unwrap_or("this machine");
        bail!(
            "volume {} is mounted at {dir}: unmount it first (braid volume unmount {})",
            volume.name,
            volume.name
        );
    }
    kept::forget(&state, volume)?;
    let said = format!(
        "volume {} ({}) is not known here any more; nothing was written to its bricks, and `braid volume mount` with them \
         brings it back",
        volume.name, volume.uuid
    );
    say_done(&said, options.json)
}

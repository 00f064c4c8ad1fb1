//! The doors that the options name. Nothing else in the server knows them by name.

use super::passed;
use crate::cli::Serve;
use crate::md_view::MdView;
use crate::output;
use anyhow::{Result, bail};
use braid_device::Target;
use braid_export::{Doors, Export};
use braid_nbd::serve::Server as Nbd;
use braid_nvme::Server as Nvme;
use braid_shard::mailbox::Remote;
use braid_ublk::Server as Ublk;
use braid_vhost::Server as Vhost;
use braid_view::{Door as View, Limits as ViewLimits, Texts};
use std::sync::Arc;

/// Opens all doors, which offer `targets`; `md_view` has what is said beside them.
///
/// # Errors
/// An address that is in use, names that a protocol cannot express, a socket for one array where there are several, a driver that is
/// not there.
pub(super) fn open(
    options: &Serve,
    shards: &[Remote],
    targets: Vec<Arc<dyn Target>>,
    md_view: &Arc<MdView>,
) -> Result<Doors> {
    let mut doors: Vec<Arc<dyn Export>> = Vec::new();
    if !options.nbd.is_empty() {
        let limits = options.nbd_limits.limits()?;
        let (addresses, sockets) = passed::places(&options.nbd)?;
        let places = (addresses.as_slice(), sockets);
        let nbd = Nbd::start_at(&limits, shards, places, targets.clone(), None)?;
        for name in limits.read_only.iter().filter(|name| !nbd.offers(name)) {
            output::note(format!(
                "note: --nbd-read-only {name}: array {name} does not run; it will be read-only when it does"
            ));
        }
        doors.push(Arc::new(nbd));
    }
    for place in &options.vhost.vhost_user {
        let (path, name) = (&place.path, place.array.as_deref());
        if name.is_none() && targets.len() > 1 {
            let names: Vec<String> = targets.iter().map(|target| target.info().name).collect();
            bail!(
                "--vhost-user {}: a socket is for one array, and there are several: write NAME=PATH, NAME being one of {}",
                path.display(),
                names.join(", ")
            );
        }
        let vhost = Vhost::start(&options.vhost.limits(), shards, path, name, &targets)?;
        if let Some(name) = name.filter(|name| !vhost.offers(name)) {
            output::note(format!(
                "note: --vhost-user {}: array {name} does not run; front ends are turned away until it does",
                path.display()
            ));
        }
        doors.push(Arc::new(vhost));
    }
    if !options.nvme.nvme.is_empty() {
        let limits = options.nvme.limits()?;
        let nvme = Nvme::start(&limits, shards, &options.nvme.nvme, targets.clone())?;
        doors.push(Arc::new(nvme));
    }
    if let (Some(dir), Some(home)) = (&options.fuse, shards.first()) {
        let texts = Arc::clone(md_view) as Arc<dyn Texts>;
        let view = View::start(&ViewLimits::default(), home, dir, &texts, &targets)?;
        doors.push(Arc::new(view));
    }
    let places = options.ublk.places();
    if !places.is_empty() {
        let ublk = Ublk::start(&options.ublk.limits(), shards, &places, &targets)?;
        for name in places.iter().filter_map(|place| place.target.as_deref()) {
            if !ublk.offers(name) {
                output::note(format!(
                    "note: --ublk={name}: array {name} does not run; it has no device until it does"
                ));
            }
        }
        doors.push(Arc::new(ublk));
    }
    Ok(Doors::new(doors, targets))
}

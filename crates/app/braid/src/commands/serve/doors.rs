//! The doors that the options name. Nothing else in the server knows them by name.

use super::passed;
use crate::cli::Serve;
use crate::md_view::MdView;
use crate::output;
use crate::take_over::Given;
use anyhow::{Result, bail};
use braid_device::Target;
use braid_export::{Doors, Export};
use braid_nbd::serve::{Places, Server as Nbd};
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
    mut given: Option<&mut Given>,
) -> Result<Doors> {
    let mut doors: Vec<Arc<dyn Export>> = Vec::new();
    let opened = open_all(options, shards, &targets, md_view, given.as_deref_mut(), &mut doors);
    if opened.is_err() && given.is_some() {
        // The sockets are another server's still, and go on listening.
        doors.iter().for_each(|door| drop(door.hand_over()));
    }
    opened?;
    Ok(Doors::new(doors, targets))
}

fn open_all(
    options: &Serve,
    shards: &[Remote],
    targets: &[Arc<dyn Target>],
    md_view: &Arc<MdView>,
    mut given: Option<&mut Given>,
    doors: &mut Vec<Arc<dyn Export>>,
) -> Result<()> {
    if !options.nbd.is_empty() {
        let limits = options.nbd_limits.limits()?;
        let passed::Found { addresses, sockets, handed_over } =
            passed::places(&options.nbd, given.as_deref_mut())?;
        let places = Places { addresses: &addresses, sockets, handed_over };
        let nbd = Nbd::start_at(&limits, shards, places, targets.to_vec(), None)?;
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
        let limits = options.vhost.limits();
        let address = path.display().to_string();
        let handed_over =
            given.as_deref_mut().and_then(|given| given.take_listening("vhost-user", &address));
        let vhost = match handed_over {
            Some(socket) => Vhost::adopt(&limits, shards, vec![socket], name, targets)?,
            None => Vhost::start(&limits, shards, path, name, targets)?,
        };
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
        let mut addresses = options.nvme.nvme.clone();
        let mut handed_over = Vec::new();
        if let Some(given) = given {
            addresses.retain(|address| {
                let found = given.take_listening("nvme", &address.to_string());
                let bind = found.is_none();
                handed_over.extend(found);
                bind
            });
        }
        let places = (addresses.as_slice(), handed_over);
        let nvme = Nvme::start_at(&limits, shards, places, targets.to_vec())?;
        doors.push(Arc::new(nvme));
    }
    if let (Some(dir), Some(home)) = (&options.fuse, shards.first()) {
        let texts = Arc::clone(md_view) as Arc<dyn Texts>;
        let view = View::start(&ViewLimits::default(), home, dir, &texts, targets)?;
        doors.push(Arc::new(view));
    }
    let places = options.ublk.places();
    if !places.is_empty() {
        let ublk = Ublk::start(&options.ublk.limits(), shards, &places, targets)?;
        for name in places.iter().filter_map(|place| place.target.as_deref()) {
            if !ublk.offers(name) {
                output::note(format!(
                    "note: --ublk={name}: array {name} does not run; it has no device until it does"
                ));
            }
        }
        doors.push(Arc::new(ublk));
    }
    Ok(())
}

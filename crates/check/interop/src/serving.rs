//! A server in a process of its own: in the guest, behind the kernel's own NBD client, or beside it, as its disk.

use crate::by_braid::context;
use braid_array::array::Array;
use braid_array::assemble::assemble;
use braid_array::options::AssembleOptions;
use braid_array::settings::Settings;
use braid_device::spec::MemberSpec;
use braid_device::{Opener, Target};
use braid_export::Export;
use braid_nbd::Address;
use braid_nbd::serve::Server;
use braid_shard::Shard;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Assembles the array of `members`, serves it on `socket` under its name or as a disk of virtual machines, and says so in
/// a line. Each line
/// of the standard input is a setting, `stripe_size=64K`; what was set is said in a line, too. Stops both
/// when the standard input ends.
///
/// # Errors
/// What could not be done.
pub fn serve(socket: &Path, members: &[PathBuf], by_vhost_user: bool) -> Result<(), String> {
    let shards = braid_shard::threads::start(2).map_err(text)?;
    let remotes = shards.remotes().to_vec();
    let openers = members
        .iter()
        .map(|path| MemberSpec::Path(path.clone()).prepare().map_err(text))
        .collect::<Result<Vec<Arc<dyn Opener>>, String>>()?;
    let home = remotes.first().cloned().ok_or("no shard")?;
    let array = home
        .call_async(move |shard: &Shard, done| {
            let context = context(shard, remotes);
            shard.spawn(async move {
                done(assemble(&context, openers, AssembleOptions::default()).await);
            });
        })
        .ok_or("the home shard has ended")?
        .map_err(text)?;
    let targets = vec![Arc::clone(&array) as Arc<dyn Target>];
    let server: Box<dyn Export> = if by_vhost_user {
        let limits = braid_vhost::Limits::default();
        let server = braid_vhost::Server::start(&limits, shards.remotes(), socket, None, &targets);
        Box::new(server.map_err(text)?)
    } else {
        let addresses = [Address::Unix(socket.to_path_buf())];
        Box::new(Server::start(shards.remotes(), &addresses, targets, None).map_err(text)?)
    };
    println!("serving {}", array.name());
    for line in std::io::stdin().lines() {
        let line = line.map_err(text)?;
        set(&array, &line)?;
        println!("set {line}");
    }
    server.stop();
    stop(&array);
    Ok(())
}

/// Makes the setting `line`, `NAME=VALUE`.
fn set(array: &Arc<Array>, line: &str) -> Result<(), String> {
    let (name, value) = line.split_once('=').ok_or("give a setting as NAME=VALUE")?;
    let mut settings = Settings::default();
    settings.set(name, value).map_err(text)?;
    let set = array.control(move |control| async move { control.set(settings).await });
    set.ok_or("the home shard has ended")?.map_err(text)
}

fn stop(array: &Arc<Array>) {
    // An array that has ended by itself has nothing to be stopped.
    let _ = array.control(|control| async move { control.stop().await });
}

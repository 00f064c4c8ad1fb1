//! Asking the server that has the volumes, and what is typed as it is sent.

use crate::cli::{Control, State};
use crate::client::{Client, member_argument};
use crate::exit::{Ended, Unreadable, refused};
use crate::volumes::background;
use anyhow::{Context, Result};
use braid_control::protocol::volume::{FileName, ListedVolume, VolumeAnswer, VolumeRequest};
use braid_control::protocol::{Answer, Code, Request};
use braid_nbd::ExportUri;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

/// For so long a server that is about to end may take.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Connects to the server that has the volumes.
pub(super) fn connect(control: &Control) -> Result<Client> {
    let path = control.path();
    if !Client::is_listening(&path) {
        return Err(Unreadable(format!(
            "no volume is mounted: no server is running with the control socket {}; `braid volume mount NAME DIR` \
             starts one",
            path.display()
        ))
        .into());
    }
    Client::connect(&path)
}

/// Asks the server that runs, else one that is started for it in the background, with `words` beside, and ends when it has no
/// volume.
///
/// # Errors
/// As `ask`, which is called again when the server has just ended; when none can be started.
pub(super) fn with_server<T>(
    control: &Control,
    (state, words): (&State, &[OsString]),
    mut ask: impl FnMut(&mut Client) -> Result<T>,
) -> Result<T> {
    let path = control.path();
    let until = Instant::now() + ENDS_WITHIN;
    loop {
        if !Client::is_listening(&path) {
            background::start(&path, state.state_dir.as_deref(), words)?;
        }
        match Client::connect(&path).and_then(|mut client| ask(&mut client)) {
            // The server of another volume, which was the last, or of this one, that just ended: also between the look
            // whether it listens and the connection.
            Err(error) if ends(&error, &path) && Instant::now() < until => {
                std::thread::sleep(LOOK_EVERY);
            }
            said => return said,
        }
    }
}

/// Has something done by the server that runs, else by one that is started for it.
pub(super) fn order_or_start(
    control: &Control,
    state: &State,
    request: VolumeRequest,
) -> Result<String> {
    order_or_start_with(control, (state, &[]), request)
}

/// The same; a server that is started has these words beside.
pub(super) fn order_or_start_with(
    control: &Control,
    (state, words): (&State, &[OsString]),
    request: VolumeRequest,
) -> Result<String> {
    with_server(control, (state, words), |client| order(client, request.clone()))
}

/// The server has ended, and nothing was done; another may be started.
fn ends(error: &anyhow::Error, path: &Path) -> bool {
    error.is::<Ended>() || error.is::<Unreadable>() && !Client::is_listening(path)
}

pub(super) fn about(request: VolumeRequest) -> Request {
    Request::Volume { request: Box::new(request) }
}

/// Asks for something to be done; gives the sentence that says what was.
pub(super) fn order(client: &mut Client, request: VolumeRequest) -> Result<String> {
    client.order(&about(request))
}

pub(super) fn ask(client: &mut Client, request: VolumeRequest) -> Result<VolumeAnswer> {
    client.ask_volume(request)
}

/// An answer about volumes that does not belong to the question.
pub(super) fn unexpected(answer: VolumeAnswer) -> anyhow::Error {
    crate::client::unexpected(&Answer::Volume { volume: answer })
}

/// A file as the server shall look for it.
pub(super) fn file_name(typed: &str) -> Result<FileName> {
    let path = Path::new(typed);
    let absolute = match path.canonicalize() {
        Ok(found) => found,
        Err(_) => std::path::absolute(path).with_context(|| format!("making {typed} absolute"))?,
    };
    let absolute = absolute
        .to_str()
        .with_context(|| format!("{typed}: its path is no text (UTF-8), which this needs"))?;
    Ok(FileName { typed: typed.to_string(), absolute: absolute.to_string() })
}

/// A volume as it was typed: a directory where one is mounted, made absolute, or a name.
pub(super) fn volume_name(typed: &str) -> String {
    let path = Path::new(typed);
    if !typed.contains('/') && typed != "." {
        return typed.to_string();
    }
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    absolute.map_or_else(|_| typed.to_string(), |path| path.display().to_string())
}

/// The volume that is meant, and the folder in it, from its root, where that is not all of it.
///
/// # Errors
/// When a path was typed, and no volume is mounted there.
pub(super) fn volume_of(client: &mut Client, typed: &str) -> Result<(String, Option<String>)> {
    let VolumeAnswer::List { volumes } = ask(client, VolumeRequest::List)? else {
        return Ok((volume_name(typed), None));
    };
    let path = file_name(typed)?.absolute;
    let is_name = volumes.iter().any(|volume| volume.name == typed || volume.uuid == typed);
    let within = volumes.iter().filter_map(|volume| {
        let dir = volume.dir.as_deref()?;
        Some((volume, Path::new(&path).strip_prefix(dir).ok()?.display().to_string(), dir.len()))
    });
    match within.max_by_key(|(.., len)| *len).filter(|_| !is_name) {
        Some((volume, below, _)) if below.is_empty() => Ok((volume.name.clone(), None)),
        Some((volume, below, _)) => Ok((volume.name.clone(), Some(format!("/{below}")))),
        None if !is_name && typed.contains('/') => {
            let at = |volume: &ListedVolume| {
                Some(format!("{} at {}", volume.name, volume.dir.as_deref()?))
            };
            let all: Vec<String> = volumes.iter().filter_map(at).collect();
            let there = if all.is_empty() { "none is".to_string() } else { all.join(", ") };
            let why = format!("{path} is on no volume that is mounted here; mounted: {there}");
            Err(refused(Code::NoSuchVolume, why))
        }
        None => Ok((volume_name(typed), None)),
    }
}

/// A brick as it was typed: a path that is there made absolute, an NBD URI as bricks are called by it, else a number, a
/// UUID or a kind.
pub(super) fn brick_name(typed: &str) -> String {
    if ExportUri::is_meant(typed) {
        return member_argument(typed).unwrap_or_else(|_| typed.to_string());
    }
    let path = Path::new(typed);
    match path.exists() {
        true => {
            std::path::absolute(path).map_or(typed.to_string(), |path| path.display().to_string())
        }
        false => typed.to_string(),
    }
}

/// The volumes that the server has, where one is running.
pub(super) fn mounted(control: &Control) -> Result<Vec<ListedVolume>> {
    if !Client::is_listening(&control.path()) {
        return Ok(Vec::new());
    }
    match ask(&mut connect(control)?, VolumeRequest::List)? {
        VolumeAnswer::List { volumes } => Ok(volumes),
        other => Err(unexpected(other)),
    }
}

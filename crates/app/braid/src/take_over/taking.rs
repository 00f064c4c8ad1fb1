//! The new process: it asks for everything, and serves once the old one has let go.

use super::Given;
use super::channel::{Channel, Message, VERSION};
use crate::cli::{Cli, Command, Serve};
use crate::client::Client;
use anyhow::{Context, Result, bail};
use clap::Parser;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time that the old process gets to connect, to let go, and to say that it ends.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
const GIVE_WAIT: Duration = Duration::from_secs(60);
const GO_WAIT: Duration = Duration::from_secs(10);
/// Between two looks if it has connected.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A take-over that has begun.
pub struct Taking {
    channel: Channel,
    arguments: Vec<String>,
    members: Vec<String>,
}

impl Taking {
    /// Asks the server whose control socket is `control` to let go.
    ///
    /// # Errors
    /// No server there, or one that refuses.
    pub fn begin(control: &Path) -> Result<Taking> {
        let place = PlaceToMeet::make(control)?;
        Client::take_over(control, &place.path)?;
        let mut channel = Channel::new(place.meet()?);
        match channel.hear(CONNECT_WAIT)? {
            Message::Hello { version: VERSION, arguments, members } => {
                Ok(Taking { channel, arguments, members })
            }
            Message::Hello { .. } => {
                bail!("the running server is of a version that cannot be taken over")
            }
            _ => bail!("the running server says something that is not understood"),
        }
    }

    /// The options to serve with, and the arguments that say so: those of the old process, with its members now, where `own`
    /// names none.
    ///
    /// # Errors
    /// Arguments of the old process that this version does not know, or that are given twice.
    pub fn options(&self, own: Serve) -> Result<(Serve, Vec<String>)> {
        let mine = arguments()?;
        let (mut options, arguments) = match own.members.is_empty() {
            false => (own, mine),
            true => {
                let all = combined(&self.arguments, mine);
                let Command::Serve(options) = parsed(&all)? else {
                    bail!("the running server is no `braid serve`: it cannot be taken over");
                };
                (Serve { members: self.members.clone(), ..*options }, all)
            }
        };
        if !options.has_door() {
            bail!(
                "nothing says where clients connect: --nbd, --vhost-user, --ublk, --nvme or --fuse"
            );
        }
        // The array that it made is there.
        options.create = None;
        options.force = false;
        Ok((options, arguments))
    }

    /// Has the old process let go.
    ///
    /// # Errors
    /// It refuses, or is gone.
    pub fn receive(&mut self) -> Result<Given> {
        self.channel.say(&Message::Prepared)?;
        match self.channel.hear(GIVE_WAIT)? {
            Message::Given { listening, clients, managed } => {
                self.channel.take((listening, clients), managed)
            }
            _ => bail!("the running server says something that is not understood"),
        }
    }

    /// Everything is served, clients aside: from now on by this process alone.
    ///
    /// # Errors
    /// The old process has gone back to serving.
    pub fn ready(mut self) -> Result<()> {
        self.channel.say(&Message::Ready)?;
        match self.channel.hear(GO_WAIT)? {
            Message::Go => Ok(()),
            _ => bail!("the running server says something that is not understood"),
        }
    }
}

/// The arguments of this process.
///
/// # Errors
/// One that is no text, which could not be passed to a successor.
pub fn arguments() -> Result<Vec<String>> {
    let all = std::env::args_os().skip(1).map(|argument| argument.into_string());
    all.collect::<Result<_, _>>().ok().context("an argument of this server is no text")
}

/// Both command lines as one, the verb and the option that asks for a take-over once.
fn combined(old: &[String], mine: Vec<String>) -> Vec<String> {
    let is_extra = |one: &String| one != "serve" && one != "--take-over";
    let control = |line: Vec<String>| {
        let mut left = Vec::new();
        let mut line = line.into_iter();
        while let Some(one) = line.next() {
            if one == "--control" {
                line.next();
            } else if !one.starts_with("--control=") {
                left.push(one);
            }
        }
        left
    };
    let mine: Vec<String> = mine.into_iter().filter(is_extra).collect();
    let once = |one: &&String| *one != "--take-over" && *one != "--detach";
    let old: Vec<String> = old.iter().filter(once).cloned().collect();
    old.into_iter().chain(control(mine)).chain(["--take-over".to_string()]).collect()
}

fn parsed(arguments: &[String]) -> Result<Command> {
    let words = std::iter::once("braid").chain(arguments.iter().map(String::as_str));
    let parsed = Cli::try_parse_from(words);
    Ok(parsed.context("the arguments of the running server, with those of this one")?.command)
}

/// A socket at which the old process finds the new one.
struct PlaceToMeet {
    path: PathBuf,
    listener: UnixListener,
}

impl PlaceToMeet {
    fn make(control: &Path) -> Result<PlaceToMeet> {
        let mut name = control.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let path = PathBuf::from(name);
        let doing = || format!("making the socket {} to be found at", path.display());
        let listener = UnixListener::bind(&path).with_context(doing)?;
        listener.set_nonblocking(true).with_context(doing)?;
        Ok(PlaceToMeet { path, listener })
    }

    fn meet(&self) -> Result<UnixStream> {
        let end = Instant::now() + CONNECT_WAIT;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).context("preparing a socket")?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if Instant::now() >= end {
                        bail!("the running server does not answer: it may be starting or ending");
                    }
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(error) => return Err(error).context("waiting for the running server"),
            }
        }
    }
}

impl Drop for PlaceToMeet {
    fn drop(&mut self) {
        // Nobody else uses a name with the number of this process.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn the_old_arguments_hold_and_more_may_be_added() {
        let old = words("serve /a /b --nbd unix:/s --control /c");
        let mine = words("serve --take-over --control /c --shards 2");
        let all = combined(&old, mine);
        let Command::Serve(options) = parsed(&all).unwrap() else { panic!("serve") };
        assert_eq!((options.members.len(), options.nbd.len(), options.shards), (2, 1, Some(2)));
        assert!(options.take_over && options.has_door());
        // A second take-over, of what took over itself.
        let again = combined(&all, words("serve --take-over"));
        let daemon =
            combined(&words("serve --config /x --detach"), words("serve --take-over --control /c"));
        let Command::Serve(options) = parsed(&daemon).unwrap() else { panic!("serve") };
        assert!(options.take_over && options.has_door() && options.config.is_some());
        assert_eq!(again, all);
        let twice = combined(&all, words("serve --take-over --shards 3"));
        assert!(format!("{:#}", parsed(&twice).unwrap_err()).contains("--shards"));
    }
}

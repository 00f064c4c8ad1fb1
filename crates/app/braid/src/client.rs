//! The commands' side of the control socket: reaching a running server, asking, reading answers.
//!
//! Does not know what is asked. An answer that cannot be had is [`Unreadable`]; a refusal is an
//! ordinary error.

use crate::exit::{Ended, Unreadable};
use crate::protocol::{Answer, Detail, Job, LINE_MAX, LastJob, Request, Stat};
use anyhow::{Context, Result, anyhow, bail};
use braid_array::stacking::PREFIX;
use braid_nbd::ExportUri;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A server that has not answered for so long is asked whether it is there.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time that it gets to say so.
const PING_WAIT: Duration = Duration::from_secs(3);

/// A connection to a running server.
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// A server listens at `path`, whether we may ask it or not.
    pub fn is_listening(path: &Path) -> bool {
        match UnixStream::connect(path) {
            Ok(_) => true,
            Err(error) => {
                !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
            }
        }
    }

    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// [`Unreadable`] when nobody listens, saying what to type.
    pub fn connect(path: &Path) -> Result<Client> {
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) }),
            Err(error) => Err(Unreadable(not_reached(path, &error)).into()),
        }
    }

    /// Asks, and gives the one answer.
    ///
    /// # Errors
    /// A refusal, a server that went away, or [`Ended`]: nothing was done, and another may be started.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.ask_with_progress(request, &mut |_| Ok(()))
    }

    /// Asks; `progress` sees each job that is reported before the answer.
    ///
    /// # Errors
    /// A refusal, a server that went away, or what `progress` fails with.
    pub fn ask_with_progress(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(&Job) -> Result<()>,
    ) -> Result<Answer> {
        let mut line = serde_json::to_vec(request).context("making the request")?;
        line.push(b'\n');
        let path = self.path.display().to_string();
        let lost = || format!("the server at {path} went away; see what it printed");
        let ended = || Ended(path.clone());
        let sent = self.stream.get_mut().write_all(&line);
        self.stream.get_ref().set_read_timeout(Some(PATIENCE)).context("setting a time limit")?;
        let mut answered = false;
        loop {
            let mut line = Vec::new();
            let read = self.read_line(&mut line)?;
            // A server that ends in order takes its file away first; one that died leaves it.
            if !matches!(read, Ok(1..)) && !answered && !self.path.exists() {
                return Err(ended().into());
            }
            if read.with_context(lost)? == 0 {
                sent.with_context(lost)?;
                bail!("{}", lost());
            }
            answered = true;
            let answer = serde_json::from_slice(&line)
                .with_context(|| format!("the server at {path} speaks another version"))?;
            match answer {
                Answer::Progress { job } => progress(&job)?,
                Answer::Ending => return Err(ended().into()),
                Answer::Refused { error, no_such_array: true } => {
                    return Err(Unreadable(error).into());
                }
                Answer::Refused { error, .. } => return Err(anyhow!(error)),
                answer => return Ok(answer),
            }
        }
    }

    /// Reads a line, for as long as it takes a server that is alive.
    fn read_line(&mut self, line: &mut Vec<u8>) -> Result<std::io::Result<usize>> {
        loop {
            let read = (&mut self.stream).take(LINE_MAX as u64).read_until(b'\n', line);
            let waits = matches!(&read, Err(error) if is_timeout(error));
            if !waits {
                // The part that came before a pause is in the line already.
                return Ok(read.map(|_| line.len()));
            }
            if !self.is_alive() {
                let path = self.path.display();
                return Err(Unreadable(format!(
                    "the server with the control socket {path} does not answer: it is starting, was stopped by a signal, or hangs"
                ))
                .into());
            }
        }
    }

    /// The server answers somebody else at once; one that has ended is noticed by whoever reads.
    fn is_alive(&self) -> bool {
        let asked = || {
            let mut stream = UnixStream::connect(&self.path)?;
            stream.set_read_timeout(Some(PING_WAIT))?;
            let mut line = serde_json::to_vec(&Request::Ping)?;
            line.push(b'\n');
            stream.write_all(&line)?;
            BufReader::new(stream).read_until(b'\n', &mut Vec::new())
        };
        !matches!(asked(), Err(error) if is_timeout(&error))
    }

    /// Asks for the state of an array.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn detail(&mut self, array: Option<&str>) -> Result<Detail> {
        match self.ask(&Request::Detail { array: array.map(str::to_string) })? {
            Answer::Detail { detail } => Ok(*detail),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks what an array has done.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn stat(&mut self, array: Option<&str>) -> Result<Stat> {
        match self.ask(&Request::Stat { array: array.map(str::to_string) })? {
            Answer::Stat { stat } => Ok(*stat),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until no job is running.
    ///
    /// # Errors
    /// As [`Client::ask_with_progress`].
    pub fn wait(
        &mut self,
        array: Option<&str>,
        progress: &mut dyn FnMut(&Job) -> Result<()>,
    ) -> Result<(Option<LastJob>, Detail)> {
        let request = Request::Wait { array: array.map(str::to_string) };
        match self.ask_with_progress(&request, progress)? {
            Answer::Idle { last, detail } => Ok((last, *detail)),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for something to be done; gives the sentence that says what was.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn order(&mut self, request: &Request) -> Result<String> {
        match self.ask(request)? {
            Answer::Done { text } => Ok(text),
            other => Err(unexpected(&other)),
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// An answer that does not belong to the question.
pub fn unexpected(answer: &Answer) -> anyhow::Error {
    anyhow!("the server gave an answer that was not asked for: {answer:?}")
}

fn not_reached(path: &Path, error: &std::io::Error) -> String {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => format!(
            "no server is running with the control socket {shown}; start one with `braid serve MEMBER… \
             --nbd unix:PATH`, or say where it listens with --control or BRAID_CONTROL"
        ),
        ErrorKind::PermissionDenied => {
            format!(
                "the control socket {shown} is not yours: {error}; use the server's user or sudo"
            )
        }
        _ => format!("connecting to the control socket {shown}: {error}"),
    }
}

/// Members as [`member_argument`] has them; these `words` stay as they are, unless a file is called so.
///
/// # Errors
/// As [`member_argument`].
pub fn member_arguments(texts: &[String], words: &[&str]) -> Result<Vec<String>> {
    let is_word = |text: &str| words.contains(&text) && !Path::new(text).exists();
    let argument = |text: &String| match is_word(text) {
        true => Ok(text.clone()),
        false => member_argument(text),
    };
    texts.iter().map(argument).collect()
}

/// A member as the server shall look for it: a path made absolute, and the socket of an NBD URI; anything else as it is.
///
/// # Errors
/// When the current folder is not known, or what is meant as an NBD URI is none.
pub fn member_argument(text: &str) -> Result<String> {
    if ExportUri::is_meant(text) {
        let uri = text.parse::<ExportUri>()?.absolute();
        return Ok(uri
            .with_context(|| format!("making the socket of {text} absolute"))?
            .to_string());
    }
    let is_number = text.parse::<u32>().is_ok() && !Path::new(text).exists();
    let in_server = ["ram:", "model:", PREFIX].iter().any(|kind| text.starts_with(kind));
    if is_number || in_server {
        return Ok(text.to_string());
    }
    let path = std::path::absolute(text).with_context(|| format!("making {text} absolute"))?;
    Ok(path.display().to_string())
}

//! The commands' side of the control socket: reaching a running server, asking, reading answers.
//!
//! Does not know what is asked. An answer that cannot be had is [`Unreadable`]; a refusal is [`Refused`].

use crate::exit::{Ended, Refused, Unreadable};
use anyhow::{Context, Result, anyhow, bail};
use braid_array::stacking::PREFIX;
use braid_control::api::paths;
use braid_control::http::response::{Incoming, NotHttp, Part, request as to_send};
use braid_control::protocol::volume::{VolumeAnswer, VolumeRequest};
use braid_control::protocol::{Answer, Code, Detail, Job, LastJob, Request, Stat};
use braid_nbd::ExportUri;
use serde_json::Value;
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
    stream: UnixStream,
    incoming: Incoming,
    /// The last answer was read before its end had come.
    end_comes: bool,
}

impl Client {
    /// A server listens at `path`, whether we may ask it or not.
    pub fn is_listening(path: &Path) -> bool {
        nobody_listens(path).is_none()
    }

    /// Connects to the server at `path`.
    ///
    /// # Errors
    /// [`Unreadable`] when nobody listens, saying what to type.
    pub fn connect(path: &Path) -> Result<Client> {
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Client {
                path: path.to_owned(),
                stream,
                incoming: Incoming::default(),
                end_comes: false,
            }),
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
        let asked = paths::target(request).context("making the request")?;
        let bytes = to_send(asked.method, &asked.path, asked.body.as_deref());
        let path = self.path.display().to_string();
        let lost = || format!("the server at {path} went away; see what it printed");
        let ended = || Ended(path.clone());
        let sent = self.stream.write_all(&bytes);
        self.stream.set_read_timeout(Some(PATIENCE)).context("setting a time limit")?;
        let mut answered = false;
        loop {
            let part = match self.incoming.part() {
                Ok(Some(part)) => part,
                Ok(None) => {
                    let read = self.read()?;
                    if !matches!(read, Ok(1..)) && !answered {
                        // A server that ends in order takes its file away first; one that died leaves it.
                        if !self.path.exists() {
                            return Err(ended().into());
                        }
                        // A request that only looks may as well have come a moment later.
                        if asked.method == "GET"
                            && let Some(error) = nobody_listens(&self.path)
                        {
                            return Err(Unreadable(not_reached(&self.path, &error)).into());
                        }
                    }
                    if read.with_context(lost)? == 0 {
                        sent.with_context(lost)?;
                        bail!("{}", lost());
                    }
                    continue;
                }
                Err(NotHttp::Lines) => {
                    return Err(Unreadable(format!(
                        "the server at {path} is of an earlier version, whose control API is not HTTP yet; have this one \
                         take over (braid serve --take-over), or use the braid of the server's version"
                    ))
                    .into());
                }
                Err(NotHttp::Garbage) => {
                    return Err(Unreadable(format!(
                        "{path} is not the control socket of a braid server"
                    ))
                    .into());
                }
            };
            let line = match part {
                Part::Ends if self.end_comes => {
                    self.end_comes = false;
                    continue;
                }
                Part::Ends => bail!("the server at {path} gave no answer"),
                Part::Begins(_) => continue,
                Part::Line(line) => line,
            };
            answered = true;
            let answer = serde_json::from_slice(&line)
                .with_context(|| format!("the server at {path} speaks another version"))?;
            if let Answer::Progress { job } = answer {
                progress(&job)?;
                continue;
            }
            self.end_comes = true;
            return match answer {
                Answer::Refused(refusal) if refusal.code == Code::Ending => Err(ended().into()),
                Answer::Refused(refusal) => Err(Refused(refusal).into()),
                answer => Ok(answer),
            };
        }
    }

    /// Reads some bytes, for as long as it takes a server that is alive.
    fn read(&mut self) -> Result<std::io::Result<usize>> {
        let mut bytes = [0; 64 << 10];
        loop {
            let read = self.stream.read(&mut bytes);
            // Reads with a time limit are not begun again by the system; those who want to end at a signal see it by themselves.
            if matches!(&read, Err(error) if error.kind() == ErrorKind::Interrupted) {
                continue;
            }
            let waits = matches!(&read, Err(error) if is_timeout(error));
            if !waits {
                let len = *read.as_ref().unwrap_or(&0);
                self.incoming.feed(bytes.get(..len).unwrap_or_default());
                return Ok(read);
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
            let ping = paths::target(&Request::Ping)?;
            stream.write_all(&to_send(ping.method, &ping.path, None))?;
            // Its first line will do.
            BufReader::new(stream).read_until(b'\n', &mut Vec::new())
        };
        !matches!(asked(), Err(error) if is_timeout(&error))
    }

    /// Asks the server at `path` to let another process take over, which waits at `at`; also one of an earlier version, whose
    /// requests are lines of JSON.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn take_over(path: &Path, at: &Path) -> Result<()> {
        let request = Request::TakeOver { at: at.to_owned() };
        let mut client = Client::connect(path)?;
        let refused = match client.ask(&request) {
            Ok(_) => return Ok(()),
            Err(refused) => refused,
        };
        if !matches!(client.incoming.part(), Err(NotHttp::Lines)) {
            return Err(refused);
        }
        let mut stream = UnixStream::connect(path).context("connecting again")?;
        stream.set_read_timeout(Some(PATIENCE)).context("setting a time limit")?;
        let mut line = serde_json::to_vec(&request).context("making the request")?;
        line.push(b'\n');
        stream.write_all(&line).context("asking the server of an earlier version")?;
        let mut line = Vec::new();
        BufReader::new(stream).read_until(b'\n', &mut line).context("reading its answer")?;
        let answer: Value = serde_json::from_slice(&line).context("reading its answer")?;
        match (answer["answer"].as_str(), answer["error"].as_str()) {
            (Some("done"), _) => Ok(()),
            (_, Some(error)) => bail!("{error}"),
            _ => bail!("the server at {} gave no answer", path.display()),
        }
    }

    /// Asks something of volumes.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_volume(&mut self, request: VolumeRequest) -> Result<VolumeAnswer> {
        match self.ask(&Request::Volume { request: Box::new(request) })? {
            Answer::Volume { volume } => Ok(volume),
            other => Err(unexpected(&other)),
        }
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

/// Why nobody can be reached at `path`; `None`: somebody listens there, or that cannot be told.
fn nobody_listens(path: &Path) -> Option<std::io::Error> {
    let error = UnixStream::connect(path).err()?;
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused).then_some(error)
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
                "the control socket {shown} is not yours: {error}; use the server's user or sudo, or have its users' group let \
                 in to look (serve --control-group)"
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A server of an earlier version: it answers each line, and takes down what it was asked.
    fn old_server(path: &Path, times: usize) -> std::thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            let one = |_| {
                let mut stream = listener.accept().unwrap().0;
                let mut line = String::new();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
                let answer: &[u8] = match line.contains("HTTP") {
                    true => b"{\"answer\":\"refused\",\"error\":\"not understood\",\"no_such_array\":false}\n",
                    false => b"{\"answer\":\"done\",\"text\":\"\"}\n",
                };
                stream.write_all(answer).unwrap();
                line
            };
            (0..times).map(one).collect()
        })
    }

    #[test]
    fn a_server_of_an_earlier_version_is_told_apart_and_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let server = old_server(&path, 3);
        let error = Client::connect(&path).unwrap().ask(&Request::List).unwrap_err();
        assert!(error.is::<Unreadable>() && error.to_string().contains("--take-over"), "{error}");
        Client::take_over(&path, Path::new("/here")).unwrap();
        let asked = server.join().unwrap();
        assert!(asked[1].starts_with("POST /v1/server/take-over HTTP/1.1"), "{asked:?}");
        assert_eq!(asked[2], "{\"verb\":\"take-over\",\"at\":\"/here\"}\n");
    }

    #[test]
    fn a_server_that_dies_under_a_look_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let connected = || Client::connect(&path).unwrap();
        let (mut looks, mut changes) = (connected(), connected());
        drop(listener);
        let error = looks.ask(&Request::List).unwrap_err();
        assert!(error.is::<Unreadable>() && error.to_string().contains("no server"), "{error}");
        // Nobody knows whether this was done.
        let error = changes.ask(&Request::Stop { array: None, force: false }).unwrap_err();
        assert!(error.to_string().contains("went away"), "{error}");
    }

    #[test]
    fn something_else_at_the_socket_is_no_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let other = std::thread::spawn(move || {
            listener.accept().unwrap().0.write_all(b"SSH-2.0-x\r\n").unwrap();
        });
        let error = Client::connect(&path).unwrap().ask(&Request::List).unwrap_err();
        other.join().unwrap();
        assert!(error.to_string().contains("is not the control socket"), "{error}");
    }
}

//! The control socket: a file that only its owner may use, one thread for each connection.
//!
//! Owns the socket file and the lines on its connections. What a request means is for the handler
//! that it is given. Invariant: the file is removed only when it is ours or nobody listens on it; a
//! client that sends garbage, nothing, or too much gets an error and harms nobody else.

use crate::protocol::{Answer, LINE_MAX, Request};
use anyhow::{Context, Result};
use braid_export::socket_file::{Rights, SocketFile, SocketFileError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Connections at a time; further ones are answered with an error.
const CONNECTIONS_MAX: usize = 64;
/// A client that says nothing for so long is disconnected.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Carries out a request: gives answers to the function, which says false when the client is gone.
pub type Handler = dyn Fn(Request, &mut dyn FnMut(Answer) -> bool) + Send + Sync;

/// A socket that listens; dropping it closes its [`Door`].
pub struct ControlSocket(Door);

/// The way in to a server.
#[derive(Clone)]
pub struct Door(Arc<Listening>);

struct Listening {
    file: SocketFile,
    listener: UnixListener,
    closed: AtomicBool,
}

/// Where the socket is unless somebody says otherwise. root has one, however root came to be: by a login, sudo, or at boot.
pub fn default_path() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/run/braid/control.sock");
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    folder.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("braid/control.sock")
}

impl ControlSocket {
    /// Binds `path`; a file that a dead server left behind is replaced.
    ///
    /// # Errors
    /// When a running server listens there, or something else is in the way.
    pub fn bind(path: &Path) -> Result<ControlSocket> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            // Others may pass to sockets that let them in: a hypervisor's user to a disk. None may list them.
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(folder);
            made.with_context(|| {
                format!("making the folder {} of the control socket", folder.display())
            })?;
        }
        let (listener, file) = SocketFile::bind(path, Rights::OWNER).map_err(of_control)?;
        let closed = AtomicBool::new(false);
        Ok(ControlSocket(Door(Arc::new(Listening { file, listener, closed }))))
    }

    /// Takes over a socket at which another server has listened.
    ///
    /// # Errors
    /// When its file is gone.
    pub fn adopt(path: &Path, socket: OwnedFd) -> Result<ControlSocket> {
        let file = SocketFile::adopt(path)
            .with_context(|| format!("the control socket {} is gone", path.display()))?;
        let (listener, closed) = (UnixListener::from(socket), AtomicBool::new(false));
        Ok(ControlSocket(Door(Arc::new(Listening { file, listener, closed }))))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.0.file.path()
    }

    /// What closes it before it is dropped.
    pub fn door(&self) -> Door {
        self.0.clone()
    }

    /// Starts answering requests with `handler`.
    ///
    /// # Errors
    /// When the system refuses a descriptor or a thread.
    pub fn serve(&self, handler: Arc<Handler>) -> Result<()> {
        let door = Arc::clone(&self.0.0);
        let connections = Arc::new(AtomicUsize::new(0));
        let work = move || {
            while !door.closed.load(Ordering::Acquire) {
                match door.listener.accept() {
                    Ok((stream, _)) => start(stream, &handler, &connections),
                    Err(_) if door.closed.load(Ordering::Acquire) => return,
                    Err(error) => {
                        tracing::warn!(%error, "accepting a control connection failed");
                        std::thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        };
        std::thread::Builder::new()
            .name("control".to_string())
            .spawn(work)
            .context("starting the thread of the control socket")?;
        Ok(())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Door {
    /// Gives the socket to a successor: who connects from now on waits for that one. The file stays.
    ///
    /// # Errors
    /// When the descriptor cannot be duplicated; nothing was changed then.
    pub fn give(&self) -> io::Result<OwnedFd> {
        let Listening { file, listener, closed } = &*self.0;
        let socket = listener.try_clone()?;
        if !closed.swap(true, Ordering::AcqRel) {
            // Wakes the thread that accepts; if it cannot be reached it has ended.
            let _ = UnixStream::connect(file.path());
        }
        Ok(socket.into())
    }

    /// Nobody connects any more, and the file is gone: the next server may begin. Those who are connected stay so.
    pub fn close(&self) {
        let Listening { file, listener, closed } = &*self.0;
        if closed.swap(true, Ordering::AcqRel) {
            return;
        }
        file.remove();
        // Wakes the thread that accepts; a listener that failed has ended already.
        let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
    }
}

/// The error, and the option that gets around it.
fn of_control(error: SocketFileError) -> anyhow::Error {
    match &error {
        SocketFileError::InUse(path) => anyhow::anyhow!(
            "a server is running already with the control socket {}; give its members to that one \
             (braid start MEMBER…), stop it (braid stop --all), or choose another socket with --control",
            path.display()
        ),
        SocketFileError::NotASocket(path) => anyhow::anyhow!(
            "{} exists and is no socket; choose another control socket with --control",
            path.display()
        ),
        _ => anyhow::Error::new(error).context("making the control socket"),
    }
}

/// Counts a connection for as long as it lasts.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn start(mut stream: UnixStream, handler: &Arc<Handler>, connections: &Arc<AtomicUsize>) {
    let before = connections.fetch_add(1, Ordering::AcqRel);
    let counted = Counted(Arc::clone(connections));
    if before >= CONNECTIONS_MAX {
        answer(&mut stream, &refused("too many control connections; try again later"));
        return;
    }
    let handler = Arc::clone(handler);
    let work = move || {
        converse(stream, &*handler);
        drop(counted);
    };
    if let Err(error) = std::thread::Builder::new().name("control-client".to_string()).spawn(work) {
        tracing::warn!(%error, "starting a thread for a control connection failed");
    }
}

fn converse(stream: UnixStream, handler: &Handler) {
    let timeouts = stream
        .set_read_timeout(Some(SILENCE_MAX))
        .and_then(|()| stream.set_write_timeout(Some(SILENCE_MAX)));
    let (Ok(()), Ok(mut out)) = (timeouts, stream.try_clone()) else { return };
    let mut input = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match (&mut input).take(LINE_MAX as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.last() != Some(&b'\n') => {
                answer(&mut out, &refused("a request must be one line of JSON"));
                return;
            }
            Ok(_) => {}
        }
        match serde_json::from_slice::<Request>(&line) {
            Ok(request) => {
                tracing::debug!(?request, "control request");
                let mut there = true;
                handler(request, &mut |reply| {
                    there = there && answer(&mut out, &reply);
                    there
                });
                if !there {
                    return;
                }
            }
            Err(error) => {
                let text = format!("not understood: {error}; use the braid of the same version");
                if !answer(&mut out, &refused(&text)) {
                    return;
                }
            }
        }
    }
}

fn refused(error: &str) -> Answer {
    Answer::Refused { error: error.to_string(), no_such_array: false }
}

/// False when the client is gone.
fn answer(out: &mut UnixStream, answer: &Answer) -> bool {
    let Ok(mut line) = serde_json::to_vec(answer) else { return false };
    line.push(b'\n');
    out.write_all(&line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn echo() -> Arc<Handler> {
        Arc::new(|request, answer| {
            answer(Answer::Done { text: format!("{request:?}") });
        })
    }

    fn say(path: &Path, bytes: &[u8]) -> Vec<String> {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        BufReader::new(stream).lines().map(Result::unwrap).collect()
    }

    #[test]
    fn garbage_is_answered_and_the_next_request_still_works() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        socket.serve(echo()).unwrap();
        let answers = say(&path, b"\xff\xfe{{{\n{\"verb\":\"list\"}\nno end");
        assert_eq!(answers.len(), 3, "{answers:?}");
        assert!(answers[0].contains("refused") && answers[0].contains("not understood"));
        assert!(answers[1].contains("done") && answers[1].contains("List"));
        assert!(answers[2].contains("one line of JSON"));
        assert_eq!(say(&path, b""), Vec::<String>::new());
        assert_eq!(say(&path, b"{\"verb\":\"list\"}\n").len(), 1);
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/c.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        let error = ControlSocket::bind(&path).err().unwrap().to_string();
        assert!(error.contains("running already"), "{error}");
        drop(socket);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = ControlSocket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(ControlSocket::bind(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }
}

//! The control socket: a file that its owner may use, and a group may be let in to look; one thread for each connection.
//!
//! Owns the socket file and its connections, which speak the control API. A request is for the handler that it is given.
//! Invariant: the file is removed only when it is ours or nobody listens on it.

use anyhow::{Context, Result, bail};
use braid_control::api::role::Role;
use braid_control::api::serving::{self, Handler};
use braid_control::http::server::{Connections, accept_all};
use braid_control::http::{Ended, Limits, converse, turn_away};
use braid_control::protocol::{Code, REQUEST_MAX, Refusal};
use braid_export::socket_file::{Rights, SocketFile, SocketFileError};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Connections at a time; further ones are answered with an error.
const CONNECTIONS_MAX: usize = 64;
/// A client that says nothing for so long is disconnected.
const LIMITS: Limits = Limits { patience: Duration::from_secs(60), body_max: REQUEST_MAX };
/// The name of its threads, and in messages.
const NAME: &str = "control";

/// A socket that listens; dropping it closes its [`Door`].
pub struct ControlSocket(Door);

/// The way in to a server.
#[derive(Clone)]
pub struct Door(Arc<Listening>);

struct Listening {
    file: SocketFile,
    listener: UnixListener,
    closed: AtomicBool,
    /// A service manager has made it, and goes on with it.
    managed: bool,
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
    /// Binds `path`; a file that a dead server left behind is replaced. The users of `group` may look.
    ///
    /// # Errors
    /// When a running server listens there, or something else is in the way.
    pub fn bind(path: &Path, group: Option<u32>) -> Result<ControlSocket> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            // Others may pass to sockets that let them in: a hypervisor's user to a disk. None may list them.
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o711).create(folder);
            made.with_context(|| {
                format!("making the folder {} of the control socket", folder.display())
            })?;
        }
        let rights = match group {
            Some(_) => Rights { mode: 0o660, group },
            None => Rights::OWNER,
        };
        let (listener, file) = SocketFile::bind(path, rights).map_err(of_control)?;
        Ok(ControlSocket::of(file, listener, false))
    }

    /// Takes over a socket at which another server has listened; `managed`: one that a service manager has made.
    ///
    /// # Errors
    /// When its file is gone.
    pub fn adopt(path: &Path, socket: OwnedFd, managed: bool) -> Result<ControlSocket> {
        let file = SocketFile::adopt(path)
            .with_context(|| format!("the control socket {} is gone", path.display()))?;
        Ok(ControlSocket::of(file, UnixListener::from(socket), managed))
    }

    /// Uses a socket that a service manager has made. Its file, and who may connect, are the manager's. `asked`: where it has to
    /// be.
    ///
    /// # Errors
    /// It is elsewhere, or has no file.
    pub fn activated(listener: UnixListener, asked: Option<&Path>) -> Result<ControlSocket> {
        let address = listener.local_addr().context("asking where the control socket is")?;
        let Some(path) = address.as_pathname() else {
            bail!(
                "the control socket that the service manager passes has no file; ListenStream= has to be a path"
            );
        };
        if asked.is_some_and(|asked| asked != path) {
            bail!(
                "the control socket that the service manager passes is {}, and --control says otherwise: leave that out, or                  change ListenStream=",
                path.display()
            );
        }
        ControlSocket::adopt(path, listener.into(), true)
    }

    fn of(file: SocketFile, listener: UnixListener, managed: bool) -> ControlSocket {
        let closed = AtomicBool::new(false);
        ControlSocket(Door(Arc::new(Listening { file, listener, closed, managed })))
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
        let connections = Connections::new(CONNECTIONS_MAX);
        let work = move || {
            let accept = || door.listener.accept().map(|(stream, _)| stream);
            accept_all(NAME, &door.closed, accept, |stream| start(stream, &handler, &connections));
        };
        std::thread::Builder::new()
            .name(NAME.to_string())
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
        let Listening { file, listener, closed, .. } = &*self.0;
        let socket = listener.try_clone()?;
        if !closed.swap(true, Ordering::AcqRel) {
            // Wakes the thread that accepts; if it cannot be reached it has ended.
            let _ = UnixStream::connect(file.path());
        }
        Ok(socket.into())
    }

    /// A service manager has made the socket.
    pub fn is_managed(&self) -> bool {
        self.0.managed
    }

    /// Nobody connects any more, and the file is gone: the next server may begin. Those who are connected stay so. At a
    /// socket of a service manager who connects waits, and the manager starts a server for them.
    pub fn close(&self) {
        let Listening { file, listener, closed, managed } = &*self.0;
        if closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if *managed {
            // The manager has the socket, too, so it is not shut down. This wakes the thread that accepts.
            let _ = UnixStream::connect(file.path());
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

fn start(mut stream: UnixStream, handler: &Arc<Handler>, connections: &Connections) {
    let Some(counted) = connections.enter() else {
        let refusal = Refusal::new(Code::Busy, "too many control connections; try again later");
        return turn_away(&mut stream, LIMITS, |reply| serving::refuse(refusal, reply));
    };
    let handler = Arc::clone(handler);
    counted.on_a_thread(NAME, move || talk(&mut stream, &*handler));
}

fn talk(stream: &mut UnixStream, handler: &Handler) {
    // Without knowing the user nobody may change anything.
    let Ok(peer) = rustix::net::sockopt::socket_peercred(&*stream) else { return };
    let role = Role::of(peer.uid);
    let ended = converse(
        stream,
        LIMITS,
        &mut |asked, reply| serving::answer(asked, role, handler, reply),
        &serving::wrong,
    );
    if ended == Ended::SpokeLines {
        // The client may be gone.
        let _ = stream.write_all(TO_OLD_CLIENTS);
    }
}

/// Commands of earlier versions send a line of JSON, and read this.
const TO_OLD_CLIENTS: &[u8] = b"{\"answer\":\"refused\",\"no_such_array\":false,\"error\":\"this server is newer: its control \
    API is HTTP (docs/control-api.md); use the braid of the server's version\"}\n";

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::Answer;
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn echo() -> Arc<Handler> {
        Arc::new(|request, answer| {
            answer(Answer::Done { text: format!("{request:?}") });
        })
    }

    fn say(path: &Path, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    #[test]
    fn garbage_is_answered_and_the_next_request_still_works() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let socket = ControlSocket::bind(&path, None).unwrap();
        socket.serve(echo()).unwrap();
        let said = say(&path, b"\xff\xfe{{{\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 400 ") && said.contains("bad-request"), "{said}");
        let said = say(&path, b"GET /v1/colours HTTP/1.1\r\n\r\nGET /v1/arrays HTTP/1.1\r\n\r\n");
        assert!(said.starts_with("HTTP/1.1 404 ") && said.contains("HTTP/1.1 200 "), "{said}");
        assert!(said.contains("not-found") && said.contains("List"), "{said}");
        assert_eq!(say(&path, b""), "");
    }

    #[test]
    fn a_command_of_an_earlier_version_is_told_so_in_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let socket = ControlSocket::bind(&path, None).unwrap();
        socket.serve(echo()).unwrap();
        let said = say(&path, b"{\"verb\":\"list\"}\n");
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&said["answer"], &said["no_such_array"]), (&"refused".into(), &false.into()));
        assert!(said["error"].as_str().unwrap().contains("this server is newer"), "{said}");
    }

    #[test]
    fn too_many_connections_are_refused_as_an_answer() {
        let (stream, mut peer) = UnixStream::pair().unwrap();
        start(stream, &echo(), &Connections::new(0));
        let mut text = String::new();
        peer.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        let body = text.split_once("\r\n\r\n").unwrap().1;
        let answer: Answer = serde_json::from_str(body).unwrap();
        assert!(matches!(answer, Answer::Refused(Refusal { code: Code::Busy, .. })));
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/c.sock");
        let socket = ControlSocket::bind(&path, None).unwrap();
        let error = ControlSocket::bind(&path, None).err().unwrap().to_string();
        assert!(error.contains("running already"), "{error}");
        drop(socket);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = ControlSocket::bind(&path, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
    }

    #[test]
    fn a_socket_of_a_service_manager_outlives_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let managers = UnixListener::bind(&path).unwrap();
        for _ in 0..2 {
            let passed = || managers.try_clone().unwrap();
            let elsewhere = ControlSocket::activated(passed(), Some(Path::new("/elsewhere")));
            let error = elsewhere.err().unwrap().to_string();
            assert!(error.contains("ListenStream="), "{error}");
            let socket = ControlSocket::activated(passed(), Some(&path)).unwrap();
            assert!(socket.door().is_managed());
            socket.serve(echo()).unwrap();
            let said = say(&path, b"GET /v1/arrays HTTP/1.1\r\n\r\n");
            assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
            drop(socket);
            assert!(path.exists());
        }
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(ControlSocket::bind(&path, None).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn a_group_is_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.sock");
        let own = rustix::process::getegid().as_raw();
        let _socket = ControlSocket::bind(&path, Some(own)).unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!((found.permissions().mode() & 0o777, found.gid()), (0o660, own));
    }
}

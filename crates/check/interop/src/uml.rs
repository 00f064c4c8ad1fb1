//! A real Linux kernel as an ordinary process: Debian's `user-mode-linux`.
//!
//! The guest sees this machine's root filesystem read-only and one folder of it writable, so the
//! mdadm that it runs is the one installed here. A boot takes about two seconds and needs no
//! virtualisation; batch as much work as possible into one script.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Packages that [`run`] needs, as Debian names them.
pub const PACKAGES: &str = "user-mode-linux kmod mdadm busybox-static";
/// Where the guest sees the shared folder.
pub const SHARED: &str = "/run/shared";

/// Why a guest gave no result.
#[derive(Debug, thiserror::Error)]
pub enum UmlError {
    /// The kernel is not installed.
    #[error("running {0}: not found; install the packages {PACKAGES} (make setup does)")]
    NotInstalled(&'static str),
    /// A file of the run could not be made or read.
    #[error("preparing the guest: {0}")]
    Prepare(#[from] std::io::Error),
    /// The guest ended or was stopped before its script did.
    #[error("the guest did not finish its script within {0:?}; its console said:\n{1}")]
    Unfinished(Duration, String),
}

/// What a script did.
#[derive(Clone, Debug)]
pub struct Output {
    /// The script's exit status.
    pub status: i32,
    /// What the script printed.
    pub text: String,
}

/// Runs `script` (bash, as root) in a fresh guest with `memory_mib` of memory, for at most
/// `limit`. Folder `shared` of this machine is writable in the guest as [`SHARED`]. Modules of
/// md, loop and nbd are loaded.
///
/// # Errors
/// See [`UmlError`]; a script that fails is not an error but a status.
pub fn run(
    script: &str,
    shared: &Path,
    memory_mib: u32,
    limit: Duration,
) -> Result<Output, UmlError> {
    const KERNEL: &str = "linux.uml";
    let work = tempfile::Builder::new().prefix("braid-uml.").tempdir_in("/var/tmp")?;
    let root = work.path();
    std::fs::write(root.join("script"), script)?;
    std::fs::create_dir_all(root.join("modroot/lib"))?;
    std::os::unix::fs::symlink("/usr/lib/uml/modules", root.join("modroot/lib/modules"))?;
    let init = root.join("init");
    std::fs::write(&init, init_script(root, shared))?;
    make_executable(&init)?;
    let console = std::fs::File::create(root.join("console"))?;
    let child = Command::new(KERNEL)
        .arg(format!("mem={memory_mib}M"))
        .args(["rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=fd:0,fd:1", "quiet"])
        .arg(format!("init={}", init.display()))
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(UmlError::NotInstalled(KERNEL));
        }
        Err(error) => return Err(error.into()),
    };
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    match read("status").trim().parse() {
        Ok(status) => Ok(Output { status, text: read("output") }),
        Err(_) => {
            let said = format!("{}\n{}", read("output"), read("console"));
            Err(UmlError::Unfinished(limit, said))
        }
    }
}

fn init_script(root: &Path, shared: &Path) -> String {
    let (root, shared) = (root.display(), shared.display());
    format!(
        "#!/bin/bash\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         mount -t tmpfs tmpfs /run; mkdir -p /run/rig {SHARED}\n\
         mount -t hostfs -o {root} none /run/rig\n\
         mount -t hostfs -o {shared} none {SHARED}\n\
         mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /root; mount -t tmpfs tmpfs /var/tmp\n\
         for m in linear raid0 raid1 raid10 raid456 nbd; do modprobe -d /run/rig/modroot $m; done\n\
         modprobe -d /run/rig/modroot loop max_loop=64\n\
         cd /tmp; bash /run/rig/script > /run/rig/output 2>&1; echo $? > /run/rig/status\n\
         sync; busybox poweroff -f\n"
    )
}

fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

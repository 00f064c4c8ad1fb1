//! A real Linux kernel as an ordinary process: Debian's `user-mode-linux`.
//!
//! The guest sees this machine's root filesystem read-only and one folder of it writable, so the
//! mdadm that it runs is the one installed here. A boot takes about two seconds and needs no
//! virtualisation; batch as much work as possible into one script.
//!
//! That kernel (6.1) saves the vector registers of its processes in 2696 bytes and dies on CPUs that
//! have more of them (AMX). Here it is made to believe that the host cannot save them at all; it keeps
//! the 16 SSE registers then, so programs in the guest are told not to use any others.

pub use crate::outcome::Output;
use crate::outcome::{self, GuestError};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Packages that [`run`] needs, as Debian names them.
pub const PACKAGES: &str = "user-mode-linux kmod mdadm nbd-client busybox-static";
/// Where the guest sees the shared folder.
pub const SHARED: &str = "/run/shared";

/// Runs `script` (bash, as root) in a fresh guest with `memory_mib` of memory, for at most
/// `limit`. Folder `shared` of this machine is writable in the guest as [`SHARED`]. Modules of
/// md, loop and nbd are loaded.
///
/// # Errors
/// See [`GuestError`]; a script that fails is not an error but a status.
pub fn run(
    script: &str,
    shared: &Path,
    memory_mib: u32,
    limit: Duration,
) -> Result<Output, GuestError> {
    run_while(script, shared, memory_mib, limit, || true)
}

/// As [`run`], with a disk at each of these sockets, where a vhost-user server listens: /dev/vda and so on, once the script
/// has loaded `virtio_blk` ([`LOAD_DISKS`]).
///
/// # Errors
/// See [`GuestError`]; a script that fails is not an error but a status.
pub fn run_with_disks(
    script: &str,
    shared: &Path,
    memory_mib: u32,
    limit: Duration,
    disks: &[&Path],
) -> Result<Output, GuestError> {
    // 2 is the number of block devices in the specification of virtio.
    let disk = |path: &&Path| format!("virtio_uml.device={}:2", path.display());
    let arguments: Vec<String> = disks.iter().map(disk).collect();
    run_guest(script, shared, memory_mib, (limit, || true), &arguments)
}

/// Boots a guest from the disk at this socket: the file system there is its root, read and written, and `script` is run by the bash
/// that it has, after [`ROOT_INIT`] there, as /sbin/init, has mounted the rest. The disk is /dev/vda.
///
/// # Errors
/// See [`GuestError`]; a script that fails is not an error but a status.
pub fn run_from_disk(
    script: &str,
    shared: &Path,
    memory_mib: u32,
    limit: Duration,
    disk: &Path,
) -> Result<Output, GuestError> {
    let (work, mut command) = prepare(script, memory_mib)?;
    let root = work.path();
    let driver = find_module("virtio_blk.ko")?;
    let files = root.join("initial");
    std::fs::create_dir_all(files.join("bin"))?;
    std::fs::copy("/usr/bin/busybox", files.join("bin/busybox"))?;
    std::fs::copy(driver, files.join("driver.ko"))?;
    std::fs::write(files.join("init"), INITIAL_INIT)?;
    make_executable(&files.join("init"))?;
    let archive = root.join("initrd");
    outcome::archive(&files, "bin\nbin/busybox\ndriver.ko\ninit\n", &archive)?;
    command
        .arg(format!("virtio_uml.device={}:2", disk.display()))
        .arg(format!("initrd={}", archive.display()))
        .arg("rdinit=/init")
        // Variables of the first program's.
        .arg(format!("RIG={}", root.display()))
        .arg(format!("SHARED={}", shared.display()));
    finish(command, root, (limit, || true))
}

/// Of the initial file system: it has the driver of the disk, and goes on with what is there.
const INITIAL_INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /dev /root
$b mount -t devtmpfs dev /dev
$b insmod /driver.ko
for wait in $($b seq 200); do [ -b /dev/vda ] && break; $b sleep 0.05; done
$b mount -t ext4 /dev/vda /root || $b poweroff -f
$b umount /dev
exec $b switch_root /root /sbin/init
"#;

/// /sbin/init of a root file system for [`run_from_disk`], which must have bash and busybox, both under /bin.
pub const ROOT_INIT: &str = r#"#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
b=/bin/busybox
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
$b mount -t tmpfs tmpfs /run; $b mount -t tmpfs tmpfs /tmp
$b mkdir -p /run/rig /run/shared
$b mount -t hostfs -o $RIG none /run/rig; $b mount -t hostfs -o $SHARED none /run/shared
cd /tmp; bash /run/rig/script > /run/rig/output 2>&1; status=$?
$b sync; $b mount -o remount,ro / || status=99
echo $status > /run/rig/status
$b poweroff -f
"#;

fn find_module(name: &str) -> Result<std::path::PathBuf, GuestError> {
    let mut folders = vec![Path::new("/usr/lib/uml/modules").to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).map_err(not_there)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false if entry.file_name() == name => return Ok(entry.path()),
                false => {}
            }
        }
    }
    Err(GuestError::NotInstalled { program: KERNEL, packages: PACKAGES })
}

/// A line for a script, which loads what [`run_with_disks`] needs in the guest.
pub const LOAD_DISKS: &str = "modprobe -d /run/rig/modroot virtio_blk";

/// As [`run`], and stops the guest when it is no longer `wanted`.
///
/// # Errors
/// See [`GuestError`]; a script that fails is not an error but a status.
pub fn run_while(
    script: &str,
    shared: &Path,
    memory_mib: u32,
    limit: Duration,
    wanted: impl Fn() -> bool,
) -> Result<Output, GuestError> {
    run_guest(script, shared, memory_mib, (limit, wanted), &[])
}

/// `arguments` are the kernel's.
fn run_guest(
    script: &str,
    shared: &Path,
    memory_mib: u32,
    ends: (Duration, impl Fn() -> bool),
    arguments: &[String],
) -> Result<Output, GuestError> {
    let (work, mut command) = prepare(script, memory_mib)?;
    let root = work.path();
    std::fs::create_dir_all(root.join("modroot/lib"))?;
    std::os::unix::fs::symlink("/usr/lib/uml/modules", root.join("modroot/lib/modules"))?;
    let init = root.join("init");
    std::fs::write(&init, init_script(root, shared))?;
    make_executable(&init)?;
    command
        .args(arguments)
        .args(["rootfstype=hostfs", "rootflags=/", "ro"])
        .arg(format!("init={}", init.display()));
    finish(command, root, ends)
}

const KERNEL: &str = "linux.uml";

/// A folder for a guest with its script, and the beginning of its command.
fn prepare(script: &str, memory_mib: u32) -> Result<(tempfile::TempDir, Command), GuestError> {
    let work = tempfile::Builder::new().prefix("braid-uml.").tempdir_in("/var/tmp")?;
    std::fs::write(work.path().join("script"), script)?;
    let mut command = Command::new(KERNEL);
    command
        .arg(format!("mem={memory_mib}M"))
        .args(["con=null", "con0=fd:0,fd:1", "quiet"])
        // What the kernel does not know and looks like a variable becomes init's environment.
        .args([GLIBC_WITHOUT_AVX, OPENSSL_WITHOUT_AVX]);
    Ok((work, command))
}

/// Runs a guest to its end.
fn finish(
    mut command: Command,
    root: &Path,
    ends: (Duration, impl Fn() -> bool),
) -> Result<Output, GuestError> {
    let console = std::fs::File::create(root.join("console"))?;
    command.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
    let child = spawn(command).map_err(|error| match error {
        GuestError::Prepare(error) => not_there(error),
        error => error,
    })?;
    outcome::of(child, root, ends)
}

fn not_there(error: std::io::Error) -> GuestError {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            GuestError::NotInstalled { program: KERNEL, packages: PACKAGES }
        }
        _ => error.into(),
    }
}

/// glibc's own routines in the guest: without the registers that are not kept.
const GLIBC_WITHOUT_AVX: &str = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,\
    -AVX512DQ,-AVX512CD,-AVX_Fast_Unaligned_Load,-AVX2_Usable";
/// libcrypto's (`OPENSSL_ia32cap(3)`): AVX is bit 60 of the first word, AVX2 and AVX-512 are in the second.
const OPENSSL_WITHOUT_AVX: &str = "OPENSSL_ia32cap=~0x1000000000000000:~0xd0230020";

/// Starts `command` under a filter that refuses reading the extended registers of a traced process. A
/// filter holds for the thread that asks for it, and for the processes which that thread starts.
fn spawn(mut command: Command) -> Result<Child, GuestError> {
    let program =
        without_extended_registers().map_err(|error| GuestError::Filter(error.to_string()))?;
    let thread = std::thread::spawn(move || {
        apply_filter(&program).map_err(|error| GuestError::Filter(error.to_string()))?;
        Ok(command.spawn()?)
    });
    thread.join().unwrap_or_else(|_| Err(GuestError::Filter("the thread for it ended".to_owned())))
}

fn without_extended_registers() -> Result<BpfProgram, seccompiler::BackendError> {
    // ptrace(2): PTRACE_GETREGSET with NT_X86_XSTATE (elf.h).
    const PTRACE: i64 = 101;
    const GETREGSET: u64 = 0x4204;
    const XSTATE: u64 = 0x202;
    const ENODEV: u32 = 19;
    let is = |argument, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    };
    let rule = SeccompRule::new(vec![is(0, GETREGSET)?, is(2, XSTATE)?])?;
    SeccompFilter::new(
        [(PTRACE, vec![rule])].into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(ENODEV),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

fn init_script(root: &Path, shared: &Path) -> String {
    let (root, shared) = (root.display(), shared.display());
    format!(
        "#!/bin/bash\n\
         export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         ln -s /proc/self/fd /dev/fd\n\
         mount -t tmpfs tmpfs /run; mkdir -p /run/rig {SHARED}\n\
         mount -t hostfs -o {root} none /run/rig\n\
         mount -t hostfs -o {shared} none {SHARED}\n\
         mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /root; mount -t tmpfs tmpfs /var/tmp\n\
         for m in linear raid0 raid1 raid10 raid456 nbd; do modprobe -d /run/rig/modroot $m; done\n\
         modprobe -d /run/rig/modroot loop max_loop=160\n\
         cd /tmp; bash /run/rig/script > /run/rig/output 2>&1; echo $? > /run/rig/status\n\
         sync; busybox poweroff -f\n"
    )
}

pub(crate) fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

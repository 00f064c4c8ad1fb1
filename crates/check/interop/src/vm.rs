//! Debian's Linux 6.12 under QEMU, for what User Mode Linux has no drivers for: ublk, NVMe over TCP.
//!
//! The machine is emulated in software, so that no virtualisation is needed: it boots in about ten seconds, and what runs in it
//! takes ten to thirty times as long as outside. It is about function, never about figures; batch as much work as possible
//! into one script.
//!
//! The guest sees this machine's root filesystem under a layer that takes its writes and goes with it, so programs built
//! here run there; /dev, /proc, /sys, /run and /tmp are its own. One folder of this machine is writable as [`SHARED`].
//! Nothing in that folder can be a socket or a device of the guest.

use crate::outcome::{self, GuestError, Output};
pub use crate::uml::SHARED;
use crate::uml::make_executable;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Packages that a guest needs, as Debian names them.
pub const PACKAGES: &str = "qemu-system-x86 kmod busybox-static cpio xz-utils zstd";
/// Where `scripts/fetch-vm-kernel` has unpacked the kernel.
const KERNEL: &str = "/var/cache/braid-vm";
/// The program.
const QEMU: &str = "qemu-system-x86_64";
/// Modules without which there is no root filesystem.
const MODULES: [&str; 4] = ["virtio_pci", "9p", "9pnet_virtio", "overlay"];

/// The emulator now and then lets a kernel that patches its own code while it boots run into what it is just writing; of
/// some hundred boots one ends so. How often one is tried.
const BOOTS: u32 = 3;
/// The kernel's last words then.
const PANIC: &[u8] = b"Kernel panic - not syncing";

/// A guest that is to be. Scripts run as root, by bash, in /tmp; `load MODULE [OPTION...]` is a function there that loads a
/// module of the guest's kernel, and the loopback network is up.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Memory in MiB.
    pub memory_mib: u32,
    /// The longest time that it may live.
    pub limit: Duration,
    /// Sockets where vhost-user servers listen, each for a disk of the guest: /dev/vda and so on, once it has loaded
    /// `virtio_blk`.
    pub disks: Vec<PathBuf>,
}

impl Default for Vm {
    fn default() -> Vm {
        Vm { memory_mib: 2048, limit: Duration::from_secs(300), disks: Vec::new() }
    }
}

impl Vm {
    /// Runs `script` in a fresh guest. Folder `shared` of this machine is writable in the guest as [`SHARED`].
    ///
    /// # Errors
    /// See [`GuestError`]; a script that fails is not an error but a status.
    pub fn run(&self, script: &str, shared: &Path) -> Result<Output, GuestError> {
        self.run_while(script, shared, || true)
    }

    /// As [`run`](Vm::run), and stops the guest when it is no longer `wanted`.
    ///
    /// # Errors
    /// See [`GuestError`]; a script that fails is not an error but a status.
    pub fn run_while(
        &self,
        script: &str,
        shared: &Path,
        wanted: impl Fn() -> bool,
    ) -> Result<Output, GuestError> {
        let work = tempfile::Builder::new().prefix("braid-vm.").tempdir_in("/var/tmp")?;
        let root = work.path();
        std::fs::write(root.join("script"), script)?;
        std::fs::write(root.join("enter"), ENTER.replace("KERNEL", KERNEL))?;
        let version = version()?;
        let initrd = initial_files(root, &version)?;
        let mut boots = 1;
        loop {
            let console = std::fs::File::create(root.join("console"))?;
            let mut command = Command::new(QEMU);
            command
                .args(self.machine(root, shared))
                .arg("-kernel")
                .arg(format!("{KERNEL}/boot/vmlinuz-{version}"))
                .arg("-initrd")
                .arg(&initrd)
                .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"])
                .stdin(Stdio::null())
                .stdout(console.try_clone()?)
                .stderr(console);
            let guest = command.spawn().map_err(|error| found(QEMU, error))?;
            // Seldom does a kernel that panics so early end the guest as it is told to.
            let goes_on = || wanted() && !died_booting(root);
            let outcome = outcome::of(guest, root, (self.limit, goes_on));
            if outcome.is_ok() || !died_booting(root) || boots == BOOTS {
                return outcome;
            }
            eprintln!("a guest's kernel died while it booted; boot {boots} of {BOOTS}");
            boots += 1;
        }
    }

    fn machine(&self, root: &Path, shared: &Path) -> Vec<OsString> {
        let memory = format!("{}M", self.memory_mib);
        let mut all: Vec<OsString> = [
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-nographic",
            "-no-reboot",
            "-nic",
            "none",
            "-m",
            &memory,
        ]
        .map(OsString::from)
        .into();
        let mut share = |path: &Path, tag: &str, more: &str| {
            let mut text = OsString::from("local,path=");
            text.push(path);
            text.push(format!(",mount_tag={tag},security_model=none{more}"));
            all.extend(["-virtfs".into(), text]);
        };
        share(Path::new("/"), "hostroot", ",readonly=on,multidevs=remap");
        share(root, "rig", "");
        share(shared, "shared", "");
        if !self.disks.is_empty() {
            // Memory that the servers can map, too.
            let backend = format!("memory-backend-memfd,id=ram,size={memory},share=on");
            all.extend(["-object", &backend, "-machine", "memory-backend=ram"].map(OsString::from));
        }
        for (nr, path) in self.disks.iter().enumerate() {
            let mut socket = OsString::from(format!("socket,id=disk{nr},path="));
            socket.push(path);
            let device = format!("vhost-user-blk-pci,chardev=disk{nr},num-queues=2");
            all.extend(["-chardev".into(), socket, "-device".into(), device.into()]);
        }
        all
    }
}

/// Runs once the guest's root filesystem is there.
const ENTER: &str = r#"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
load() { modprobe -d KERNEL "$@"; }; export -f load
busybox ln -s /proc/self/fd /dev/fd
busybox ip link set lo up
: > /run/rig/begun
cd /tmp; bash /run/rig/script > /run/rig/output 2>&1; echo $? > /run/rig/status
"#;

/// The first program of the guest: modules, and the filesystems of this machine.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /lower /up /root
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in /modules/*.ko; do $b insmod $m; done
p9="-t 9p -o trans=virtio,version=9p2000.L,msize=524288"
$b mount $p9,ro,cache=loose hostroot /lower || $b poweroff -f
$b mount -t tmpfs -o size=50% tmpfs /up; $b mkdir -p /up/u /up/w
$b mount -t overlay -o lowerdir=/lower,upperdir=/up/u,workdir=/up/w overlay /root || $b poweroff -f
for d in proc sys dev run tmp; do $b mount -t tmpfs tmpfs /root/$d; done
$b mount -t proc proc /root/proc; $b mount -t sysfs sys /root/sys; $b mount -t devtmpfs dev /root/dev
$b mkdir -p /root/run/rig /root/run/shared
$b mount $p9 rig /root/run/rig && $b mount $p9 shared /root/run/shared && $b chroot /root /bin/bash /run/rig/enter
$b sync; $b poweroff -f
"#;

fn found(program: &'static str, error: std::io::Error) -> GuestError {
    outcome::found(program, PACKAGES, error)
}

/// The guest's kernel has panicked before it came to the script, so nothing was done yet.
fn died_booting(root: &Path) -> bool {
    let console = || std::fs::read(root.join("console")).unwrap_or_default();
    !root.join("begun").exists() && console().windows(PANIC.len()).any(|text| text == PANIC)
}

/// The version of the kernel that was unpacked.
fn version() -> Result<String, GuestError> {
    let first =
        std::fs::read_dir(format!("{KERNEL}/lib/modules")).ok().and_then(|mut all| all.next());
    let entry = first.ok_or(GuestError::NoKernel(KERNEL))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Makes the archive that the kernel starts with; gives its path.
fn initial_files(root: &Path, version: &str) -> Result<PathBuf, GuestError> {
    let files = root.join("initial");
    std::fs::create_dir_all(files.join("bin"))?;
    std::fs::create_dir_all(files.join("modules"))?;
    std::fs::copy("/usr/bin/busybox", files.join("bin/busybox"))?;
    for (nr, path) in module_files(version)?.iter().enumerate() {
        std::fs::write(files.join(format!("modules/{nr:03}.ko")), unpacked(path)?)?;
    }
    let init = files.join("init");
    std::fs::write(&init, INIT)?;
    make_executable(&init)?;
    let archive = root.join("initrd");
    let names = "bin\nbin/busybox\nmodules\ninit\n".to_owned();
    let modules = std::fs::read_dir(files.join("modules"))?
        .map(|entry| Ok(format!("modules/{}\n", entry?.file_name().to_string_lossy())))
        .collect::<std::io::Result<String>>()?;
    outcome::archive(&files, &(names + &modules), &archive)?;
    Ok(archive)
}

/// The files of [`MODULES`] and of what they need, in the order in which they are loaded.
fn module_files(version: &str) -> Result<Vec<String>, GuestError> {
    let mut all: Vec<String> = Vec::new();
    for module in MODULES {
        let asked = ["-d", KERNEL, "-S", version, "--show-depends", module];
        let said = output("modprobe", &asked)?;
        for path in String::from_utf8_lossy(&said).lines().filter_map(|line| {
            // `builtin NAME` where the kernel has it in itself.
            line.strip_prefix("insmod ").map(|path| path.trim().to_owned())
        }) {
            if !all.contains(&path) {
                all.push(path);
            }
        }
    }
    Ok(all)
}

fn unpacked(path: &str) -> Result<Vec<u8>, GuestError> {
    match path.rsplit('.').next() {
        Some("xz") => output("xz", &["-dc", path]),
        Some("zst") => output("zstd", &["-dc", path]),
        _ => Ok(std::fs::read(path)?),
    }
}

fn output(program: &'static str, arguments: &[&str]) -> Result<Vec<u8>, GuestError> {
    let done = Command::new(program).args(arguments).output();
    let done = done.map_err(|error| found(program, error))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(GuestError::Program { program, said });
    }
    Ok(done.stdout)
}

//! Mounts a file system in memory: `cargo run --release -p braid-fuse --example ram -- DIR [bare]`. With `bare` it is
//! one file, `f`, answered by fuser alone: what the adapter is measured against. It ends with its standard input.

#[path = "../tests/mounted/support/memory.rs"]
#[allow(dead_code)]
mod memory;

use braid_fuse::{Mount, MountOptions};
use fuser::*;
use std::ffi::OsStr;
use std::io::Read;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

const TTL: Duration = Duration::from_secs(86_400);

/// One file of a fixed size.
struct Bare {
    content: Mutex<Vec<u8>>,
}

impl Bare {
    fn attr(&self, ino: u64) -> FileAttr {
        let file = ino == 2;
        FileAttr {
            ino: INodeNo(ino),
            size: if file { self.content.lock().expect("no panics").len() as u64 } else { 0 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Bare {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flag in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_WRITEBACK_CACHE,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(256);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "f" {
            reply.entry(&TTL, &self.attr(2), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino.0));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let Some(size) = size {
            self.content.lock().expect("no panics").resize(size as usize, 0);
        }
        reply.attr(&TTL, &self.attr(ino.0));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let content = self.content.lock().expect("no panics");
        let start = (offset as usize).min(content.len());
        reply.data(&content[start..(start + size as usize).min(content.len())]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut content = self.content.lock().expect("no panics");
        let end = offset as usize + data.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(data);
        reply.written(data.len() as u32);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("a directory to mount at")?;
    let mode = args.next();
    if mode.as_deref() == Some("bare") {
        let mut config = Config::default();
        config.acl = SessionACL::All;
        let bare = Bare { content: Mutex::new(vec![0; 512 << 20]) };
        let session = fuser::spawn_mount(bare, dir, &config)?;
        std::io::stdin().read_to_end(&mut Vec::new())?;
        return Ok(session.umount_and_join()?);
    }
    let shards = braid_shard::threads::start(1)?;
    let mut options = MountOptions::new(dir, "ram");
    if let Some(threads) = mode {
        options.threads = threads.parse()?;
    }
    let remote = shards.remotes()[0].clone();
    let open = |shard: &braid_shard::Shard| memory::Memory::new(shard, 4 << 30);
    let mount = Mount::start(options, remote, open, |ended| eprintln!("{ended:?}"))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mount.unmount().map_err(|(error, _)| error.into())
}

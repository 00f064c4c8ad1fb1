//! A new mount on its shard: its server, and what receives requests for it.

use crate::channel::Channel;
use crate::kernel::Agreed;
use crate::options::MountOptions;
use crate::receive::{Receiver, Uring};
use crate::reply::{Way, Worker};
use crate::serve;
use crate::uring::Entries;
use crate::write_out::WriteOut;
use braid_filesystem::FileSystem;
use braid_shard::Shard;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// A new mount and its agreement with the kernel.
pub(crate) struct Opened {
    /// The device.
    pub channel: Arc<Channel>,
    /// The same, to be waited on.
    pub descriptor: OwnedFd,
    /// The features and limits that the kernel has agreed to.
    pub agreed: Agreed,
    /// Asks the kernel to write files out.
    pub write_out: Arc<WriteOut>,
    /// The part of the queues of an io_uring that this shard serves, and of how many.
    pub queues: (u16, u16),
    /// Is told when no more requests come; dropped when the shard ends before.
    pub ended: std::sync::mpsc::Sender<std::io::Result<()>>,
}

/// Starts to serve a new mount and gives its number.
pub(crate) fn install<F: FileSystem + 'static>(
    shard: &Shard,
    fs: Rc<F>,
    opened: Opened,
    options: &MountOptions,
) -> usize {
    let Opened { channel, descriptor, agreed, write_out, queues, ended } = opened;
    let server = serve::enroll(shard, fs, &agreed, write_out, options);
    let (key, descriptor) = (server.key, Rc::new(descriptor));
    let largest = options.max_write as usize;
    let uring = agreed.over_io_uring.then(|| {
        let entries = Entries::new(shard, Rc::clone(&descriptor), largest, options.memory, queues)?;
        Some(Uring::start(Rc::clone(&server), entries))
    });
    let way = Way { channel, worker: Worker { shard: shard.clone(), descriptor } };
    let uring = uring.flatten().map(|uring| uring as Rc<dyn Any>);
    let receiver = Receiver::new(server, way, largest, uring);
    shard.spawn(async move {
        let result = receiver.run().await;
        // Nobody listens when the mount was undone.
        let _ = ended.send(result);
    });
    key
}

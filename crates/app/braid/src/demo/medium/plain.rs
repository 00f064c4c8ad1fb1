//! The device itself, by braid's own NBD client: files one after the other, several requests in
//! flight.

use crate::demo::sources::{PIECE, Sources, digest};
use crate::demo::stage::Interrupt;
use crate::on_shard;
use anyhow::{Context, Result, anyhow};
use braid_device::{Device, IoSets, Op, Request};
use braid_nbd::Address;
use braid_nbd::client::Client;
use braid_nbd::protocol::{ClientOptions, Headers};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::threads::Shards;
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests in flight.
const DEPTH: usize = 8;
/// Files begin at multiples of this.
const ALIGNMENT: u64 = 4096;

/// See the module's documentation.
pub struct Plain {
    shards: Shards,
}

/// The connection, which lives on the shard.
#[derive(Default)]
struct Connected(RefCell<Option<Rc<Client>>>);

fn connected(shard: &Shard) -> Result<Rc<Client>> {
    shard.local::<Connected>().0.borrow().clone().context("the NBD client is not connected")
}

impl Plain {
    /// Connects to the export `name`.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn open(address: &Address, name: &str) -> Result<Plain> {
        let shards = on_shard::start_shards(1)?;
        let plain = Plain { shards };
        let (address, export) = (address.clone(), name.to_string());
        plain.run(move |shard| async move {
            let options = ClientOptions { export, headers: Headers::Structured };
            let client = Client::connect(&shard, &address, options).await?;
            *shard.local::<Connected>().0.borrow_mut() = Some(client);
            Ok(())
        })?;
        Ok(plain)
    }

    fn home(&self) -> Result<&Remote> {
        self.shards.remotes().first().context("one shard was started")
    }

    fn run<T, F, W>(&self, job: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Shard) -> W + Send + 'static,
        W: Future<Output = Result<T>> + 'static,
    {
        on_shard::run(self.home()?, job)?
    }

    /// Writes all files to the device.
    ///
    /// # Errors
    /// What could not be read or written.
    pub fn copy_in(
        &self,
        sources: &Sources,
        interrupt: &Interrupt,
        arrived: &AtomicU64,
    ) -> Result<()> {
        let mut at = 0;
        let mut batch = Vec::new();
        for source in sources.files() {
            interrupt.go_on()?;
            let failed = || format!("reading {}", source.from.display());
            let mut file = File::open(&source.from).with_context(failed)?;
            let mut left = source.size;
            while left > 0 {
                // `PIECE` bytes at most.
                let count = left.min(PIECE as u64) as usize;
                let mut piece = vec![0; count.next_multiple_of(ALIGNMENT as usize)];
                let (head, _) = piece.split_at_mut(count);
                file.read_exact(head).with_context(failed)?;
                left -= count as u64;
                let next = at + piece.len() as u64;
                batch.push((at, piece));
                at = next;
                arrived.fetch_add(count as u64, Ordering::Relaxed);
                if batch.len() == DEPTH {
                    self.write(std::mem::take(&mut batch))?;
                }
            }
        }
        self.write(batch)
    }

    fn write(&self, batch: Vec<(u64, Vec<u8>)>) -> Result<()> {
        self.run(move |shard| async move {
            let client = connected(&shard)?;
            let mut set = IoSets::new(&shard).start();
            for (tag, (at, bytes)) in (0..).zip(batch) {
                let buf = shard.pool().copy_of(&bytes);
                set.submit(tag, &*client, Request::write(at, buf.freeze(), false));
            }
            for (_, outcome) in set.finish().await {
                outcome.result.context("writing to the array over NBD")?;
            }
            Ok(())
        })
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// When the array cannot.
    pub fn flush(&self) -> Result<()> {
        self.run(|shard| async move {
            let client = connected(&shard)?;
            let outcome = IoSets::new(&shard).one(&*client, Request::flush()).await;
            outcome.result.context("flushing the array over NBD")
        })
    }

    /// Reads all files from the device and compares checksums.
    ///
    /// # Errors
    /// The first file that is not what was copied.
    pub fn compare(&self, sources: &Sources, interrupt: &Interrupt) -> Result<()> {
        let mut at = 0;
        for source in sources.files() {
            interrupt.go_on()?;
            let padded = source.size.next_multiple_of(ALIGNMENT);
            let (mut digest, mut left) = (digest(), source.size);
            for first in (at..at + padded).step_by(PIECE * DEPTH) {
                let end = (at + padded).min(first + (PIECE * DEPTH) as u64);
                for piece in self.read(first, end)? {
                    let count = left.min(piece.len() as u64);
                    digest.update(piece.get(..count as usize).unwrap_or_default());
                    left -= count;
                }
            }
            source.expect(source.size - left, digest.finalize())?;
            at += padded;
        }
        Ok(())
    }

    fn read(&self, from: u64, to: u64) -> Result<Vec<Vec<u8>>> {
        self.run(move |shard| async move {
            let client = connected(&shard)?;
            let info = client.info().clone();
            let mut set = IoSets::new(&shard).start();
            for (tag, at) in (0..).zip((from..to).step_by(PIECE)) {
                let len = (to - at).min(PIECE as u64);
                let request = Request::read(at, shard.pool().get(len as usize));
                request.check(&info).context("reading from the array over NBD")?;
                set.submit(tag, &*client, request);
            }
            let mut outcomes: Vec<_> = set.finish().await.collect();
            outcomes.sort_by_key(|(tag, _)| *tag);
            let mut pieces = Vec::new();
            for (_, outcome) in outcomes {
                outcome.result.context("reading from the array over NBD")?;
                let Op::Read(bufs) = outcome.op else {
                    return Err(anyhow!("a read came back as something else"));
                };
                pieces.push(bufs.iter().flat_map(|buf| buf.iter().copied()).collect());
            }
            Ok(pieces)
        })
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        if let Ok(home) = self.home() {
            // The connection says goodbye when its last handle goes; a shard that is gone has none.
            home.call(|shard| shard.local::<Connected>().0.borrow_mut().take().is_some());
        }
    }
}

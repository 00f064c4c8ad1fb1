//! Questions about texts, from the shard to threads that may wait for the answers.
//!
//! Two threads: what is written may take long, and nobody who only looks waits for it.

use crate::texts::{Listed, Texts};
use braid_filesystem::Errno;
use braid_shard::Shard;
use braid_shard::sync::{Promise, promise};
use slab::Slab;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

/// A question, which sends its answer back by itself.
type Question = Box<dyn FnOnce(&dyn Texts) + Send>;

/// The questions of a shard whose answers are `T`, and have not come.
struct Waiting<T>(RefCell<Slab<Promise<Result<T, Errno>>>>);

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting(RefCell::default())
    }
}

/// See the module's documentation. Dropping it ends the threads, after what they are doing.
pub(crate) struct Desk {
    looks: Sender<Question>,
    orders: Sender<Question>,
}

impl Desk {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system refuses one.
    pub fn start(texts: &Arc<dyn Texts>) -> io::Result<Desk> {
        let (looks, orders) = (clerk("view-looks", texts)?, clerk("view-orders", texts)?);
        Ok(Desk { looks, orders })
    }

    /// [`Texts::list`].
    pub async fn list(&self, shard: &Shard, folder: String) -> Result<Vec<Listed>, Errno> {
        ask(&self.looks, shard, move |texts| texts.list(&folder)).await
    }

    /// [`Texts::read`].
    pub async fn read(&self, shard: &Shard, path: String) -> Result<String, Errno> {
        ask(&self.looks, shard, move |texts| texts.read(&path)).await
    }

    /// [`Texts::write`].
    pub async fn write(&self, shard: &Shard, path: String, text: String) -> Result<(), Errno> {
        ask(&self.orders, shard, move |texts| texts.write(&path, &text)).await
    }
}

async fn ask<T: Send + 'static>(
    to: &Sender<Question>,
    shard: &Shard,
    question: impl FnOnce(&dyn Texts) -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    let (promise, promised) = promise(shard);
    let waiting = shard.local::<Waiting<T>>();
    let (key, from) = (waiting.0.borrow_mut().insert(promise), shard.remote());
    let asked = to.send(Box::new(move |texts| {
        let answer = question(texts);
        // A shard that has ended waits for nothing.
        from.run(move |shard| {
            let waiting = shard.local::<Waiting<T>>().0.borrow_mut().try_remove(key);
            if let Some(promise) = waiting {
                promise.fulfil(answer);
            }
        });
    }));
    if asked.is_err() {
        // The thread has panicked.
        waiting.0.borrow_mut().remove(key);
        return Err(Errno::Io);
    }
    promised.await.unwrap_or(Err(Errno::Io))
}

/// A thread that answers one question after the other.
fn clerk(name: &str, texts: &Arc<dyn Texts>) -> io::Result<Sender<Question>> {
    let (send, asked) = mpsc::channel::<Question>();
    let texts = Arc::clone(texts);
    let work = move || asked.into_iter().for_each(|question| question(&*texts));
    std::thread::Builder::new().name(name.to_string()).spawn(work)?;
    Ok(send)
}

//! Questions about texts, from the shard to threads that may wait for the answers.
//!
//! Two threads: what is written may take long, and nobody who only looks waits for it.

use crate::texts::{Listed, Texts};
use braid_filesystem::Errno;
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use braid_shard::sync::{Promise, promise};
use slab::Slab;
use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

enum Question {
    List(String),
    Read(String),
    Write(String, String),
}

enum Answer {
    List(Vec<Listed>),
    Text(String),
    Done,
}

struct Asked {
    question: Question,
    from: Remote,
    key: usize,
}

/// The questions of a shard that wait for an answer.
#[derive(Default)]
struct Waiting(RefCell<Slab<Promise<Result<Answer, Errno>>>>);

/// See the module's documentation. Dropping it ends the threads, after what they are doing.
#[derive(Clone)]
pub(crate) struct Desk {
    looks: Sender<Asked>,
    orders: Sender<Asked>,
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
        match ask(&self.looks, shard, Question::List(folder)).await? {
            Answer::List(all) => Ok(all),
            _ => Err(Errno::Io),
        }
    }

    /// [`Texts::read`].
    pub async fn read(&self, shard: &Shard, path: String) -> Result<String, Errno> {
        match ask(&self.looks, shard, Question::Read(path)).await? {
            Answer::Text(text) => Ok(text),
            _ => Err(Errno::Io),
        }
    }

    /// [`Texts::write`].
    pub async fn write(&self, shard: &Shard, path: String, text: String) -> Result<(), Errno> {
        ask(&self.orders, shard, Question::Write(path, text)).await.map(|_| ())
    }
}

async fn ask(to: &Sender<Asked>, shard: &Shard, question: Question) -> Result<Answer, Errno> {
    let (promise, promised) = promise(shard);
    let key = shard.local::<Waiting>().0.borrow_mut().insert(promise);
    if to.send(Asked { question, from: shard.remote(), key }).is_err() {
        // The thread has panicked.
        shard.local::<Waiting>().0.borrow_mut().remove(key);
        return Err(Errno::Io);
    }
    promised.await.unwrap_or(Err(Errno::Io))
}

/// A thread that answers one question after the other.
fn clerk(name: &str, texts: &Arc<dyn Texts>) -> io::Result<Sender<Asked>> {
    let (send, asked) = mpsc::channel::<Asked>();
    let texts = Arc::clone(texts);
    let work = move || {
        for Asked { question, from, key } in asked {
            let answer = match question {
                Question::List(folder) => texts.list(&folder).map(Answer::List),
                Question::Read(path) => texts.read(&path).map(Answer::Text),
                Question::Write(path, text) => texts.write(&path, &text).map(|()| Answer::Done),
            };
            // A shard that has ended waits for nothing.
            from.run(move |shard| {
                let waiting = shard.local::<Waiting>().0.borrow_mut().try_remove(key);
                if let Some(promise) = waiting {
                    promise.fulfil(answer);
                }
            });
        }
    };
    std::thread::Builder::new().name(name.to_string()).spawn(work)?;
    Ok(send)
}

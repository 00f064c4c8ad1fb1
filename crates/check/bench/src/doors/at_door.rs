//! A client of a door as a generator of requests: as many under way as there may be, at random places.

use anyhow::{Context, bail};
use braid_array::array::Array;
use braid_device::spec::MemberSpec;
use braid_device::{Device, OpenError, Target, TargetInfo};
use braid_doors::nbd::Nbd;
use braid_doors::nvme::Nvme;
use braid_doors::vhost::VhostUser;
use braid_doors::{Adapter, Answer, Client, Command};
use braid_export::Export;
use braid_layout::Level;
use braid_load::measure::Until;
use braid_load::{Length, Options, Pattern};
use braid_shard::Shard;
use braid_shard::mailbox::Remote;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The doors that have clients here, in the order of the table.
pub const DOORS: [&dyn Adapter; 3] = [&Nbd, &VhostUser, &Nvme];

/// Requests under way: what any client can have.
pub const DEPTH: u32 = 32;
/// The time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Its name in tables.
    pub name: &'static str,
    /// Writes, not reads.
    pub writes: bool,
    /// Bytes of each.
    pub block: u64,
}

impl Load {
    /// The same requests of an array that costs hardly anything itself: of two RAM members of so many bytes.
    pub fn on_an_array(self, member: u64, seconds: f64) -> Options {
        let pattern = if self.writes { Pattern::RandWrite } else { Pattern::RandRead };
        Options {
            length: Length::Seconds(seconds),
            depth: DEPTH,
            ..Options::new(Level::Raid0, vec![MemberSpec::Ram(member); 2], pattern, self.block)
        }
    }
}

/// An array under the name that clients of the doors ask for.
pub struct Named(pub Arc<Array>);

impl Target for Named {
    fn info(&self) -> TargetInfo {
        TargetInfo { name: "disk".to_owned(), ..self.0.info() }
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        self.0.open(shard)
    }
}

/// A door to an array of this process, with a client of it. Dropping it closes the door.
pub struct AtDoor {
    door: Arc<dyn Export>,
    client: Caller,
}

impl AtDoor {
    /// Opens a door to the array in `folder`, and connects to it.
    ///
    /// # Errors
    /// When the door lets nobody in.
    pub fn open(
        adapter: &dyn Adapter,
        folder: &Path,
        shards: &[Remote],
        array: &Arc<Array>,
    ) -> anyhow::Result<AtDoor> {
        let socket = folder.join(adapter.protocol());
        let door = adapter.start(&socket, shards, Arc::new(Named(Arc::clone(array))));
        Ok(AtDoor { door, client: Caller::connect(adapter, folder)? })
    }

    /// Carries out requests of `load`, and gives how many.
    ///
    /// # Errors
    /// When one fails.
    pub fn slice(&mut self, load: Load, until: Until) -> anyhow::Result<u64> {
        self.client.slice(load, until)
    }
}

impl Drop for AtDoor {
    fn drop(&mut self) {
        // Before the shards.
        self.door.stop();
    }
}

/// A client of a door, of whichever process.
pub struct Caller {
    protocol: &'static str,
    client: Box<dyn Client>,
    size: u64,
    places: fastrand::Rng,
}

impl Caller {
    /// Connects to the door of this protocol that has its socket in `folder`.
    ///
    /// # Errors
    /// When nobody is there or lets it in.
    pub fn connect(adapter: &dyn Adapter, folder: &Path) -> anyhow::Result<Caller> {
        let (protocol, socket) = (adapter.protocol(), folder.join(adapter.protocol()));
        let connected = adapter.connect(&socket);
        let mut client = connected
            .with_context(|| format!("connecting to {protocol} at {}", socket.display()))?;
        let size = client.properties().size;
        Ok(Caller { protocol, client, size, places: fastrand::Rng::with_seed(1) })
    }

    /// Carries out requests of `load`, and gives how many.
    ///
    /// # Errors
    /// When one fails.
    pub fn slice(&mut self, load: Load, until: Until) -> anyhow::Result<u64> {
        let begun = Instant::now();
        let is_over = |requests: u64| match until {
            Until::Nanos(nanos) => begun.elapsed() >= Duration::from_nanos(nanos),
            Until::Requests(most) => requests >= most,
        };
        let (mut sent, mut answered) = (0, 0);
        for tag in 0..DEPTH {
            if !is_over(sent) {
                self.send(tag, load);
                sent += 1;
            }
        }
        while answered < sent {
            let tag = match self.client.answer(PATIENCE) {
                Answer::Done(tag, Ok(_)) => tag,
                other => bail!("{} at the door for {}: {other:?}", load.name, self.protocol),
            };
            answered += 1;
            if !is_over(sent) {
                self.send(tag, load);
                sent += 1;
            }
        }
        Ok(answered)
    }

    fn send(&mut self, tag: u32, load: Load) {
        let Load { writes, block, .. } = load;
        let offset = self.places.u64(..self.size / block) * block;
        let command = match writes {
            true => Command::Write { offset, data: vec![tag as u8; block as usize], fua: false },
            false => Command::Read { offset, length: block },
        };
        self.client.submit(tag, command);
    }
}

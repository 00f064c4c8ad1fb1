//! Members that lose power in the middle of their writes: of those under way some get through and others do not, and after
//! them none. A killed process does not do that, since the kernel ends what it was given.

use crate::by_braid::{Outcome, text};
use braid_device::spec::MemberSpec;
use braid_device::{
    Completion, Device, DeviceInfo, Op, OpenError, Opener, Request, Target, TargetInfo,
};
use braid_export::Export;
use braid_nbd::Address;
use braid_nbd::serve::Server;
use braid_shard::Shard;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// Writes after the cut begins of which each gets through or not.
const UNDECIDED: u32 = 12;

/// The power of all members.
pub struct Power {
    state: Mutex<State>,
}

enum State {
    On,
    /// So many more writes are undecided.
    Failing(u32, fastrand::Rng),
    Off,
}

impl Power {
    /// It is on.
    pub fn on() -> Arc<Power> {
        Arc::new(Power { state: Mutex::new(State::On) })
    }

    /// From now on it fails; `seed` decides what gets through.
    pub fn cut(&self, seed: u64) {
        let failing = State::Failing(UNDECIDED, fastrand::Rng::with_seed(seed));
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = failing;
    }

    /// It has begun to fail, or is off.
    pub fn fails(&self) -> bool {
        !matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), State::On)
    }

    /// It is off: nothing is written any more.
    pub fn off(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Off;
    }

    fn is_off(&self) -> bool {
        matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Off)
    }

    fn lets_through(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *state {
            State::On => true,
            State::Off | State::Failing(0, _) => {
                *state = State::Off;
                false
            }
            State::Failing(left, random) => {
                *left -= 1;
                random.bool()
            }
        }
    }
}

/// A member that needs the power.
pub struct Powered {
    inner: Arc<dyn Opener>,
    name: String,
    power: Arc<Power>,
}

impl Powered {
    /// `inner`, exported as `name`.
    pub fn new(inner: Arc<dyn Opener>, name: &str, power: &Arc<Power>) -> Powered {
        Powered { inner, name: name.to_owned(), power: Arc::clone(power) }
    }

    fn device(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        let (inner, power) = (self.inner.open(shard)?, Arc::clone(&self.power));
        Ok(Rc::new(PoweredDevice { inner, power, lost: RefCell::default() }))
    }
}

impl Opener for Powered {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        self.device(shard)
    }
}

struct PoweredDevice {
    inner: Rc<dyn Device>,
    power: Arc<Power>,
    /// What is never answered, as by a machine that is off.
    lost: RefCell<Vec<(Request, Completion)>>,
}

impl Device for PoweredDevice {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, request: Request, done: Completion) {
        let gets_through = match request.op {
            Op::Read(_) => true,
            Op::Flush => !self.power.is_off(),
            _ => self.power.lets_through(),
        };
        match gets_through {
            true => self.inner.submit(request, done),
            false => self.lost.borrow_mut().push((request, done)),
        }
    }
}

/// A member that is served, whose description was read when it was opened first.
struct Served {
    member: Powered,
    device: DeviceInfo,
}

impl Target for Served {
    fn info(&self) -> TargetInfo {
        TargetInfo {
            name: self.member.name.clone(),
            description: String::new(),
            device: self.device.clone(),
            read_only: false,
        }
    }

    fn open(&self, shard: &Shard) -> Result<Rc<dyn Device>, OpenError> {
        self.member.device(shard)
    }
}

/// Serves `members` under the names 0, 1 and so on at `socket`, and says "serving". The power is cut when a line of the
/// standard input says so: `cut SEED`. Ends when the standard input does.
///
/// # Errors
/// What could not be done.
pub fn serve(socket: &Path, members: &[PathBuf]) -> Outcome<()> {
    let shards = braid_shard::threads::start(1).map_err(text)?;
    let power = Power::on();
    let home = shards.remotes().first().cloned().ok_or("no shard")?;
    let mut targets: Vec<Arc<dyn Target>> = Vec::new();
    for (nr, path) in members.iter().enumerate() {
        let inner = MemberSpec::Path(path.clone()).prepare().map_err(text)?;
        let member = Powered::new(Arc::clone(&inner), &nr.to_string(), &power);
        let device = home.call_async(move |shard: &Shard, done| {
            done(inner.open(shard).map(|device| device.info().clone()));
        });
        let device = device.ok_or("the home shard has ended")?.map_err(text)?;
        targets.push(Arc::new(Served { member, device }));
    }
    let addresses = [Address::Unix(socket.to_path_buf())];
    let server = Server::start(shards.remotes(), &addresses, targets, None).map_err(text)?;
    println!("serving");
    for line in std::io::stdin().lines() {
        let line = line.map_err(text)?;
        let seed = line.strip_prefix("cut ").and_then(|seed| seed.parse().ok());
        power.cut(seed.ok_or("the only command is: cut SEED")?);
    }
    server.stop();
    Ok(())
}

//! Contenders that live on shards: generators with their devices, and the bare loop.
//!
//! Owns the way from the measuring thread to the shards and back: what is made on a shard stays
//! there, known by a number; a slice is a message to each shard and an answer from each. The
//! measuring thread must not be a shard's.

use crate::bare::{Bare, rebuild_step};
use crate::error::LoadError;
use crate::generator::{Generator, Stopwatch, Traffic};
use crate::measure::{Contender, Slice, Until};
use crate::offsets::Region;
use crate::options::OptionsError;
use braid_device::{Device, IoError};
use braid_shard::buffer::ALIGN;
use braid_shard::mailbox::Remote;
use braid_shard::{BufMut, Shard};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// Requests of the bare loop between two looks at the clock.
const BARE_BATCH: u64 = 32;

/// What lives on a shard for one contender.
enum Resident {
    Generator(Rc<Generator>),
    Bare(Box<Bare>, u64, bool),
    BareRebuild(Vec<BufMut>, usize, usize, bool),
}

/// By contender.
#[derive(Default)]
struct Residents(RefCell<Vec<(u64, Resident)>>);

fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Something measured on one or more shards at the same time. Dropping it frees what it holds there.
pub struct OnShards {
    name: String,
    worth: Option<f64>,
    id: u64,
    remotes: Vec<Remote>,
}

impl OnShards {
    fn new(name: &str, remotes: &[Remote]) -> OnShards {
        OnShards {
            name: name.to_owned(),
            worth: Some(1.0),
            id: new_id(),
            remotes: remotes.to_vec(),
        }
    }

    /// Says what a byte of it is worth; see [`Contender::worth`].
    pub fn worth(mut self, worth: Option<f64>) -> OnShards {
        self.worth = worth;
        self
    }

    /// A generator on each shard, on the devices that `open` gives there, each with the bytes that
    /// may be touched. Shard `i` of `n` works on the `i`-th part of each and has its share of the
    /// depth.
    pub fn generators<O>(
        name: &str,
        remotes: &[Remote],
        traffic: &Traffic,
        open: O,
    ) -> Result<OnShards, LoadError>
    where
        O: Fn(&Shard, Box<dyn FnOnce(Result<Vec<Place>, LoadError>)>) + Clone + Send + 'static,
    {
        let own = OnShards::new(name, remotes);
        let (id, shards) = (own.id, remotes.len() as u64);
        for (index, remote) in (0..).zip(remotes) {
            let depth = share(traffic.depth, index, shards);
            let traffic = Traffic { depth, seed: traffic.seed + index, ..traffic.clone() };
            let open = open.clone();
            let ready =
                remote.call_async(move |shard, done| {
                    let own = shard.clone();
                    open(
                        shard,
                        Box::new(move |opened| {
                            done(opened.and_then(|places| {
                                settle(&own, id, index, shards, places, traffic)
                            }));
                        }),
                    );
                });
            ready.unwrap_or_else(|| Err(LoadError::ShardGone(name.to_owned())))?;
        }
        Ok(own)
    }

    /// The bare loop on one shard, made there by `make`.
    pub fn bare<M>(
        name: &str,
        remote: &Remote,
        block: u64,
        processor_time: bool,
        make: M,
    ) -> Result<OnShards, LoadError>
    where
        M: FnOnce(&Shard) -> Option<Bare> + Send + 'static,
    {
        let own = OnShards::new(name, std::slice::from_ref(remote));
        let id = own.id;
        let made = remote.call(move |shard| {
            let bare = make(shard)?;
            keep(shard, id, Resident::Bare(Box::new(bare), block, processor_time));
            Some(())
        });
        match made {
            Some(Some(())) => Ok(own),
            Some(None) => Err(OptionsError::TooSmall { size: 0, shards: 1, block }.into()),
            None => Err(LoadError::ShardGone(name.to_owned())),
        }
    }

    /// The bare rebuild of one of `members` members of `size` bytes, `chunk` bytes at a time.
    pub fn bare_rebuild(
        remote: &Remote,
        members: usize,
        size: usize,
        chunk: usize,
        processor_time: bool,
    ) -> Result<OnShards, LoadError> {
        let own = OnShards::new("bare", std::slice::from_ref(remote));
        let id = own.id;
        let chunk = chunk.clamp(ALIGN, size.max(ALIGN));
        let made = remote.call(move |shard| {
            let members = (0..members).map(|_| shard.pool().zeroed(size)).collect();
            keep(shard, id, Resident::BareRebuild(members, 0, chunk, processor_time));
        });
        made.map(|()| own).ok_or(LoadError::ShardGone("bare".to_owned()))
    }
}

/// A device and the bytes of it that may be touched.
pub type Place = (Rc<dyn Device>, Range<u64>);

fn settle(
    shard: &Shard,
    id: u64,
    index: u64,
    shards: u64,
    places: Vec<Place>,
    traffic: Traffic,
) -> Result<(), LoadError> {
    let mut devices = Vec::with_capacity(places.len());
    for (device, place) in places {
        let size = place.end.saturating_sub(place.start);
        let region = Region::share(place, traffic.block, index, shards)
            .ok_or(OptionsError::TooSmall { size, shards: shards as u16, block: traffic.block })?;
        devices.push((device, region));
    }
    keep(shard, id, Resident::Generator(Generator::new(shard, devices, traffic)));
    Ok(())
}

fn keep(shard: &Shard, id: u64, resident: Resident) {
    shard.local::<Residents>().0.borrow_mut().push((id, resident));
}

/// The part of `whole` that the `index`-th of `count` has; at least 1.
pub fn share(whole: u32, index: u64, count: u64) -> u32 {
    let whole = u64::from(whole);
    let own = whole * (index + 1) / count - whole * index / count;
    own.max(1) as u32
}

impl Contender for OnShards {
    fn name(&self) -> &str {
        &self.name
    }

    fn worth(&self) -> Option<f64> {
        self.worth
    }

    fn slice(&mut self, until: Until) -> Result<Slice, LoadError> {
        let (send, receive) = mpsc::channel();
        let shards = self.remotes.len() as u64;
        for (index, remote) in (0..).zip(&self.remotes) {
            let until = match until {
                Until::Nanos(nanos) => Until::Nanos(nanos),
                Until::Requests(requests) => {
                    Until::Requests(requests * (index + 1) / shards - requests * index / shards)
                }
            };
            let (id, send) = (self.id, send.clone());
            remote.run(move |shard| run_slice(shard, id, until, send));
        }
        drop(send);
        let mut sum = Slice::default();
        for _ in &self.remotes {
            let slice = receive
                .recv()
                .map_err(|_| LoadError::ShardGone(self.name.clone()))?
                .map_err(|error| LoadError::Io { contender: self.name.clone(), error })?;
            sum.requests += slice.requests;
            sum.bytes += slice.bytes;
            sum.seconds = sum.seconds.max(slice.seconds);
            match (&mut sum.latency, slice.latency) {
                // Both were made alike, so adding cannot fail.
                (Some(all), Some(one)) => all.add(&one).unwrap_or_default(),
                (all @ None, one) => *all = one,
                (Some(_), None) => {}
            }
        }
        Ok(sum)
    }
}

fn run_slice(shard: &Shard, id: u64, until: Until, send: mpsc::Sender<Result<Slice, IoError>>) {
    let residents = shard.local::<Residents>();
    let mut residents = residents.0.borrow_mut();
    // Not there: the sender is dropped and the receiver knows.
    let Some((_, resident)) = residents.iter_mut().find(|(known, _)| *known == id) else { return };
    match resident {
        Resident::Generator(generator) => {
            let generator = Rc::clone(generator);
            shard.spawn(async move {
                // The measuring thread may have given up; then nobody wants it.
                let _ = send.send(generator.slice(until).await);
            });
        }
        Resident::Bare(bare, block, processor_time) => {
            let block = *block;
            let _ = send.send(Ok(bare_slice(shard, until, *processor_time, || {
                bare.step();
                block
            })));
        }
        Resident::BareRebuild(members, at, chunk, processor_time) => {
            let size = members.first().map_or(0, |member| member.len());
            let _ = send.send(Ok(bare_slice(shard, until, *processor_time, || {
                let end = (*at + *chunk).min(size);
                let bytes = rebuild_step(members, *at..end);
                *at = if end == size { 0 } else { end };
                bytes
            })));
        }
    }
}

fn bare_slice(
    shard: &Shard,
    until: Until,
    processor_time: bool,
    mut step: impl FnMut() -> u64,
) -> Slice {
    let deadline = match until {
        Until::Nanos(nanos) => shard.now().saturating_add(nanos),
        Until::Requests(_) => u64::MAX,
    };
    let clock = Stopwatch::start(shard, processor_time);
    let mut slice = Slice::default();
    loop {
        for _ in 0..BARE_BATCH {
            slice.bytes += step();
            slice.requests += 1;
            if until == Until::Requests(slice.requests) {
                break;
            }
        }
        let ended = match until {
            Until::Nanos(_) => shard.now() >= deadline,
            Until::Requests(requests) => slice.requests >= requests,
        };
        if ended {
            slice.seconds = clock.seconds();
            return slice;
        }
    }
}

impl Drop for OnShards {
    fn drop(&mut self) {
        let id = self.id;
        for remote in &self.remotes {
            // Waits, so that the memory is free again when the next contender asks for some.
            remote.call(move |shard| {
                let residents = shard.local::<Residents>();
                let gone: Vec<_> =
                    residents.0.borrow_mut().extract_if(.., |(known, _)| *known == id).collect();
                drop(gone);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_device::Opener;
    use braid_device::ram::Ram;
    use std::sync::Arc;

    fn traffic(depth: u32) -> Traffic {
        Traffic {
            block: 4096,
            depth,
            reads: 50,
            random: true,
            fua: false,
            flush_every: 0,
            seed: 1,
            payload: 1 << 16,
            latency: true,
            processor_time: false,
        }
    }

    #[test]
    fn depth_and_requests_are_shared_out_and_added_up() {
        assert_eq!((0..3).map(|index| share(8, index, 3)).sum::<u32>(), 8);
        let shards = braid_shard::threads::start(3).unwrap();
        let ram = Arc::new(Ram::new("ram", 1 << 20));
        let mut load =
            OnShards::generators("ram", shards.remotes(), &traffic(8), move |shard, done| {
                let device = ram.open(shard).map_err(LoadError::from);
                done(device.map(|device| vec![(device, 0..1 << 20)]));
            })
            .unwrap();
        let slice = load.slice(Until::Requests(1000)).unwrap();
        assert_eq!((slice.requests, slice.bytes), (1000, 4_096_000));
        assert_eq!(slice.latency.map(|latency| latency.len()), Some(1000));
        assert!(slice.seconds > 0.0);
    }

    #[test]
    fn a_device_that_is_too_small_for_the_shards_is_refused() {
        let shards = braid_shard::threads::start(2).unwrap();
        let ram = Arc::new(Ram::new("ram", 4096));
        let load =
            OnShards::generators("ram", shards.remotes(), &traffic(2), move |shard, done| {
                let device = ram.open(shard).map_err(LoadError::from);
                done(device.map(|device| vec![(device, 0..4096)]));
            });
        assert!(load.err().unwrap().to_string().contains("too small"));
    }

    #[test]
    fn the_bare_rebuild_goes_round_its_members() {
        let shards = braid_shard::threads::start(1).unwrap();
        let remote = &shards.remotes()[0];
        let mut load = OnShards::bare_rebuild(remote, 3, 10 << 12, 3 << 12, false).unwrap();
        // 3 + 3 + 3 + 1 blocks make a round.
        assert_eq!(load.slice(Until::Requests(8)).unwrap().bytes, 20 << 12);
    }
}

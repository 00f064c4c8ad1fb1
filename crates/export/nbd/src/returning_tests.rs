use super::*;
use braid_device::ram::Ram;
use std::collections::VecDeque;

/// A connection to memory that ends when somebody says so.
struct Line {
    info: DeviceInfo,
    ram: Rc<dyn Device>,
    gone: Rc<Cell<bool>>,
    /// The next write or flush is kept until the end of the connection.
    holds: Rc<Cell<bool>>,
    held: RefCell<VecDeque<(Request, Completion)>>,
}

impl Device for Line {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        match (self.gone.get(), &request.op) {
            (true, _) => done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op),
            (_, Op::Write { .. } | Op::Flush) if self.holds.take() => {
                self.held.borrow_mut().push_back((request, done));
            }
            (_, Op::Flush) => done.finish(Ok(()), request.op),
            _ => self.ram.submit(request, done),
        }
    }
}

impl Connected for Line {
    fn is_gone(&self) -> bool {
        self.gone.get()
    }
}

/// An export in memory, to which connections can be made while it is there.
#[derive(Clone)]
struct World {
    shard: Shard,
    ram: Rc<Ram>,
    there: Rc<Cell<bool>>,
    lines: Rc<RefCell<Vec<Rc<Line>>>>,
    holds: Rc<Cell<bool>>,
    has_flush: bool,
}

impl World {
    fn new(has_flush: bool) -> World {
        World {
            shard: Shard::with_ring(0).unwrap(),
            ram: Rc::new(Ram::new("far", 1 << 20)),
            there: Rc::new(Cell::new(true)),
            lines: Rc::default(),
            holds: Rc::default(),
            has_flush,
        }
    }

    fn device(&self) -> Rc<Returning> {
        let world = self.clone();
        Rc::new(Returning::new(&self.shard, move || {
            let ram = world.ram.device();
            let info = DeviceInfo { volatile_cache: world.has_flush, ..ram.info().clone() };
            let gone = Rc::new(Cell::new(!world.there.get()));
            let holds = Rc::clone(&world.holds);
            let line = Rc::new(Line { info, ram, gone, holds, held: RefCell::default() });
            world.lines.borrow_mut().push(Rc::clone(&line));
            line
        }))
    }

    /// All connections end.
    fn end(&self) {
        for line in self.lines.borrow().iter() {
            line.gone.set(true);
            for (request, done) in line.held.take() {
                done.finish(Err(IoError::new(IoErrorKind::Gone)), request.op);
            }
        }
    }

    fn ask(&self, device: &Rc<Returning>, request: Request) -> Result<(), IoErrorKind> {
        let (sets, device) = (IoSets::new(&self.shard), Rc::clone(device));
        let outcome = self.shard.block_on(async move { sets.one(&*device, request).await });
        outcome.result.map_err(|error| error.kind)
    }

    fn write(&self, at: u64, byte: u8, fua: bool) -> Request {
        Request::write(at, self.shard.pool().copy_of(&[byte; 4096]).freeze(), fua)
    }

    fn read(&self, at: u64) -> Request {
        Request::read(at, self.shard.pool().get(4096))
    }
}

const GONE: Result<(), IoErrorKind> = Err(IoErrorKind::Gone);

#[test]
fn an_idle_connection_is_made_again_and_the_request_that_finds_it_gone_succeeds() {
    let world = World::new(true);
    let device = world.device();
    assert_eq!(world.ask(&device, world.write(0, 1, true)), Ok(()));
    assert_eq!(world.ask(&device, world.write(8192, 2, false)), Ok(()));
    assert_eq!(world.ask(&device, Request::flush()), Ok(()));
    for _ in 0..2 {
        world.end();
        assert_eq!(world.ask(&device, world.write(0, 3, true)), Ok(()));
        assert_eq!(world.ask(&device, world.read(8192)), Ok(()));
    }
    assert_eq!(world.lines.borrow().len(), 3);
}

#[test]
fn nobody_is_called_again_while_something_may_be_lost() {
    for what in ["unflushed", "write under way", "flush under way", "no flush"] {
        let world = World::new(what != "no flush");
        let device = world.device();
        assert_eq!(world.ask(&device, world.write(0, 1, true)), Ok(()));
        let under_way = match what {
            "unflushed" => {
                assert_eq!(world.ask(&device, world.write(8192, 2, false)), Ok(()));
                None
            }
            "write under way" => Some(world.write(8192, 2, true)),
            "flush under way" => Some(Request::flush()),
            _ => None,
        };
        if let Some(request) = under_way {
            world.holds.set(true);
            let (sets, own) = (IoSets::new(&world.shard), Rc::clone(&device));
            world.shard.spawn(async move {
                assert!(sets.one(&*own, request).await.result.is_err());
            });
            let shard = world.shard.clone();
            world.shard.block_on(async move { shard.yield_now().await });
            assert!(!world.holds.get(), "{what}");
        }
        world.end();
        for _ in 0..2 {
            assert_eq!(world.ask(&device, world.read(0)), GONE, "{what}");
        }
        assert_eq!(world.lines.borrow().len(), 1, "{what}");
    }
}

#[test]
fn an_export_that_was_written_to_by_others_is_not_used() {
    let world = World::new(true);
    let device = world.device();
    assert_eq!(world.ask(&device, world.read(0)), Ok(()));
    world.ram.memory().write(100, b"other");
    world.end();
    assert_eq!(world.ask(&device, world.write(0, 1, true)), GONE);
    let mut held = [0; 4096];
    world.ram.memory().read(0, &mut held);
    assert_eq!(&held[100..105], b"other");
    // Not even when it is as it was.
    world.ram.memory().write(100, &[0; 5]);
    assert_eq!(world.ask(&device, world.read(0)), GONE);
}

#[test]
fn a_request_waits_for_a_server_that_is_away_and_the_device_outlives_one_that_gave_up() {
    let world = World::new(true);
    let device = world.device();
    assert_eq!(world.ask(&device, world.read(0)), Ok(()));
    world.there.set(false);
    world.end();
    let (there, shard) = (Rc::clone(&world.there), world.shard.clone());
    world.shard.spawn(async move {
        shard.sleep(TRY_FIRST * 4).await;
        there.set(true);
    });
    assert_eq!(world.ask(&device, world.write(4096, 5, true)), Ok(()));
    world.there.set(false);
    world.end();
    device.inner.given_up.set(true);
    assert_eq!(world.ask(&device, world.read(4096)), GONE);
    world.there.set(true);
    // A user that has heard that it is gone may not flush any more.
    let connections = world.lines.borrow().len();
    assert_eq!(world.ask(&device, world.write(4096, 6, false)), GONE);
    assert_eq!(world.ask(&device, Request::flush()), GONE);
    assert_eq!(world.lines.borrow().len(), connections);
    assert_eq!(world.ask(&device, world.write(4096, 7, true)), Ok(()));
    assert_eq!(world.ask(&device, world.write(4096, 8, false)), Ok(()));
}

use super::*;
use crate::protocol::{BlockSizes, Export};
use braid_device::IoErrorKind;
use braid_device::ram::Ram;
use std::cell::RefCell;

const SIZE: u64 = 4 << 20;
const MAXIMUM: u32 = 8192;

/// A server's side of the protocol over memory: refuses what it does not offer, and keeps a log.
struct Strict {
    ram: Rc<dyn Device>,
    info: DeviceInfo,
    features: Features,
    log: RefCell<Vec<String>>,
    /// Requests that touch this byte fail.
    bad: Option<u64>,
}

impl Strict {
    fn new(features: Features, bad: Option<u64>) -> Rc<Strict> {
        let ram = Ram::new("strict", SIZE).device();
        let info = DeviceInfo { logical_block: 1, ..ram.info().clone() };
        Rc::new(Strict { ram, info, features, log: RefCell::default(), bad })
    }

    fn log(&self) -> Vec<String> {
        self.log.take()
    }
}

impl Device for Strict {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, request: Request, done: Completion) {
        let (features, len) = (self.features, request.len());
        let maximum = u64::from(MAXIMUM);
        let (name, offered, durable) = match &request.op {
            Op::Read(_) => ("read", len <= maximum, false),
            Op::Write { fua, .. } => ("write", len <= maximum, *fua),
            Op::Flush => ("flush", features.flush, false),
            Op::Discard { .. } => ("discard", features.trim && len <= CLEARED_MAX, false),
            Op::WriteZeroes { fua, .. } => {
                ("zero", features.write_zeroes && len <= CLEARED_MAX, *fua)
            }
        };
        let fua = if durable { " fua" } else { "" };
        self.log.borrow_mut().push(format!("{name} {len}{fua}"));
        assert!(offered && (!durable || features.fua), "{name} of {len}{fua}");
        let place = request.offset..request.offset + len;
        if self.bad.is_some_and(|bad| place.contains(&bad)) {
            return done.finish(Err(IoError::new(IoErrorKind::Medium)), request.op);
        }
        self.ram.submit(request, done);
    }
}

fn shard() -> Shard {
    Shard::with_ring(0).unwrap()
}

fn ask(shard: &Shard, device: &Rc<Fitted>, request: Request) -> Outcome {
    let (device, sets) = (Rc::clone(device), IoSets::new(shard));
    shard.block_on(async move { sets.one(&*device, request).await })
}

fn offer(features: Features, headers: Headers) -> ServerOffer {
    let block = BlockSizes { maximum: MAXIMUM + 100, ..BlockSizes::default() };
    let (name, description) = ("disk".to_string(), String::new());
    let export = Export { name, description, size: 0, block, features };
    ServerOffer { export, headers }
}

fn over(shard: &Shard, strict: &Rc<Strict>) -> Rc<Fitted> {
    let below = Rc::clone(strict) as Rc<dyn Device>;
    Rc::new(Fitted::new(shard, below, &offer(strict.features, Headers::Structured)))
}

fn everything() -> Features {
    let (flush, fua, trim, write_zeroes) = (true, true, true, true);
    Features { flush, fua, trim, write_zeroes, ..Features::default() }
}

/// Bytes that tell one place from another.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn write(shard: &Shard, offset: u64, lengths: &[usize], fua: bool) -> Request {
    let bytes = pattern(lengths.iter().sum());
    let mut rest = bytes.as_slice();
    let bufs = lengths.iter().map(|length| {
        let (piece, left) = rest.split_at(*length);
        rest = left;
        shard.pool().copy_of(piece).freeze()
    });
    Request { offset, op: Op::Write { bufs: bufs.collect(), fua } }
}

fn read(shard: &Shard, offset: u64, lengths: &[usize]) -> Request {
    let bufs = lengths.iter().map(|length| shard.pool().get(*length)).collect();
    Request { offset, op: Op::Read(bufs) }
}

fn bytes(outcome: Outcome, lengths: &[usize]) -> Vec<u8> {
    assert_eq!(outcome.result, Ok(()));
    let Op::Read(bufs) = outcome.op else { panic!("not the read back") };
    assert_eq!(bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>(), lengths);
    bufs.iter().flat_map(|buf| buf.iter().copied()).collect()
}

#[test]
fn what_the_server_takes_goes_through_as_it_is() {
    let (shard, strict) = (shard(), Strict::new(everything(), None));
    let device = over(&shard, &strict);
    assert_eq!((device.info().logical_block, device.info().size), (512, SIZE));
    assert_eq!(ask(&shard, &device, write(&shard, 0, &[4096, 4096], true)).result, Ok(()));
    let got = bytes(ask(&shard, &device, read(&shard, 0, &[8192])), &[8192]);
    assert_eq!(got, pattern(8192));
    assert_eq!(ask(&shard, &device, Request::flush()).result, Ok(()));
    assert_eq!(strict.log(), ["write 8192 fua", "read 8192", "flush 0"]);
    let beyond = ask(&shard, &device, read(&shard, SIZE, &[512])).result;
    assert_eq!(beyond, Err(IoError::new(IoErrorKind::Invalid)));
    assert!(strict.log().is_empty());
}

#[test]
fn what_is_too_long_is_cut_and_put_together_again() {
    let (shard, strict) = (shard(), Strict::new(everything(), None));
    let device = over(&shard, &strict);
    let lengths = [512, 20480, 4096, 8192, 512];
    let total: usize = lengths.iter().sum();
    assert_eq!(ask(&shard, &device, write(&shard, 1024, &lengths, true)).result, Ok(()));
    assert_eq!(strict.log().len(), 7);
    let other = [24576, total - 24576];
    let got = bytes(ask(&shard, &device, read(&shard, 1024, &other)), &other);
    assert_eq!(got, pattern(total));
    let got = bytes(ask(&shard, &device, read(&shard, 1024, &lengths)), &lengths);
    assert_eq!(got, pattern(total));
}

#[test]
fn what_the_server_lacks_is_done_otherwise() {
    let flush = Features { flush: true, ..Features::default() };
    let (shard, strict) = (shard(), Strict::new(flush, None));
    let device = over(&shard, &strict);
    assert_eq!(ask(&shard, &device, write(&shard, 0, &[8192, 8192], true)).result, Ok(()));
    assert_eq!(strict.log(), ["write 8192", "write 8192", "flush 0"]);
    let op = Op::WriteZeroes { len: 12288, unmap: true, fua: true };
    assert_eq!(ask(&shard, &device, Request { offset: 0, op }).result, Ok(()));
    assert_eq!(strict.log(), ["write 8192", "write 4096", "flush 0"]);
    let op = Op::Discard { len: 4096 };
    assert_eq!(ask(&shard, &device, Request { offset: 0, op }).result, Ok(()));
    assert!(strict.log().is_empty());
    let mut expected = vec![0; 12288];
    expected.extend_from_slice(&pattern(16384)[12288..]);
    assert_eq!(bytes(ask(&shard, &device, read(&shard, 0, &[16384])), &[16384]), expected);

    let strict = Strict::new(Features::default(), None);
    let device = over(&shard, &strict);
    assert_eq!(ask(&shard, &device, write(&shard, 0, &[4096], true)).result, Ok(()));
    assert_eq!(ask(&shard, &device, Request::flush()).result, Ok(()));
    assert_eq!(strict.log(), ["write 4096"]);
}

#[test]
fn an_error_of_one_piece_is_that_of_the_request_and_its_buffers_come_back() {
    let (shard, strict) = (shard(), Strict::new(everything(), Some(20000)));
    let device = over(&shard, &strict);
    let medium = Err(IoError::new(IoErrorKind::Medium));
    let outcome = ask(&shard, &device, read(&shard, 0, &[32768, 512]));
    assert_eq!(outcome.result, medium);
    let Op::Read(bufs) = outcome.op else { panic!("not the read back") };
    assert_eq!(bufs.iter().map(|buf| buf.len()).collect::<Vec<_>>(), [32768, 512]);
    let outcome = ask(&shard, &device, write(&shard, 0, &[32768], true));
    assert_eq!(outcome.result, medium);
    assert!(matches!(outcome.op, Op::Write { bufs, .. } if bufs.len() == 1));
}

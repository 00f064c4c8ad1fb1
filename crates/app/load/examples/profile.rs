//! Runs the array's side of one load alone, for a profiler to watch:
//! `cargo run --release -p braid-load --example profile -- 5 5 randwrite 4096 1000000`
//! (level, members, pattern, block, requests, MiB of a member). Under valgrind, set `BRAID_SIMD=avx2`.

use braid_device::spec::MemberSpec;
use braid_load::{Beside, Length, Options, Pattern, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let level = next("5").parse()?;
    let count: usize = next("5").parse()?;
    let pattern: Pattern = next("randwrite").parse()?;
    let block: u64 = next("4096").parse()?;
    let requests = next("1000000").parse()?;
    let mebibytes: u64 = next("64").parse()?;
    let members = vec![MemberSpec::Ram(mebibytes << 20); count];
    let beside = Beside { raw: false, bare: false, device: false };
    let options = Options {
        length: Length::Requests(requests),
        rounds: 1,
        beside,
        ..Options::new(level, members, pattern, block)
    };
    print!("{}", run(&options)?);
    Ok(())
}

//! The parity kernels against ISA-L's: the same blocks, the same process, in turn.
//!
//! Owns the list of what is compared. Before anything is timed both sides' results are compared byte by
//! byte, so a row says that two equal things were timed. Throughput counts source bytes.

use crate::isal::{Call, Code};
use crate::measure::{self, Spread};
use crate::report::Row;
use anyhow::ensure;
use braid_parity::Stores;
use std::time::Duration;

/// Bytes of the pool that cold blocks come from.
const COLD_POOL: usize = 256 << 20;
/// How long one side of a round takes at least.
const ROUND: Duration = Duration::from_micros(1500);

/// What is computed from the blocks of a stripe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// With `None`, braid chooses how to store.
    Xor(Option<Stores>),
    Pq(Option<Stores>),
    RecoverTwo,
    CopyXor(Stores),
    CopyPq(Stores),
}

/// The two data blocks that RecoverTwo takes as lost.
const LOST: (usize, usize) = (2, 5);

struct Case {
    name: &'static str,
    kernel: Kernel,
    data: usize,
}

const fn case(name: &'static str, kernel: Kernel, data: usize) -> Case {
    Case { name, kernel, data }
}

const CASES: [Case; 5] = [
    case("xor 4+1", Kernel::Xor(None), 4),
    case("xor 8+1", Kernel::Xor(None), 8),
    case("pq 4+2", Kernel::Pq(None), 4),
    case("pq 8+2", Kernel::Pq(None), 8),
    case("recover two of 8+2", Kernel::RecoverTwo, 8),
];

/// The same with streaming stores (ISA-L's always are), for blocks that come from memory.
const STREAMING: [Case; 4] = [
    case("xor 4+1, streaming", Kernel::Xor(Some(Stores::Streaming)), 4),
    case("xor 8+1, streaming", Kernel::Xor(Some(Stores::Streaming)), 8),
    case("pq 4+2, streaming", Kernel::Pq(Some(Stores::Streaming)), 4),
    case("pq 8+2, streaming", Kernel::Pq(Some(Stores::Streaming)), 8),
];

/// With the copy that a full stripe to members in memory needs: ordinary stores for copies that are in the
/// caches, streaming ones for copies that are not.
const COPIES: [(Case, bool); 4] = [
    (case("copy and xor 4+1", Kernel::CopyXor(Stores::Cached), 4), false),
    (case("copy and xor 4+1, streaming", Kernel::CopyXor(Stores::Streaming), 4), true),
    (case("copy and pq 8+2", Kernel::CopyPq(Stores::Cached), 8), false),
    (case("copy and pq 8+2, streaming", Kernel::CopyPq(Stores::Streaming), 8), true),
];

/// Runs all comparisons whose name contains `only`.
pub fn compare(rounds: usize, only: &str) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(only)) {
        for block in [4 << 10, 16 << 10, 64 << 10] {
            rows.push(case.compare(rounds, block, false)?);
        }
        for block in [16 << 10, 64 << 10] {
            rows.push(case.compare(rounds, block, true)?);
        }
    }
    let streaming = STREAMING.iter().map(|case| (case, true));
    for (case, cold) in streaming.chain(COPIES.iter().map(|(case, cold)| (case, *cold))) {
        if case.name.contains(only) {
            for block in [16 << 10, 64 << 10] {
                rows.push(case.compare(rounds, block, cold)?);
            }
        }
    }
    Ok(rows)
}

/// The blocks of one stripe, as slices of a common memory.
struct Stripe<'m> {
    data: Vec<&'m [u8]>,
    /// P, Q if any, then copies or recovered blocks.
    outs: Vec<&'m mut [u8]>,
    /// `data` by exponent; for recovery without those that are lost.
    present: Vec<Option<&'m [u8]>>,
    /// For recovery: P and Q as they are on the members.
    parity: Vec<&'m [u8]>,
}

impl Case {
    /// Blocks that are read, and blocks in all.
    fn blocks(&self) -> (usize, usize) {
        let n = self.data;
        match self.kernel {
            Kernel::Xor(_) => (n, n + 1),
            Kernel::Pq(_) => (n, n + 2),
            Kernel::RecoverTwo => (n + 2, n + 4),
            Kernel::CopyXor(_) => (n, 2 * n + 1),
            Kernel::CopyPq(_) => (n, 2 * n + 2),
        }
    }

    fn stripe<'m>(&self, memory: &'m mut [u8], block: usize) -> Stripe<'m> {
        let (inputs, outputs) = memory.split_at_mut(self.blocks().0 * block);
        let mut data: Vec<&[u8]> = inputs.chunks_exact(block).collect();
        let parity = data.split_off(self.data);
        let mut present: Vec<Option<&[u8]>> = data.iter().copied().map(Some).collect();
        if self.kernel == Kernel::RecoverTwo {
            (present[LOST.0], present[LOST.1]) = (None, None);
        }
        Stripe { data, outs: outputs.chunks_exact_mut(block).collect(), present, parity }
    }

    /// Fills the data blocks, and for recovery P and Q.
    fn fill(&self, memory: &mut [u8], block: usize) {
        for (i, word) in memory.chunks_exact_mut(8).enumerate() {
            let mixed = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
        }
        if self.kernel == Kernel::RecoverTwo {
            let (data, rest) = memory.split_at_mut(self.data * block);
            let data: Vec<Option<&[u8]>> = data.chunks_exact(block).map(Some).collect();
            let (p, rest) = rest.split_at_mut(block);
            braid_parity::pq(&data, p, &mut rest[..block]);
        }
    }

    /// Braid's side: `passes` times over all stripes.
    fn braid(&self, stripes: &mut [Stripe<'_>], passes: usize) -> Duration {
        match self.kernel {
            Kernel::Xor(None) => over(stripes, passes, |stripe| {
                braid_parity::xor(stripe.outs[0], &stripe.data);
            }),
            Kernel::Xor(Some(stores)) => over(stripes, passes, |stripe| {
                braid_parity::xor_with(stripe.outs[0], &stripe.data, stores);
            }),
            Kernel::Pq(Some(stores)) => over(stripes, passes, |stripe| {
                if let [p, q] = &mut stripe.outs[..] {
                    braid_parity::pq_with(&stripe.present, p, q, stores);
                }
            }),
            Kernel::Pq(None) => over(stripes, passes, |stripe| {
                if let [p, q] = &mut stripe.outs[..] {
                    braid_parity::pq(&stripe.present, p, q);
                }
            }),
            Kernel::RecoverTwo => over(stripes, passes, |stripe| {
                if let ([p, q], [x, y]) = (&stripe.parity[..], &mut stripe.outs[..]) {
                    braid_parity::recover_two_data(&stripe.present, LOST.0, LOST.1, p, q, x, y);
                }
            }),
            Kernel::CopyXor(stores) => over(stripes, passes, |stripe| {
                if let Some((p, copies)) = stripe.outs.split_first_mut() {
                    braid_parity::copy_xor(copies, &stripe.data, p, stores);
                }
            }),
            Kernel::CopyPq(stores) => {
                let mut calls: Vec<_> = stripes
                    .iter_mut()
                    .map(|stripe| {
                        let (parity, copies) = stripe.outs.split_at_mut(2);
                        let copies: Vec<_> =
                            copies.iter_mut().map(|copy| Some(&mut **copy)).collect();
                        (copies, &stripe.present, parity)
                    })
                    .collect();
                over(&mut calls, passes, |(copies, data, parity)| {
                    if let [p, q] = &mut parity[..] {
                        braid_parity::copy_pq(copies, data, p, q, stores);
                    }
                })
            }
        }
    }

    /// ISA-L's side of the same.
    fn isal(&self, stripes: &mut [Stripe<'_>], passes: usize) -> Duration {
        if matches!(self.kernel, Kernel::CopyXor(_) | Kernel::CopyPq(_)) {
            return self.isal_with_copies(stripes, passes);
        }
        let mut calls: Vec<Call<'_>> = stripes
            .iter_mut()
            .map(|stripe| {
                let sources = stripe.present.iter().flatten().chain(&stripe.parity).copied();
                Call::new(sources, &mut stripe.outs)
            })
            .collect();
        match self.kernel {
            Kernel::Xor(_) => over(&mut calls, passes, Call::xor),
            Kernel::Pq(_) => over(&mut calls, passes, Call::pq),
            _ => {
                let mut code = Code::recover_two(self.data, LOST.0, LOST.1);
                over(&mut calls, passes, |call| call.encode(&mut code))
            }
        }
    }

    /// A stripe's blocks are copied by the library's memcpy, then ISA-L reads the sources again.
    fn isal_with_copies(&self, stripes: &mut [Stripe<'_>], passes: usize) -> Duration {
        let (inputs, all) = self.blocks();
        let parities = all - 2 * inputs;
        let mut calls: Vec<_> = stripes
            .iter_mut()
            .map(|stripe| {
                let (parity, copies) = stripe.outs.split_at_mut(parities);
                (copies, &stripe.data, Call::new(stripe.data.iter().copied(), parity))
            })
            .collect();
        over(&mut calls, passes, |(copies, data, call)| {
            for (copy, block) in copies.iter_mut().zip(data.iter()) {
                copy.copy_from_slice(block);
            }
            if parities == 1 { call.xor() } else { call.pq() }
        })
    }

    fn rival(&self) -> &'static str {
        match self.kernel {
            Kernel::Xor(_) => "ISA-L xor_gen",
            Kernel::Pq(_) => "ISA-L pq_gen",
            Kernel::RecoverTwo => "ISA-L ec_encode_data",
            Kernel::CopyXor(_) => "memcpy, ISA-L xor_gen",
            Kernel::CopyPq(_) => "memcpy, ISA-L pq_gen",
        }
    }

    fn compare(&self, rounds: usize, block: usize, cold: bool) -> anyhow::Result<Row> {
        let stripe_bytes = self.blocks().1 * block;
        let count = if cold { COLD_POOL / stripe_bytes } else { 1 };
        let mut memory = vec![0; count * stripe_bytes + 4096];
        let start = memory.as_ptr().align_offset(4096);
        let memory = &mut memory[start..][..count * stripe_bytes];
        for stripe in memory.chunks_exact_mut(stripe_bytes) {
            self.fill(stripe, block);
        }
        self.check_equal(&mut memory[..stripe_bytes], block)?;

        let mut first: Vec<Stripe<'_>> = memory
            .chunks_exact_mut(stripe_bytes)
            .map(|memory| self.stripe(memory, block))
            .collect();
        let stripes = std::cell::RefCell::new(&mut first);
        let pair = measure::in_turn(
            rounds,
            count,
            ROUND,
            |passes| self.braid(&mut stripes.borrow_mut(), passes),
            |passes| self.isal(&mut stripes.borrow_mut(), passes),
        );
        // A recovery reads all but the two lost blocks of data and both parities.
        let read = self.data * block;
        let speed = |seconds: Spread| Spread {
            median: read as f64 / seconds.median / 1e9,
            min: read as f64 / seconds.max / 1e9,
            max: read as f64 / seconds.min / 1e9,
        };
        Ok(Row {
            kernel: self.name,
            rival: self.rival(),
            block,
            cold,
            ratio: pair.ratio,
            braid: speed(pair.first),
            isal: speed(pair.second),
        })
    }

    /// Both sides write the same outputs.
    fn check_equal(&self, memory: &mut [u8], block: usize) -> anyhow::Result<()> {
        let outputs = self.blocks().0 * block;
        memory[outputs..].fill(0x11);
        self.braid(&mut [self.stripe(memory, block)], 1);
        let ours = memory[outputs..].to_vec();
        memory[outputs..].fill(0x22);
        self.isal(&mut [self.stripe(memory, block)], 1);
        ensure!(
            ours == memory[outputs..],
            "comparing {} on blocks of {block} bytes: braid ({}) and {} disagree; \
             run `cargo test -p braid-parity`",
            self.name,
            braid_parity::implementation(),
            self.rival()
        );
        Ok(())
    }
}

/// The time of `passes` passes of `work` over all `stripes`.
fn over<T>(stripes: &mut [T], passes: usize, mut work: impl FnMut(&mut T)) -> Duration {
    measure::time(passes, || stripes.iter_mut().for_each(&mut work))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braid_and_isal_agree_on_every_case() {
        let copies = COPIES.iter().map(|(case, _)| case);
        for case in CASES.iter().chain(&STREAMING).chain(copies) {
            for block in [4096, 16 << 10] {
                let mut memory = vec![0; case.blocks().1 * block + 4096];
                let start = memory.as_ptr().align_offset(4096);
                let memory = &mut memory[start..][..case.blocks().1 * block];
                case.fill(memory, block);
                case.check_equal(memory, block).expect("equal outputs");
            }
        }
    }
}

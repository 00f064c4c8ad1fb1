//! Every implementation that this CPU has, against known bytes, against arithmetic on single bytes, and
//! against each other.

use crate::{KernelSet, Stores, available, field, recover};
use proptest::collection::vec;
use proptest::prelude::*;

/// Four bytes from a counter, well mixed: test data that no kernel can get right by accident.
fn mixed(seed: u64) -> u8 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x >> 32) as u8
}

/// Blocks of one length in one allocation, each at its own offset from a 64-byte boundary.
struct Blocks {
    memory: Vec<u8>,
    starts: Vec<usize>,
    len: usize,
}

impl Blocks {
    /// Block `i` begins `shifts[i % shifts.len()]` bytes past a boundary.
    fn new(count: usize, len: usize, shifts: &[usize], seed: u64) -> Self {
        let pitch = len.next_multiple_of(64) + 128;
        let memory: Vec<u8> =
            (0..(count + 1) * pitch).map(|i| mixed(seed ^ ((i as u64) << 20))).collect();
        let base = memory.as_ptr().addr().wrapping_neg() % 64;
        let starts = (0..count).map(|i| base + i * pitch + shifts[i % shifts.len()] % 64).collect();
        Self { memory, starts, len }
    }

    fn get(&self, i: usize) -> &[u8] {
        &self.memory[self.starts[i]..][..self.len]
    }

    fn all(&self) -> Vec<&[u8]> {
        (0..self.starts.len()).map(|i| self.get(i)).collect()
    }

    fn all_mut(&mut self) -> Vec<&mut [u8]> {
        let (mut rest, mut at, mut blocks) = (&mut self.memory[..], 0, Vec::new());
        for &start in &self.starts {
            let (block, tail) = rest.split_at_mut(start - at).1.split_at_mut(self.len);
            blocks.push(block);
            rest = tail;
            at = start + self.len;
        }
        blocks
    }

    /// Everything that is not in a block: no kernel may change it.
    fn surroundings(&self) -> Vec<u8> {
        let mut memory = self.memory.clone();
        for &start in &self.starts {
            memory[start..start + self.len].fill(0);
        }
        memory
    }
}

/// P and Q byte by byte, from the definition.
fn reference_pq(data: &[Option<&[u8]>], len: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    for (exponent, block) in data.iter().enumerate() {
        for (i, &byte) in block.iter().copied().flatten().enumerate() {
            p[i] ^= byte;
            q[i] ^= field::multiply(field::power(exponent as u8), byte);
        }
    }
    (p, q)
}

const STORES: [Stores; 2] = [Stores::Cached, Stores::Streaming];

fn each_set(test: impl Fn(&'static KernelSet)) {
    for set in available() {
        test(set);
    }
}

// ------------------------------------------------------------------------------------ known vectors

/// Byte `i` of block `d`.
fn known_data() -> Vec<Vec<u8>> {
    let byte = |d: u32, i: u32| (i * 7 + d * 31 + 3 * d * i + 5) as u8;
    (0..6).map(|d| (0..19).map(|i| byte(d, i)).collect()).collect()
}

// Computed by a program that shares nothing with this crate (exponent and logarithm tables, in Python).
const KNOWN_P: [u8; 19] = [
    0x21, 0x22, 0x9f, 0xf8, 0x8d, 0xa6, 0xcb, 0x2c, 0x49, 0x3a, 0x47, 0xc0, 0xf5, 0xde, 0x33, 0xf4,
    0x71, 0x32, 0x0f,
];
const KNOWN_Q: [u8; 19] = [
    0x2a, 0x4c, 0x74, 0xb1, 0x3b, 0x2c, 0xb0, 0x0d, 0x5f, 0x07, 0x89, 0x6a, 0x90, 0xa6, 0x34, 0xac,
    0x44, 0xec, 0xe6,
];
/// With blocks 0, 3 and 5 absent.
const KNOWN_GAPPED: ([u8; 19], [u8; 19]) = (
    [
        0xe6, 0xea, 0xc2, 0x92, 0xf6, 0x32, 0x02, 0xf2, 0xc6, 0xea, 0x72, 0x12, 0x26, 0x32, 0xc2,
        0x22, 0x66, 0x2a, 0x22,
    ],
    [
        0xa1, 0xb4, 0xbb, 0x5e, 0x15, 0x20, 0x35, 0xf6, 0xf3, 0xdc, 0xe9, 0x1f, 0x60, 0x15, 0xe6,
        0x64, 0x06, 0xdd, 0xe8,
    ],
);
/// KNOWN_Q after a change from block 0 to block 1 at exponent 200.
const KNOWN_DELTA_Q: [u8; 19] = [
    0x91, 0xd3, 0x17, 0xdf, 0x43, 0xad, 0x57, 0x13, 0xf0, 0xa5, 0x58, 0x9f, 0x09, 0x1b, 0x48, 0xf4,
    0x84, 0x08, 0xac,
];

/// The vector over and over, so that the widest registers are filled and a tail is left.
fn repeated(block: &[u8]) -> Vec<u8> {
    block.repeat(41)
}

#[test]
fn syndromes_are_the_known_ones() {
    let blocks: Vec<Vec<u8>> = known_data().iter().map(|block| repeated(block)).collect();
    let data: Vec<Option<&[u8]>> = blocks.iter().map(|block| Some(&block[..])).collect();
    let mut gapped = data.clone();
    for gap in [0, 3, 5] {
        gapped[gap] = None;
    }
    each_set(|set| {
        let (mut p, mut q) = (repeated(&[0x55; 19]), repeated(&[0xaa; 19]));
        set.pq(&data, &mut p, &mut q, Stores::Cached);
        assert_eq!(p, repeated(&KNOWN_P), "{}", set.name());
        assert_eq!(q, repeated(&KNOWN_Q), "{}", set.name());
        set.pq(&gapped, &mut p, &mut q, Stores::Cached);
        assert_eq!(p, repeated(&KNOWN_GAPPED.0), "{}", set.name());
        assert_eq!(q, repeated(&KNOWN_GAPPED.1), "{}", set.name());
        set.q(&data, &mut q);
        assert_eq!(q, repeated(&KNOWN_Q), "{}", set.name());
        set.delta_q(field::power(200), &blocks[0], &blocks[1], &mut q);
        assert_eq!(q, repeated(&KNOWN_DELTA_Q), "{}", set.name());
    });
}

/// All 65536 products, through the kernel that multiplies.
#[test]
fn every_constant_times_every_byte() {
    let bytes: Vec<u8> = (0..=255).collect();
    let zeros = vec![0; 256];
    each_set(|set| {
        for constant in 0..=255 {
            let mut q = zeros.clone();
            set.delta_q(constant, &zeros, &bytes, &mut q);
            for byte in 0..=255u8 {
                let expected = field::multiply(constant, byte);
                assert_eq!(q[byte as usize], expected, "{}: {constant} * {byte}", set.name());
            }
        }
    });
}

/// Horner's rule over all 255 exponents meets every value in every register lane.
#[test]
fn the_longest_stripe_has_the_right_syndromes() {
    let blocks = Blocks::new(255, 333, &[0, 5, 64], 7);
    let data: Vec<Option<&[u8]>> = blocks.all().into_iter().map(Some).collect();
    let expected = reference_pq(&data, 333);
    each_set(|set| {
        let (mut p, mut q) = (vec![1; 333], vec![2; 333]);
        set.pq(&data, &mut p, &mut q, Stores::Cached);
        assert_eq!((&p, &q), (&expected.0, &expected.1), "{}", set.name());
    });
}

// ----------------------------------------------------------------- all kernels, any size, any alignment

#[derive(Clone, Debug)]
struct Shape {
    count: usize,
    len: usize,
    shifts: Vec<usize>,
    gaps: Vec<bool>,
    seed: u64,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let len = prop_oneof![0..200usize, 200..1100usize, 4000..8400usize];
    let shifts = prop_oneof![Just(vec![0]), vec(0..64usize, 1..8)];
    (1..=20usize, len, shifts, vec(any::<bool>(), 20), any::<u64>())
        .prop_map(|(count, len, shifts, gaps, seed)| Shape { count, len, shifts, gaps, seed })
}

impl Shape {
    fn blocks(&self, more: usize) -> Blocks {
        Blocks::new(self.count + more, self.len, &self.shifts, self.seed)
    }

    fn with_gaps<'a>(&self, blocks: &[&'a [u8]]) -> Vec<Option<&'a [u8]>> {
        blocks.iter().zip(&self.gaps).map(|(&block, &gap)| (!gap).then_some(block)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn xor_sums_its_sources(shape in shapes()) {
        let sources = shape.blocks(0);
        let mut expected = vec![0; shape.len];
        for source in sources.all() {
            for (sum, byte) in expected.iter_mut().zip(source) {
                *sum ^= byte;
            }
        }
        each_set(|set| {
            let mut out = Blocks::new(1, shape.len, &shape.shifts, !shape.seed);
            let (before, around) = (out.get(0).to_vec(), out.surroundings());
            for stores in STORES {
                set.xor(out.all_mut()[0], &sources.all(), stores);
                assert_eq!(out.get(0), expected, "xor, {} {stores:?}", set.name());
            }
            out.all_mut()[0].copy_from_slice(&before);
            set.xor_into(out.all_mut()[0], &sources.all());
            let into: Vec<u8> = before.iter().zip(&expected).map(|(a, b)| a ^ b).collect();
            assert_eq!(out.get(0), into, "xor_into, {}", set.name());
            assert_eq!(out.surroundings(), around, "{}", set.name());
        });
    }

    #[test]
    fn pq_and_q_follow_the_definition(shape in shapes()) {
        let sources = shape.blocks(0);
        let blocks = sources.all();
        for data in [blocks.iter().map(|&block| Some(block)).collect(), shape.with_gaps(&blocks)] {
            let expected = reference_pq(&data, shape.len);
            each_set(|set| {
                let mut outs = Blocks::new(3, shape.len, &shape.shifts, !shape.seed);
                let around = outs.surroundings();
                let [p, q, only_q] = &mut outs.all_mut()[..] else { unreachable!("three blocks") };
                set.q(&data, only_q);
                for stores in STORES {
                    p.fill(0x77);
                    q.fill(0x77);
                    set.pq(&data, p, q, stores);
                    assert_eq!(p, &expected.0, "P, {} {stores:?}", set.name());
                    assert_eq!(q, &expected.1, "Q, {} {stores:?}", set.name());
                }
                assert_eq!(outs.get(2), expected.1, "Q alone, {}", set.name());
                assert_eq!(outs.surroundings(), around, "{}", set.name());
            });
        }
    }

    #[test]
    fn deltas_lead_to_the_syndromes_of_the_new_data(shape in shapes(), which in any::<prop::sample::Index>()) {
        let sources = shape.blocks(1);
        let all = sources.all();
        let which = which.index(shape.count);
        let (new, mut data) = (all[shape.count], shape.with_gaps(&all[..shape.count]));
        data[which] = Some(all[which]);
        let (p, q) = reference_pq(&data, shape.len);
        data[which] = Some(new);
        let expected = reference_pq(&data, shape.len);
        let constant = field::power(which as u8);
        each_set(|set| {
            let mut outs = Blocks::new(5, shape.len, &shape.shifts, !shape.seed);
            let around = outs.surroundings();
            let fill = |outs: &mut Blocks| {
                let contents = [all[which], &p, &q, &p, &q];
                for (out, content) in outs.all_mut().into_iter().zip(contents) {
                    out.copy_from_slice(content);
                }
            };
            let check = |outs: &Blocks, data: &[u8], what: &str| {
                assert_eq!(outs.get(0), data, "{what}: data, {}", set.name());
                assert_eq!(outs.get(1), expected.0, "{what}: P, {}", set.name());
                assert_eq!(outs.get(2), expected.1, "{what}: Q, {}", set.name());
                assert_eq!(outs.surroundings(), around, "{what}, {}", set.name());
            };

            fill(&mut outs);
            let [old, p, q, ..] = &mut outs.all_mut()[..] else { unreachable!("five blocks") };
            set.xor_into(p, &[old, new]);
            set.delta_q(constant, old, new, q);
            check(&outs, all[which], "P and Q apart");

            fill(&mut outs);
            let [old, p, q, ..] = &mut outs.all_mut()[..] else { unreachable!("five blocks") };
            set.delta_pq(constant, old, new, p, q);
            check(&outs, all[which], "P and Q together");

            fill(&mut outs);
            let [old, p, q, p_alone, _] = &mut outs.all_mut()[..] else { unreachable!("five blocks") };
            let mut copy = old.to_vec();
            set.update_p(&mut copy, new, p_alone);
            set.update_pq(constant, old, new, p, q);
            check(&outs, new, "in place");
            assert_eq!(copy, new, "{}", set.name());
            assert_eq!(outs.get(3), expected.0, "P in place, {}", set.name());
        });
    }

    #[test]
    fn full_stripes_are_copied_and_summed(shape in shapes(), missing in vec(any::<bool>(), 20)) {
        let sources = shape.blocks(0);
        let blocks = sources.all();
        let data = shape.with_gaps(&blocks);
        let (p_all, _) = reference_pq(&blocks.iter().map(|&b| Some(b)).collect::<Vec<_>>(), shape.len);
        let expected = reference_pq(&data, shape.len);
        each_set(|set| for stores in STORES {
            let mut outs = shape.blocks(2);
            let around = outs.surroundings();
            let mut refs = outs.all_mut();
            let [p, q] = refs.split_off(shape.count).try_into().expect("two more than `count`");
            for out in refs.iter_mut().map(|out| &mut **out).chain([&mut *p, &mut *q]) {
                out.fill(0x5a);
            }
            set.copy_xor(&mut refs, &blocks, p, stores);
            for (out, block) in refs.iter().zip(&blocks) {
                assert_eq!(out, block, "copy, {} {stores:?}", set.name());
            }
            assert_eq!(p, p_all, "P, {} {stores:?}", set.name());

            for out in refs.iter_mut() {
                out.fill(0x5a);
            }
            let mut dsts: Vec<Option<&mut [u8]>> = refs
                .into_iter()
                .enumerate()
                .map(|(i, out)| (data[i].is_some() && !missing[i]).then_some(out))
                .collect();
            set.copy_pq(&mut dsts, &data, p, q, stores);
            for (i, dst) in dsts.iter().enumerate() {
                if let Some(dst) = dst {
                    assert_eq!(**dst, *blocks[i], "copy, {} {stores:?}", set.name());
                }
            }
            assert_eq!(p, expected.0, "P, {} {stores:?}", set.name());
            assert_eq!(q, expected.1, "Q, {} {stores:?}", set.name());
            for i in (0..shape.count).filter(|&i| data[i].is_none() || missing[i]) {
                assert!(outs.get(i).iter().all(|&byte| byte == 0x5a), "stored into a missing block");
            }
            assert_eq!(outs.surroundings(), around, "{} {stores:?}", set.name());
        });
    }

    #[test]
    fn one_bit_anywhere_is_not_zero(len in 0..1200usize, shift in 0..64usize, at in any::<prop::sample::Index>(), bit in 0..8) {
        // The surroundings are not zero: reading outside the block would show.
        let mut block = Blocks::new(1, len, &[shift], 3);
        block.all_mut()[0].fill(0);
        each_set(|set| assert!(set.is_zero(block.get(0)), "{}", set.name()));
        if len > 0 {
            block.all_mut()[0][at.index(len)] = 1u8 << bit;
            each_set(|set| assert!(!set.is_zero(block.get(0)), "{}", set.name()));
        }
    }
}

// ---------------------------------------------------------------------------------------- recovery

/// Every one and every two of the data blocks, P and Q, for 2 to 16 data blocks.
#[test]
fn any_one_or_two_lost_blocks_come_back() {
    const LEN: usize = 64 * 4 + 64 + 8 + 3;
    for n in 2..=16 {
        let blocks = Blocks::new(n, LEN, &[0, 17, 40], n as u64);
        let data: Vec<Option<&[u8]>> = blocks.all().into_iter().map(Some).collect();
        let (p, q) = reference_pq(&data, LEN);
        each_set(|set| {
            for x in 0..n {
                let mut without_x = data.clone();
                without_x[x] = None;
                let mut out = vec![0xee; LEN];
                let mut known: Vec<&[u8]> = without_x.iter().copied().flatten().collect();
                known.push(&p);
                // x alone, or with Q.
                set.xor(&mut out, &known, Stores::Cached);
                assert_eq!(out, blocks.get(x), "{x} of {n} by P, {}", set.name());
                // x with P.
                out.fill(0xee);
                recover::with_q(set, &without_x, x, &q, &mut out);
                assert_eq!(out, blocks.get(x), "{x} of {n} by Q, {}", set.name());
                // x with y, in either order.
                for y in (0..n).filter(|&y| y != x) {
                    let mut without_both = without_x.clone();
                    without_both[y] = None;
                    let (mut out_x, mut out_y) = (vec![0xee; LEN], vec![0xdd; LEN]);
                    recover::two(set, &without_both, (x, y), &p, &q, (&mut out_x, &mut out_y));
                    assert_eq!(out_x, blocks.get(x), "{x} with {y} of {n}, {}", set.name());
                    assert_eq!(out_y, blocks.get(y), "{y} with {x} of {n}, {}", set.name());
                }
            }
            // P, Q, or both.
            let (mut new_p, mut new_q) = (vec![0xee; LEN], vec![0xdd; LEN]);
            set.pq(&data, &mut new_p, &mut new_q, Stores::Cached);
            assert_eq!((&new_p, &new_q), (&p, &q), "P and Q of {n}, {}", set.name());
        });
    }
}

/// The places that DDF layouts leave empty count as zero in recovery too.
#[test]
fn recovery_respects_gaps() {
    let blocks = Blocks::new(9, 500, &[0], 99);
    let mut data: Vec<Option<&[u8]>> = blocks.all().into_iter().map(Some).collect();
    (data[3], data[8]) = (None, None);
    let (p, q) = reference_pq(&data, 500);
    (data[1], data[6]) = (None, None);
    each_set(|set| {
        let (mut out_x, mut out_y) = (vec![0; 500], vec![0; 500]);
        recover::two(set, &data, (6, 1), &p, &q, (&mut out_x, &mut out_y));
        assert_eq!((&out_x[..], &out_y[..]), (blocks.get(6), blocks.get(1)), "{}", set.name());
    });
}

#[test]
#[should_panic(expected = "to be recovered, yet given")]
fn recovering_a_block_that_is_there_is_refused() {
    let block = [1u8; 8];
    crate::recover_data_with_q(&[Some(&block), None], 0, &block, &mut [0; 8]);
}

#[test]
#[should_panic(expected = "differ in length")]
fn blocks_of_different_lengths_are_refused() {
    crate::xor(&mut [0; 8], &[&[1; 8], &[1; 9]]);
}

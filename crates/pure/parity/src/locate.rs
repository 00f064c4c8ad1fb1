//! Finding the one block of a stripe that is wrong, from P and Q.
//!
//! The caller decides about the repair. Speed does not matter here:
//! only stripes that do not match get here.
//!
//! With S = P ^ P' and T = Q ^ Q', where P' and Q' are computed from the data as it is, one wrong block E shows in
//! each byte that it changed:
//!
//! | wrong | S | T |
//! |---|---|---|
//! | data block i | E | g^i E |
//! | P | E | 0 |
//! | Q | 0 | E |
//!
//! Two wrong blocks look like one only if the ratio of S and T is the same power of g in every byte that
//! differs (H. P. Anvin, "The mathematics of RAID-6", section 4).

use crate::field;

/// The block that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// None: P and Q match the data.
    Nobody,
    /// P, and nothing else.
    P,
    /// Q, and nothing else.
    Q,
    /// The data block with this exponent, and nothing else.
    Data(usize),
    /// More than one block: no single wrong block explains the difference.
    Several,
}

/// Finds the single block that is wrong. `found` are the stored P and Q, `computed` those computed from the
/// data; `in_use` is true for the exponents that belong to a data block.
///
/// # Panics
/// If the blocks differ in length.
pub fn locate(
    found: (&[u8], &[u8]),
    computed: (&[u8], &[u8]),
    in_use: impl Fn(usize) -> bool,
) -> Wrong {
    let len = found.0.len();
    assert!(
        found.1.len() == len && computed.0.len() == len && computed.1.len() == len,
        "blocks of one row have one length"
    );
    let p = found.0.iter().zip(computed.0).map(|(a, b)| a ^ b);
    let q = found.1.iter().zip(computed.1).map(|(a, b)| a ^ b);
    let mut wrong = Wrong::Nobody;
    for (s, t) in p.zip(q) {
        let here = match (s, t) {
            (0, 0) => continue,
            (_, 0) => Wrong::P,
            (0, _) => Wrong::Q,
            (s, t) => {
                let exponent = field::exponent(field::multiply(t, field::inverse(s))).into();
                if in_use(exponent) { Wrong::Data(exponent) } else { Wrong::Several }
            }
        };
        if wrong == Wrong::Nobody {
            wrong = here;
        }
        if here == Wrong::Several || here != wrong {
            return Wrong::Several;
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{pq, xor_into};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A stripe as it is stored: data by exponent (with gaps), P and Q.
    #[derive(Clone, Debug)]
    struct Stripe {
        data: Vec<Option<Vec<u8>>>,
        p: Vec<u8>,
        q: Vec<u8>,
    }

    impl Stripe {
        fn computed(&self, len: usize) -> (Vec<u8>, Vec<u8>) {
            let data: Vec<_> = self.data.iter().map(Option::as_deref).collect();
            let (mut p, mut q) = (vec![0; len], vec![0; len]);
            pq(&data, &mut p, &mut q);
            (p, q)
        }

        fn new(data: Vec<Option<Vec<u8>>>, len: usize) -> Stripe {
            let mut stripe = Stripe { data, p: Vec::new(), q: Vec::new() };
            (stripe.p, stripe.q) = stripe.computed(len);
            stripe
        }

        fn matches(&self) -> bool {
            self.computed(self.p.len()) == (self.p.clone(), self.q.clone())
        }

        fn locate(&self) -> Wrong {
            let (p, q) = self.computed(self.p.len());
            let in_use = |at: usize| self.data.get(at).is_some_and(Option::is_some);
            locate((&self.p, &self.q), (&p, &q), in_use)
        }

        /// Blocks of which the stripe would match if that one alone held something else, by trying all.
        fn by_force(&self) -> Vec<Wrong> {
            let mut all = Vec::new();
            let (p, q) = self.computed(self.p.len());
            if q == self.q && p != self.p {
                all.push(Wrong::P);
            }
            if p == self.p && q != self.q {
                all.push(Wrong::Q);
            }
            for (at, block) in self.data.iter().enumerate() {
                let Some(block) = block else { continue };
                let mut tried = self.clone();
                let fixed: Vec<u8> = (0..block.len())
                    .map(|row| {
                        // The only byte that P allows.
                        block[row] ^ self.p[row] ^ p[row]
                    })
                    .collect();
                tried.data[at] = Some(fixed);
                if tried.matches() && !self.matches() {
                    all.push(Wrong::Data(at));
                }
            }
            all
        }
    }

    fn stripes() -> impl Strategy<Value = Stripe> {
        (1usize..40, 1usize..24).prop_flat_map(|(len, width)| {
            let block = prop::option::weighted(0.8, vec(any::<u8>(), len));
            vec(block, width).prop_map(move |mut data| {
                if data.iter().all(Option::is_none) {
                    data[0] = Some(vec![0x5a; len]);
                }
                Stripe::new(data, len)
            })
        })
    }

    fn spoil(block: &mut [u8], with: &[u8]) {
        let with: Vec<u8> = (0..block.len()).map(|at| with[at % with.len()]).collect();
        xor_into(block, &[&with]);
    }

    proptest! {
        #[test]
        fn one_wrong_block_is_named(stripe in stripes(), who: usize, with in vec(any::<u8>(), 1..40)) {
            let mut spoiled = stripe.clone();
            let (len, width) = (stripe.p.len(), stripe.data.len());
            prop_assume!(with.iter().take(len).any(|byte| *byte != 0));
            let expected = match who % (width + 2) {
                at if at == width => {
                    spoil(&mut spoiled.p, &with);
                    Wrong::P
                }
                at if at > width => {
                    spoil(&mut spoiled.q, &with);
                    Wrong::Q
                }
                at => {
                    prop_assume!(spoiled.data[at].is_some());
                    spoil(spoiled.data[at].as_mut().unwrap(), &with);
                    Wrong::Data(at)
                }
            };
            prop_assert_eq!(stripe.locate(), Wrong::Nobody);
            prop_assert_eq!(spoiled.locate(), expected);
            prop_assert_eq!(spoiled.by_force(), [expected]);
        }

        #[test]
        fn whatever_is_found_is_what_trying_every_block_finds(
            stripe in stripes(),
            errors in vec((any::<usize>(), any::<usize>(), 1u8..), 1..5),
        ) {
            let mut spoiled = stripe.clone();
            let (len, width) = (stripe.p.len(), stripe.data.len());
            for (who, row, with) in errors {
                let block = match who % (width + 2) {
                    at if at == width => &mut spoiled.p,
                    at if at > width => &mut spoiled.q,
                    at => match &mut spoiled.data[at] {
                        Some(block) => block,
                        None => continue,
                    },
                };
                block[row % len] ^= with;
            }
            let found = spoiled.by_force();
            let expected = match (spoiled.matches(), found.as_slice()) {
                (true, _) => Wrong::Nobody,
                (false, [one]) => *one,
                (false, []) => Wrong::Several,
                (false, more) => panic!("one explanation at most: {more:?}"),
            };
            prop_assert_eq!(spoiled.locate(), expected);
        }
    }
}

//! Diffie-Hellman in the groups that DH-HMAC-CHAP names (Base 2.0, section 8.13.5.2; the groups are RFC 7919's), and the
//! challenge that is bound to what was agreed on (8.13.5.4).
//!
//! With a group, somebody who has recorded an exchange cannot try secrets on it. Numbers are big-endian, as long as the prime.

use super::group_primes::{FFDHE2048, FFDHE3072, FFDHE4096};
use super::secret::Hash;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use ring::{digest, hmac};
use std::fmt;
use std::sync::LazyLock;

/// A group; the numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Group {
    /// No Diffie-Hellman.
    Null = 0,
    /// 2048 bits.
    Ffdhe2048 = 1,
    /// 3072 bits.
    Ffdhe3072 = 2,
    /// 4096 bits.
    Ffdhe4096 = 3,
}

impl Group {
    /// Those that a controller agrees to, the one that it likes best first: 3072 bits are as strong as SHA-256, and each
    /// larger group costs about twice as much.
    pub const ALL: [Group; 4] = [Group::Ffdhe3072, Group::Ffdhe4096, Group::Ffdhe2048, Group::Null];

    /// The group with this number.
    #[must_use]
    pub fn of(code: u8) -> Option<Group> {
        Group::ALL.into_iter().find(|group| *group as u8 == code)
    }

    /// Bytes of a value; none without a group.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Group::Null => 0,
            Group::Ffdhe2048 => 256,
            Group::Ffdhe3072 => 384,
            Group::Ffdhe4096 => 512,
        }
    }

    /// Bytes of a private number: at least the bits that RFC 7919 asks for (225, 275 and 325).
    #[must_use]
    pub fn private_bytes(self) -> usize {
        match self {
            Group::Null => 0,
            Group::Ffdhe2048 => 32,
            Group::Ffdhe3072 => 40,
            Group::Ffdhe4096 => 48,
        }
    }

    fn modulus(self) -> Option<&'static BoxedMontyParams> {
        static ALL: LazyLock<[Option<BoxedMontyParams>; 3]> =
            LazyLock::new(|| [FFDHE2048, FFDHE3072, FFDHE4096].map(modulus));
        ALL.get(usize::from(self as u8).checked_sub(1)?)?.as_ref()
    }

    /// `base` to the power of `private`. Takes as long whatever the two are.
    fn power(self, base: BoxedUint, private: &BoxedUint) -> Option<Vec<u8>> {
        let power = BoxedMontyForm::new(base, self.modulus()?).pow(private);
        Some(power.retrieve().to_be_bytes().into_vec())
    }
}

fn modulus(hex: &str) -> Option<BoxedMontyParams> {
    let prime = BoxedUint::from_be_hex(hex, 4 * hex.len() as u32).into_option()?;
    Some(BoxedMontyParams::new(Odd::new(prime).into_option()?))
}

/// A private number and the value that tells nobody what it is. It does not show itself.
#[derive(Clone)]
pub struct KeyPair {
    group: Group,
    private: BoxedUint,
    public: Vec<u8>,
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyPair").field(&self.group).finish()
    }
}

impl KeyPair {
    /// The pair of [`private_bytes`](Group::private_bytes) random bytes, which no other exchange may have. `None` when there
    /// are more of them. Takes about a millisecond of computing.
    #[must_use]
    pub fn new(group: Group, random: &[u8]) -> Option<KeyPair> {
        let private = BoxedUint::from_be_slice(random, group.private_bytes() as u32 * 8).ok()?;
        let public = match group {
            Group::Null => Vec::new(),
            _ => group
                .power(BoxedUint::from_be_slice(&[2], group.bytes() as u32 * 8).ok()?, &private)?,
        };
        Some(KeyPair { group, private, public })
    }

    /// Its group.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// The value for the peer.
    #[must_use]
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// The number that both sides have now, and nobody else; empty without a group. `None` when the peer's value has another
    /// length, or is one of those that give the number away (0, 1, p-1 and what is beyond). Takes about a millisecond.
    #[must_use]
    pub fn agree(&self, theirs: &[u8]) -> Option<Vec<u8>> {
        if theirs.len() != self.group.bytes() {
            return None;
        }
        if self.group == Group::Null {
            return Some(Vec::new());
        }
        let bits = self.group.bytes() as u32 * 8;
        let theirs = BoxedUint::from_be_slice(theirs, bits).ok()?;
        let one = BoxedUint::one_with_precision(bits);
        let largest = self.group.modulus()?.modulus().as_ref().wrapping_sub(&one);
        // Nothing that the peer sends is secret.
        if theirs <= one || theirs >= largest {
            return None;
        }
        self.group.power(theirs, &self.private)
    }
}

/// The challenge that is proved: bound to the number that was agreed on, if one was.
#[must_use]
pub fn bound(hash: Hash, challenge: &[u8], agreed: &[u8]) -> Vec<u8> {
    if agreed.is_empty() {
        return challenge.to_vec();
    }
    let key = digest::digest(hash.digest(), agreed);
    let key = hmac::Key::new(hash.hmac(), key.as_ref());
    hmac::sign(&key, challenge).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUPS: [Group; 3] = [Group::Ffdhe2048, Group::Ffdhe3072, Group::Ffdhe4096];

    fn prime(group: Group) -> BoxedUint {
        group.modulus().unwrap().modulus().as_ref().clone()
    }

    fn small(group: Group, number: u8) -> Vec<u8> {
        let mut bytes = vec![0; group.bytes()];
        bytes[group.bytes() - 1] = number;
        bytes
    }

    #[test]
    fn the_primes_are_those_of_the_rfc() {
        for group in GROUPS {
            let prime = prime(group);
            assert_eq!(prime.bit_width() as usize, group.bytes() * 8);
            // Two is a square in each, as the RFC says, so this is one where the number is a prime. A wrong digit would
            // show.
            let half = prime.shr(1);
            let two = BoxedUint::from_be_slice(&[2], prime.bit_width()).unwrap();
            assert_eq!(group.power(two, &half).unwrap(), small(group, 1));
            assert_eq!(group.modulus().unwrap().modulus().as_ref().to_be_bytes()[..8], [0xff; 8]);
        }
        // Their sums by another program (SHA-256 of the bytes), made with the RFC's formula.
        let sums = [
            "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
            "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
            "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
        ];
        for (group, sum) in GROUPS.into_iter().zip(sums) {
            let bytes = prime(group).to_be_bytes();
            let found = digest::digest(&digest::SHA256, &bytes);
            let found: String = found.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, sum, "{group:?}");
        }
    }

    #[test]
    fn values_and_bound_challenges_are_those_of_another_implementation() {
        // Python's pow, hashlib and hmac: private numbers of bytes 1, 2, 3…, and 7, 8, 9….
        let known = [
            "871334148507b92822a9c8a4dd6711cfbbf436fa0676d988d7ab186051689b4b",
            "e853ffbd051a6e333bb2488469769b4922be26cdbd7ead06cd6c0e2afd74f02306534251ab13a2cd80222e5bf64b7134",
            "611d99867f6ba025f6e7555016f13b7c4800815ace000f0d3763a1d611dd9d58b62d95d138c1771c9188df9dad18c5cb357b6ebb1707f54ee658b010ded97ec5",
        ];
        let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
        for ((group, hash), known) in GROUPS.into_iter().zip(hashes).zip(known) {
            let count = group.private_bytes() as u8;
            let ours: Vec<u8> = (1..=count).collect();
            let theirs: Vec<u8> = (7..7 + count).collect();
            let ours = KeyPair::new(group, &ours).unwrap();
            let theirs = KeyPair::new(group, &theirs).unwrap();
            let agreed = ours.agree(theirs.public()).unwrap();
            assert_eq!(agreed, theirs.agree(ours.public()).unwrap());
            let bound = bound(hash, &vec![0x5a; hash.bytes()], &agreed);
            let found: String = bound.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, known, "{group:?}");
        }
        assert_eq!(bound(Hash::Sha256, &[1; 32], &[]), [1; 32], "nothing to bind it to");
    }

    #[test]
    fn values_that_give_the_number_away_are_refused() {
        for group in GROUPS {
            let pair = KeyPair::new(group, &vec![0x77; group.private_bytes()]).unwrap();
            let prime = prime(group);
            let one = BoxedUint::one_with_precision(prime.bit_width());
            let last = prime.wrapping_sub(&one).to_be_bytes();
            let refused = [small(group, 0), small(group, 1), last.into_vec()];
            let beyond = [prime.to_be_bytes().into_vec(), vec![0xff; group.bytes()]];
            for value in refused.into_iter().chain(beyond) {
                assert_eq!(pair.agree(&value), None);
            }
            assert!(pair.agree(&small(group, 2)).is_some());
            assert_eq!(pair.agree(&small(group, 2)[1..]), None, "too short");
            assert!(KeyPair::new(group, &vec![1; group.private_bytes() + 1]).is_none());
        }
        let null = KeyPair::new(Group::Null, &[]).unwrap();
        assert_eq!((null.agree(&[]), null.agree(&[2])), (Some(Vec::new()), None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        /// Both sides come to the same number, another private number to another, and leading zeros stay.
        #[test]
        fn both_sides_agree(which in 0..3usize, ours: [u8; 32], theirs: [u8; 32]) {
            let group = GROUPS[which];
            let private = |bytes: &[u8; 32]| bytes.repeat(2)[..group.private_bytes()].to_vec();
            prop_assume!(ours != theirs && ours != [0; 32] && theirs != [0; 32]);
            let one = KeyPair::new(group, &private(&ours)).unwrap();
            let other = KeyPair::new(group, &private(&theirs)).unwrap();
            let agreed = one.agree(other.public()).unwrap();
            prop_assert_eq!(agreed.len(), group.bytes());
            prop_assert_eq!(&agreed, &other.agree(one.public()).unwrap());
            prop_assert_ne!(&agreed, &one.agree(one.public()).unwrap());
        }
    }
}

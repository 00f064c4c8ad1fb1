//! Secrets of DH-HMAC-CHAP, in the form that nvme-cli writes them, and the proofs that are made with them (Base 2.0, sections
//! 8.13.5.4 to 8.13.5.7).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use ring::{digest, hmac};
use std::fmt;

/// A hash function; the numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// All of them, the strongest first.
    pub const ALL: [Hash; 3] = [Hash::Sha512, Hash::Sha384, Hash::Sha256];

    /// The hash with this number.
    #[must_use]
    pub fn of(code: u8) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| *hash as u8 == code)
    }

    /// The hash of so many bytes.
    #[must_use]
    pub fn of_bytes(bytes: usize) -> Option<Hash> {
        Hash::ALL.into_iter().find(|hash| hash.bytes() == bytes)
    }

    /// Bytes of a hash.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
            Hash::Sha512 => 64,
        }
    }

    pub(super) fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha384 => &digest::SHA384,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    pub(super) fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha384 => hmac::HMAC_SHA384,
            Hash::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// A text that is no secret. It is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Something else.
    #[error("not a secret of the form DHHC-1:NN:BASE64: as `nvme gen-dhchap-key` writes it")]
    Form,
    /// A hash that is none.
    #[error("its second part must be 00, 01, 02 or 03 (no hash, SHA-256, SHA-384, SHA-512)")]
    Hash,
    /// A secret of another length.
    #[error("it has {0} bytes, and must have 32, 48 or 64")]
    Length(usize),
    /// It was mistyped or cut.
    #[error("its checksum is wrong: it was mistyped or cut; copy it again")]
    Checksum,
}

/// A secret. It does not show itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// Before use it is bound to its owner's name by this.
    hash: Option<Hash>,
    key: Vec<u8>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl std::str::FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Secret, SecretError> {
        let rest = text.strip_prefix("DHHC-1:").and_then(|rest| rest.strip_suffix(':'));
        let (hash, key) = rest.and_then(|rest| rest.split_once(':')).ok_or(SecretError::Form)?;
        let hash = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let bytes = STANDARD.decode(key).map_err(|_| SecretError::Form)?;
        let (key, checksum) = bytes.split_last_chunk::<4>().ok_or(SecretError::Form)?;
        if Hash::of_bytes(key.len()).is_none() {
            return Err(SecretError::Length(key.len()));
        }
        let told = u64::from(u32::from_le_bytes(*checksum));
        if crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, key) != told {
            return Err(SecretError::Checksum);
        }
        Ok(Secret { hash, key: key.to_vec() })
    }
}

/// The side that proves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The host, to the controller.
    Host,
    /// The controller, to the host.
    Controller,
}

/// The subject of a proof.
#[derive(Clone, Copy, Debug)]
pub struct Statement<'a> {
    /// The side that proves that it knows its secret.
    pub prover: Prover,
    /// The hash that was agreed on.
    pub hash: Hash,
    /// The challenge of the other side.
    pub challenge: &'a [u8],
    /// With this number.
    pub sequence: u32,
    /// The number of the exchange.
    pub transaction: u16,
    /// The host's qualified name.
    pub host: &'a str,
    /// The subsystem's.
    pub subsystem: &'a str,
}

impl Secret {
    /// The key, bound to the name of its owner.
    fn key(&self, owner: &str) -> Vec<u8> {
        let Some(hash) = self.hash else { return self.key.clone() };
        let mut bound = hmac::Context::with_key(&hmac::Key::new(hash.hmac(), &self.key));
        bound.update(owner.as_bytes());
        bound.update(b"NVMe-over-Fabrics");
        bound.sign().as_ref().to_vec()
    }

    fn signed(&self, about: &Statement<'_>) -> (hmac::Key, Vec<u8>) {
        let (owner, other, role): (_, _, &[u8]) = match about.prover {
            Prover::Host => (about.host, about.subsystem, b"HostHost"),
            Prover::Controller => (about.subsystem, about.host, b"Controller"),
        };
        let (sequence, transaction) =
            (about.sequence.to_le_bytes(), about.transaction.to_le_bytes());
        // No secure channel follows, and a zero byte stands between the names.
        let parts: [&[u8]; 8] = [
            about.challenge,
            &sequence,
            &transaction,
            &[0],
            role,
            owner.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        (hmac::Key::new(about.hash.hmac(), &self.key(owner)), parts.concat())
    }

    /// The proof that this secret is known.
    #[must_use]
    pub fn prove(&self, about: &Statement<'_>) -> Vec<u8> {
        let (key, message) = self.signed(about);
        hmac::sign(&key, &message).as_ref().to_vec()
    }

    /// True when `response` is that proof. Takes as long whether it is or not.
    #[must_use]
    pub fn verify(&self, about: &Statement<'_>, response: &[u8]) -> bool {
        let (key, message) = self.signed(about);
        hmac::verify(&key, &message, response).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    const HOST: &str = "nqn.2026-01.org.example:host";
    const SUBSYSTEM: &str = "nqn.2014-08.org.nvmexpress:uuid:9a3e956d-c297-4823-a61e-af12985fb029";
    const SECRETS: [&str; 3] = [
        "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "DHHC-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
        "DHHC-1:03:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
    ];

    #[test]
    fn secrets_are_bound_to_names_as_nvme_cli_binds_them() {
        // nvme gen-dhchap-key -m 1 -l 32 -n HOST -s 000102…, and so on.
        let known = [
            "0eb38f088b74fab6555551221abe3dbb2f39a30b7fdfd86deb0da8107240a91d",
            "c255bfa873972559e02db0bcd0b0f6caea806beb36d3e745408fdbea95c84b4c854e3601f345994ba1e5c58496c7d763",
            "4b034faa7e5469027bd120b43b6f206fdf7d4f0984ec9adef477cd81e0b50884c916091a86fab8af9bf6bc48b4f2c60a7d8a1e8500105f23576fddf6cefbe613",
        ];
        for (text, known) in SECRETS.into_iter().zip(known) {
            let secret: Secret = text.parse().unwrap();
            assert_eq!(hex(&secret.key(HOST)), known);
        }
        let plain: Secret = SECRETS[0].replace(":01:", ":00:").parse().unwrap();
        assert_eq!(plain.key(HOST), (0..32).collect::<Vec<u8>>());
    }

    #[test]
    fn proofs_are_those_that_another_implementation_makes() {
        // Made with Python's hmac from the specification's description.
        let known = [
            [
                "a032372d56ab4a3e1c7b323b0adbe99ce8be94e4d6039985c2327e7a9f7a2e88",
                "8a9f14a05f8012c87a8c2ce9ea26efb24e7df8bf06a364274e27b0dc792a3c32",
            ],
            [
                "3d4126289f145e8fb0fd81d670e5be22b4895d8bcc6b1007e20a5f78714b29c3b159173b56583668ceab51607f24c9d4",
                "30e419e262e7ad644afbabf4c8a055c1d99fd9da2bdff1889119a5e077705196e68892b580718df2bb5b2633164f4bd9",
            ],
            [
                "7dc3c1b454b3c60d39b140de1c79fa8a5f1ec2b5431aaf40478c62d53f3803aa8d60750e8f6bedda6758102e274588644e715bb796391d585c3cbec710a39e56",
                "e470e6c95bc472dbe6f990c907d770acb4fe9e3a25ef367a32b3d8429a1c2192b7b971b098fc10a9240d136b6290338970209e494eacc6333877aeaacb5487d8",
            ],
        ];
        let hashes = [Hash::Sha256, Hash::Sha384, Hash::Sha512];
        for ((text, hash), known) in SECRETS.into_iter().zip(hashes).zip(known) {
            let secret: Secret = text.parse().unwrap();
            for (prover, known) in [Prover::Host, Prover::Controller].into_iter().zip(known) {
                let challenge = vec![0x5a; hash.bytes()];
                let about = Statement {
                    prover,
                    hash,
                    challenge: &challenge,
                    sequence: 0x0102_0304,
                    transaction: 0x1122,
                    host: HOST,
                    subsystem: SUBSYSTEM,
                };
                let mut proof = secret.prove(&about);
                assert_eq!(hex(&proof), known);
                assert!(secret.verify(&about, &proof));
                proof[5] ^= 1;
                assert!(!secret.verify(&about, &proof) && !secret.verify(&about, &[]));
            }
        }
    }

    #[test]
    fn texts_that_are_no_secrets_are_told_apart() {
        let good = SECRETS[0];
        for (text, error) in [
            ("", SecretError::Form),
            ("secret", SecretError::Form),
            (&good[..good.len() - 1], SecretError::Form),
            (&good.replace(":01:", ":04:"), SecretError::Hash),
            ("DHHC-1:00:AAECAwQFBgc=:", SecretError::Length(4)),
            ("DHHC-1:00:AAE=:", SecretError::Form),
            (&good.replace("AAEC", "AAED"), SecretError::Checksum),
            (&good.replace("AAEC", "A*EC"), SecretError::Form),
        ] {
            assert_eq!(text.parse::<Secret>(), Err(error), "{text}");
        }
        assert_eq!(format!("{:?}", good.parse::<Secret>()), "Ok(Secret)");
    }
}

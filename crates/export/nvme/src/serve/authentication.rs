//! The proof that a host owes before its connection may be used: the controller's side of DH-HMAC-CHAP.
//!
//! Owns one connection's exchange. Invariant: it has passed only after a right response to a challenge that was made for this
//! exchange, and, where the host wants a proof too, after the host has said that it is content.

use super::limits::HostSecrets;
use crate::protocol::authentication::{Failure, Message};
use crate::protocol::{Group, Hash, KeyPair, Prover, Statement, Status, bound};
use braid_export::pace::Pace;
use braid_shard::Shard;
use ring::rand::{SecureRandom, SystemRandom};

/// The exchange has got this far.
enum Step {
    /// The host speaks first.
    Idle,
    /// The host is to fetch the challenge.
    Challenging(Challenge),
    /// The host is to prove itself.
    Challenged(Challenge),
    /// The host is to fetch the good news, with this proof if it has asked for one.
    Proved(Hash, Option<Vec<u8>>),
    /// The host is to say that it is content.
    Answered,
    /// The host is to fetch the bad news.
    Failing(Failure),
}

struct Challenge {
    hash: Hash,
    sequence: u32,
    value: Vec<u8>,
    keys: KeyPair,
}

/// See the module's documentation.
pub(super) struct Authentication {
    secrets: HostSecrets,
    host: String,
    subsystem: String,
    transaction: u16,
    step: Step,
    passed: bool,
    /// The log has a line about it.
    told: bool,
}

/// The answer to a host that asks.
pub(super) struct Told {
    pub message: Vec<u8>,
    /// The connection ends after it.
    pub last: bool,
}

impl Authentication {
    pub fn new(secrets: HostSecrets, host: &str, subsystem: &str) -> Authentication {
        Authentication {
            secrets,
            host: host.to_owned(),
            subsystem: subsystem.to_owned(),
            transaction: 0,
            step: Step::Idle,
            passed: false,
            told: false,
        }
    }

    /// The host has proved itself.
    pub fn has_passed(&self) -> bool {
        self.passed
    }

    /// A message of the host. True when the connection must end. What is to be computed waits for its turn on the shard.
    pub async fn came(&mut self, shard: &Shard, bytes: &[u8]) -> bool {
        match Message::decode(bytes) {
            Ok(Message::Failure2 { failure, .. }) => {
                let reason = "the host does not accept our proof: is this the controller's secret that it has?";
                self.log(reason, failure);
                return true;
            }
            Ok(message) => {
                if let Err(failure) = self.answer(shard, message).await {
                    self.fail(failure);
                }
            }
            Err(failure) => self.fail(failure),
        }
        false
    }

    async fn answer(&mut self, shard: &Shard, message: Message) -> Result<(), Failure> {
        if let Message::Negotiate { transaction, channel, chap } = message {
            if matches!(self.step, Step::Failing(_)) {
                return Err(Failure::Message);
            }
            self.transaction = transaction;
            let challenge = Pace::compute(shard, || Challenge::answering(channel, chap)).await?;
            self.step = Step::Challenging(challenge);
            return Ok(());
        }
        self.step = match (std::mem::replace(&mut self.step, Step::Idle), message) {
            (
                Step::Challenged(ours),
                Message::Reply { transaction, response, challenge, sequence, value },
            ) => {
                if transaction != self.transaction {
                    return Err(Failure::Payload);
                }
                let agreed = Pace::compute(shard, || ours.keys.agree(&value)).await;
                let agreed = agreed.ok_or(Failure::Payload)?;
                let challenged = bound(ours.hash, &ours.value, &agreed);
                let about = self.statement(Prover::Host, ours.hash, (&challenged, ours.sequence));
                if !self.secrets.host.verify(&about, &response) {
                    return Err(Failure::Failed);
                }
                let proof = match challenge {
                    None => None,
                    Some(value) => {
                        let theirs = bound(ours.hash, &value, &agreed);
                        let about = (&theirs[..], sequence);
                        let Some(secret) = &self.secrets.controller else {
                            let reason = "the host wants a proof from us, and we have no secret for it (--nvme-controller-secret)";
                            self.log(reason, Failure::Failed);
                            return Err(Failure::Failed);
                        };
                        Some(secret.prove(&self.statement(Prover::Controller, ours.hash, about)))
                    }
                };
                Step::Proved(ours.hash, proof)
            }
            (Step::Answered, Message::Success2 { transaction }) => {
                if transaction != self.transaction {
                    return Err(Failure::Payload);
                }
                self.passed = true;
                Step::Idle
            }
            _ => return Err(Failure::Message),
        };
        Ok(())
    }

    fn statement<'a>(
        &'a self,
        prover: Prover,
        hash: Hash,
        (challenge, sequence): (&'a [u8], u32),
    ) -> Statement<'a> {
        Statement {
            prover,
            hash,
            challenge,
            sequence,
            transaction: self.transaction,
            host: &self.host,
            subsystem: &self.subsystem,
        }
    }

    fn fail(&mut self, failure: Failure) {
        let reason = match failure {
            Failure::Failed => "it does not have the secret that --nvme-secret says",
            Failure::Protocol => "it does not know DH-HMAC-CHAP",
            Failure::Concatenation => "it wants a secure channel, which there is not",
            Failure::Hash => "it knows none of SHA-256, SHA-384 and SHA-512",
            Failure::Group => {
                "it knows none of our Diffie-Hellman groups, and does not do without one"
            }
            Failure::Payload => "its message is damaged",
            Failure::Message => "its message may not come now",
        };
        self.log(reason, failure);
        self.passed = false;
        self.step = Step::Failing(failure);
    }

    /// One line for a connection, whatever else goes wrong with it.
    fn log(&mut self, reason: &str, failure: Failure) {
        if !std::mem::replace(&mut self.told, true) {
            let Authentication { host, subsystem, .. } = self;
            tracing::warn!(%host, %subsystem, ?failure, reason, "NVMe host is refused: authentication failed");
        }
    }

    /// The connection has ended.
    pub fn ended(&mut self) {
        if !self.passed {
            self.log("it left before it had proved that it knows its secret", Failure::Failed);
        }
    }

    /// The message that the host asks for, if it has room for so many bytes.
    ///
    /// # Errors
    /// There is none, or less room.
    pub fn asked(&mut self, room: usize) -> Result<Told, Status> {
        let transaction = self.transaction;
        let message = match &self.step {
            Step::Challenging(Challenge { hash, sequence, value, keys }) => Message::Challenge {
                transaction,
                hash: *hash,
                group: keys.group() as u8,
                sequence: *sequence,
                challenge: value.clone(),
                value: keys.public().to_vec(),
            },
            Step::Proved(hash, proof) => {
                Message::Success1 { transaction, hash: *hash, response: proof.clone() }
            }
            Step::Failing(failure) => Message::Failure1 { transaction, failure: *failure },
            Step::Idle | Step::Challenged(_) | Step::Answered => {
                return Err(Status::COMMAND_SEQUENCE);
            }
        };
        let message = message.encode();
        if message.len() > room {
            return Err(Status::INVALID_FIELD);
        }
        let last = matches!(self.step, Step::Failing(_));
        self.step = match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Challenging(challenge) => Step::Challenged(challenge),
            Step::Proved(_, Some(_)) => Step::Answered,
            Step::Proved(_, None) => {
                self.passed = true;
                Step::Idle
            }
            other => other,
        };
        Ok(Told { message, last })
    }
}

impl Challenge {
    /// A challenge by the best hash and the best group that the host knows.
    fn answering(channel: bool, chap: Option<(Vec<u8>, Vec<u8>)>) -> Result<Challenge, Failure> {
        if channel {
            return Err(Failure::Concatenation);
        }
        let (hashes, groups) = chap.ok_or(Failure::Protocol)?;
        let known = Hash::ALL.into_iter().find(|hash| hashes.contains(&(*hash as u8)));
        let hash = known.ok_or(Failure::Hash)?;
        let known = Group::ALL.into_iter().find(|group| groups.contains(&(*group as u8)));
        let group = known.ok_or(Failure::Group)?;
        let (random, mut sequence) = (SystemRandom::new(), [0; 4]);
        let (mut value, mut private) = (vec![0; hash.bytes()], vec![0; group.private_bytes()]);
        // Without random numbers nobody comes in.
        let drawn = random.fill(&mut value).and_then(|()| random.fill(&mut sequence));
        drawn.and_then(|()| random.fill(&mut private)).map_err(|_| Failure::Failed)?;
        let keys = KeyPair::new(group, &private).ok_or(Failure::Failed)?;
        // Zero would mean something else.
        Ok(Challenge { hash, sequence: u32::from_le_bytes(sequence).max(1), value, keys })
    }
}

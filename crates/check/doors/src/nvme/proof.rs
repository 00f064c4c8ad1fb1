//! The host's side of DH-HMAC-CHAP.

use super::host::Link;
use super::subsystem;
use braid_nvme::protocol::authentication::{Message, SECURITY_PROTOCOL};
use braid_nvme::protocol::{
    Command, Group, KeyPair, Prover, Secret, Sgl, Statement, Status, admin, bound,
};

/// The number of the exchange.
pub const TRANSACTION: u16 = 0x1234;

/// A host that proves its name.
#[derive(Clone, Copy)]
pub struct Host<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its secret, as text.
    pub secret: &'a str,
    /// The controller's.
    pub controllers: &'a str,
    /// The groups that it knows, and the one that the controller must choose of them.
    pub groups: (&'a [u8], Group),
}

/// A command of an authentication: 5 to send, 6 to receive so many bytes.
pub fn authentication(link: &mut Link, kind: u8, bytes: u32) -> Command {
    Command::of(admin::FABRICS, link.id(), 0)
        .with(4, &[kind])
        .with(41, &SECURITY_PROTOCOL)
        .with(44, &bytes.to_le_bytes())
}

/// Sends bytes as a message.
pub fn send_bytes(link: &mut Link, bytes: &[u8]) -> Status {
    let length = bytes.len() as u32;
    let command = authentication(link, 5, length).with_data(Sgl::InCapsule(0, length));
    link.ask(&command, bytes).unwrap().0.status
}

/// Sends a message.
///
/// # Panics
/// When the command fails.
pub fn send(link: &mut Link, message: &Message) {
    assert_eq!(send_bytes(link, &message.encode()), Status::SUCCESS);
}

/// The controller's next message.
///
/// # Errors
/// The status of the command.
pub fn receive(link: &mut Link) -> Result<Message, Status> {
    let command = authentication(link, 6, 4096).with_data(Sgl::Transport(4096));
    let (completion, data) = link.ask(&command, &[]).unwrap();
    match completion.status {
        Status::SUCCESS => Ok(Message::decode(&data).unwrap()),
        refused => Err(refused),
    }
}

/// The first message of a host that knows these.
#[must_use]
pub fn negotiate(hashes: &[u8], groups: &[u8]) -> Message {
    let chap = Some((hashes.to_vec(), groups.to_vec()));
    Message::Negotiate { transaction: TRANSACTION, channel: false, chap }
}

/// Proves the host's name; gives the controller's answer, in which it must have proved its own where it was sent a
/// `challenge`.
///
/// # Panics
/// When the controller does anything else than to let the host in or to refuse it.
pub fn prove(link: &mut Link, host: &Host<'_>, challenge: Option<Vec<u8>>) -> Message {
    let (groups, taken) = host.groups;
    send(link, &negotiate(&[1, 2], groups));
    let Ok(Message::Challenge { transaction, hash, group, sequence, challenge: theirs, value }) =
        receive(link)
    else {
        panic!("no challenge")
    };
    // The strongest hash.
    assert_eq!((transaction, hash.bytes(), group), (TRANSACTION, 48, taken as u8));
    let keys = KeyPair::new(taken, &vec![0x35; taken.private_bytes()]).unwrap();
    let agreed = keys.agree(&value).unwrap();
    let theirs = bound(hash, &theirs, &agreed);
    let subsystem = subsystem();
    let about = Statement {
        prover: Prover::Host,
        hash,
        challenge: &theirs,
        sequence,
        transaction,
        host: host.name,
        subsystem: &subsystem,
    };
    let secret: Secret = host.secret.parse().unwrap();
    let response = secret.prove(&about);
    let value = keys.public().to_vec();
    let ours = challenge.clone();
    send(link, &Message::Reply { transaction, response, challenge: ours, sequence: 9, value });
    let answer = receive(link).unwrap();
    if let (Message::Success1 { response: Some(response), .. }, Some(challenge)) =
        (&answer, &challenge)
    {
        let theirs: Secret = host.controllers.parse().unwrap();
        let prover = Prover::Controller;
        let challenge = &bound(hash, challenge, &agreed);
        assert!(theirs.verify(&Statement { prover, challenge, sequence: 9, ..about }, response));
    }
    answer
}

//! The client against a server that sends a structured reply in strange chunks.

#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

use braid_device::{IoErrorKind, IoSets, Op, Request as DeviceRequest};
use braid_nbd::Address;
use braid_nbd::client::Client;
use braid_nbd::protocol::constants::*;
use braid_nbd::protocol::{
    BlockSizes, ClientOptions, Export, ExportTable, Features, Headers, ServerHandshake,
    ServerHandshakeStep, TlsOffer,
};
use braid_shard::threads::start;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

fn chunk(last: bool, cookie: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
    let flags = if last { REPLY_FLAG_DONE } else { 0 };
    [
        &STRUCTURED_REPLY_MAGIC.to_be_bytes()[..],
        &flags.to_be_bytes(),
        &REPLY_TYPE_OFFSET_DATA.to_be_bytes(),
        cookie,
        &(data.len() as u32 + 8).to_be_bytes(),
        &offset.to_be_bytes(),
        data,
    ]
    .concat()
}

/// Answers one read with chunks at these offsets, each of 512 bytes; gives the read's result and what came.
fn read_in(offsets: &'static [u64], length: usize) -> (Result<(), IoErrorKind>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let block = BlockSizes { minimum: 1, ..BlockSizes::default() };
        let features = Features::default();
        let (name, description) = ("disk".into(), String::new());
        let export = Export { name, description, size: 1 << 20, block, features };
        let exports = ExportTable::new(vec![export], None).unwrap();
        let mut out = Vec::new();
        let mut handshake = ServerHandshake::new(TlsOffer::Off, &mut out);
        loop {
            socket.write_all(&out).unwrap();
            out.clear();
            let mut input = [0; 1];
            socket.read_exact(&mut input).unwrap();
            let step = handshake.step(&exports, &mut &input[..], &mut out).unwrap();
            if let ServerHandshakeStep::Transmission(_) = step {
                socket.write_all(&out).unwrap();
                break;
            }
        }
        let mut request = [0; REQUEST_BYTES];
        socket.read_exact(&mut request).unwrap();
        for (number, offset) in offsets.iter().enumerate() {
            let last = number + 1 == offsets.len();
            let data = [number as u8 + 1; 512];
            // The client may have gone by the last one.
            let _ = socket.write_all(&chunk(last, &request[8..16], *offset, &data));
        }
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let shards = start(1).unwrap();
    let came = shards.remotes()[0].call_async(move |shard, give| {
        let shard = shard.clone();
        shard.clone().spawn(async move {
            let options = ClientOptions { export: "disk".into(), headers: Headers::Structured };
            let client = Client::connect(&shard, &Address::Unix(path), options).await.unwrap();
            let mut buf = shard.pool().get(length);
            buf.fill(0xee);
            let read = DeviceRequest::read(0, buf);
            let outcome = IoSets::new(&shard).one(&*client, read).await;
            let Op::Read(bufs) = outcome.op else { panic!("not the read back") };
            let bytes = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
            give((outcome.result.map_err(|error| error.kind), bytes));
        });
    });
    server.join().unwrap();
    came.unwrap()
}

#[test]
fn chunks_in_any_order_make_the_whole() {
    let (result, bytes) = read_in(&[1024, 0, 512], 1536);
    assert_eq!(result, Ok(()));
    assert_eq!(bytes, [[2; 512], [3; 512], [1; 512]].concat());
}

#[test]
fn chunks_over_each_other_do_not_stand_for_a_gap() {
    // The lengths add up, but the last 512 bytes never came.
    assert_eq!(read_in(&[0, 512, 512], 1536).0, Err(IoErrorKind::Gone));
    assert_eq!(read_in(&[0, 256, 1024], 1536).0, Err(IoErrorKind::Gone));
}

#[test]
fn a_gap_is_an_error() {
    assert_eq!(read_in(&[0, 1024], 1536).0, Err(IoErrorKind::Medium));
}

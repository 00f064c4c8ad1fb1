//! `braid grow`: a bitmap for a running array, or none any more.

use super::done::say_done;
use crate::cli::Grow;
use crate::client::Client;
use crate::protocol::Request;
use crate::wanted::array::BitmapPlace;
use anyhow::{Result, bail};
use std::process::ExitCode;

pub fn run(options: Grow) -> Result<ExitCode> {
    let internal = options.bitmap == BitmapPlace::Internal;
    if !internal && options.bitmap_chunk.is_some() {
        bail!("--bitmap none and --bitmap-chunk contradict each other; leave one out");
    }
    let mut client = Client::connect(&options.control.path())?;
    let request = Request::Bitmap { array: options.name, internal, chunk: options.bitmap_chunk };
    say_done(&client.order(&request)?, options.json)
}

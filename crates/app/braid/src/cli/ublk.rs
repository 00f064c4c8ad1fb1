//! Arrays as block devices of this machine.

use braid_ublk::{Limits, Place};
use clap::Args;
use std::str::FromStr;

/// Which array gets a device, and with which number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkPlace(Place);

impl FromStr for UblkPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<UblkPlace, String> {
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number)),
            None => (text, None),
        };
        let number = number.map(str::parse::<u32>).transpose();
        let number = number.ok().filter(|number| number.is_none_or(|number| number <= NUMBER_MAX));
        let Some(number) = number.filter(|number| number.is_none() || !name.is_empty()) else {
            return Err("write --ublk for all arrays, --ublk=NAME for one, or --ublk=NAME=N for /dev/ublkbN".into());
        };
        let target = (!name.is_empty()).then(|| name.to_string());
        Ok(UblkPlace(Place { target, number }))
    }
}

/// Numbers that a device can have: the kernel's minors have 20 bits.
const NUMBER_MAX: u32 = (1 << 20) - 1;

/// See the module's documentation.
#[derive(Clone, Debug, Args)]
pub struct Ublk {
    /// Make each array a block device of this machine, /dev/ublkbN and /dev/braid/NAME; with =NAME only that one (may be
    /// given several times), with =NAME=N as /dev/ublkbN. The device outlives a server that is killed: the next one takes it
    /// back. Needs root and the kernel's module ublk_drv, Linux 6.5 or later.
    #[arg(long, value_name = "NAME[=N]", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub ublk: Vec<UblkPlace>,
    /// Memory for the payloads of all these devices together, at least 8M for each shard.
    #[arg(long, value_name = "SIZE", default_value = "256M", requires = "ublk", value_parser = memory)]
    ublk_memory: u64,
}

impl Ublk {
    /// The server's form of the limits.
    pub fn limits(&self) -> Limits {
        Limits { memory: self.ublk_memory, ..Limits::default() }
    }

    /// The server's form of the places.
    pub fn places(&self) -> Vec<Place> {
        self.ublk.iter().map(|place| place.0.clone()).collect()
    }
}

fn memory(text: &str) -> Result<u64, String> {
    braid_device::spec::parse_size(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_for_all_arrays_or_one_and_may_have_a_number() {
        let place = |text: &str| text.parse::<UblkPlace>();
        let of = |target: Option<&str>, number| {
            Ok(UblkPlace(Place { target: target.map(str::to_string), number }))
        };
        assert_eq!(place(""), of(None, None));
        assert_eq!(place("data"), of(Some("data"), None));
        assert_eq!(place("data=7"), of(Some("data"), Some(7)));
        for wrong in ["=7", "data=", "data=x", "data=-1", "data=1048576", "a=1=2"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}

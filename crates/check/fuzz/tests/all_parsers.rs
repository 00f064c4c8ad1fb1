//! Every parser holds for a fixed number of bad inputs, and the harness finds what does not hold.
//!
//! One test only: what a parser allocates is counted for the whole process.

// Helpers of the test too: unwrapping says that it has failed.
#![allow(clippy::unwrap_used)]

use braid_fuzz::corpus;
use braid_fuzz::mutate::{Field, le};
use braid_fuzz::run::{Settings, fuzz, replay};
use braid_fuzz::targets::{ALL, Target, Verdict};

/// Inputs for each parser: seconds, in the profile `checked`.
const INPUTS: u64 = if cfg!(debug_assertions) { 20_000 } else { 50_000 };

fn settings(inputs: u64) -> Settings {
    Settings { inputs, seed: 1, budget: true, current: None }
}

#[test]
fn no_input_breaks_a_parser_and_a_broken_parser_is_found() {
    for target in ALL {
        for input in corpus::read(target.name).unwrap() {
            let verdict = replay(target, &input);
            assert!(verdict.is_ok(), "{}: {verdict:?}", target.name);
        }
        let report = fuzz(target, &settings(INPUTS)).unwrap();
        assert!(report.failure.is_none(), "{}: {:?}", target.name, report.failure);
        assert!(report.done >= INPUTS / target.slowness, "{}: {}", target.name, report.done);
        // Deep code is reached only by inputs that are taken for good.
        let accepted = report.accepted;
        assert!(accepted * 20 > report.done, "{}: {accepted} accepted", target.name);
    }
    a_panic_is_found_and_replays();
    what_does_not_hold_is_found();
    memory_without_bound_is_found();
}

const CHUNKSIZE: &[Field] = &[le(52, 4)];

/// A parser of the bitmap's corpus.
fn planted(run: fn(&[u8]) -> Result<Verdict, String>) -> Target {
    Target {
        name: "bitmap",
        what: "planted",
        fields: CHUNKSIZE,
        fix: |_| {},
        run,
        memory: 1 << 20,
        peak: 8 << 30,
        slowness: 1,
    }
}

fn a_panic_is_found_and_replays() {
    let target = planted(|input| {
        assert!(input.get(52..56) != Some(&[0xff; 4]), "planted");
        Ok(Verdict::Refused)
    });
    let failure = fuzz(&target, &settings(INPUTS)).unwrap().failure.unwrap();
    assert_eq!(failure.why, "panicked: planted");
    assert!(replay(&target, &failure.input).is_err());
    let again = fuzz(&target, &settings(INPUTS)).unwrap().failure.unwrap();
    assert_eq!((again.number, again.input), (failure.number, failure.input));
}

fn what_does_not_hold_is_found() {
    let target =
        planted(
            |input| if input.len() < 100 { Err("short".into()) } else { Ok(Verdict::Accepted) },
        );
    assert_eq!(fuzz(&target, &settings(INPUTS)).unwrap().failure.unwrap().why, "short");
}

fn memory_without_bound_is_found() {
    let target = planted(|input| {
        let size = input.get(52..56).map_or(0, |len| u32::from_le_bytes(len.try_into().unwrap()));
        let room: Vec<u8> = Vec::with_capacity(size as usize);
        Ok(if room.capacity() > 0 { Verdict::Accepted } else { Verdict::Refused })
    });
    let failure = fuzz(&target, &settings(INPUTS)).unwrap().failure.unwrap();
    assert!(failure.why.starts_with("allocated"), "{}", failure.why);
}

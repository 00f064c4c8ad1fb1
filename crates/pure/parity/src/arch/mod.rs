//! The kernels for each kind of CPU, and the choice among them.
//!
//! All `unsafe` of this crate is here. The module does not know the algorithm of its caller (see `recover`).
//! Invariant: a `&KernelSet` is handed out only if this CPU has its instructions, and its methods call a kernel only
//! after checking that all blocks have the same length; so the methods are safe.
//!
//! `set` has the table of kernels and the macros that fill it, `generic` their bodies; each other file is an instruction
//! set.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod generic;
#[cfg(target_arch = "x86_64")]
mod gfni;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod set;
mod stores;

use std::sync::OnceLock;

pub use set::KernelSet;
pub use stores::Stores;

/// The values of `BRAID_SIMD`, as text for a message.
const NAMES: &str = "scalar, avx2, gfni, avx512, avx512-gfni or neon";

/// Every implementation that this CPU can run, in order of preference. The last is always `scalar`.
pub fn available() -> Vec<&'static KernelSet> {
    let mut sets = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2");
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        let gfni = is_x86_feature_detected!("gfni");
        if avx512 && gfni {
            sets.push(&gfni::wide::SET);
        }
        if avx512 {
            sets.push(&avx512::SET);
        }
        if avx2 && gfni {
            sets.push(&gfni::SET);
        }
        if avx2 {
            sets.push(&avx2::SET);
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        sets.push(&neon::SET);
    }
    sets.push(&scalar::SET);
    sets
}

/// The implementation in use, and a warning if `BRAID_SIMD` requested one that cannot be used.
struct Selection {
    set: &'static KernelSet,
    warning: Option<String>,
}

fn selection() -> &'static Selection {
    static SELECTION: OnceLock<Selection> = OnceLock::new();
    SELECTION.get_or_init(|| {
        let request = std::env::var_os("BRAID_SIMD");
        select(request.as_deref().map(|request| request.to_string_lossy()).as_deref(), &available())
    })
}

fn select(request: Option<&str>, available: &[&'static KernelSet]) -> Selection {
    let best = available.first().copied().unwrap_or(&scalar::SET);
    let Some(request) = request.filter(|request| !request.is_empty()) else {
        return Selection { set: best, warning: None };
    };
    if let Some(set) = available.iter().find(|set| set.name == request) {
        return Selection { set, warning: None };
    }
    let problem = if NAMES.split([',', ' ']).any(|name| name == request) {
        "this CPU does not have these instructions"
    } else {
        "there is no such implementation"
    };
    let warning = format!(
        "choosing parity kernels: BRAID_SIMD={request}: {problem}; using {}; \
         set BRAID_SIMD to {NAMES}, or unset it for the best the CPU has",
        best.name
    );
    Selection { set: best, warning: Some(warning) }
}

/// The implementation in use. The first call chooses it, and it never changes.
#[inline]
pub(crate) fn selected() -> &'static KernelSet {
    selection().set
}

/// A message for the user if the implementation that `BRAID_SIMD` requests cannot be used; else `None`.
pub fn override_warning() -> Option<&'static str> {
    selection().warning.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_available_implementation_can_be_asked_for() {
        let sets = available();
        for set in &sets {
            let selection = select(Some(set.name()), &sets);
            assert_eq!((selection.set.name(), selection.warning), (set.name(), None));
        }
    }

    #[test]
    fn no_request_means_the_best_without_a_warning() {
        let sets = available();
        for request in [None, Some("")] {
            let selection = select(request, &sets);
            assert_eq!((selection.set.name(), selection.warning), (sets[0].name(), None));
        }
    }

    #[test]
    fn a_request_that_cannot_be_met_is_reported() {
        let selection = select(Some("mmx"), &available());
        assert_eq!(selection.set.name(), available()[0].name());
        assert!(selection.warning.is_some_and(|text| text.contains("no such implementation")));

        let selection = select(Some("avx512-gfni"), &[&scalar::SET]);
        assert_eq!(selection.set.name(), "scalar");
        assert!(selection.warning.is_some_and(|text| text.contains("does not have")));
    }
}

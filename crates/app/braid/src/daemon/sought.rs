//! The things that a server looks for: members that were absent, busy or damaged, and arrays that wait for them.

use super::grouping::Trouble;
use super::starting::How;
use crate::members::Member;
use crate::scanning::Scanner;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// See the module's documentation.
pub struct Sought {
    /// Members that could not be used, and why.
    pub troubles: Vec<Trouble>,
    /// Members of arrays that wait for others.
    pub waiting: Vec<Member>,
    /// The way in which arrays are started.
    pub how: How,
    /// The configuration, whose arrays are looked for.
    pub configuration: Option<PathBuf>,
    /// Looks at devices.
    pub scanner: Scanner,
    /// An array that waits is started as it is after so long; `None`: never.
    pub degraded_after: Option<Duration>,
    /// Since when the members that wait are the ones they are.
    pub since: Instant,
    /// When the devices of the configuration were last looked at.
    pub scanned: Option<Instant>,
}

impl Sought {
    /// Nothing is sought yet.
    pub fn new(how: How) -> Sought {
        Sought {
            troubles: Vec::new(),
            waiting: Vec::new(),
            how,
            configuration: None,
            scanner: Scanner::default(),
            degraded_after: None,
            since: Instant::now(),
            scanned: None,
        }
    }
}

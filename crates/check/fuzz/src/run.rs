//! The loop: makes inputs, runs them, and keeps the first that fails.

use crate::mutate::{MAX_LEN, mutate};
use crate::targets::{Target, Verdict};
use crate::{allocated, corpus, hold_at_most};
use anyhow::{Context, Result};
use fastrand::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Bytes that an input may make a parser allocate for each byte of its length.
const BUDGET_PER_BYTE: usize = 256;
/// An input that takes longer is taken for one that never ends, on a machine that is busy with other things, too.
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// Of so many inputs one gets no right checksums: the checks before them are input too.
const UNFIXED: u32 = 10;

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many inputs; of a slow target fewer, but all that are kept.
    pub inputs: u64,
    /// Decides them.
    pub seed: u64,
    /// Check what is allocated. The count is the process's, so nothing else may run beside it.
    pub budget: bool,
    /// Write each input here before it runs.
    pub current: Option<PathBuf>,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// Inputs that were run.
    pub done: u64,
    /// Of those, how many the parser took for good.
    pub accepted: u64,
    /// Time for all.
    pub elapsed: Duration,
    /// Time of the slowest.
    pub slowest: Duration,
    /// The first input that failed; the run ended with it.
    pub failure: Option<Failure>,
}

/// An input that failed.
#[derive(Debug)]
pub struct Failure {
    /// Its number in the run.
    pub number: u64,
    /// Its bytes.
    pub input: Vec<u8>,
    /// What went wrong.
    pub why: String,
}

/// Runs a target: first the corpus as it is, then changed inputs.
///
/// # Errors
/// A corpus that cannot be read, or a current input that cannot be written. An input that fails is no error
/// but in the report.
pub fn fuzz(target: &Target, settings: &Settings) -> Result<Report> {
    let corpus = corpus::read(target.name)?;
    let mut rng = Rng::with_seed(settings.seed);
    let mut report = Report {
        done: 0,
        accepted: 0,
        elapsed: Duration::ZERO,
        slowest: Duration::ZERO,
        failure: None,
    };
    let mut input = Vec::with_capacity(2 * MAX_LEN);
    let quiet = QuietPanics::begin();
    let watched = Watched::begin(target.name, settings.seed);
    let started = Instant::now();
    let inputs = settings.inputs.div_ceil(target.slowness.max(1)).max(corpus.len() as u64);
    while report.done < inputs {
        make(target, &corpus, report.done, &mut input, &mut rng);
        if let Some(path) = &settings.current {
            std::fs::write(path, &input)
                .with_context(|| format!("writing the current input to {}", path.display()))?;
        }
        let before = Instant::now();
        watched.next(report.done);
        let result = run_one(target, &input, settings.budget);
        report.slowest = report.slowest.max(before.elapsed());
        report.done += 1;
        match result {
            Ok(Verdict::Accepted) => report.accepted += 1,
            Ok(Verdict::Refused) => {}
            Err(why) => {
                let number = report.done - 1;
                report.failure = Some(Failure { number, input, why });
                break;
            }
        }
    }
    report.elapsed = started.elapsed();
    drop((watched, quiet));
    Ok(report)
}

/// Runs one input, with all checks.
///
/// # Errors
/// What went wrong.
pub fn replay(target: &Target, input: &[u8]) -> Result<Verdict, String> {
    run_one(target, input, true)
}

fn make(target: &Target, corpus: &[Vec<u8>], number: u64, input: &mut Vec<u8>, rng: &mut Rng) {
    input.clear();
    let kept = usize::try_from(number).ok().and_then(|number| corpus.get(number));
    if let Some(kept) = kept {
        input.extend_from_slice(kept);
        return;
    }
    // `corpus::read` gives at least one.
    if let Some(kept) = rng.choice(corpus) {
        input.extend_from_slice(kept);
    }
    mutate(input, corpus, target.fields, rng);
    if rng.u32(0..UNFIXED) != 0 {
        (target.fix)(input);
    }
}

fn run_one(target: &Target, input: &[u8], budget: bool) -> Result<Verdict, String> {
    let before = allocated();
    if budget {
        hold_at_most(Some(target.peak));
    }
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    hold_at_most(None);
    let used = allocated() - before;
    let verdict = match result {
        Ok(verdict) => verdict?,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            return Err(format!("panicked: {}", text.unwrap_or("(no message)")));
        }
    };
    let most = target.memory + BUDGET_PER_BYTE * input.len();
    if budget && used > most {
        return Err(format!(
            "allocated {used} bytes for {} of input, more than {most}",
            input.len()
        ));
    }
    Ok(verdict)
}

/// Ends the process when one input takes too long: there is no other way out of a loop.
struct Watched {
    input: Arc<AtomicU64>,
    ended: mpsc::Sender<()>,
}

impl Watched {
    fn begin(target: &'static str, seed: u64) -> Watched {
        let input = Arc::new(AtomicU64::new(0));
        let (ended, end) = mpsc::channel();
        let current = Arc::clone(&input);
        std::thread::spawn(move || {
            let mut last = u64::MAX;
            // An error of another kind: the run has ended.
            while let Err(mpsc::RecvTimeoutError::Timeout) = end.recv_timeout(ENDS_WITHIN) {
                let now = current.load(Ordering::Relaxed);
                if now == last {
                    eprintln!(
                        "braid-fuzz: {target}: input {now} of seed {seed} has not ended after {} s; \
                         run it again with --write-each",
                        ENDS_WITHIN.as_secs()
                    );
                    std::process::abort();
                }
                last = now;
            }
        });
        Watched { input, ended }
    }

    fn next(&self, number: u64) {
        self.input.store(number, Ordering::Relaxed);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The thread may have gone already.
        let _ = self.ended.send(());
    }
}

type Hook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Sync + Send + 'static>;

/// A panic is a finding and is reported once, not also by the standard hook.
struct QuietPanics(Option<Hook>);

impl QuietPanics {
    fn begin() -> QuietPanics {
        let old = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        QuietPanics(Some(old))
    }
}

impl Drop for QuietPanics {
    fn drop(&mut self) {
        if let (Some(hook), false) = (self.0.take(), std::thread::panicking()) {
            std::panic::set_hook(hook);
        }
    }
}

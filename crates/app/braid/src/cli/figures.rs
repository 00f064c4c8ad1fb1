//! The verbs that show figures of running arrays, and where metrics are served.

use super::common::{Control, EXIT_CODES};
use braid_control::http::server::Place;
use clap::Args;
use std::time::Duration;

/// Show what a running array has done, and how: requests, plans, cache, every layer down to the members.
#[derive(Debug, Args)]
#[command(
    long_about = "Show what a running array has done since it was started, and how: requests, the pieces and \
    plans of writes, what they read and write on the members, the stripe cache, every layer down to the members.\n\n\
    At every layer it tells how many requests came and how many I/Os were left after merging, their mean sizes, the mean \
    number under way (aqu-sz) and the latencies that 50, 99 and 99.9 % did not exceed. Arrays that are members of \
    others are shown below them.\n\n\
    With --interval, what it did in each interval, per second, until interrupted.",
    after_help = EXIT_CODES
)]
pub struct Stat {
    /// The array: its name or UUID. Without it, all that are not below another.
    pub name: Option<String>,
    /// Show rates of every so many seconds.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<Duration>,
    /// End after so many intervals.
    #[arg(short, long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Show how many requests of which sizes there were, at every layer.
    #[arg(long, conflicts_with = "json")]
    pub sizes: bool,
    /// Answer in JSON; one line for each interval.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Show requests, queues and latencies of arrays and their members, and of volumes and their bricks, as iostat -x does.
#[derive(Debug, Args)]
#[command(
    override_usage = "braid iostat [OPTIONS] [ARRAY|VOLUME] [INTERVAL [COUNT]]",
    long_about = "Show what running arrays and their members are asked and how they bear it, in the columns of \
    iostat -x: one row for each array, below it one for each member, and so on down the stack; and one for the files of each volume \
    that is mounted, as the kernel asks for them, below it one for each brick. The first report is of \
    the time since the start, each further one of the interval before it. kB are 1024 bytes, times milliseconds.",
    after_help = EXIT_CODES
)]
pub struct Iostat {
    /// The array, by name or UUID, or the volume, by name, UUID or directory (without it, all arrays that are not below another, and
    /// all volumes); seconds between reports (without it, one report); how many reports (without it, until interrupted). A first word
    /// that is a number is the interval.
    #[arg(num_args = 0..=3, value_name = "ARRAY|VOLUME INTERVAL COUNT")]
    words: Vec<String>,
    /// Answer in JSON; one line for each report.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// What the words of `iostat` mean.
#[derive(Debug, PartialEq, Eq)]
pub struct Reports<'a> {
    /// The array or the volume.
    pub name: Option<&'a str>,
    /// Between two reports; `None`: there is one.
    pub interval: Option<Duration>,
    /// How many there are.
    pub count: Option<u64>,
}

impl Iostat {
    /// Takes the words apart.
    ///
    /// # Errors
    /// A word that is no interval or no count where one belongs.
    pub fn reports(&self) -> Result<Reports<'_>, String> {
        let mut words = self.words.iter().map(String::as_str).peekable();
        let name = words.next_if(|word| word.parse::<f64>().is_err());
        let interval = words
            .next()
            .map(|word| seconds(word).map_err(|want| format!("interval {word:?}: {want}")));
        let count = words.next().map(|word| match word.parse::<u64>() {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(format!("count {word:?}: a number of reports from 1")),
        });
        match words.next() {
            Some(word) => {
                Err(format!("{word:?} is too much: give ARRAY or VOLUME, INTERVAL and COUNT"))
            }
            None => {
                Ok(Reports { name, interval: interval.transpose()?, count: count.transpose()? })
            }
        }
    }
}

/// Where `serve` tells its figures to monitoring.
#[derive(Debug, Clone, Args)]
pub struct Metrics {
    /// Serve metrics over HTTP, in the text format of OpenMetrics (Prometheus): ADDR:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<Place>,
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "seconds from 0.1 to 86400".to_string();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if !(0.1..=86400.0).contains(&seconds) {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words.split_whitespace())
    }

    #[test]
    fn the_words_of_iostat_are_told_apart() {
        let second = Some(Duration::from_secs(1));
        for (words, name, interval, count) in [
            ("", None, None, None),
            ("vault", Some("vault"), None, None),
            ("1", None, second, None),
            ("1 5", None, second, Some(5)),
            ("vault 1 5", Some("vault"), second, Some(5)),
        ] {
            let Command::Iostat(iostat) = parsed(&format!("braid iostat {words}")).unwrap().command
            else {
                panic!("iostat was typed")
            };
            assert_eq!(iostat.reports(), Ok(Reports { name, interval, count }), "{words}");
        }
        for (words, says) in
            [("vault x", "interval"), ("vault 1 0", "count"), ("1 2 3", "too much")]
        {
            let Command::Iostat(iostat) = parsed(&format!("braid iostat {words}")).unwrap().command
            else {
                panic!("iostat was typed")
            };
            let error = iostat.reports().unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert!(parsed("braid iostat a 1 2 3").is_err());
    }

    #[test]
    fn an_interval_is_a_span_that_can_be_waited_for() {
        assert!(parsed("braid stat --interval 0.5 --count 3").is_ok());
        for words in ["--interval 0", "--interval nan", "--interval 1e9", "--count 3"] {
            assert!(parsed(&format!("braid stat {words}")).is_err(), "{words}");
        }
    }
}

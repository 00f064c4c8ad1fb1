//! `braid check` and `braid repair`.

use super::common::{Control, EXIT_CODES};
use crate::settings::Assignment;
use clap::Args;

/// Read everything and count where redundancy does not match the data.
#[derive(Debug, Args)]
#[command(
    long_about = "Read everything and count where redundancy does not match the data.\n\n\
    How far it has come is kept by the server, in its state directory, every few seconds: after a restart, a crash or \
    another job it goes on from there by itself, and finds everything once. --last shows the report, also after a \
    restart. sync_min and sync_max (`braid set`) are the part of the array that it goes through, sync_speed_min and \
    sync_speed_max its speed.",
    after_help = EXIT_CODES
)]
pub struct Check {
    #[command(flatten)]
    pub scrub: Scrub,
}

/// Read everything, count where redundancy does not match the data, and correct it.
#[derive(Debug, Args)]
#[command(
    long_about = "Read everything, count where redundancy does not match the data, and correct it: the member that is \
    wrong, where P and Q or most copies tell which one is, else parity from the data, or the other copies from the \
    first.\n\n\
    How far it has come is kept as by `braid check`, and the options are the same.",
    after_help = EXIT_CODES
)]
pub struct Repair {
    #[command(flatten)]
    pub scrub: Scrub,
    /// Ask nobody who is wrong, as md does: parity is computed from the data, and copies are made those of the first.
    #[arg(long)]
    pub parity_only: bool,
}

/// The options of both.
#[derive(Debug, Args)]
pub struct Scrub {
    /// The array: its name or UUID. Not needed when only one is running.
    pub name: Option<String>,
    /// Wait for the end and show the progress.
    #[arg(short = 'W', long)]
    pub wait: bool,
    #[command(flatten)]
    pub deed: Deed,
    /// Run between these hours of the day only, such as 01:00-05:00 or 22:00-06:00, and go on when they come again:
    /// sets check_between, which is kept.
    #[arg(long, value_name = "HOURS", value_parser = between, conflicts_with_all = ["pause", "resume", "cancel", "last", "accept_doubt"])]
    pub between: Option<Assignment>,
    /// Answer in JSON; progress is a line of JSON each.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// What to do other than to start one.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false, conflicts_with = "wait")]
pub struct Deed {
    /// Pause the check or repair that is under way, until --resume, also over restarts.
    #[arg(long)]
    pub pause: bool,
    /// Go on with the check or repair that is paused.
    #[arg(long)]
    pub resume: bool,
    /// End the check or repair that is running, waiting or paused.
    #[arg(long)]
    pub cancel: bool,
    /// Start nothing; show what the last one found, and the one that is under way.
    #[arg(long)]
    pub last: bool,
    /// Take what is in doubt since a start by force (the write hole) for right: checks list it no more.
    #[arg(long)]
    pub accept_doubt: bool,
}

fn between(text: &str) -> Result<Assignment, String> {
    format!("check_between={text}").parse()
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words.split_whitespace())
    }

    #[test]
    fn one_thing_is_done_at_a_time() {
        let Command::Check(check) =
            parsed("braid check vault --between 01:00-05:00").unwrap().command
        else {
            panic!("check was typed")
        };
        assert_eq!(check.scrub.between.unwrap().to_string(), "check_between=01:00-05:00");
        for words in [
            "braid check vault --pause --resume",
            "braid check vault --last --wait",
            "braid check vault --pause --between 01:00-05:00",
            "braid check vault --between 01:00",
            "braid check vault --parity-only",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        assert!(parsed("braid repair vault --parity-only -W").is_ok());
    }
}

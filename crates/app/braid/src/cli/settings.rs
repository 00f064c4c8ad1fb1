//! The verbs that are about settings of a running array.

use super::common::Control;
use crate::settings::{Assignment, NAMES};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::ffi::OsStr;
use std::path::PathBuf;

/// Where settings are kept.
#[derive(Debug, Clone, Args)]
pub struct State {
    /// Where the settings of arrays are kept [default: /var/lib/braid for root, else
    /// $XDG_STATE_HOME/braid or ~/.local/state/braid].
    #[arg(long, env = "BRAID_STATE_DIR", value_name = "DIR", hide_env_values = true)]
    pub state_dir: Option<PathBuf>,
}

const SETTINGS: &str = "\
Settings (\"auto\" wherever nobody knows better):
  stripe_size               height of a line of the stripe cache, in bytes or with K: a power of two
                            from 4096 to the chunk
  stripe_cache_size         lines of the stripe cache; or bytes, with K, M or G after the number
  rmw_level                 read-modify-write: 0 never, 1 where it reads less, 2 also where both read the same
  preread_bypass_threshold  how many whole stripes may pass one that has to be read from first
  shards                    threads that own stripes, up to `braid serve --shards`
  max_read_errors           read errors that a member may have, corrected from the others, before it fails; the count
                            halves each hour
  max_member_latency        milliseconds that a member's requests may take on average, for a minute in which those of the
                            others take less than half as long; then it fails. One that the data depends on stays
  member_timeout            seconds that a request to a member may take before the member fails; off (or 0): it is
                            waited for. One that the data depends on is waited for in any case
  sync_speed_min            below this rate jobs give no way to clients, in KiB per second and member
  sync_speed_max            jobs are never faster than this; \"none\" is auto";

/// Change settings of a running array, for now and later.
#[derive(Debug, Args)]
#[command(
    long_about = "Change settings of a running array, while requests go on: all that are given, or none. They \
    are kept for every later `braid serve` on this machine.",
    after_help = SETTINGS
)]
pub struct Set {
    /// The array: its name or UUID.
    pub name: String,
    /// What to set.
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = Assignments)]
    pub settings: Vec<Assignment>,
    /// Change the running array only: what is kept stays as it is.
    #[arg(long)]
    pub once: bool,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// `braid get`.
#[derive(Debug, Args)]
#[command(after_help = SETTINGS)]
pub struct Get {
    /// The array: its name or UUID. Not needed when only one is running.
    pub name: Option<String>,
    /// Show these only.
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES))]
    pub settings: Vec<String>,
    /// Answer in JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub control: Control,
}

/// Takes `NAME=VALUE` apart; a name that is nearly one is answered with the one that it may have been.
#[derive(Clone)]
struct Assignments;

impl TypedValueParser for Assignments {
    type Value = Assignment;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Assignment, clap::Error> {
        let text = value.to_string_lossy();
        if let Some((name, _)) = text.split_once('=') {
            PossibleValuesParser::new(NAMES).parse_ref(command, argument, OsStr::new(name))?;
        }
        let parse = |text: &str| text.parse::<Assignment>();
        parse.parse_ref(command, argument, value)
    }
}

/// The value of `create --stripe-size`, as that of the setting.
pub(super) fn stripe_size(text: &str) -> Result<Assignment, String> {
    format!("stripe_size={text}").parse()
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parsed(words: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(words.split_whitespace())
    }

    #[test]
    fn settings_are_taken_several_at_once() {
        let words = "braid set vault stripe_size=16K shards=auto --once";
        let Command::Set(set) = parsed(words).unwrap().command else { panic!("set was typed") };
        assert_eq!(crate::settings::list(&set.settings), "stripe_size=16K, shards=auto");
        assert!(set.once);
    }

    #[test]
    fn a_name_that_is_nearly_one_is_answered_with_the_one() {
        for words in ["braid set vault stripe_siz=4096", "braid get vault stripe_siz"] {
            let error = parsed(words).unwrap_err().to_string();
            assert!(error.contains("similar") && error.contains("'stripe_size'"), "{error}");
        }
        let error = parsed("braid set vault chunk=4").unwrap_err().to_string();
        assert!(error.contains("preread_bypass_threshold"), "{error}");
        let error = parsed("braid set vault stripe_size=a").unwrap_err().to_string();
        assert!(error.contains("bytes (K, M and G may follow"), "{error}");
        assert!(parsed("braid set vault").is_err());
    }
}

//! The members of a new array, with the flags that stand before some of them: as with mdadm, `--write-mostly`
//! and `--failfast` are for the members after them.

use braid_array::state::flags::MemberFlags;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

const MEMBERS: &str = "members";
const WRITE_MOSTLY: &str = "write_mostly";
const FAILFAST: &str = "failfast";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct NewMembers {
    /// The members, as typed.
    pub names: Vec<String>,
    /// Their flags, in the same order.
    pub flags: Vec<MemberFlags>,
}

impl FromArgMatches for NewMembers {
    fn from_arg_matches(matches: &ArgMatches) -> Result<NewMembers, clap::Error> {
        let names: Vec<String> =
            matches.get_many::<String>(MEMBERS).into_iter().flatten().cloned().collect();
        let from = |flag: &str| {
            let typed = matches.value_source(flag) == Some(ValueSource::CommandLine);
            typed.then(|| matches.index_of(flag)).flatten().unwrap_or(usize::MAX)
        };
        let (write_mostly, failfast) = (from(WRITE_MOSTLY), from(FAILFAST));
        let flags = matches
            .indices_of(MEMBERS)
            .into_iter()
            .flatten()
            .map(|at| MemberFlags { write_mostly: at > write_mostly, failfast: at > failfast });
        Ok(NewMembers { flags: flags.collect(), names })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = NewMembers::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for NewMembers {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str| Arg::new(name).action(ArgAction::SetTrue);
        command
            .arg(
                Arg::new(MEMBERS)
                    .value_name("MEMBER")
                    .num_args(1..)
                    .required(true)
                    .action(ArgAction::Append)
                    .help("The members, \"missing\" for a slot that stays empty for now"),
            )
            .arg(flag(WRITE_MOSTLY).short('W').long("write-mostly").help(
                "The members after this are write-mostly, as with mdadm: level 1 reads them only where there is no \
                 other",
            ))
            .arg(flag(FAILFAST).long("failfast").help(
                "The members after this are failfast, as with mdadm: at levels 1 and 10 their first error fails \
                 them, unless there is no other copy",
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        NewMembers::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn flags(words: &str) -> Vec<(bool, bool)> {
        let words = format!("braid create data -l 1 -n 3 {words}");
        let parsed = Cli::try_parse_from(words.split_whitespace()).unwrap().command;
        let Command::Create(create) = parsed else { panic!("create was typed") };
        assert_eq!(create.members.names, ["a", "b", "c"]);
        create.members.flags.iter().map(|flags| (flags.write_mostly, flags.failfast)).collect()
    }

    #[test]
    fn flags_are_for_the_members_after_them() {
        let (none, slow, fast, both) = ((false, false), (true, false), (false, true), (true, true));
        assert_eq!(flags("a b c"), [none; 3]);
        assert_eq!(flags("a --write-mostly b c"), [none, slow, slow]);
        assert_eq!(flags("--failfast a b -W c"), [fast, fast, both]);
        assert_eq!(flags("a b c --failfast"), [none; 3]);
    }
}

//! Which arrays are started that no entry names, in the words of `mdadm.conf`'s AUTO: the first that fits an array decides.

use braid_format::superblock::{Superblock, Version};

/// See the module's documentation; without words none is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Auto {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    start: bool,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    V0,
    V1,
    Homehost,
    /// Metadata that braid does not start: it fits no array.
    Foreign,
}

impl Auto {
    /// Of `+1.x`, `-0.90`, `+all`, `homehost` and the like.
    ///
    /// # Errors
    /// A word that is none of them.
    pub fn of(words: &[String]) -> Result<Auto, String> {
        let rule = |word: &String| {
            let (start, name) = match word.split_at_checked(1) {
                Some(("+", name)) => (true, name),
                Some(("-", name)) => (false, name),
                _ => (true, word.as_str()),
            };
            let kind = match name {
                "all" => Kind::All,
                "0.90" => Kind::V0,
                "1.x" => Kind::V1,
                "homehost" => Kind::Homehost,
                "ddf" | "imsm" => Kind::Foreign,
                _ => {
                    return Err(format!(
                        "{word:?} is no word of auto: homehost, or all, 0.90 or 1.x with + or - before it"
                    ));
                }
            };
            Ok(Rule { start, kind })
        };
        Ok(Auto { rules: words.iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// The array of this superblock is started; `host` is the one whose arrays are local.
    pub fn takes(&self, superblock: &Superblock, host: &str) -> bool {
        let v0 = superblock.version == Version::V0_90;
        let is_local = || {
            let of = superblock.set_name.bytes().strip_prefix(host.as_bytes());
            of.is_some_and(|rest| rest.first() == Some(&b':'))
        };
        let fits = |rule: &&Rule| match rule.kind {
            Kind::All => true,
            Kind::V0 => v0,
            Kind::V1 => !v0,
            Kind::Homehost => is_local(),
            Kind::Foreign => false,
        };
        self.rules.iter().find(fits).is_some_and(|rule| rule.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_words_of_auto_are_understood() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        assert!(Auto::of(&words("+1.x homehost -all")).is_ok());
        assert!(Auto::of(&words("+imsm -ddf")).is_ok());
        for wrong in ["+2.x", "", "+", "maybe"] {
            assert!(Auto::of(&words(wrong)).is_err(), "{wrong:?}");
        }
    }
}

//! The last things that happened to each file, to be told when something is found wrong with it.

use super::meta::Id;
use std::collections::VecDeque;

/// Lines that are kept.
const KEPT: usize = 4000;
/// Lines that are told.
const TOLD: usize = 24;

struct Line {
    /// Whom it is about; nobody: everybody.
    of: Vec<Id>,
    text: String,
}

/// See the module's documentation.
#[derive(Default)]
pub struct History(VecDeque<Line>);

impl History {
    /// Something happened to `of`, or to everything when that is empty.
    pub fn note(&mut self, of: &[Id], text: String) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Line { of: of.to_vec(), text });
    }

    /// The last that happened to any of `ids`.
    pub fn tell(&self, ids: &[Id]) -> String {
        let about = |line: &&Line| {
            line.of.is_empty() || ids.is_empty() || line.of.iter().any(|id| ids.contains(id))
        };
        let mut lines: Vec<&str> =
            self.0.iter().rev().filter(about).take(TOLD).map(|line| line.text.as_str()).collect();
        lines.reverse();
        lines.iter().map(|line| format!("\n    {line}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_the_file_is_told() {
        let mut history = History::default();
        history.note(&[1], "one".into());
        history.note(&[2], "two".into());
        history.note(&[], "all".into());
        assert_eq!(history.tell(&[1]), "\n    one\n    all");
    }
}

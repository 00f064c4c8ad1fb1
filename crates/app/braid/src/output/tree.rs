//! Things below things, drawn with lines.

/// A thing and what is below it.
pub struct Node {
    /// What is shown of it, one line.
    pub text: String,
    /// What is below it.
    pub below: Vec<Node>,
}

/// What stands before the line of a thing, and before those of what is below it, when it is the last beside others.
pub fn branch(last: bool) -> (&'static str, &'static str) {
    if last { ("└─ ", "   ") } else { ("├─ ", "│  ") }
}

impl Node {
    /// One line for each, those below indented by branches.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.text.clone()];
        for (index, node) in self.below.iter().enumerate() {
            let (branch, beside) = branch(index + 1 == self.below.len());
            for (row, line) in node.lines().into_iter().enumerate() {
                lines.push(format!("{}{line}", if row == 0 { branch } else { beside }));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_go_on_beside_what_is_below() {
        let leaf = |text: &str| Node { text: text.to_string(), below: Vec::new() };
        let node = |text: &str, below| Node { text: text.to_string(), below };
        let tree = node("top", vec![node("m0", vec![leaf("a"), leaf("b")]), leaf("c")]);
        assert_eq!(tree.lines(), ["top", "├─ m0", "│  ├─ a", "│  └─ b", "└─ c"]);
    }
}

//! What a checker has found.

/// A checker's finding: the run has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The checker's name.
    pub checker: &'static str,
    /// What was expected and what was found.
    pub text: String,
}

impl Failure {
    /// A run has panicked.
    pub fn of_panic(panic: &(dyn std::any::Any + Send)) -> Failure {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Failure { checker: "no_panic", text: said.to_string() }
    }
}

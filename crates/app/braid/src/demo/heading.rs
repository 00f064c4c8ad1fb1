//! The headings between the parts of the tale.

use crate::output;
use anyhow::Result;

/// Prints one.
pub(super) fn heading(text: &str) -> Result<()> {
    output::line(format!("\n── {text}"))
}

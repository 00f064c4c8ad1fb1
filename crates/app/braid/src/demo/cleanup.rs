//! What has to be undone: a list of steps, carried out in the reverse order, once.
//!
//! Does not know what the steps are. A step that fails does not keep the others from being tried.

use crate::output::note;
use anyhow::{Result, bail};

type Step = Box<dyn FnOnce() -> Result<()> + Send>;

/// See the module's documentation. Dropping it undoes what is left.
#[derive(Default)]
pub struct Cleanup {
    steps: Vec<(String, Step)>,
}

impl Cleanup {
    /// Adds a step; `what` says it in words for the case that it fails.
    pub fn push(
        &mut self,
        what: impl Into<String>,
        step: impl FnOnce() -> Result<()> + Send + 'static,
    ) {
        self.steps.push((what.into(), Box::new(step)));
    }

    /// How many steps there are: for [`Cleanup::undo_to`].
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Undoes the steps that were added after there were `len` of them, the last one first.
    ///
    /// # Errors
    /// Names the steps that failed; all were tried.
    pub fn undo_to(&mut self, len: usize) -> Result<()> {
        let mut failed = Vec::new();
        while self.steps.len() > len {
            let Some((what, step)) = self.steps.pop() else { break };
            if let Err(error) = step() {
                failed.push(format!("{what}: {error:#}"));
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        bail!("{}", failed.join("; "))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Err(error) = self.undo_to(0) {
            note(format!("braid: cleaning up: {error:#}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn all_steps_are_undone_backwards_even_when_one_fails() {
        let (send, undone) = channel();
        let mut cleanup = Cleanup::default();
        for step in 0..4 {
            let send = send.clone();
            cleanup.push(format!("step {step}"), move || {
                send.send(step)?;
                if step == 2 { bail!("stuck") } else { Ok(()) }
            });
        }
        assert!(cleanup.undo_to(1).unwrap_err().to_string().contains("step 2: stuck"));
        assert_eq!(undone.try_iter().collect::<Vec<_>>(), [3, 2, 1]);
        drop(cleanup);
        assert_eq!(undone.try_iter().collect::<Vec<_>>(), [0]);
    }
}

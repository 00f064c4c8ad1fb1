//! Volumes in this server: its arrays as their bricks, and what happens to them by themselves.

use super::End;
use super::running::Running;
use crate::exit::refused;
use crate::output;
use crate::volumes::{Arrays, Events, Hosted};
use anyhow::Result;
use braid_control::protocol::volume::{VolumeDetail, VolumeRequest};
use braid_control::protocol::{Answer, Code};
use braid_device::Opener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use uuid::Uuid;

impl Running {
    /// Carries out a request about volumes.
    pub(super) fn volume(
        &self,
        request: VolumeRequest,
        answer: &mut dyn FnMut(Answer) -> bool,
    ) -> Result<Answer> {
        self.volumes.answer(request, self, answer)
    }

    /// Carries out a request about volumes that is answered by a sentence.
    ///
    /// # Errors
    /// Whatever keeps it from being done.
    pub fn volume_order(&self, request: VolumeRequest) -> Result<String> {
        match self.volume(request, &mut |_| true)? {
            Answer::Done { text } => Ok(text),
            other => Err(crate::client::unexpected(&other)),
        }
    }

    /// What the volumes have done, without rates.
    pub(super) fn volume_figures(&self) -> Vec<VolumeDetail> {
        // One that is unmounted meanwhile has none any more.
        self.volumes.all().iter().filter_map(|hosted| hosted.figures().ok()).collect()
    }

    /// A volume is mounted here.
    pub fn has_volumes(&self) -> bool {
        !self.volumes.all().is_empty()
    }

    /// When nothing is left to be served and nobody but `own` requests about volumes waits for an answer, whoever asks
    /// from now on finds no server. True when that is so.
    pub(super) fn closes_if_idle(&self, own: usize) -> bool {
        if self.resident {
            return false;
        }
        let closes =
            self.arrays().is_empty() && self.salvaged().is_empty() && self.volumes.end_if_idle(own);
        if closes {
            self.door.close();
        }
        closes
    }

    /// Has the process end.
    pub(super) fn end(&self, why: End) {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        // The other side is gone when the process ends anyway.
        let _ = ends.send(why);
    }

    /// Refuses what would take an array away from a volume.
    pub(super) fn no_brick(&self, array: &str) -> Result<()> {
        match self.volumes.user_of(array) {
            Some(volume) => {
                let why = format!(
                    "array {array} is a brick of volume {volume}: braid volume remove {volume} array:{array}, or braid \
                     volume unmount {volume}"
                );
                Err(refused(Code::InUse, why))
            }
            None => Ok(()),
        }
    }
}

impl Arrays for Running {
    fn look(&self, name: &str) -> Result<Arc<dyn Opener>> {
        let _turn = self.stack_turn();
        self.unused(name)
    }

    fn take(&self, name: &str) -> Result<Arc<dyn Opener>> {
        let _turn = self.stack_turn();
        let opener = self.unused(name)?;
        Running::take(self, name)?;
        Ok(opener)
    }

    fn give_back(&self, names: &[String]) {
        let _turn = self.stack_turn();
        if let Err(error) = self.offer_free(names.iter().map(String::as_str)) {
            output::note(format!(
                "braid: offering arrays to clients again: {error}",
                error = crate::output::said(&error)
            ));
        }
    }
}

/// What volumes tell the server.
struct ToRunning(Weak<Running>);

/// Has the server learn what happens to its volumes by themselves.
pub fn events(running: Weak<Running>) -> Arc<dyn Events> {
    Arc::new(ToRunning(running))
}

impl Events for ToRunning {
    fn ended(&self, hosted: &Arc<Hosted>, arrays: &[String]) {
        let Some(running) = self.0.upgrade() else { return };
        running.volumes.forget(hosted);
        if hosted.well.load(Ordering::Acquire) {
            running.volumes.give_up_lease(hosted.uuid);
        } else {
            // Writes that failed may be on their way still: the lease runs out with the process.
            running.unwell.store(true, Ordering::Relaxed);
        }
        running.give_back(arrays);
        if running.closes_if_idle(0) {
            running.end(End::Stopped);
        }
    }

    fn brick_gone(&self, volume: Uuid, brick: Uuid) {
        let Some(running) = self.0.upgrade() else { return };
        let hosted = running.volumes.all().into_iter().find(|hosted| hosted.uuid == volume);
        if let Some(hosted) = hosted {
            running.volumes.brick_gone(&hosted, brick, &*running);
        }
    }
}

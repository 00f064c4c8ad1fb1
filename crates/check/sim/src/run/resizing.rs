//! Larger components of a single array: power fails meanwhile, or it goes on, and then fails.
//!
//! What is new holds anything until it is written; redundancy is made there by a resync, and what is written before that has
//! come by must survive like all else.

use super::Run;
use crate::images;
use crate::waiting::Over;
use braid_array::control::resizing::WantedSize;
use braid_device::Target;
use braid_layout::Layout;
use std::rc::Rc;

impl Run {
    /// A whole array uses all that its members have.
    pub(super) fn components_grow(&mut self) -> Result<(), Over> {
        // Far copies have other places in a component of another size.
        let far = matches!(&*self.layout(self.top()), Layout::Raid10(raid10) if raid10.is_far());
        // As in md the size is not changed beside a log.
        let has_log = self.top_control()?.ppl().is_there() || self.plan.scenario.journal.is_some();
        if far || !self.is_whole()? || has_log {
            return Ok(());
        }
        self.oracle.end_steady();
        for _ in 0..self.chances.resizing.rng.range(0..12) {
            let scenario = &self.plan.scenario;
            let life = self.life.as_mut().ok_or(Over)?;
            life.client.send_random(&life.machine, scenario, &mut self.oracle);
        }
        let before = self.top_status()?.component_size;
        self.world.trace(|| format!("components of {before} bytes grow"));
        let control = self.top_control()?;
        let later = self
            .life()?
            .machine
            .begin(async move { control.set_component_size(WantedSize::Max, false).await });
        if self.chances.resizing.chance(60) {
            for _ in 0..self.chances.resizing.rng.log_range(1..600) {
                if later.borrow().is_some() {
                    break;
                }
                self.step()?;
            }
            self.next_life(true)?;
            let now = self.top_status()?.component_size;
            if now < before {
                let text = format!("components of {before} bytes have {now} after a crash");
                return self.fail("sizes_are_kept", text);
            }
            return self.use_what_is_new(now);
        }
        let resized = match self.wait("the command to change a size", &later)? {
            Ok(resized) => resized,
            // It is whole, but a member is about to fail, or a spare is gone and nobody has noticed.
            Err(error) if self.promises.excused || self.any_is_gone() => {
                self.world.trace(|| error.to_string());
                return Ok(());
            }
            Err(error) => return self.fail("requests_succeed", error.to_string()),
        };
        self.did.resizes += 1;
        let now = resized.component_size.1;
        self.use_what_is_new(now)?;
        self.next_life(self.chances.resizing.chance(70))?;
        let then = self.top_status()?.component_size;
        if then != now {
            let text = format!("components of {now} bytes have {then} in the next life");
            return self.fail("sizes_are_kept", text);
        }
        self.quiet_round()
    }

    /// Components have `size` bytes now: requests go to what is new, too.
    fn use_what_is_new(&mut self, size: u64) -> Result<(), Over> {
        let members = self.world.members.borrow().clone();
        let holds = |member: &Rc<crate::member::Member>| member.in_sync.get() && !member.is_gone();
        let superblocks: Vec<_> = members
            .iter()
            .filter(|member| holds(member))
            .filter_map(|member| images::superblock(&self.world, member))
            .map(|superblock| braid_format::superblock::Superblock {
                size: size / 512,
                ..superblock
            })
            .collect();
        let Some(layout) = images::layout(&superblocks) else {
            return self.fail("md_can_assemble", "the superblocks describe no array".to_string());
        };
        let first_new = self.oracle.len();
        self.oracle.grow(layout.array_size());
        self.has_layout(Rc::new(layout));
        if self.top_status()?.resynced.is_some() {
            self.promises.synced = false;
        }
        self.open_anew()?;
        let end = self.oracle.len();
        for _ in 0..self.chances.resizing.rng.range(0..20) {
            if first_new == end {
                break;
            }
            let at = self.chances.resizing.rng.range(first_new..end);
            let len = self.chances.resizing.rng.log_range(1..33).min(end - at);
            self.write(at..at + len, false)?;
        }
        self.quiet_round()
    }

    fn any_is_gone(&self) -> bool {
        self.world.members.borrow().iter().any(|member| member.is_gone())
    }

    /// The client has the array open in the size that it has now.
    pub(super) fn open_anew(&mut self) -> Result<(), Over> {
        let life = self.life.as_mut().ok_or(Over)?;
        let Some(Some(array)) = life.arrays.last() else { return Err(Over) };
        let devices = life.machine.shards.iter().map(|shard| array.open(shard));
        match devices.collect() {
            Ok(devices) => life.client.open_anew(devices),
            Err(error) => return self.fail("assembles", error.to_string()),
        }
        Ok(())
    }
}

//! Checks that go on where they were interrupted, by command, by a stop or by a crash: together the parts find what a check
//! without interruptions finds, and count it once. And repairs of parity only: they leave data as it is, also where the others
//! say that it is wrong.
//!
//! Last in a run, and on single arrays, so that everything before is what it is without. Bytes of one member rot for it and
//! are put back before anything else may read them.

use super::Run;
use super::counting::in_sync_at_rest;
use crate::images;
use crate::machine::Step;
use crate::member::{Member, SECTOR};
use crate::waiting::Over;
use braid_array::options::Scrub;
use braid_array::state::findings::Findings;
use braid_array::status::{MemberStatus, Scrubbed};
use braid_layout::Layout;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes of a member that have rotten: where, what was there, and what is there while they are `spread`.
struct Rot {
    member: Rc<Member>,
    places: Vec<(u64, Vec<u8>, Vec<u8>)>,
    spread: bool,
}

fn rotten(right: &[u8]) -> Vec<u8> {
    right.iter().map(|byte| byte ^ 0x5a).collect()
}

impl Rot {
    fn spread(&mut self) {
        // A loss of power then leaves the bytes that are put back.
        self.member.settle();
        self.places.iter().for_each(|(at, _, wrong)| self.member.rot(*at, wrong));
        self.spread = true;
    }

    fn put_back(&mut self) {
        if std::mem::take(&mut self.spread) {
            self.places.iter().for_each(|(at, right, _)| self.member.rot(*at, right));
        }
    }

    /// Rots again at the same places, of which a crash and the resync after it may have changed what is right.
    fn spread_anew(&mut self) {
        for (at, right, wrong) in &mut self.places {
            *right = self.member.image(*at..*at + SECTOR);
            *wrong = rotten(right);
        }
        self.spread();
    }
}

/// The result of the parts of a check so far.
#[derive(Default)]
struct SoFar {
    position: u64,
    mismatches: u64,
    /// Blocks of members in which places were found; see [`blocks`].
    places: BTreeSet<u64>,
}

impl SoFar {
    fn take(&mut self, part: &Scrubbed, block: u64) {
        (self.position, self.mismatches) = (part.position, part.mismatches);
        self.places.extend(blocks(&part.findings, block));
    }
}

/// The blocks of components, of `block` bytes, in which something was found. A check finds logical blocks, which may be
/// smaller after the member with the largest was lost between two parts: so `block` is the largest that the array can have.
fn blocks(findings: &Findings, block: u64) -> BTreeSet<u64> {
    let places = findings.places.iter();
    places
        .flat_map(|place| place.component.start / block..place.component.end.div_ceil(block))
        .collect()
}

impl Run {
    /// See the module's documentation.
    pub(super) fn scrub_in_parts(&mut self) -> Result<(), Over> {
        self.oracle.end_steady();
        // A member that lies forgets what it has lied about in a crash between two parts.
        if self.plan.scenario.lies || !self.is_whole()? {
            return Ok(());
        }
        let Some(mut rot) = self.some_rot() else { return Ok(()) };
        rot.spread();
        let status = self.scrub_top(false)?;
        let Some(whole) = status.scrubbed.filter(|_| status.degraded == 0) else {
            rot.put_back();
            return Ok(());
        };
        let found = self.check_in_parts(&mut rot)?;
        rot.put_back();
        if let Some(found) = found {
            let expected = (whole.mismatches, blocks(&whole.findings, self.plan.scenario.block));
            if whole.findings.more == 0
                && (found.mismatches, &found.places) != (expected.0, &expected.1)
            {
                let text = format!(
                    "in parts a check counts {} sectors, in blocks {:?}; at once {}, in {:?}",
                    found.mismatches, found.places, expected.0, expected.1
                );
                return self.fail("check_goes_on", text);
            }
            self.repair_parity_only(&mut rot)?;
        }
        self.goes_on()
    }

    /// Sectors of a member in sync that are to rot, in different units where chance has it so.
    fn some_rot(&mut self) -> Option<Rot> {
        let rng = &self.chances.scrub_in_parts.rng;
        let layout = self.layout(self.top());
        let members = self.world.members.borrow();
        let fit = members.iter().filter(|m| {
            in_sync_at_rest(m).is_some()
                && !m.out.get()
                && !m.is_weak()
                && !m.scarred.get()
                && !m.has_lost()
        });
        let fit: Vec<_> = fit.collect();
        let member = Rc::clone(fit.get(rng.below(fit.len()))?);
        let slot = in_sync_at_rest(&member)?;
        let (used, start) = (layout.used_size(slot), member.data.borrow().start);
        let mut places: Vec<(u64, Vec<u8>, Vec<u8>)> = Vec::new();
        for _ in 0..1 + rng.range(0..8) {
            let at = rng.range(0..used / 512) * 512;
            let here = start + at..start + at + 512;
            if images::unit_range(&layout, Some(slot), at).is_none()
                || places.iter().any(|(known, ..)| *known == here.start)
            {
                continue;
            }
            self.world.trace(|| format!("{} rots at component byte {at}", member.name()));
            let right = member.image(here.clone());
            let wrong = rotten(&right);
            places.push((here.start, right, wrong));
        }
        (!places.is_empty()).then_some(Rot { member, places, spread: false })
    }

    /// A check from the beginning to the end of the array, however often it is interrupted; `None` when a member was lost on
    /// the way, or redundancy has to be made to match.
    fn check_in_parts(&mut self, rot: &mut Rot) -> Result<Option<SoFar>, Over> {
        let (mut so_far, block) = (SoFar::default(), self.plan.scenario.block);
        loop {
            let control = self.top_control()?;
            let SoFar { position, mismatches, .. } = so_far;
            let scrub = Scrub { position, mismatches, ..Scrub::default() };
            let nr = match control.jobs().start_scrub(scrub) {
                Ok(nr) => nr,
                Err(error) => return self.fail("requests_succeed", error.to_string()),
            };
            self.world.trace(|| format!("check from {position}"));
            let how = self.chances.scrub_in_parts.rng.range(0..10);
            let patience = match how {
                0..2 => u64::MAX,
                _ => self.chances.scrub_in_parts.rng.log_range(1..300),
            };
            if let Some(part) = self.part_of_a_check(nr, patience)? {
                so_far.take(&part, block);
                return Ok(Some(so_far));
            }
            // The state kept now is the state known in the next life.
            let kept = control.jobs().scrub_now().filter(|part| part.nr == nr);
            if let Some(all) = kept.as_ref().filter(|part| part.position == part.range.end) {
                so_far.take(all, block);
                return Ok(Some(so_far));
            }
            match how {
                0..6 => {
                    control.jobs().cancel_scrub();
                    self.wait_for_jobs()?;
                    let part = control.jobs().scrub_now().filter(|part| part.nr == nr);
                    if let Some(part) = part {
                        so_far.take(&part, block);
                        if part.position == part.range.end {
                            return Ok(Some(so_far));
                        }
                    }
                }
                _ => {
                    kept.iter().for_each(|part| so_far.take(part, block));
                    drop(control);
                    // Nothing but the check may see it.
                    rot.put_back();
                    if how < 8 {
                        self.stop()?
                    } else {
                        self.crash()?
                    }
                    self.assemble()?;
                    // Another member may have its place by now, and then nothing is rotten any more.
                    let whole = self.is_whole()? && !self.promises.excused;
                    let name = rot.member.name();
                    let holds =
                        |member: &MemberStatus| member.name == name && member.slot.is_some();
                    if !whole || !self.top_status()?.members.iter().any(holds) {
                        return Ok(None);
                    }
                    if kept.is_some_and(|part| part.position == part.range.end) {
                        return Ok(Some(so_far));
                    }
                    rot.spread_anew();
                }
            }
        }
    }

    /// Waits for the check, so many steps at most; what it has found when it came to its end.
    fn part_of_a_check(&mut self, nr: u64, steps: u64) -> Result<Option<Scrubbed>, Over> {
        for _ in 0..steps {
            let now = self.top_control()?.jobs().scrub_now();
            if let Some(ended) = now.filter(|part| part.nr == nr && part.outcome.is_some()) {
                return Ok(Some(ended));
            }
            if self.step()? == Step::Stuck {
                break;
            }
        }
        Ok(None)
    }

    /// Data that is wrong stays, and parity is made to match it.
    fn repair_parity_only(&mut self, rot: &mut Rot) -> Result<(), Over> {
        let layout = self.layout(self.top());
        let (Layout::Parity(parity), Some(slot)) = (&*layout, in_sync_at_rest(&rot.member)) else {
            return Ok(());
        };
        let start = rot.member.data.borrow().start;
        let is_data = |at: &u64| parity.logical(slot, at - start).is_some();
        if !self.is_whole()? || !rot.places.iter().all(|(at, ..)| is_data(at)) {
            return Ok(());
        }
        for spoilt in [true, false] {
            if spoilt {
                rot.spread()
            } else {
                rot.put_back()
            }
            let control = self.top_control()?;
            let scrub = Scrub { repair: true, parity_only: true, ..Scrub::default() };
            if let Err(error) = control.jobs().start_scrub(scrub) {
                return self.fail("requests_succeed", error.to_string());
            }
            self.wait_for_jobs()?;
            let stays = rot.places.iter().all(|(at, right, wrong)| {
                rot.member.image(*at..*at + 512) == *if spoilt { wrong } else { right }
            });
            if !stays {
                let text =
                    format!("{}: a repair of parity only has written data", rot.member.name());
                return self.fail("repair_of_parity_only", text);
            }
            if self.scrub_top(false)?.mismatch_cnt != 0 {
                let text = "a repair of parity only leaves parity that does not match".to_string();
                return self.fail("repair_of_parity_only", text);
            }
        }
        Ok(())
    }
}

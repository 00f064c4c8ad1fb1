//! A single array with parity gets other chunks, another layout or fewer members while requests go on, with the faults that
//! `reshaping` has.

use super::Run;
use crate::waiting::Over;
use braid_array::control::reshaping::WantedShape;
use braid_array::control::resizing::WantedSize;
use braid_array::error::ControlError;
use braid_array::status::ArrayStatus;
use braid_layout::{Layout, Level, Spec};
use std::rc::Rc;

const CHUNKS: [u64; 4] = [4 << 10, 8 << 10, 16 << 10, 32 << 10];
const LAYOUTS_5: [u32; 6] = [0, 1, 2, 3, 4, 5];
const LAYOUTS_6: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];

impl Run {
    /// A whole array gets another shape.
    pub(super) fn shape_changes(&mut self) -> Result<(), Over> {
        if !self.can_be_reshaped() {
            return Ok(());
        }
        self.gets_another_shape()
    }

    /// The same of an array that can be reshaped.
    pub(super) fn gets_another_shape(&mut self) -> Result<(), Over> {
        self.drain()?;
        self.wait_for_jobs()?;
        if self.top_status()?.degraded > 0 {
            self.mend(self.top())?;
            self.wait_for_jobs()?;
        }
        if !self.is_whole()? {
            return Ok(());
        }
        let status = self.top_status()?;
        self.oracle.end_steady();
        let fewer = self.chances.other_shapes.chance(40);
        let wanted = if fewer { self.fewer(&status)? } else { Some(self.as_many(&status)) };
        let Some(wanted) = wanted else { return self.open_anew() };
        let begins = self.begins(wanted, |chances| &chances.other_shapes)?;
        let Some(speed) = begins else {
            if fewer {
                self.shows_all()?;
            }
            return self.open_anew();
        };
        self.open_anew()?;
        self.under_faults(speed, |chances| &chances.other_shapes)?;
        self.reshaped(|chances| &chances.other_shapes)?;
        let now = self.top_status()?;
        let is = [now.raid_disks as u64, now.chunk_size, now.layout.into()];
        let should = [
            wanted.raid_disks.unwrap_or(status.raid_disks) as u64,
            wanted.chunk_size.unwrap_or(status.chunk_size),
            wanted.layout.unwrap_or(status.layout).into(),
        ];
        if is != should {
            return self.fail("requests_succeed", format!("{is:?} instead of {should:?}"));
        }
        Ok(())
    }

    /// Users see all that there is again, since there are not to be fewer members after all.
    fn shows_all(&mut self) -> Result<(), Over> {
        let control = self.top_control()?;
        let later = self
            .life()?
            .machine
            .begin(async move { control.set_array_size(WantedSize::Max, false).await });
        if let Err(error) = self.wait("the command to show all of the array", &later)? {
            return self.fail("requests_succeed", error.to_string());
        }
        let size = self.layout(self.top()).array_size();
        self.oracle.grow(size);
        Ok(())
    }

    /// Other chunks or another layout, and sometimes both.
    fn as_many(&self, status: &ArrayStatus) -> WantedShape {
        let extra = &self.chances.other_shapes;
        let (chunk, layout) = (extra.chance(70), extra.chance(60));
        WantedShape {
            raid_disks: None,
            chunk_size: (chunk || !layout).then(|| *extra.rng.pick(&CHUNKS)),
            layout: match status.level {
                Level::Raid5 if layout => Some(*extra.rng.pick(&LAYOUTS_5)),
                Level::Raid6 if layout => Some(*extra.rng.pick(&LAYOUTS_6)),
                Level::Raid10 if layout => Some(*extra.rng.pick(&layouts_10(status.layout))),
                _ => None,
            },
        }
    }

    /// One member fewer, or two, for which users see less first, and components are made smaller by so much that there is
    /// room.
    fn fewer(&mut self, status: &ArrayStatus) -> Result<Option<WantedShape>, Over> {
        let parities = if status.level == Level::Raid6 { 2 } else { 1 };
        let extra = &self.chances.other_shapes;
        let disks = status.raid_disks - 1 - extra.rng.below(2);
        let chunk = if extra.chance(30) { *extra.rng.pick(&CHUNKS) } else { status.chunk_size };
        let most = chunk.max(status.chunk_size);
        let component = status.component_size / most * most;
        let room = most * (1 + extra.rng.below(3) as u64);
        if disks <= parities || component <= 2 * room {
            return Ok(None);
        }
        let component = component - room;
        let left = match status.level {
            Level::Raid10 => {
                let spec = Spec {
                    level: status.level,
                    layout: status.layout,
                    chunk_size: chunk,
                    raid_disks: disks,
                    component_size: component,
                    member_sizes: Vec::new(),
                };
                let Ok(after) = Layout::new(&spec) else { return Ok(None) };
                after.array_size()
            }
            _ => component * (disks - parities) as u64,
        };
        // Nobody may have it open when it is made smaller.
        self.life()?.client.open_anew(Vec::new());
        self.world.trace(|| format!("components of {component} bytes, of which users see {left}"));
        for what in [(true, left), (false, component)] {
            let control = self.top_control()?;
            let later = self.life()?.machine.begin(async move {
                let size = WantedSize::Bytes(what.1);
                match what.0 {
                    true => control.set_array_size(size, false).await,
                    false => control.set_component_size(size, false).await,
                }
            });
            match self.wait("the command to make it smaller", &later)? {
                Ok(_) => {}
                Err(error @ (ControlError::Shape { .. } | ControlError::Io { .. })) => {
                    self.world.trace(|| error.to_string());
                    return Ok(None);
                }
                Err(error) => return self.fail("requests_succeed", error.to_string()),
            }
            self.oracle.shrink(left);
        }
        self.wait_for_jobs()?;
        let layout = self.layout_of_images()?;
        self.has_layout(Rc::new(layout));
        let chunk = (chunk != status.chunk_size).then_some(chunk);
        Ok(Some(WantedShape { raid_disks: Some(disks), chunk_size: chunk, layout: None }))
    }
}

/// Copies of each chunk at level 10, by md's number of a layout near or offset.
fn copies(layout: u32) -> u32 {
    (layout & 0xff) * (layout >> 8 & 0xff)
}

/// Near and offset, with as many copies.
fn layouts_10(layout: u32) -> [u32; 2] {
    let copies = copies(layout);
    [0x100 + copies, 0x1_0001 + (copies << 8)]
}

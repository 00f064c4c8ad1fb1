//! Domains: whether bricks are in as many as files are to have copies. Where they are not, copies lie in one domain, and are lost together.

use super::hosted::Hosted;
use anyhow::Result;
use braid_filesystem::ROOT;
use braid_format::volume::brick_record::BrickState;
use braid_volume::{BrickStatus, domains_of};

/// Those that the bricks which take data are in; without brick `without`, and with one of the label `with` beside.
pub fn count(bricks: &[BrickStatus], without: Option<u16>, with: Option<&str>) -> usize {
    let placed = bricks.iter().filter(|brick| brick.state == BrickState::Data);
    let left = placed.filter(|brick| Some(brick.id) != without);
    domains_of(left.map(|brick| brick.domain.as_str()).chain(with))
}

impl Hosted {
    /// The copies of what is made in the root folder.
    ///
    /// # Errors
    /// When the volume has ended.
    pub(super) fn copies_in_root(&self) -> Result<u8> {
        let copies = self.with(|here| async move { here.volume.copies_of(ROOT).await })?;
        // The root could be read when the volume was mounted.
        Ok(copies.unwrap_or(1))
    }

    /// What is to be said when brick `without` is let go, and one of the label `with` comes; or has been, without both. Empty while
    /// there are domains enough.
    ///
    /// # Errors
    /// As [`Hosted::status`].
    pub(super) fn domains_after(&self, without: Option<u16>, with: Option<&str>) -> Result<String> {
        let domains = count(&self.status()?.bricks, without, with);
        let copies = self.copies_in_root()?;
        if usize::from(copies) <= domains {
            return Ok(String::new());
        }
        let in_domains = crate::output::count(domains, "domain");
        Ok(format!(
            "; the bricks that are left are in {in_domains}, and files are to have {copies} copies: some lie together, and \
             would be lost together, until a brick in another domain is added (`braid volume add {} BRICK --domain LABEL`)",
            self.name
        ))
    }
}

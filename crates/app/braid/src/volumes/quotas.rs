//! Limits of folders of a mounted volume.

use super::hosted::Hosted;
use super::inside::inside;
use crate::output::size;
use anyhow::{Context, Result};
use braid_control::protocol::volume::{FileName, QuotaDetail, QuotaLimit};
use braid_volume::{Limits, ProjectStatus};

impl Hosted {
    /// The projects that have files or limits.
    ///
    /// # Errors
    /// When the volume has ended.
    pub fn quotas(&self) -> Result<Vec<QuotaDetail>> {
        let projects = self.with(|here| async move { here.volume.projects().await })?;
        let detail = |one: ProjectStatus| QuotaDetail {
            project: one.id,
            folder: one.folder,
            limit: one.limits.bytes,
            used: one.bytes,
            files_limit: one.limits.files,
            files: one.files,
            counting: one.is_moving,
        };
        Ok(projects.into_iter().map(detail).collect())
    }

    /// Limits what is in a folder; what is not given stays as it was.
    ///
    /// # Errors
    /// When it is no folder of the volume, or the volume cannot be changed.
    pub fn set_quota(
        &self,
        folder: &FileName,
        bytes: Option<QuotaLimit>,
        files: Option<QuotaLimit>,
    ) -> Result<String> {
        let path = inside(&self.dir, folder);
        let wanted = path.clone();
        let project = self
            .with(move |here| async move {
                let folder = here.volume.resolve(wanted.as_bytes()).await?;
                let before = here.volume.limits_of(folder).await?;
                let limits = Limits {
                    bytes: changed(bytes, before.bytes),
                    files: changed(files, before.files),
                };
                let id = here.volume.limit_folder(folder, limits).await?;
                let all = here.volume.projects().await;
                Ok::<_, braid_volume::VolumeError>(all.into_iter().find(|one| one.id == id))
            })?
            .with_context(|| path.clone())?
            .with_context(|| format!("{path} was removed meanwhile"))?;
        Ok(said(&path, &self.name, &project))
    }

    /// Takes the limits of a folder away.
    ///
    /// # Errors
    /// When it has none.
    pub fn remove_quota(&self, folder: &FileName) -> Result<String> {
        let path = inside(&self.dir, folder);
        let wanted = path.clone();
        self.with(move |here| async move {
            let folder = here.volume.resolve(wanted.as_bytes()).await?;
            here.volume.unlimit_folder(folder).await
        })?
        .with_context(|| path.clone())?;
        Ok(format!("{path} of volume {} has no limit any more", self.name))
    }
}

fn changed(to: Option<QuotaLimit>, before: Option<u64>) -> Option<u64> {
    match to {
        None => before,
        Some(QuotaLimit::None) => None,
        Some(QuotaLimit::Most(most)) => Some(most),
    }
}

fn said(path: &str, volume: &str, project: &ProjectStatus) -> String {
    let Limits { bytes, files } = project.limits;
    let mut may = Vec::new();
    may.extend(bytes.map(size::human));
    may.extend(files.map(|files| format!("{files} files")));
    let may = if may.is_empty() { "any amount".to_string() } else { may.join(" and ") };
    let (used, has) = (size::human(project.bytes), project.files);
    let is_over = bytes.is_some_and(|most| project.bytes > most)
        || files.is_some_and(|most| project.files > most);
    let over = match is_over {
        true => "; that is more than the limit: nothing can be added until files are removed",
        false => "",
    };
    format!("{path} of volume {volume} may take {may}; it takes {used} and {has} files now{over}")
}

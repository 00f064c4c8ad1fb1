//! Limits of folders of a mounted volume.

use super::hosted::Hosted;
use super::inside::inside;
use crate::output::size;
use anyhow::{Context, Result};
use braid_control::protocol::volume::{FileName, QuotaDetail, QuotaLimit};
use braid_filesystem::FileSystem;
use braid_volume::{Limits, ProjectStatus};
use std::path::Path;

impl Hosted {
    /// The projects that have files or limits; of `within`, a folder from the root: its own, and those that are limits of
    /// folders below it.
    ///
    /// # Errors
    /// When the volume has ended.
    pub fn quotas(&self, within: Option<&str>) -> Result<Vec<QuotaDetail>> {
        let mut projects = self.with(|here| async move { here.volume.projects().await })?;
        if let Some(within) = within {
            let wanted = within.to_string();
            // Of what is no folder there is none.
            let own = self.with(move |here| async move {
                let folder = here.volume.resolve(wanted.as_bytes()).await.ok()?;
                here.volume.project_of(folder).await.ok()?
            })?;
            let is_below = |at: &String| Path::new(at).starts_with(within);
            projects.retain(|one| own == Some(one.id) || one.folder.as_ref().is_some_and(is_below));
        }
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
        let (project, inherits) = self
            .with(move |here| async move {
                let folder = here.volume.resolve(wanted.as_bytes()).await?;
                let before = here.volume.limits_of(folder).await?;
                let limits = Limits {
                    bytes: changed(bytes, before.bytes),
                    files: changed(files, before.files),
                };
                let id = here.volume.limit_folder(folder, limits).await?;
                let all = here.volume.projects().await;
                let project = all.into_iter().find(|one| one.id == id);
                let flags = here.volume.flags(folder).await.ok();
                Ok::<_, braid_volume::VolumeError>(project.zip(flags))
            })?
            .with_context(|| path.clone())?
            .map(|(project, flags)| (project, flags.inherits_project))
            .with_context(|| format!("{path} was removed meanwhile"))?;
        Ok(said(&path, &self.name, &project, inherits))
    }

    /// Takes the limits of a folder away.
    ///
    /// # Errors
    /// When it has none.
    pub fn remove_quota(&self, folder: &FileName) -> Result<String> {
        let path = inside(&self.dir, folder);
        let wanted = path.clone();
        let kept = self
            .with(move |here| async move {
                let folder = here.volume.resolve(wanted.as_bytes()).await?;
                here.volume.unlimit_folder(folder).await?;
                here.volume.project_of(folder).await
            })?
            .with_context(|| path.clone())?;
        let kept = kept.map_or_else(String::new, |id| {
            format!(": project {id}, which was given to it (chattr -p), stays, and has none either")
        });
        Ok(format!("{path} of volume {} has no limit any more{kept}", self.name))
    }
}

fn changed(to: Option<QuotaLimit>, before: Option<u64>) -> Option<u64> {
    match to {
        None => before,
        Some(QuotaLimit::None) => None,
        Some(QuotaLimit::Most(most)) => Some(most),
    }
}

fn said(path: &str, volume: &str, project: &ProjectStatus, inherits: bool) -> String {
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
    if project.folder.is_some() {
        return format!(
            "{path} of volume {volume} may take {may}; it takes {used} and {has} files now{over}"
        );
    }
    let only_here = match inherits {
        true => "",
        false => "; what is made in it does not get that project (chattr +P)",
    };
    format!(
        "project {id}, which {path} of volume {volume} was given (chattr -p), may take {may}: the limit is for all files and folders \
         that have it, wherever they are; they take {used} and {has} files now{over}{only_here}",
        id = project.id
    )
}

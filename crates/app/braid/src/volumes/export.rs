//! Files of volumes as block devices: each has an NBD server of its own on the volume's shard.

use super::exported::Exported;
use super::file_device::{FileTarget, device_info};
use super::hosted::{Hosted, locked};
use super::inside::inside;
use crate::output::size;
use anyhow::{Context, Result, bail};
use braid_control::protocol::volume::{ExportDetail, FileName};
use braid_device::TargetInfo;
use braid_export::Export;
use braid_filesystem::{FileSystem, Ino, Kind, Opening};
use braid_nbd::Address;
use braid_nbd::serve::Server;
use std::sync::Arc;
use std::time::Duration;

/// Number of looks for the close that the kernel tells of late, and the time between two.
const CLOSE_WAITS: usize = 20;
const CLOSE_WAIT: Duration = Duration::from_millis(50);

impl Hosted {
    /// Who uses its exported files.
    pub fn clients(&self) -> Vec<String> {
        let exports = locked(&self.exports);
        let clients = exports.iter().flat_map(|export| export.door.clients());
        clients.map(|client| format!("{client} of volume {}", self.name)).collect()
    }

    /// Offers a file at `address`.
    ///
    /// # Errors
    /// A file that is none or offered already, an address that is in use.
    pub fn export(&self, file: &FileName, address: &str, read_only: bool) -> Result<String> {
        let address: Address = address.parse().with_context(|| format!("address {address}"))?;
        let path = inside(&self.dir, file);
        let known = locked(&self.exports).iter().any(|export| export.file == path);
        if known {
            bail!("{path} is exported already; --off ends that");
        }
        let wanted = path.clone();
        let found = self.with(move |here| async move {
            let ino = here.volume.resolve(wanted.as_bytes()).await?;
            anyhow::Ok((ino, here.volume.attr(ino).await?))
        })?;
        let (ino, attr) = found.with_context(|| format!("exporting {path}"))?;
        if attr.kind != Kind::File {
            bail!("exporting {path}: only regular files can be block devices");
        }
        if attr.size < 512 {
            bail!(
                "exporting {path}: it has {} bytes, less than a sector; give it its size first: truncate -s 10G FILE",
                attr.size
            );
        }
        self.take_over(&path, ino)?;
        let name = path.trim_start_matches('/').to_string();
        let info = TargetInfo {
            name: name.clone(),
            description: format!("file of volume {}", self.name),
            device: device_info(&name, attr.size),
            read_only: read_only || self.read_only,
        };
        let target = Arc::new(FileTarget { info, key: self.key(), ino });
        let server =
            Server::start(std::slice::from_ref(self.home()), &[address], vec![target], None);
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                self.close(ino);
                return Err(error).with_context(|| format!("exporting {path}"));
            }
        };
        let uri = server.locations(&name).concat();
        let said = format!("{path} ({}) is exported: {uri}", size::human(attr.size));
        locked(&self.exports).push(Exported { file: path, ino, uri, door: Box::new(server) });
        Ok(said)
    }

    /// Takes the file away from those who would write to it at the mount point, so that what the kernel holds back of it
    /// does not come after what clients write.
    fn take_over(&self, path: &str, ino: Ino) -> Result<()> {
        self.no_writer(path, ino)?;
        let begun = self.with(move |here| async move {
            if !here.volume.begin_export(ino) {
                bail!("it is exported already, by another name; --off ends that");
            }
            if let Err(error) = here.volume.open(ino, Opening::WRITE).await {
                here.volume.end_export(ino);
                return Err(error.into());
            }
            Ok(())
        })?;
        begun.with_context(|| format!("exporting {path}"))?;
        // From now on nobody opens it to write; somebody may just have done so.
        if let Err(error) = self.no_writer(path, ino) {
            self.close(ino);
            return Err(error);
        }
        self.forget_content(ino);
        Ok(())
    }

    /// Sees that no process has the file open to write: then the kernel holds nothing back.
    fn no_writer(&self, path: &str, ino: Ino) -> Result<()> {
        for _ in 0..CLOSE_WAITS {
            if !self.is_open_to_write(ino) {
                return Ok(());
            }
            // The kernel tells of a close after it has returned.
            std::thread::sleep(CLOSE_WAIT);
        }
        bail!(
            "exporting {path}: a process has it open to write; end that first (fuser -v {} names it)",
            self.dir.join(path.trim_start_matches('/')).display()
        )
    }

    /// Ends the export of a file.
    ///
    /// # Errors
    /// When it is not exported.
    pub fn end_export(&self, file: &FileName) -> Result<String> {
        let path = inside(&self.dir, file);
        let export = {
            let mut exports = locked(&self.exports);
            let at = exports.iter().position(|export| export.file == path);
            at.map(|at| exports.remove(at))
        };
        let export = export.with_context(|| format!("{path} is not exported"))?;
        self.stop_export(&export);
        Ok(format!("{path} is not exported any more"))
    }

    /// What is exported.
    pub fn exported(&self) -> Vec<ExportDetail> {
        let detail =
            |export: &Exported| ExportDetail { file: export.file.clone(), uri: export.uri.clone() };
        locked(&self.exports).iter().map(detail).collect()
    }
}

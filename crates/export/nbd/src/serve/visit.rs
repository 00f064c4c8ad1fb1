//! A client's visit in the log of clients: one line when it has entered an export, one when it has left.

use std::sync::Arc;

use braid_export::{CLIENTS, Figures, Traffic};
use braid_shard::{Nanos, Shard};

/// The protocol's name.
pub(super) const PROTOCOL: &str = "nbd";

/// See the module's documentation.
pub(super) struct Visit<'a> {
    shard: Shard,
    client: &'a str,
    export: &'a str,
    figures: Arc<Figures>,
    began: Nanos,
}

impl<'a> Visit<'a> {
    /// A client has entered an export.
    pub fn begin(
        shard: &Shard,
        client: &'a str,
        export: &'a str,
        tls: bool,
        figures: &Arc<Figures>,
    ) -> Visit<'a> {
        tracing::info!(target: CLIENTS, protocol = PROTOCOL, client, export, tls, "client came");
        let (shard, figures) = (shard.clone(), Arc::clone(figures));
        Visit { began: shard.now(), shard, client, export, figures }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        let Visit { client, export, figures, .. } = self;
        let seconds = self.shard.now().saturating_sub(self.began) / 1_000_000_000;
        let Traffic { requests, read_bytes, written_bytes, errors, .. } = figures.traffic();
        tracing::info!(
            target: CLIENTS, protocol = PROTOCOL, client, export, seconds, requests, read_bytes, written_bytes, errors,
            "client left"
        );
    }
}

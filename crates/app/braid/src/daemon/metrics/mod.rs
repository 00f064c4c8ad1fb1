//! Metrics for monitoring: the figures of all arrays and volumes in the text format of OpenMetrics, over HTTP.
//!
//! `text` makes the text, of volumes `volumes`, of clients `clients`, all by `encoding`; `http` answers scrapers.

mod clients;
mod encoding;
mod http;
mod text;
mod volumes;

pub use http::MetricsServer;

use super::running::Running;
use anyhow::Result;
use braid_control::http::server::Place;
use std::sync::Arc;

/// Serves the figures of `running` at `place` until what this gives is dropped.
///
/// # Errors
/// When the address is taken or may not be used.
pub fn serve(place: &Place, running: &Arc<Running>) -> Result<MetricsServer> {
    let running = Arc::clone(running);
    MetricsServer::start(
        place,
        Arc::new(move || {
            text::text(running.stats(), running.doors().clients(), running.volume_figures())
        }),
    )
}

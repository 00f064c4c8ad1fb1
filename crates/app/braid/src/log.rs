//! The log of the program's parts, on standard error: with time and module on a terminal, with a priority and nothing more in the
//! journal.

use crate::service::{self, Priority};
use std::fmt;
use std::io::IsTerminal;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// From now on; `BRAID_LOG` says what is logged.
pub fn begin() {
    let filter = EnvFilter::try_from_env("BRAID_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match service::is_journal() {
        true => log.with_ansi(false).event_format(ForJournal).init(),
        false => log.with_ansi(std::io::stderr().is_terminal()).init(),
    }
}

struct ForJournal;

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => Priority::Error,
            Level::WARN => Priority::Warning,
            Level::INFO => Priority::Info,
            _ => Priority::Debug,
        };
        write!(out, "<{}>", priority as u8)?;
        context.field_format().format_fields(out.by_ref(), event)?;
        writeln!(out)
    }
}

//! One metric, and its values.

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use std::fmt::Error;

/// A metric and what is said of it.
pub(super) fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    each: impl FnOnce(&mut MetricEncoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    each(&mut encoder.encode_descriptor(name, help, None, kind)?)
}

/// One of its values.
pub(super) fn value(
    metric: &mut MetricEncoder<'_>,
    kind: MetricType,
    value: u64,
) -> Result<(), Error> {
    if matches!(kind, MetricType::Counter) {
        metric.encode_counter(&value, None::<&Exemplar<NoLabelSet, f64>>)
    } else {
        metric.encode_gauge(&value)
    }
}

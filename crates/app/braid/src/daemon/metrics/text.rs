//! The figures of all arrays as metrics: names and meanings in docs/seeing.md.

use super::clients::Clients;
use super::encoding::{family, value};
use super::volumes::Volumes;
use anyhow::{Context, Result};
use braid_control::protocol::volume::VolumeDetail;
use braid_control::protocol::{Flow, Io, MemberIo, Stat};
use braid_export::Client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use std::fmt::Error;

/// The text of OpenMetrics for arrays, those below others among them, their clients, and volumes.
///
/// # Errors
/// When the text cannot be made, which does not depend on the figures.
pub fn text(stats: Vec<Stat>, clients: Vec<Client>, volumes: Vec<VolumeDetail>) -> Result<String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Arrays(stats)));
    registry.register_collector(Box::new(Clients(clients)));
    registry.register_collector(Box::new(Volumes(volumes)));
    let mut text = String::new();
    encode(&mut text, &registry).context("writing metrics")?;
    Ok(text)
}

#[derive(Debug)]
struct Arrays(Vec<Stat>);

/// Something that figures are of: its labels and its requests.
struct Subject<'a> {
    labels: Vec<(&'static str, String)>,
    io: Option<&'a Io>,
}

type Labels = Vec<(&'static str, String)>;
/// A metric of an array: its name, what it is, what it counts.
type OfArray = (&'static str, &'static str, MetricType, fn(&Stat) -> u64);
/// A metric of the requests of an array or a member.
type OfFlow = (&'static str, &'static str, fn(&Flow) -> u64);

const COUNTER: MetricType = MetricType::Counter;
const GAUGE: MetricType = MetricType::Gauge;

const ARRAY: [OfArray; 25] = [
    ("degraded", "Slots without a member in sync", GAUGE, |stat| stat.degraded as u64),
    ("waiting_for_space", "Writes that wait for room under a member", GAUGE, |stat| {
        stat.waiting_for_space
    }),
    ("mismatch_count", "Sectors that the last check found not to match", GAUGE, |stat| {
        stat.mismatch_count
    }),
    ("members", "Members, spares and faulty ones among them", GAUGE, |stat| {
        stat.members.len() as u64
    }),
    ("shards", "Shards that own stripes", GAUGE, |stat| u64::from(stat.shards)),
    ("job_running", "Whether a resync, recovery, check or repair runs", GAUGE, |stat| {
        u64::from(stat.job.is_some())
    }),
    ("job_done_bytes", "Bytes that the running job has done", GAUGE, |stat| {
        stat.job.as_ref().map_or(0, |job| job.done)
    }),
    ("job_total_bytes", "Bytes that the running job has to do", GAUGE, |stat| {
        stat.job.as_ref().map_or(0, |job| job.total)
    }),
    ("job_rate_bytes", "Bytes a second that the running job does", GAUGE, |stat| {
        stat.job.as_ref().map_or(0, |job| job.rate)
    }),
    ("cache_capacity_lines", "Lines that the stripe cache may hold", GAUGE, |stat| {
        stat.cache.capacity
    }),
    ("cache_lines", "Lines that the stripe cache holds", GAUGE, |stat| stat.cache.lines),
    ("cache_bytes", "Memory of the stripe cache", GAUGE, |stat| stat.cache.bytes),
    ("cache_hits", "Blocks that a write needed and the cache had", COUNTER, |stat| stat.cache.hits),
    ("cache_misses", "Blocks that a write needed and had to read", COUNTER, |stat| {
        stat.cache.misses
    }),
    ("cache_evictions", "Lines let go for others", COUNTER, |stat| stat.cache.evictions),
    ("pieces", "Pieces that writes were cut into, one for each stripe", COUNTER, |stat| {
        stat.counters.pieces
    }),
    ("batches", "Times that pieces of a stripe were carried out", COUNTER, |stat| {
        stat.counters.batches
    }),
    ("lookups", "Look-ups of stripes", COUNTER, |stat| stat.counters.lookups),
    ("member_reads", "Reads of members that writes needed", COUNTER, |stat| {
        stat.counters.member_reads
    }),
    ("member_writes", "Writes of members, data and parity, before merging", COUNTER, |stat| {
        stat.counters.member_writes
    }),
    ("full_stripes", "Segments written as full stripes", COUNTER, |stat| {
        stat.counters.full_stripes
    }),
    ("read_modify_writes", "Segments written by read-modify-write", COUNTER, |stat| {
        stat.counters.read_modify_writes
    }),
    ("reconstruct_writes", "Segments written by reconstruct-write", COUNTER, |stat| {
        stat.counters.reconstruct_writes
    }),
    ("recovered_reads", "Pieces of reads recovered from redundancy", COUNTER, |stat| {
        stat.counters.recovered_reads
    }),
    ("corrected_reads", "Read errors mended by writing", COUNTER, |stat| {
        stat.counters.corrected_reads
    }),
];

const FLOW: [OfFlow; 3] = [
    ("requests", "Requests that arrived, merged ones counted once", |flow| flow.requests),
    ("merged", "Requests merged into a neighbour on the way", |flow| flow.merged),
    ("bytes", "Bytes of those requests", |flow| flow.bytes),
];

impl Collector for Arrays {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let arrays: Vec<(&Stat, Labels)> =
            self.0.iter().map(|stat| (stat, array_labels(stat, self.layer(stat)))).collect();
        family(&mut encoder, "braid_array", "An array that runs", MetricType::Info, |metric| {
            arrays.iter().try_for_each(|(stat, labels)| {
                metric.encode_family(labels)?.encode_info(&vec![
                    ("uuid", stat.uuid.clone()),
                    ("level", stat.level.clone()),
                    ("state", stat.state.clone()),
                ])
            })
        })?;
        for (name, help, kind, of) in ARRAY {
            family(&mut encoder, &format!("braid_array_{name}"), help, kind, |metric| {
                arrays.iter().try_for_each(|(stat, labels)| {
                    value(&mut metric.encode_family(labels)?, kind, of(stat))
                })
            })?;
        }
        let of_arrays: Vec<Subject<'_>> = arrays
            .iter()
            .map(|(stat, labels)| Subject { labels: labels.clone(), io: Some(&stat.io) })
            .collect();
        requests(&mut encoder, "braid_array", &of_arrays)?;
        let of_members: Vec<(&MemberIo, Subject<'_>)> = arrays
            .iter()
            .flat_map(|(stat, labels)| stat.members.iter().map(move |member| (member, labels)))
            .map(|(member, labels)| {
                (member, Subject { labels: member_labels(labels, member), io: member.io.as_ref() })
            })
            .collect();
        family(&mut encoder, "braid_member", "A member of an array", MetricType::Info, |metric| {
            of_members.iter().try_for_each(|(member, subject)| {
                metric
                    .encode_family(&subject.labels)?
                    .encode_info(&vec![("state", member.state.clone())])
            })
        })?;
        let of_members: Vec<Subject<'_>> =
            of_members.into_iter().map(|(_, subject)| subject).collect();
        requests(&mut encoder, "braid_member", &of_members)
    }
}

impl Arrays {
    /// How many arrays are above this one.
    fn layer(&self, stat: &Stat) -> usize {
        let mut layer = 0;
        let mut below = stat;
        // No array is below itself, so there are no more rounds than arrays.
        while let Some(above) =
            self.0.iter().find(|above| above.nested().any(|nested| nested.uuid == below.uuid))
        {
            layer += 1;
            below = above;
            if layer > self.0.len() {
                break;
            }
        }
        layer
    }
}

fn array_labels(stat: &Stat, layer: usize) -> Labels {
    vec![("array", stat.name.clone()), ("layer", layer.to_string())]
}

fn member_labels(array: &Labels, member: &MemberIo) -> Labels {
    let mut labels = array.clone();
    labels.push(("member", member.name.clone()));
    labels.push(("slot", member.slot.map_or_else(String::new, |slot| slot.to_string())));
    labels
}

/// What there is to say of requests, be it of arrays or of members; `of` begins the names.
fn requests(
    encoder: &mut DescriptorEncoder<'_>,
    of: &str,
    subjects: &[Subject<'_>],
) -> Result<(), Error> {
    for (name, help, count) in FLOW {
        family(encoder, &format!("{of}_{name}"), help, COUNTER, |metric| {
            each_flow(subjects, |labels, flow| {
                value(&mut metric.encode_family(labels)?, COUNTER, count(flow))
            })
        })?;
    }
    let help = "Requests by size";
    family(encoder, &format!("{of}_size_bytes"), help, MetricType::Histogram, |metric| {
        each_flow(subjects, |labels, flow| {
            let mut metric = metric.encode_family(labels)?;
            metric.encode_histogram::<NoLabelSet>(
                flow.bytes as f64,
                flow.requests,
                &sizes(flow),
                None,
            )
        })
    })?;
    let help = "Time from submission to completion";
    family(encoder, &format!("{of}_latency_seconds"), help, MetricType::Histogram, |metric| {
        each_flow(subjects, |labels, flow| {
            let Some(latency) = &flow.latency else { return Ok(()) };
            let mut metric = metric.encode_family(labels)?;
            let sum = latency.total_ns as f64 / 1e9;
            metric.encode_histogram::<NoLabelSet>(
                sum,
                latency.requests,
                &times(&latency.buckets),
                None,
            )
        })
    })?;
    let timed = || subjects.iter().filter_map(|subject| Some((subject, subject.io?)));
    family(encoder, &format!("{of}_in_flight"), "Requests under way", GAUGE, |metric| {
        timed().filter(|(_, io)| io.timed).try_for_each(|(subject, io)| {
            value(&mut metric.encode_family(&subject.labels)?, GAUGE, io.in_flight)
        })
    })?;
    let help = "Time in which any request was under way, added up over shards";
    family(encoder, &format!("{of}_busy_seconds"), help, COUNTER, |metric| {
        timed().filter(|(_, io)| io.timed).try_for_each(|(subject, io)| {
            let busy = io.busy_ns as f64 / 1e9;
            let mut metric = metric.encode_family(&subject.labels)?;
            metric.encode_counter(&busy, None::<&Exemplar<NoLabelSet, f64>>)
        })
    })
}

fn each_flow(
    subjects: &[Subject<'_>],
    mut each: impl FnMut(&Labels, &Flow) -> Result<(), Error>,
) -> Result<(), Error> {
    for subject in subjects {
        for (direction, flow) in subject.io.iter().flat_map(|io| io.flows()) {
            let mut labels = subject.labels.clone();
            labels.push(("direction", direction.to_string()));
            each(&labels, flow)?;
        }
    }
    Ok(())
}

/// The same bounds in every metric: 512 bytes to 16 MiB.
fn sizes(flow: &Flow) -> Vec<(f64, u64)> {
    let bounds = (0..16).map(|doublings| Some(512u64 << doublings)).chain([None]);
    let count = |bound| {
        let found = flow.sizes.iter().find(|(known, _)| *known == bound);
        found.map_or(0, |(_, count)| *count)
    };
    bounds.map(|bound| (bound.map_or(f64::INFINITY, |bound| bound as f64), count(bound))).collect()
}

/// Four times as much from bound to bound, 1.024 µs to 68.7 s: ends of doublings, so no bucket is cut.
fn times(buckets: &[(u64, u64)]) -> Vec<(f64, u64)> {
    let mut least = 0;
    let bounds = (0..14).map(|step| Some(1024u64 << (2 * step))).chain([None]);
    let counts = bounds.map(|bound| {
        let limit = bound.unwrap_or(u64::MAX);
        let above = buckets.iter().filter(|(up_to, _)| *up_to >= least);
        let within = above.filter(|(up_to, _)| *up_to < limit || bound.is_none());
        let count = within.map(|(_, count)| count).sum();
        least = limit;
        (bound.map_or(f64::INFINITY, |bound| bound as f64 / 1e9), count)
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_control::protocol::samples;

    #[test]
    fn every_layer_has_its_metrics() {
        let stack = samples::stack();
        let below = stack.nested().next().unwrap().clone();
        let text = text(vec![below, stack], Vec::new(), Vec::new()).unwrap();
        for line in [
            "braid_array_info{uuid=\"uuid-of-top\",level=\"raid0\",state=\"clean\",array=\"top\",layer=\"0\"} 1",
            "braid_array_degraded{array=\"m0\",layer=\"1\"} 0",
            "braid_array_requests_total{array=\"top\",layer=\"0\",direction=\"read\"} 64",
            "braid_member_requests_total{array=\"m0\",layer=\"1\",member=\"a\",slot=\"0\",direction=\"read\"} 4",
            "braid_member_merged_total{array=\"m0\",layer=\"1\",member=\"a\",slot=\"0\",direction=\"read\"} 12",
            "braid_member_size_bytes_bucket{le=\"262144.0\",array=\"m0\",layer=\"1\",member=\"a\",slot=\"0\",direction=\"read\"} 4",
            "braid_member_latency_seconds_count{array=\"m0\",layer=\"1\",member=\"b\",slot=\"1\",direction=\"read\"} 8",
            "braid_member_latency_seconds_sum{array=\"m0\",layer=\"1\",member=\"b\",slot=\"1\",direction=\"read\"} 0.008",
            "braid_array_busy_seconds_total{array=\"top\",layer=\"0\"} 0.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("member=\"ram:1M\",slot=\"1\",direction"), "nobody counts there");
    }

    #[test]
    fn names_are_escaped() {
        let mut stat = samples::stack();
        stat.members.truncate(1);
        if let Some(member) = stat.members.first_mut() {
            member.name = "a\"b\\c\nd".to_string();
        }
        let text = text(vec![stat], Vec::new(), Vec::new()).unwrap();
        assert!(text.contains("member=\"a\\\"b\\\\c\\nd\""), "{text}");
    }

    #[test]
    fn times_fall_into_buckets_that_none_is_cut_by() {
        let found = times(&[(1023, 1), (1151, 2), (4095, 4), (u64::MAX, 8)]);
        assert_eq!((found[0], found[1].1, found[14]), ((1024.0 / 1e9, 1), 6, (f64::INFINITY, 8)));
        assert_eq!(found.iter().map(|(_, count)| count).sum::<u64>(), 15);
    }
}

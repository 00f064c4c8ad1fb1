//! The figures of all volumes as metrics: names and meanings in docs/seeing.md.

use super::encoding::{family, value};
use braid_control::protocol::volume::{BrickDetail, VolumeDetail};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::fmt::Error;

/// See the module's documentation.
#[derive(Debug)]
pub struct Volumes(pub Vec<VolumeDetail>);

type OfVolume = (&'static str, &'static str, fn(&VolumeDetail) -> u64);
type OfBrick = (&'static str, &'static str, MetricType, fn(&BrickDetail) -> u64);

const VOLUME: [OfVolume; 14] = [
    ("size_bytes", "Bytes that the bricks hold", |volume| volume.size),
    ("used_bytes", "Bytes in use", |volume| volume.used),
    ("metadata_size_bytes", "Bytes that the metadata may take", |volume| volume.metadata_size),
    ("metadata_used_bytes", "Bytes that the metadata takes", |volume| volume.metadata_used),
    (
        "checksum_errors",
        "Reads of blocks that were not what was written, since the mount",
        |volume| volume.checksum_errors,
    ),
    ("checksum_mended", "Blocks that were mended from another copy, since the mount", |volume| {
        volume.checksum_mended
    }),
    ("incomplete", "Whether copies are missing, or miss something", |volume| {
        u64::from(volume.incomplete)
    }),
    ("snapshots", "Snapshots of folders", |volume| volume.snapshots),
    ("snapshot_bytes", "Bytes in use that snapshots alone hold", |volume| volume.snapshot_bytes),
    ("unbalanced", "Whether a balance would move stripes", |volume| u64::from(volume.unbalanced)),
    ("job_done_bytes", "Bytes that the job under way has moved", |volume| {
        volume.job.as_ref().map_or(0, |detail| detail.job.done)
    }),
    ("job_total_bytes", "Bytes that the job under way has to move", |volume| {
        volume.job.as_ref().map_or(0, |detail| detail.job.total)
    }),
    ("check_done_bytes", "Bytes of metadata that the check under way has looked at", |volume| {
        volume.check.as_ref().map_or(0, |detail| detail.job.done)
    }),
    ("check_total_bytes", "Bytes of metadata that the check under way looks at", |volume| {
        volume.check.as_ref().map_or(0, |detail| detail.job.total)
    }),
];

const BRICK: [OfBrick; 8] = [
    ("up", "Whether the brick is there", MetricType::Gauge, |brick| {
        u64::from(brick.state != "missing" && brick.state != "lost")
    }),
    ("size_bytes", "Room for data", MetricType::Gauge, |brick| brick.size),
    ("used_bytes", "Room in use", MetricType::Gauge, |brick| brick.used),
    ("reads", "Requests of reading", MetricType::Counter, |brick| brick.reads),
    ("read_bytes", "Bytes read", MetricType::Counter, |brick| brick.read_bytes),
    ("writes", "Requests of writing", MetricType::Counter, |brick| brick.writes),
    ("written_bytes", "Bytes written", MetricType::Counter, |brick| brick.written_bytes),
    ("errors", "Requests that failed", MetricType::Counter, |brick| brick.errors),
];

impl Collector for Volumes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        for (name, help, of) in VOLUME {
            let name = format!("braid_volume_{name}");
            family(&mut encoder, &name, help, MetricType::Gauge, |metric| {
                self.0.iter().try_for_each(|volume| {
                    let labels = vec![("volume", volume.name.clone())];
                    value(&mut metric.encode_family(&labels)?, MetricType::Gauge, of(volume))
                })
            })?;
        }
        for (name, help, kind, of) in BRICK {
            let name = format!("braid_brick_{name}");
            family(&mut encoder, &name, help, kind, |metric| {
                let bricks = self.0.iter();
                let mut bricks = bricks
                    .flat_map(|volume| volume.bricks.iter().map(move |brick| (volume, brick)));
                bricks.try_for_each(|(volume, brick)| {
                    value(&mut metric.encode_family(&labels(volume, brick))?, kind, of(brick))
                })
            })?;
        }
        let help = "Its weight: 1 is the share that its size is due";
        family(&mut encoder, "braid_brick_weight", help, MetricType::Gauge, |metric| {
            let bricks = self.0.iter();
            let mut bricks =
                bricks.flat_map(|volume| volume.bricks.iter().map(move |brick| (volume, brick)));
            bricks.try_for_each(|(volume, brick)| {
                metric.encode_family(&labels(volume, brick))?.encode_gauge(&brick.weight)
            })
        })
    }
}

fn labels(volume: &VolumeDetail, brick: &BrickDetail) -> Vec<(&'static str, String)> {
    vec![
        ("volume", volume.name.clone()),
        ("brick", brick.id.to_string()),
        ("device", brick.name.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::metrics::text::text;

    #[test]
    fn a_volume_and_its_bricks_have_figures() {
        let brick = BrickDetail {
            name: "/srv/a".into(),
            state: "data".into(),
            reads: 7,
            weight: 1.5,
            ..BrickDetail::default()
        };
        let volume = VolumeDetail {
            name: "pool".into(),
            used: 4096,
            snapshots: 2,
            snapshot_bytes: 8192,
            bricks: vec![brick],
            ..VolumeDetail::default()
        };
        let text = text(Vec::new(), Vec::new(), vec![volume]).unwrap();
        for line in [
            "braid_volume_used_bytes{volume=\"pool\"} 4096",
            "braid_volume_snapshots{volume=\"pool\"} 2",
            "braid_volume_snapshot_bytes{volume=\"pool\"} 8192",
            "braid_brick_reads_total{volume=\"pool\",brick=\"0\",device=\"/srv/a\"} 7",
            "braid_brick_weight{volume=\"pool\",brick=\"0\",device=\"/srv/a\"} 1.5",
            "braid_brick_up{volume=\"pool\",brick=\"0\",device=\"/srv/a\"} 1",
        ] {
            assert!(text.contains(line), "{line:?} is not in {text}");
        }
    }
}

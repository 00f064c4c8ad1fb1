//! The clients of arrays as metrics, added up for each array and protocol: a client that comes and goes leaves no label
//! of its own behind.

use super::encoding::{family, value};
use braid_export::Client;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::collections::BTreeMap;
use std::fmt::Error;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Clients(pub Vec<Client>);

/// A metric: its name, what it counts.
type OfClients = (&'static str, &'static str, fn(&Sum) -> u64);

#[derive(Default)]
struct Sum {
    clients: u64,
    in_flight: u64,
}

impl Collector for Clients {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut sums: BTreeMap<(&str, &str), Sum> = BTreeMap::new();
        for client in &self.0 {
            let sum = sums.entry((&client.target, client.protocol)).or_default();
            sum.clients += 1;
            sum.in_flight += client.traffic.in_flight;
        }
        let gauges: [OfClients; 2] = [
            ("braid_array_clients", "Connections of clients", |sum| sum.clients),
            ("braid_array_client_requests", "Requests of clients under way", |sum| sum.in_flight),
        ];
        for (name, help, of) in gauges {
            family(&mut encoder, name, help, MetricType::Gauge, |metric| {
                sums.iter().try_for_each(|((array, protocol), sum)| {
                    let labels = vec![
                        ("array", (*array).to_string()),
                        ("protocol", (*protocol).to_string()),
                    ];
                    value(&mut metric.encode_family(&labels)?, MetricType::Gauge, of(sum))
                })
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;
    use braid_export::Traffic;

    #[test]
    fn clients_are_added_up_by_array_and_protocol() {
        let client = |target: &str, protocol, in_flight| Client {
            target: target.to_string(),
            protocol,
            address: "somewhere".to_string(),
            traffic: Traffic { in_flight, ..Traffic::default() },
        };
        let clients = vec![client("a", "nbd", 1), client("a", "nbd", 2), client("b", "nbd", 0)];
        let text = text(Vec::new(), clients, Vec::new()).unwrap();
        for line in [
            "braid_array_clients{array=\"a\",protocol=\"nbd\"} 2",
            "braid_array_clients{array=\"b\",protocol=\"nbd\"} 1",
            "braid_array_client_requests{array=\"a\",protocol=\"nbd\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
    }
}

//! Times of day and spans of time as people read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time in seconds since 1970, in the local zone, in the form of mdadm and of date(1):
/// `Sat Nov 21 03:51:18 2026`.
pub fn local(seconds: u64) -> String {
    in_zone(seconds, TimeZone::system())
}

fn in_zone(seconds: u64, zone: TimeZone) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    match time {
        Some(time) => time.to_zoned(zone).strftime("%a %b %e %H:%M:%S %Y").to_string(),
        // A damaged superblock may say any number.
        None => format!("{seconds} s after 1970"),
    }
}

/// Seconds since 1970 now.
pub fn now() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or(0)
}

/// The minute of the day now, in the local zone, counted from midnight.
pub fn minute_of_day() -> u16 {
    let now = Timestamp::now().to_zoned(TimeZone::system());
    // Both are positive and small.
    now.hour().unsigned_abs() as u16 * 60 + now.minute().unsigned_abs() as u16
}

/// A span: `42 s`, `3 min 20 s`, `2 h 5 min`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A latency in nanoseconds, to three digits: `850 ns`, `12.3 µs`, `4.56 ms`, `1.2 s`.
pub fn short(nanos: u64) -> String {
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_date_does() {
        assert_eq!(in_zone(0, TimeZone::UTC), "Thu Jan  1 00:00:00 1970");
        assert_eq!(in_zone(1_795_232_478, TimeZone::UTC), "Sat Nov 21 03:41:18 2026");
    }

    #[test]
    fn no_number_in_a_superblock_makes_it_fail() {
        assert!(in_zone(u64::MAX, TimeZone::UTC).contains("after 1970"));
        assert!(in_zone((1 << 40) - 1, TimeZone::UTC).contains("after 1970"));
    }

    #[test]
    fn spans_keep_two_units() {
        assert_eq!(span(59), "59 s");
        assert_eq!(span(200), "3 min 20 s");
        assert_eq!(span(7530), "2 h 5 min");
    }

    #[test]
    fn latencies_have_three_digits_at_most() {
        for (nanos, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 µs"),
            (12_345, "12.3 µs"),
            (99_960, "100 µs"),
            (4_560_000, "4.56 ms"),
            (1_200_000_000, "1.2 s"),
            (100_000_000_000, "100 s"),
        ] {
            assert_eq!(short(nanos), text);
        }
    }
}

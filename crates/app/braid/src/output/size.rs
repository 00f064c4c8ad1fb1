//! Sizes and rates as people read them, and the two forms that mdadm shows side by side.

/// A size in the largest unit of 1024 that leaves at least one: `256 MiB`, `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Bytes per second: `512 MB/s`. Rates of disks are given in powers of 1000.
pub fn rate(bytes_per_second: f64) -> String {
    scaled(bytes_per_second, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = units.first().copied().unwrap_or_default();
    for next in units.iter().skip(1) {
        if value < step {
            break;
        }
        value /= step;
        unit = next;
    }
    let plain = value >= 100.0 || value.fract() == 0.0;
    if plain { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// As `mdadm --detail` writes a size: KiB, then both human forms.
pub fn mdadm(bytes: u64) -> String {
    format!("{}{}", bytes / 1024, in_brackets(bytes))
}

/// As `mdadm --examine` writes the size of an array: KiB with their name, then both human forms.
pub fn mdadm_kib(bytes: u64) -> String {
    format!("{} KiB{}", bytes / 1024, in_brackets(bytes))
}

/// As `mdadm --examine` writes a size of a member: sectors, then both human forms.
pub fn mdadm_sectors(bytes: u64) -> String {
    format!("{} sectors{}", bytes / 512, in_brackets(bytes))
}

/// As `mdadm --export` writes the size of an array: one decimal form, nothing for less than 5 MB.
pub fn mdadm_short(bytes: u64) -> String {
    match units(bytes) {
        Some(([_, unit], [_, name])) => format!("{}{name}", hundredths(bytes, unit)),
        None => String::new(),
    }
}

fn in_brackets(bytes: u64) -> String {
    let Some(([binary, decimal], [b, d])) = units(bytes) else { return String::new() };
    format!(" ({} {b} {} {d})", hundredths(bytes, binary), hundredths(bytes, decimal))
}

/// The binary and the decimal unit in which mdadm shows a size, with their names; small ones are not shown.
fn units(bytes: u64) -> Option<([u64; 2], [&'static str; 2])> {
    Some(match bytes {
        0..5_120_000 => return None,
        5_120_000..2_147_483_648 => ([1 << 20, 1_000_000], ["MiB", "MB"]),
        2_147_483_648..2_199_023_255_552 => ([1 << 30, 1_000_000_000], ["GiB", "GB"]),
        _ => ([1 << 40, 1_000_000_000_000], ["TiB", "TB"]),
    })
}

fn hundredths(bytes: u64, unit: u64) -> String {
    let all = (u128::from(bytes) * 200 / u128::from(unit)).div_ceil(2);
    format!("{}.{:02}", all / 100, all % 100)
}

/// A chunk as mdadm writes it: `512K`, or in bytes when it is no whole number of KiB.
pub fn chunk(bytes: u64) -> String {
    match bytes % 1024 {
        0 => format!("{}K", bytes / 1024),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1536, "1.5 KiB"),
            (256 << 20, "256 MiB"),
            (3 << 40, "3 TiB"),
        ] {
            assert_eq!(human(bytes), text);
        }
        assert_eq!(rate(1_234_000.0), "1.2 MB/s");
        assert_eq!(rate(0.0), "0 B/s");
        assert!(human(u64::MAX).ends_with("PiB"));
    }

    #[test]
    fn sizes_in_two_units_are_those_of_mdadm() {
        assert_eq!(mdadm(64 << 10), "64");
        assert_eq!(mdadm(3 * 1_046_528 * 1024), "3139584 (2.99 GiB 3.21 GB)");
        assert_eq!(mdadm(1 << 30), "1048576 (1024.00 MiB 1073.74 MB)");
        assert_eq!(mdadm_kib(30 << 20), "30720 KiB (30.00 MiB 31.46 MB)");
        assert_eq!(mdadm_sectors(1 << 30), "2097152 sectors (1024.00 MiB 1073.74 MB)");
        assert!(mdadm(u64::MAX).contains("TiB"));
    }
}

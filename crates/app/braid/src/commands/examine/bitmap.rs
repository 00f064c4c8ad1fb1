//! `braid examine --bitmap`: the write-intent bitmap of a member, or of a file that holds one, as
//! `mdadm --examine-bitmap` shows it.

use crate::discover;
use crate::output::size;
use crate::source::Source;
use anyhow::{Context, Result, bail};
use braid_format::SECTOR;
use braid_format::bitmap::{BitmapSuperblock, Bits, HEADER};
use braid_format::uuid_text;

/// What the bitmap's superblock says, and how many bits are set.
///
/// # Errors
/// A member without a bitmap, a bitmap that makes no sense or has been cut short.
pub fn text(source: &Source, name: &str) -> Result<String> {
    let start = match discover::examine_source(source, name)?.superblock {
        Ok(Some(superblock)) => match superblock.bitmap_sector() {
            Some(sector) => sector.saturating_mul(SECTOR as u64),
            None => bail!(
                "{name} is a member of an array without an internal bitmap; one can be added while the array runs: \
                 braid grow ARRAY --bitmap internal"
            ),
        },
        // No member: a file with a bitmap in it and nothing else.
        _ => 0,
    };
    let mut header = vec![0; HEADER];
    source
        .read_exact_at(&mut header, start)
        .with_context(|| format!("reading the bitmap of {name}"))?;
    let bitmap = BitmapSuperblock::parse(&header).with_context(|| name.to_string())?;
    let dirty = dirty(source, start, &bitmap).with_context(|| {
        format!("reading the {} bits of the bitmap of {name}; it is cut short", bitmap.bits())
    })?;
    let mut lines = Vec::new();
    let mut field = |name: &str, value: String| lines.push(format!("{name:>16} : {value}"));
    field("Filename", name.to_string());
    field("Magic", "6d746962".to_string());
    field("Version", bitmap.version.to_string());
    field("UUID", uuid_text::format(&bitmap.uuid));
    field("Events", bitmap.events.to_string());
    field("Events Cleared", bitmap.events_cleared.to_string());
    field("State", state(bitmap.state).to_string());
    field("Chunksize", chunk(bitmap.chunk_bytes));
    field("Daemon", format!("{}s flush period", bitmap.daemon_sleep));
    field(
        "Write Mode",
        match bitmap.write_behind {
            0 => "Normal".to_string(),
            most => format!("Allow write behind, max {most}"),
        },
    );
    field("Sync Size", size::mdadm(bitmap.sync_size.saturating_mul(SECTOR as u64)));
    let percent = 100.0 * dirty as f64 / bitmap.bits().max(1) as f64;
    field("Bitmap", format!("{} bits (chunks), {dirty} dirty ({percent:.1}%)", bitmap.bits()));
    Ok(lines.join("\n"))
}

/// Bytes of bits that are read at a time: a superblock can ask for 256 MiB of them.
const PIECE: u64 = 64 << 10;

/// How many bits are set.
fn dirty(source: &Source, start: u64, bitmap: &BitmapSuperblock) -> Result<usize> {
    let bits = bitmap.bits();
    // A file may end with its last bit, where an area on a member is a number of whole pages.
    let bytes = bits.div_ceil(8);
    let first = start.saturating_add(HEADER as u64);
    let mut dirty = 0;
    for at in (0..bytes).step_by(PIECE as usize) {
        let len = PIECE.min(bytes - at);
        // `Bits` reads an area, whose first bytes are the superblock's.
        let mut area = vec![0; HEADER + len as usize];
        source.read_exact_at(area.split_at_mut(HEADER).1, first.saturating_add(at))?;
        dirty += Bits::from_area(&area, (bits - 8 * at).min(8 * len)).iter_set().count();
    }
    Ok(dirty)
}

fn state(state: u32) -> &'static str {
    match state {
        0 => "OK",
        2 => "Out of date",
        _ => "Unknown",
    }
}

/// As mdadm writes it: the largest unit that leaves a whole number.
fn chunk(bytes: u32) -> String {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    let unit = units.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn text(path: &Path) -> Result<String> {
        super::text(&Source::file(path)?, &path.display().to_string())
    }

    /// What mdadm 4.2 prints of the same bytes.
    const MDADM: &str = "           Magic : 6d746962
         Version : 4
            UUID : 00010203:04050607:08090a0b:0c0d0e0f
          Events : 12
  Events Cleared : 10
           State : OK
       Chunksize : 64 MB
          Daemon : 5s flush period
      Write Mode : Allow write behind, max 256
       Sync Size : 1047552 (1023.00 MiB 1072.69 MB)
          Bitmap : 16 bits (chunks), 2 dirty (12.5%)";

    #[test]
    fn a_file_with_a_bitmap_is_shown_as_mdadm_shows_it() {
        let uuid = std::array::from_fn(|at| at as u8);
        let bitmap = BitmapSuperblock {
            events: 12,
            events_cleared: 10,
            write_behind: 256,
            ..BitmapSuperblock::new(uuid, 2_095_104, 64 << 20)
        };
        let mut bytes = bitmap.to_bytes().to_vec();
        bytes.extend([0b101, 0]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let expected = format!("        Filename : {}\n{MDADM}", file.path().display());
        assert_eq!(text(file.path()).unwrap(), expected);

        std::fs::write(file.path(), &bytes[..HEADER + 1]).unwrap();
        let error = format!("{:#}", text(file.path()).unwrap_err());
        assert!(error.contains("cut short"), "{error}");
        std::fs::write(file.path(), [0; 8192]).unwrap();
        assert!(text(file.path()).is_err());
    }

    #[test]
    fn bits_of_several_pieces_are_counted() {
        let bits = 8 * (2 * PIECE + 3) - 5;
        let bitmap = BitmapSuperblock::new([7; 16], bits * 8, 4096);
        let mut bytes = bitmap.to_bytes().to_vec();
        bytes.resize(HEADER + bits.div_ceil(8) as usize, 0);
        // The last byte has bits beyond the end, which do not count.
        let last = bytes.len() - 1;
        bytes[HEADER + PIECE as usize - 1] = 0x80;
        bytes[HEADER + PIECE as usize] = 0x01;
        bytes[last] = 0xff;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let shown = text(file.path()).unwrap();
        assert!(shown.contains(&format!("{bits} bits (chunks), 5 dirty")), "{shown}");
    }

    #[test]
    fn chunks_are_shown_in_the_unit_that_fits() {
        let shown = [512, 4096, 128 << 10, 64 << 20, 1 << 30].map(chunk);
        assert_eq!(shown, ["512 B", "4 KB", "128 KB", "64 MB", "1 GB"]);
    }
}

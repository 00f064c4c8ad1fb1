//! Files by their paths from the root of a volume.

use braid_control::protocol::volume::FileName;
use std::path::Path;

/// A file of the volume that is mounted at `dir`, as a path from its root.
pub(super) fn inside(dir: &Path, file: &FileName) -> String {
    let below = Path::new(&file.absolute).strip_prefix(dir).ok();
    let path = below.map_or_else(|| file.typed.clone(), |below| below.display().to_string());
    format!("/{}", path.trim_start_matches('/').trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_from_the_root_of_its_volume() {
        let name = |typed: &str, absolute: &str| {
            let file = FileName { typed: typed.into(), absolute: absolute.into() };
            inside(Path::new("/srv/pool"), &file)
        };
        assert_eq!(name("pool/a", "/srv/pool/a"), "/a");
        assert_eq!(name("/srv/pool/a/b/", "/srv/pool/a/b"), "/a/b");
        assert_eq!(name("a/b", "/root/a/b"), "/a/b");
        assert_eq!(name("/a", "/a"), "/a");
        assert_eq!(name("/srv/pool", "/srv/pool"), "/");
    }
}

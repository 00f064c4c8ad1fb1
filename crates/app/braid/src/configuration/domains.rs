//! `mdadm.conf`'s POLICY lines that make spare groups: an array whose members all lie in one domain shares its spares there.

use crate::settings::group::SpareGroup;
use std::path::Path;

/// Links by the ports that devices are plugged into: what `path=` is compared with.
const BY_PATH: &str = "/dev/disk/by-path";

/// Devices that share spares.
#[derive(Debug, Clone)]
pub struct Domain {
    /// Its name.
    pub group: SpareGroup,
    /// Names of links in `/dev/disk/by-path`; `None`: all devices.
    pub path: Option<glob::Pattern>,
}

impl Domain {
    fn has(&self, device: &Path) -> bool {
        let Some(pattern) = &self.path else { return true };
        let real = std::fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
        let links = std::fs::read_dir(BY_PATH).into_iter().flatten().flatten();
        let mut names = links
            .filter(|link| std::fs::canonicalize(link.path()).is_ok_and(|target| target == real))
            .map(|link| link.file_name().to_string_lossy().into_owned());
        names.any(|name| pattern.matches(&name)) || pattern.matches(&device.to_string_lossy())
    }
}

/// The group of an array with these members.
pub fn group_of(domains: &[Domain], members: &[&Path]) -> Option<SpareGroup> {
    let all_in = |domain: &&Domain| members.iter().all(|member| domain.has(member));
    domains.iter().filter(|_| !members.is_empty()).find(all_in).map(|domain| domain.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_in_the_domain_that_has_all_its_members() {
        let domain = |name: &str, path: &str| Domain {
            group: name.parse().unwrap(),
            path: Some(glob::Pattern::new(path).unwrap()),
        };
        let domains = [domain("front", "/d/front*"), domain("all", "/d/*")];
        let of = |members: &[&str]| {
            let members: Vec<&Path> = members.iter().map(Path::new).collect();
            group_of(&domains, &members).map(|group| group.to_string())
        };
        assert_eq!(of(&["/d/front1", "/d/front2"]).as_deref(), Some("front"));
        assert_eq!(of(&["/d/front1", "/d/back"]).as_deref(), Some("all"));
        assert_eq!(of(&["/e/x"]), None);
        assert_eq!(of(&[]), None);
    }
}

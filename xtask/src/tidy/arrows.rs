//! Rules about which crate may depend on which.
//!
//! Owns the table of layers that ARCHITECTURE.md explains. Tests and build scripts obey it too: a
//! test that reaches upwards is in the wrong crate.

use super::finding::Finding;
use super::tree::{Layer, Manifest, Tree};

/// What the crates of one layer may depend on.
struct Arrows {
    from: Layer,
    /// The layers below, all of whose crates may be used.
    below: &'static [Layer],
    /// Folders of crates in the same layer, in order: a crate may use those that stand before its
    /// own, and one that is not listed may use them all. Empty: no crate of the layer may use
    /// another.
    siblings: &'static [&'static str],
}

use Layer::{App, Check, Engine, Export, Pure, Runtime, Xtask};

const TABLE: &[Arrows] = &[
    Arrows { from: Pure, below: &[], siblings: &[] },
    Arrows {
        from: Runtime,
        below: &[Pure],
        siblings: &["shard", "device", "filesystem", "mirror", "kv"],
    },
    Arrows { from: Engine, below: &[Pure, Runtime], siblings: &[] },
    Arrows { from: Export, below: &[Runtime], siblings: &["export"] },
    Arrows {
        from: App,
        below: &[Pure, Runtime, Engine, Export],
        siblings: &["load", "control", "braid"],
    },
    Arrows {
        from: Check,
        below: &[Pure, Runtime, Engine, Export, App],
        siblings: &["posix", "sim", "doors", "interop"],
    },
    Arrows { from: Xtask, below: &[Pure, Runtime, Engine, Export, App], siblings: &[] },
];

/// Arrows within a layer beside those of the table, by the folders of the crates.
const MORE: &[(&str, &str)] = &[
    // A door that is a mounted tree.
    ("view", "fuse"),
];

/// Every dependency of ours on ours is an arrow of [`TABLE`] or of [`MORE`].
pub fn point_down(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (from, manifest) in tree.crates() {
        for dependency in manifest.dependencies() {
            let Some((to, used)) = tree.crate_named(&dependency.package) else { continue };
            if !may_use((from, manifest), (to, used)) {
                findings.push(Finding::in_file(
                    &manifest.path,
                    format!(
                        "{} ({}) depends on {} ({})",
                        manifest.package().unwrap_or_default(),
                        from.name(),
                        dependency.package,
                        to.name(),
                    ),
                    &format!(
                        "{}; move what both need into a lower crate, or let the caller pass it in",
                        what_may(from)
                    ),
                ));
            }
        }
    }
    findings
}

/// tokio, by whatever crate of its family, is a dependency of app crates only.
pub fn tokio_only_in_app(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (layer, manifest) in tree.crates().filter(|(layer, _)| *layer != App) {
        for dependency in manifest.dependencies() {
            if dependency.package == "tokio" || dependency.package.starts_with("tokio-") {
                findings.push(Finding::in_file(
                    &manifest.path,
                    format!("{} is a dependency in {}", dependency.package, layer.name()),
                    "use the shard executor here; tokio serves the control plane in app only",
                ));
            }
        }
    }
    findings
}

fn may_use((from, user): (Layer, &Manifest), (to, used): (Layer, &Manifest)) -> bool {
    let Some(arrows) = TABLE.iter().find(|arrows| arrows.from == from) else { return false };
    if from != to {
        return arrows.below.contains(&to);
    }
    if MORE.contains(&(crate_folder(user), crate_folder(used))) {
        return true;
    }
    let place = |manifest| arrows.siblings.iter().position(|name| *name == crate_folder(manifest));
    match (place(user), place(used)) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(own), Some(other)) => other < own,
    }
}

/// The name of the crate's own folder.
fn crate_folder(manifest: &Manifest) -> &str {
    manifest.folder().trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

fn what_may(from: Layer) -> String {
    let Some(arrows) = TABLE.iter().find(|arrows| arrows.from == from) else {
        return format!("{} has no line in the table", from.name());
    };
    let mut allowed: Vec<&str> = arrows.below.iter().map(|layer| layer.name()).collect();
    let order = arrows.siblings.join(" before ");
    if !order.is_empty() {
        allowed.push(&order);
    }
    match allowed.as_slice() {
        [] => format!("{} may depend on no crate of ours", from.name()),
        some => format!("{} may depend on {}", from.name(), some.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings for a crate at `from` that names the crate at `to` as a dependency.
    fn findings(from: &str, to: &str) -> Vec<Finding> {
        findings_of_kind("dependencies", from, to)
    }

    fn findings_of_kind(kind: &str, from: &str, to: &str) -> Vec<Finding> {
        let user = format!("[package]\nname = \"user\"\n[{kind}]\nused.workspace = true\n");
        point_down(&Tree::of(&[
            (&format!("{from}/Cargo.toml"), &user),
            (&format!("{to}/Cargo.toml"), "[package]\nname = \"used\"\n"),
        ]))
    }

    #[test]
    fn arrows_of_the_table_are_allowed() {
        for (from, to) in [
            ("crates/runtime/shard", "crates/pure/parity"),
            ("crates/runtime/device", "crates/runtime/shard"),
            ("crates/engine/array", "crates/runtime/device"),
            ("crates/engine/array", "crates/pure/layout"),
            ("crates/export/nbd", "crates/runtime/device"),
            ("crates/export/nbd", "crates/export/export"),
            ("crates/app/braid", "crates/app/load"),
            ("crates/export/view", "crates/export/fuse"),
            ("crates/app/braid", "crates/export/nbd"),
            ("crates/check/interop", "crates/check/sim"),
            ("crates/check/sim", "crates/engine/array"),
            ("crates/check/bench", "crates/app/load"),
            ("crates/check/bench", "crates/check/interop"),
            ("crates/check/bench", "crates/check/posix"),
            ("xtask", "crates/pure/layout"),
        ] {
            assert_eq!(findings(from, to), [], "{from} -> {to}");
        }
    }

    #[test]
    fn arrows_up_and_sideways_are_found() {
        for (from, to) in [
            ("crates/pure/layout", "crates/pure/parity"),
            ("crates/pure/format", "crates/runtime/shard"),
            ("crates/runtime/shard", "crates/runtime/device"),
            ("crates/runtime/device", "crates/engine/array"),
            ("crates/engine/array", "crates/engine/volume"),
            ("crates/engine/array", "crates/export/nbd"),
            ("crates/export/nbd", "crates/engine/array"),
            ("crates/export/nbd", "crates/export/fuse"),
            ("crates/export/fuse", "crates/export/view"),
            ("crates/export/export", "crates/export/nbd"),
            ("crates/app/load", "crates/app/braid"),
            ("crates/app/braid", "crates/check/sim"),
            ("crates/check/sim", "crates/check/interop"),
            ("crates/check/sim", "xtask"),
            ("xtask", "crates/check/sim"),
        ] {
            assert_eq!(findings(from, to).len(), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn dependencies_for_tests_are_arrows_too() {
        let found =
            findings_of_kind("dev-dependencies", "crates/pure/format", "crates/pure/layout");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn the_finding_names_the_file_the_arrow_and_what_is_allowed() {
        let found = findings("crates/runtime/shard", "crates/runtime/device");
        let message = found.first().unwrap().to_string();
        assert_eq!(
            message,
            "crates/runtime/shard/Cargo.toml: user (runtime) depends on used (runtime); runtime may \
             depend on pure, shard before device before filesystem before mirror before kv; move what both need into a lower crate, or let \
             the caller pass it in"
        );
    }

    #[test]
    fn tokio_is_found_outside_app() {
        let manifest = "[package]\nname = \"x\"\n[dependencies]\ntokio-util = \"1\"\n";
        let found = |path| tokio_only_in_app(&Tree::of(&[(path, manifest)])).len();
        assert_eq!(found("crates/export/nbd/Cargo.toml"), 1);
        assert_eq!(found("crates/check/sim/Cargo.toml"), 1);
        assert_eq!(found("crates/app/braid/Cargo.toml"), 0);
    }
}

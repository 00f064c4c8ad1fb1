//! What the rules look at: the manifests, the sources and some documents, as text in memory.
//!
//! Owns the reading of the repository and the naming of its layers; knows no rule. Paths are from
//! the repository root, with `/`, and sorted, so that findings come in the same order everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::tokens::Tokens;

/// Where the reason for each third-party crate is written down.
pub const DEPENDENCY_LIST: &str = "docs/dependencies.md";

/// The map of the code.
pub const CODE_MAP: &str = "ARCHITECTURE.md";

/// What a user reads first.
pub const README: &str = "README.md";

/// The targets that a person types.
pub const MAKEFILE: &str = "Makefile";

/// Files other than Rust and manifests that some rule looks at.
const DOCUMENTS: &[&str] = &[DEPENDENCY_LIST, CODE_MAP, README, MAKEFILE];

/// Folders under the root that hold the project's own Rust.
const SOURCE_FOLDERS: &[&str] = &["crates", "fuzz", "xtask"];

/// The layers of ARCHITECTURE.md, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Pure,
    Runtime,
    Engine,
    Export,
    App,
    Check,
    Xtask,
}

impl Layer {
    /// The layer of a file or folder, by its path from the root; `None` outside every layer (the
    /// root itself, the documents).
    pub fn of(path: &str) -> Option<Layer> {
        const FOLDERS: &[(&str, Layer)] = &[
            ("crates/pure/", Layer::Pure),
            ("crates/runtime/", Layer::Runtime),
            ("crates/engine/", Layer::Engine),
            ("crates/export/", Layer::Export),
            ("crates/app/", Layer::App),
            ("crates/check/", Layer::Check),
            ("fuzz/", Layer::Check),
            ("xtask/", Layer::Xtask),
        ];
        FOLDERS.iter().find(|(folder, _)| path.starts_with(folder)).map(|(_, layer)| *layer)
    }

    /// The name of the layer's folder.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Pure => "pure",
            Layer::Runtime => "runtime",
            Layer::Engine => "engine",
            Layer::Export => "export",
            Layer::App => "app",
            Layer::Check => "check",
            Layer::Xtask => "xtask",
        }
    }
}

/// A `Cargo.toml`.
pub struct Manifest {
    pub path: String,
    /// The parsed document, or why it could not be parsed.
    pub document: Result<toml::Table, String>,
}

/// A dependency as one manifest states it.
pub struct Dependency {
    /// The package's name, also where the manifest renames it.
    pub package: String,
}

impl Manifest {
    fn new(path: &str, text: &str) -> Self {
        let document = text.parse().map_err(|error: toml::de::Error| error.message().to_owned());
        Manifest { path: path.to_owned(), document }
    }

    /// The folder of the manifest with a closing `/`; empty for the root.
    pub fn folder(&self) -> &str {
        self.path.strip_suffix("Cargo.toml").unwrap_or(&self.path)
    }

    /// The package's name; `None` for a manifest without a package.
    pub fn package(&self) -> Option<&str> {
        self.document.as_ref().ok()?.get("package")?.get("name")?.as_str()
    }

    /// Every dependency of the package: ordinary, for tests, for the build script, and those for
    /// one target only.
    pub fn dependencies(&self) -> Vec<Dependency> {
        const KINDS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];
        let Ok(document) = &self.document else { return Vec::new() };
        let targets = document.get("target").and_then(toml::Value::as_table);
        let tables = std::iter::once(document)
            .chain(targets.into_iter().flat_map(|t| t.values().filter_map(toml::Value::as_table)));
        let mut found = Vec::new();
        for table in tables {
            for kind in KINDS {
                found.extend(dependencies_in(table.get(*kind)));
            }
        }
        found
    }

    /// The versions that the root manifest pins for all crates.
    pub fn workspace_dependencies(&self) -> Vec<Dependency> {
        let Ok(document) = &self.document else { return Vec::new() };
        dependencies_in(document.get("workspace").and_then(|w| w.get("dependencies")))
    }
}

fn dependencies_in(table: Option<&toml::Value>) -> Vec<Dependency> {
    let entries = table.and_then(toml::Value::as_table).into_iter().flatten();
    entries
        .map(|(key, value)| Dependency {
            package: value
                .get("package")
                .and_then(toml::Value::as_str)
                .unwrap_or(key.as_str())
                .to_owned(),
        })
        .collect()
}

/// A Rust source file.
pub struct Source {
    pub path: String,
    pub text: String,
    /// The file's tokens, or why it is no Rust.
    pub tokens: Result<Tokens, String>,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Source { path: path.to_owned(), text: text.to_owned(), tokens: Tokens::of(text) }
    }

    /// Whether the whole file is tests or benches, by its name or folder.
    pub fn is_test(&self) -> bool {
        let mut parts = self.path.rsplit('/');
        let file = parts.next().unwrap_or_default();
        file == "tests.rs"
            || file.ends_with("_tests.rs")
            || parts.any(|folder| folder == "tests" || folder == "benches")
    }
}

/// The repository, as far as the rules look at it.
#[derive(Default)]
pub struct Tree {
    pub manifests: Vec<Manifest>,
    pub sources: Vec<Source>,
    /// The texts of those [`DOCUMENTS`] that are there, by path.
    documents: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the repository under `root`.
    pub fn read(root: &Path) -> Result<Tree> {
        let mut paths: Vec<String> =
            DOCUMENTS.iter().chain(&["Cargo.toml"]).map(|path| (*path).to_owned()).collect();
        paths.retain(|path| root.join(path).is_file());
        for folder in SOURCE_FOLDERS {
            collect(root, folder, &mut paths)?;
        }
        paths.sort();
        let mut tree = Tree::default();
        for path in &paths {
            let text = fs::read_to_string(root.join(path))
                .with_context(|| format!("reading {path} under {}", root.display()))?;
            tree.add(path, &text);
        }
        Ok(tree)
    }

    /// A tree of the given files.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(path, text);
        }
        tree
    }

    fn add(&mut self, path: &str, text: &str) {
        if DOCUMENTS.contains(&path) {
            self.documents.insert(path.to_owned(), text.to_owned());
        } else if path.ends_with(".rs") {
            self.sources.push(Source::new(path, text));
        } else {
            self.manifests.push(Manifest::new(path, text));
        }
    }

    /// The manifests that belong to a layer, with it.
    pub fn crates(&self) -> impl Iterator<Item = (Layer, &Manifest)> {
        self.manifests
            .iter()
            .filter(|manifest| manifest.package().is_some())
            .filter_map(|manifest| Some((Layer::of(&manifest.path)?, manifest)))
    }

    /// The text of a document; empty where there is none.
    pub fn document(&self, path: &str) -> &str {
        self.documents.get(path).map_or("", String::as_str)
    }

    /// The crate of ours with that package name.
    pub fn crate_named(&self, package: &str) -> Option<(Layer, &Manifest)> {
        self.crates().find(|(_, manifest)| manifest.package() == Some(package))
    }
}

/// Adds the sources and manifests below `folder` to `paths`. A folder that is not there adds
/// nothing; build outputs are passed over.
fn collect(root: &Path, folder: &str, paths: &mut Vec<String>) -> Result<()> {
    let reading = || format!("listing {folder} under {}", root.display());
    if !root.join(folder).is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(root.join(folder)).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.file_type().with_context(reading)?.is_dir() {
            if name != "target" {
                collect(root, &path, paths)?;
            }
        } else if name == "Cargo.toml" || name.ends_with(".rs") {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_manifests_and_sources_in_order_and_passes_over_build_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.toml", "[workspace]");
        write("docs/dependencies.md", "rows");
        write("docs/example.rs", "not ours to read");
        write("crates/pure/b/src/lib.rs", "//! B.");
        write("crates/pure/b/Cargo.toml", "[package]\nname = \"b\"");
        write("crates/pure/b/target/debug/x.rs", "built");
        write("xtask/src/main.rs", "fn main() {}");

        let tree = Tree::read(folder.path()).unwrap();
        let paths: Vec<&str> = tree.sources.iter().map(|source| source.path.as_str()).collect();
        assert_eq!(paths, ["crates/pure/b/src/lib.rs", "xtask/src/main.rs"]);
        let manifests: Vec<&str> = tree.manifests.iter().map(|m| m.path.as_str()).collect();
        assert_eq!(manifests, ["Cargo.toml", "crates/pure/b/Cargo.toml"]);
        assert_eq!(tree.document(DEPENDENCY_LIST), "rows");
        assert_eq!(tree.document(README), "");
        assert_eq!(tree.crate_named("b").map(|(layer, _)| layer), Some(Layer::Pure));
    }

    #[test]
    fn dependencies_of_every_kind_are_found_under_their_package_names() {
        let manifest = Manifest::new(
            "crates/pure/x/Cargo.toml",
            r#"
            [dependencies]
            plain = "1"
            renamed = { version = "1", package = "real-name" }
            [dev-dependencies]
            for-tests.workspace = true
            [build-dependencies]
            for-build = "1"
            [target.'cfg(unix)'.dependencies]
            on-unix = "1"
            "#,
        );
        let mut names: Vec<String> =
            manifest.dependencies().into_iter().map(|dependency| dependency.package).collect();
        names.sort();
        assert_eq!(names, ["for-build", "for-tests", "on-unix", "plain", "real-name"]);
    }

    #[test]
    fn test_files_are_told_by_name_or_folder() {
        for (path, expected) in [
            ("crates/engine/array/src/write/tests.rs", true),
            ("crates/engine/array/src/write_tests.rs", true),
            ("crates/engine/array/tests/degraded.rs", true),
            ("crates/pure/parity/benches/xor.rs", true),
            ("crates/engine/array/src/contests.rs", false),
            ("crates/engine/array/src/write.rs", false),
        ] {
            assert_eq!(Source::new(path, "").is_test(), expected, "{path}");
        }
    }
}

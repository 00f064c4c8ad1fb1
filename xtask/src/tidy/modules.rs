//! Which module of a crate names which other, read from the sources.
//!
//! Owns the resolving of paths (`crate::`, `super::`, `self::`, a child's name) to the file that they lead to. A name that
//! a module only passes on (`pub use`) leads to the module that defines it, so that re-exports are no arrows of those who
//! use them. Tests are left out: they may look anywhere.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::NamedPath;
use super::tree::{Source, Tree};

/// A module by its path inside the crate, `control::members`; the root is empty.
pub type Name = String;

/// The modules of one crate and the arrows between them.
pub struct Graph {
    /// The crate's folder from the repository's root, without a closing `/`.
    pub folder: String,
    /// The modules that each names, itself left out.
    pub arrows: BTreeMap<Name, BTreeSet<Name>>,
}

/// A file of the crate, with the paths in it that tests do not own.
struct Module {
    paths: Vec<NamedPath>,
}

/// One graph for each crate of the tree, in the order of their folders.
pub fn graphs(tree: &Tree) -> Vec<Graph> {
    let folders = tree.crates().map(|(_, manifest)| manifest.folder());
    folders.map(|folder| Graph::of(folder, &tree.sources)).collect()
}

impl Graph {
    fn of(folder: &str, sources: &[Source]) -> Graph {
        let mut modules: BTreeMap<Name, Module> = BTreeMap::new();
        for source in sources.iter().filter(|source| !source.is_test()) {
            let Some(file) = source.path.strip_prefix(folder).and_then(|p| p.strip_prefix("src/"))
            else {
                continue;
            };
            let Ok(tokens) = &source.tokens else { continue };
            let paths = tokens.paths().into_iter().filter(|path| !path.in_test);
            let module = modules.entry(name_of(file)).or_insert(Module { paths: Vec::new() });
            module.paths.extend(paths.filter(|path| path.segments.len() > 1));
        }
        let arrows = modules.iter().map(|(name, module)| {
            let named = module.paths.iter();
            let targets = named.filter_map(|path| lead(&modules, name, &path.segments, 0));
            (name.clone(), targets.filter(|target| target != name).collect())
        });
        Graph { folder: folder.trim_end_matches('/').to_owned(), arrows: arrows.collect() }
    }

    /// The sets of modules that reach each other, of two or more, each sorted.
    pub fn circles(&self) -> Vec<BTreeSet<Name>> {
        let reach: BTreeMap<&Name, BTreeSet<&Name>> =
            self.arrows.keys().map(|name| (name, self.reached_from(name))).collect();
        let mut circles: Vec<BTreeSet<Name>> = Vec::new();
        for (name, reached) in &reach {
            if circles.iter().any(|circle| circle.contains(*name)) || !reached.contains(*name) {
                continue;
            }
            let back = |other: &&Name| reach.get(other).is_some_and(|there| there.contains(*name));
            circles.push(reached.iter().copied().filter(back).cloned().collect());
        }
        circles
    }

    /// Where the arrows lead from `start`, which is among them only if it lies on a circle.
    fn reached_from<'a>(&'a self, start: &Name) -> BTreeSet<&'a Name> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Name> = self.arrows.get(start).into_iter().flatten().collect();
        while let Some(name) = next.pop() {
            if reached.insert(name) {
                next.extend(self.arrows.get(name).into_iter().flatten());
            }
        }
        reached
    }
}

/// The module of a file, by its path below `src/`.
fn name_of(file: &str) -> Name {
    let stem = file.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    if stem == "lib" || stem == "main" { String::new() } else { stem.replace('/', "::") }
}

/// Follows re-exports so far; a longer chain is a circle of names.
const REEXPORTS: usize = 8;

/// The module that `path`, written in `module`, leads to; `None` for a path out of the crate.
fn lead(
    modules: &BTreeMap<Name, Module>,
    module: &str,
    path: &[String],
    depth: usize,
) -> Option<Name> {
    let own: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let first = path.first()?.as_str();
    let mut rest = path.iter().map(String::as_str).peekable();
    let mut whole: Vec<&str> = match first {
        "crate" => {
            rest.next();
            Vec::new()
        }
        "self" => {
            rest.next();
            own
        }
        "super" => {
            let mut up = own;
            while rest.next_if_eq(&"super").is_some() {
                up.pop()?;
            }
            up
        }
        child => {
            let mut below = own;
            below.push(child);
            if !modules.contains_key(&below.join("::")) {
                return None;
            }
            below.pop();
            below
        }
    };
    whole.extend(rest);
    let known = (0..=whole.len()).rev().find_map(|length| {
        let name = whole.get(..length)?.join("::");
        modules.contains_key(&name).then_some((length, name))
    });
    let (length, name) = known?;
    let Some(wanted) = whole.get(length) else { return Some(name) };
    let passed_on =
        modules.get(&name).into_iter().flat_map(|found| &found.paths).find_map(|path| {
            let leads = path.segments.last().is_some_and(|last| last == wanted);
            let same_path = name == module && path.segments.iter().eq(whole.iter());
            if !leads || same_path || depth >= REEXPORTS {
                return None;
            }
            lead(modules, &name, &path.segments, depth + 1).filter(|target| *target != name)
        });
    Some(passed_on.unwrap_or(name))
}

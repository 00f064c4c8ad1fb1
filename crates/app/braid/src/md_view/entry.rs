//! Entries of folders.

use braid_view::{Listed, Node, Rights};

/// A text.
pub(super) fn text(name: impl Into<String>, rights: Rights) -> Listed {
    Listed { name: name.into(), node: Node::Text(rights) }
}

/// A folder.
pub(super) fn folder(name: impl Into<String>) -> Listed {
    Listed { name: name.into(), node: Node::Folder }
}

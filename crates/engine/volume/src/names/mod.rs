//! The tree of names.
//!
//! | file | subject |
//! |---|---|
//! | `entries` | entries of one directory: found, added, taken away |
//! | `make` | new files and links |
//! | `remove` | names that go |
//! | `rename` | names that change |
//! | `read_dir` | directories read in order |
//! | `rules` | names that are refused, and the room that one takes |
//! | `xattrs` | extended attributes |

mod entries;
mod make;
mod read_dir;
mod remove;
mod rename;
mod rules;
mod xattrs;

pub(crate) use entries::next_cookie_after;

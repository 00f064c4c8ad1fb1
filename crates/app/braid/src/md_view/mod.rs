//! The texts of the FUSE view: what Linux shows of md's arrays in /proc/mdstat and /sys/block/mdN/md, with the same names,
//! meanings and words, so that scripts and exporters made for md run on it unchanged.
//!
//! | file | subject |
//! |---|---|
//! | `mdstat` | all arrays, as /proc/mdstat has them |
//! | `array` | the attributes of an array |
//! | `member` | those of a member, `dev-NAME` |
//! | `bitmap` | those of the write-intent bitmap |
//! | `entry` | entries of folders |
//! | `known` | what is known of an array when one of them is read |
//!
//! Everything is asked, and done, by the requests of the control socket. Facts about names and words are of the kernel's
//! Documentation/admin-guide/md.rst and of drivers/md/md.c, raid5.c, raid10.c and md-bitmap.c.

mod array;
mod bitmap;
mod entry;
mod known;
mod mdstat;
mod member;

use braid_control::protocol::{Answer, Code, Detail, Refusal, Request};
use braid_filesystem::Errno;
use braid_view::{Listed, Rights, Texts};
use entry::{folder, text};
use known::Known;
use std::sync::OnceLock;

/// Answers requests; `None` while the server begins or ends.
type Ask = dyn Fn(Request) -> Option<Answer> + Send + Sync;

/// The name of all arrays' states.
const MDSTAT: &str = "mdstat";
/// The name of an array's size in sectors, as of a block device's.
const SIZE: &str = "size";
/// The folder of an array's attributes.
const MD: &str = "md";
/// The folder of a bitmap's attributes in it.
const BITMAP: &str = "bitmap";

/// See the module's documentation.
#[derive(Default)]
pub struct MdView {
    ask: OnceLock<Box<Ask>>,
}

/// A place in the tree of texts.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    Root,
    Mdstat,
    /// The folder of an array.
    Array(&'a str),
    Size(&'a str),
    /// The folder of its attributes.
    Md(&'a str),
    Attribute(&'a str, &'a str),
    /// The folder of its bitmap's attributes.
    Bitmap(&'a str),
    BitmapAttribute(&'a str, &'a str),
    /// The folder of a member's attributes, without `dev-`.
    Member(&'a str, &'a str),
    MemberAttribute(&'a str, &'a str, &'a str),
}

/// The place of a path; `None` where there is none of that form.
fn place(path: &str) -> Option<Place<'_>> {
    let parts: Vec<&str> = path.split('/').collect();
    Some(match parts.as_slice() {
        [""] => Place::Root,
        [MDSTAT] => Place::Mdstat,
        [array] => Place::Array(array),
        [array, SIZE] => Place::Size(array),
        [array, MD] => Place::Md(array),
        [array, MD, BITMAP] => Place::Bitmap(array),
        [array, MD, BITMAP, name] => Place::BitmapAttribute(array, name),
        [array, MD, name] => match name.strip_prefix(member::PREFIX) {
            Some(member) => Place::Member(array, member),
            None => Place::Attribute(array, name),
        },
        [array, MD, member, name] => {
            Place::MemberAttribute(array, member.strip_prefix(member::PREFIX)?, name)
        }
        _ => return None,
    })
}

impl MdView {
    /// From now on `ask` answers.
    pub fn answered_by(&self, ask: Box<Ask>) {
        // A second one would be a second server.
        let _ = self.ask.set(ask);
    }

    fn ask(&self, request: Request) -> Result<Answer, Errno> {
        self.ask.get().and_then(|ask| ask(request)).ok_or(Errno::NotFound)
    }

    fn names(&self) -> Vec<String> {
        match self.ask(Request::List) {
            Ok(Answer::List { arrays }) => arrays.into_iter().map(|array| array.name).collect(),
            _ => Vec::new(),
        }
    }

    fn detail(&self, array: &str) -> Result<Detail, Errno> {
        match self.ask(Request::Detail { array: Some(array.to_string()) })? {
            Answer::Detail { detail } if detail.name == array => Ok(*detail),
            _ => Err(Errno::NotFound),
        }
    }

    fn known(&self, array: &str) -> Result<Known, Errno> {
        let detail = self.detail(array)?;
        let asked = || Some(array.to_string());
        // An array that is only read has no settings, and does not count.
        let settings = match self.ask(Request::Get { array: asked() }) {
            Ok(Answer::Settings { settings, .. }) => settings,
            _ => Vec::new(),
        };
        let lines = match self.ask(Request::Stat { array: asked() }) {
            Ok(Answer::Stat { stat }) => stat.cache.lines,
            _ => 0,
        };
        Ok(Known { detail, settings, cache_lines: lines })
    }
}

impl Texts for MdView {
    fn list(&self, path: &str) -> Result<Vec<Listed>, Errno> {
        match place(path).ok_or(Errno::NotFound)? {
            Place::Root => {
                let names = self.names();
                Ok(std::iter::once(text(MDSTAT, Rights::Read))
                    .chain(names.into_iter().map(folder))
                    .collect())
            }
            Place::Array(array) => {
                self.detail(array)?;
                Ok(vec![text(SIZE, Rights::Read), folder(MD)])
            }
            Place::Md(array) => {
                let detail = self.detail(array)?;
                let mut all = array::list(&detail);
                all.extend(detail.redundant.then(|| folder(BITMAP)));
                all.extend(member::list(&detail));
                Ok(all)
            }
            Place::Bitmap(array) => {
                let detail = self.detail(array)?;
                if detail.redundant { Ok(bitmap::list()) } else { Err(Errno::NotFound) }
            }
            Place::Member(array, name) => {
                let detail = self.detail(array)?;
                member::find(&detail, name).ok_or(Errno::NotFound)?;
                Ok(member::attributes())
            }
            _ => Err(Errno::NotFound),
        }
    }

    fn read(&self, path: &str) -> Result<String, Errno> {
        let text = match place(path).ok_or(Errno::NotFound)? {
            Place::Mdstat => {
                // One that ends meanwhile is not there any more.
                let all: Vec<Detail> =
                    self.names().iter().filter_map(|name| self.detail(name).ok()).collect();
                return Ok(mdstat::text(&all));
            }
            Place::Size(array) => (self.detail(array)?.array_size / 512).to_string(),
            Place::Attribute(array, name) => {
                array::read(&self.known(array)?, name).ok_or(Errno::NotFound)?
            }
            Place::BitmapAttribute(array, name) => {
                bitmap::read(&self.detail(array)?, name).ok_or(Errno::NotFound)?
            }
            Place::MemberAttribute(array, member, name) => {
                let detail = self.detail(array)?;
                let member = member::find(&detail, member).ok_or(Errno::NotFound)?;
                member::read(member, name).ok_or(Errno::NotFound)?
            }
            _ => return Err(Errno::NotFound),
        };
        Ok(format!("{text}\n"))
    }

    fn write(&self, path: &str, text: &str) -> Result<(), Errno> {
        let value = text.trim();
        let request = match place(path).ok_or(Errno::NotFound)? {
            Place::Attribute(array, name) => {
                let detail = self.detail(array)?;
                if array::is_idle_order(&detail, name, value) {
                    return Ok(());
                }
                array::order(&detail, name, value)
            }
            Place::BitmapAttribute(array, name) => bitmap::order(&self.detail(array)?, name, value),
            Place::MemberAttribute(array, member, name) => {
                let detail = self.detail(array)?;
                let member = member::find(&detail, member).ok_or(Errno::NotFound)?;
                member::order(&detail, member, name, value)
            }
            _ => None,
        };
        let Some(request) = request else {
            tracing::warn!("writing {value:?} to {path}: it takes no such value");
            return Err(Errno::Invalid);
        };
        match self.ask(request)? {
            Answer::Refused(Refusal { code: Code::NoSuchArray, .. }) => Err(Errno::NotFound),
            Answer::Refused(Refusal { error, .. }) | Answer::Members { error: Some(error), .. } => {
                tracing::warn!("writing {value:?} to {path}: {error}");
                Err(Errno::Busy)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

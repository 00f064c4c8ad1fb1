//! An [`Image`] as the storage of redb.
//!
//! redb requires storage that threads may share, but the image has one owner: the thread of the store. So the
//! image stays with that thread, and redb gets a number by which the thread finds it. Any other thread gets an error.

use crate::image::Image;
use crate::store::StoreError;
use std::cell::RefCell;
use std::io;

thread_local! {
    /// The images of the stores of this thread. There is one, except in tests.
    static IMAGES: RefCell<Vec<Option<Image>>> = const { RefCell::new(Vec::new()) };
}

/// The number of an image of this thread. Dropping it drops the image.
#[derive(Debug)]
pub(crate) struct Images {
    number: usize,
}

impl Images {
    /// Keeps `image` for this thread.
    pub(crate) fn keep(image: Image) -> Images {
        IMAGES.with_borrow_mut(|images| {
            let free = images.iter().position(Option::is_none);
            let number = free.unwrap_or(images.len());
            match images.get_mut(number) {
                Some(slot) => *slot = Some(image),
                None => images.push(Some(image)),
            }
            Images { number }
        })
    }

    /// Works with the image.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Image) -> T) -> Result<T, StoreError> {
        with(self.number, work)
    }

    /// The storage to be given to redb.
    pub(crate) fn source(&self) -> PageSource {
        PageSource { number: self.number }
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        // Taken out first, so that the list is not borrowed while the image is dropped.
        let image = IMAGES
            .try_with(|images| {
                images
                    .try_borrow_mut()
                    .ok()
                    .and_then(|mut images| images.get_mut(self.number)?.take())
            })
            .ok();
        drop(image);
    }
}

fn with<T>(number: usize, work: impl FnOnce(&mut Image) -> T) -> Result<T, StoreError> {
    let done = IMAGES.try_with(|images| {
        let mut images = images.try_borrow_mut().ok()?;
        Some(work(images.get_mut(number)?.as_mut()?))
    });
    done.ok().flatten().ok_or_else(|| {
        StoreError::Failed("the metadata region is not open on this thread".to_string())
    })
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct PageSource {
    number: usize,
}

impl PageSource {
    /// Called when redb begins a repair, before it has written anything.
    pub(crate) fn note_repair(&self) {
        // If the image is gone, the next request fails.
        let _ = with(self.number, Image::note_repair);
    }

    /// Does `work`. An error is converted for redb, and the image keeps the first one as an error of the store.
    fn ask<T>(&self, work: impl FnOnce(&mut Image) -> Result<T, StoreError>) -> io::Result<T> {
        let done = with(self.number, |image| {
            let done = work(image);
            if let Err(error) = &done
                && image.error.is_none()
            {
                image.error = Some(error.clone());
            }
            done
        });
        done.and_then(|done| done).map_err(io::Error::other)
    }
}

impl redb::StorageBackend for PageSource {
    fn len(&self) -> io::Result<u64> {
        self.ask(|image| Ok(image.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.ask(|image| image.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.ask(|image| image.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.ask(|image| image.sync())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(|image| image.write(offset, data))
    }
}

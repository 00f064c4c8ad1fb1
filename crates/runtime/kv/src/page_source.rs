//! An [`Image`] as the storage of redb.
//!
//! redb wants storage that threads may share, and a store's image has one owner: the thread that the store runs on. So the
//! image stays with that thread, and what redb holds is a number. Used from another thread it is an error.

use crate::StoreError;
use crate::image::Image;
use std::cell::RefCell;
use std::io;

thread_local! {
    /// The images of this thread's stores: one, but for tests.
    static IMAGES: RefCell<Vec<Option<Image>>> = const { RefCell::new(Vec::new()) };
}

/// The number of an image of this thread. The image goes with it.
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
                Some(place) => *place = Some(image),
                None => images.push(Some(image)),
            }
            Images { number }
        })
    }

    /// Works with the image.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Image) -> T) -> Result<T, StoreError> {
        with(self.number, work)
    }

    /// What redb holds.
    pub(crate) fn source(&self) -> PageSource {
        PageSource { number: self.number }
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        // Taken out first: what goes with the image may take its time.
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
    /// redb repairs what it finds; it has not written anything yet.
    pub(crate) fn note_repair(&self) {
        // An image that is not there fails the next request.
        let _ = with(self.number, Image::note_repair);
    }

    /// Does `work`; redb gets an error of its kind, and the image keeps the first one as the store tells it.
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

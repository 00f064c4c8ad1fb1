//! Errors of the regions, as errors of the store.

use crate::store::StoreError;
use braid_device::IoError;

pub(super) fn failed(doing: &str, error: &IoError) -> StoreError {
    StoreError::Failed(format!("{doing} the metadata region: {error}"))
}

//! The knowledge of an array at the moment when one of its attributes is read.

use crate::settings::AUTO;
use braid_control::protocol::{Detail, Setting};

/// See the module's documentation.
pub(super) struct Known {
    /// Its state.
    pub detail: Detail,
    /// Its settings; none for one that is only read.
    pub settings: Vec<Setting>,
    /// Lines in its stripe cache.
    pub cache_lines: u64,
}

impl Known {
    /// The number of a setting now, `unit` being the one that counts where auto means several.
    pub fn number(&self, name: &str, unit: &str) -> Option<String> {
        let setting = self.settings.iter().find(|setting| setting.name == name)?;
        if setting.value != AUTO {
            return Some(setting.value.clone());
        }
        setting.now.get(unit).map(u64::to_string)
    }

    /// The text of a setting: what is set, or auto.
    pub fn value(&self, name: &str) -> Option<String> {
        let setting = self.settings.iter().find(|setting| setting.name == name)?;
        Some(setting.value.clone())
    }
}

/// One of the words of an array's state.
pub(super) fn has_word(detail: &Detail, word: &str) -> bool {
    detail.state.split(", ").any(|known| known == word)
}

//! Values that are sent to a server in the words in which they are typed.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;
use std::fmt::Display;
use std::str::FromStr;

/// Writes what `Display` shows.
pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Reads what `FromStr` takes.
pub fn deserialize<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: FromStr<Err: Display>,
    D: Deserializer<'de>,
{
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// The same for what may be left out.
pub mod optional {
    use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

    /// Writes what `Display` shows.
    pub fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    /// Reads what `FromStr` takes.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text: Option<String> = Option::deserialize(from)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

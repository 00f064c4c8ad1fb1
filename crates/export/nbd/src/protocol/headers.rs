//! The form of a connection's messages once its handshake is over.

/// The result of what a client asked for (proto.md, "Transmission").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Headers {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies (`NBD_OPT_STRUCTURED_REPLY`).
    Structured,
    /// Extended requests and replies, whose lengths have 64 bits (`NBD_OPT_EXTENDED_HEADERS`).
    Extended,
}

impl Headers {
    /// Replies come in chunks that say what they are.
    #[must_use]
    pub fn structured(self) -> bool {
        self != Headers::Simple
    }
}

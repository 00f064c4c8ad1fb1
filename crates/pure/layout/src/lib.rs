//! Where each byte lives: every md level and layout as pure functions

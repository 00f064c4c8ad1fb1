//! Rivals, side by side with braid

//! Logical volumes of files over many bricks.

#![forbid(unsafe_code)]

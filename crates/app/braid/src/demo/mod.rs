//! placeholder while compiling

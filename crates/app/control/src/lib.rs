//! The words between a command and a running server: over HTTP, in JSON, at paths that stand for requests.
//!
//! | module | subject |
//! |---|---|
//! | [`api`] | methods and paths for requests, who may ask, the document of all that |
//! | [`protocol`] | requests and answers |
//! | [`wanted`] | what a new array or volume is to be like, as it is typed and as it is sent |
//! | [`array_name`] | the name of a new array |
//! | [`safe_name`] | what any name of a new thing may be |
//! | [`http`] | HTTP/1.1 itself, both sides |
//!
//! Knows neither the server's arrays nor what a command prints. A crate of its own so that the fuzz harness reaches what reads
//! bytes from a network.

#![forbid(unsafe_code)]

pub mod api;
pub mod array_name;
pub mod http;
pub mod protocol;
pub mod safe_name;
pub mod wanted;

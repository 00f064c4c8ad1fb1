//! The control API: the requests of `protocol` as paths of HTTP, for whoever may ask them.
//!
//! | file | subject |
//! |---|---|
//! | `routes` | which method and path stands for which request |
//! | `paths` | a request as method, path, query and body, and back |
//! | `serving` | a request of HTTP answered by a handler of requests |
//! | `role` | who may look, and who may change |
//! | `openapi` | the document of all that, made from the types |
//!
//! Both sides use it, the command and the server. Version 1: fields and words of answers may be added, none is taken away or
//! gets another meaning; else the next version has paths of its own.

pub mod openapi;
pub mod paths;
pub mod role;
mod routes;
pub mod serving;

/// The beginning of all paths.
pub const PREFIX: &str = "/v1";

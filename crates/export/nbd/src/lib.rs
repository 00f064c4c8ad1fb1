//! NBD: the protocol without I/O, and the server over it

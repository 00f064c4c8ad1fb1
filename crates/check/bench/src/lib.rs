//! The tables of docs/benchmarks

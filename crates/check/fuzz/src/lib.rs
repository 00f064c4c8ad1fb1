//! Bad input for every parser: inputs of a kept corpus, changed in ways that a seed decides.
//!
//! Owns the mutations ([`mutate`]), the loop over inputs ([`run`]) and one [`targets`] module for each parser,
//! which says what must hold for any bytes. Knows no coverage: what reaches deep code is that checksums are
//! made right again after a change, and that changes know where the fields are.
//!
//! What is checked of each input: no panic, no more memory than its length accounts for, an end, and what
//! the target states (parse and write are inverse, an answer does not depend on how a stream is cut).
//!
//! Invariant: an input is a function of target, seed and number; a run replays.

#![forbid(unsafe_code)]

pub mod cli;
pub mod corpus;
pub mod mutate;
pub mod run;
pub mod targets;

/// Counts what is allocated, so that a parser that asks for more than its input justifies is found.
#[global_allocator]
static ALLOCATOR: cap::Cap<std::alloc::System> = cap::Cap::new(std::alloc::System, usize::MAX);

/// From now on no more than so many bytes beyond what is held may be held at a time: an allocation that goes further
/// fails, which ends the process. `None`: as many as there are.
pub fn hold_at_most(more: Option<usize>) {
    let limit = more.map_or(usize::MAX, |more| ALLOCATOR.allocated().saturating_add(more));
    // The limit is above what is held, and other threads of a run allocate next to nothing.
    let _ = ALLOCATOR.set_limit(limit);
}

/// Bytes allocated so far in this process, whether freed or not.
#[must_use]
pub fn allocated() -> usize {
    ALLOCATOR.total_allocated()
}

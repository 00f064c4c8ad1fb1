//! Arrays on RAM members under a virtual clock, from creation to stop.

mod apart;
mod assembly;
mod bad_blocks;
mod bitmap;
mod bitmap_cost;
mod contents;
mod copies;
mod ends_of_jobs;
mod failing_members;
mod flushing;
mod growing;
mod half_rebuilt;
mod hanging;
mod large_chunks;
mod latent_errors;
mod level_10_sizes;
mod lifecycle;
mod mixed_blocks;
mod naming;
mod settings;
mod silent;
mod space;
mod stacked;
mod stopping;
mod version_0_90;
mod world;

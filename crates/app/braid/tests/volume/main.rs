//! The command and its server as a user runs them: volumes.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod checksums;
mod configured;
mod copied_files;
mod copies;
mod copies_lost;
mod figures;
mod leased;
mod majority;
mod quotas;
mod replacing;
mod returning;
mod salvage;
mod salvage_snapshots;
mod snapshots;
mod unmounted;
mod volume_metadata;
mod volumes;

#[path = "../support/mod.rs"]
mod support;

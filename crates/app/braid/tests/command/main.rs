//! The command and its server as a user runs them: arrays. Volumes have a program of their own beside this one.
//!
//! One program for all of them, so that tests of several files run side by side.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod api;
mod bitmap;
mod browser;
mod checks;
mod create;
mod daemon;
mod demo;
mod examine;
mod fuse_view;
mod hung_member;
mod journal;
mod lease;
mod loop_devices;
mod members;
mod nbd_clients;
mod package;
mod package_life;
mod pages;
mod recovery;
mod remote_members;
mod reshape;
mod seeing;
mod serve;
mod settings;
mod sizes;
mod spare_groups;
mod stacks;
mod starting;
mod take_over;
mod tls;
mod top;
mod two_hosts;
mod web;
mod words;

#[path = "../support/mod.rs"]
mod support;

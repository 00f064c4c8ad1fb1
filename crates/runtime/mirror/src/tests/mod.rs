//! A mirror as an ordinary device: against a model with crashes, and case by case.

mod cases;
mod model;
mod rig;

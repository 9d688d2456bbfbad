//! A pool without processes, whose workers are scripted.

mod deaths;
mod insights;
mod items;
mod links;
mod memory;
mod support;
mod telemetry;
mod words;

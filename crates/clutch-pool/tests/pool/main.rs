//! A pool without processes, whose workers are scripted.

mod channels;
mod deaths;
mod insights;
mod items;
mod links;
mod memory;
mod own_work;
mod support;
mod telemetry;
mod words;

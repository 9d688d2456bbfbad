//! The supervisor's pure machine, and the policy of scaling.

mod development;
mod ends;
mod histories;
mod limits;
mod memory;
mod rollout;
mod scale_limits;
mod scale_policy;
mod words;
mod world;

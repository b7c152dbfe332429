//! What threads wait by. The queue is tested with another set of the same names, by which every
//! order of events can be tried: see `nearjoin-loom`.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

//! The queue of nearjoin, with other locks.

pub(crate) mod sync {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
}

// The queue of one processor is there too, and not modelled: it is one atomic number.
#[allow(dead_code)]
#[path = "../../../nearjoin/src/exec/queue.rs"]
pub(crate) mod queue;

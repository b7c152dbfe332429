//! The threads of a join.

use crate::error::{Error, Result};

/// How many threads work, and the rayon pool for sorting and building.
///
/// The join itself runs on threads of its own, started for each pass: they wait for a
/// slow callback, and a thread of a shared pool must never wait.
pub(crate) struct Pool {
    rayon: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Pool {
    /// `threads` of its own, or as many as rayon's global pool has.
    pub(crate) fn new(threads: Option<usize>) -> Result<Self> {
        let Some(threads) = threads else {
            return Ok(Pool { rayon: None, threads: rayon::current_num_threads() });
        };
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = builder.build().map_err(|e| Error::Threads { reason: e.to_string() })?;
        Ok(Pool { rayon: Some(pool), threads })
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `build` where its parallel iterators use this many threads.
    pub(crate) fn install<R: Send>(&self, build: impl FnOnce() -> R + Send) -> R {
        match &self.rayon {
            Some(pool) => pool.install(build),
            None => build(),
        }
    }

    /// Runs `work` once on every thread, the calling one among them, with the thread's
    /// number. Threads that the system refuses are done without.
    pub(crate) fn each<R: Send>(&self, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
        let work = &work;
        std::thread::scope(|scope| {
            let spawn = |worker: usize| {
                std::thread::Builder::new().spawn_scoped(scope, move || work(worker)).ok()
            };
            let others: Vec<_> = (1..self.threads).map_while(spawn).collect();
            let mut results = vec![work(0)];
            // The others end as this one did: when the queue is empty, or closed by whoever failed.
            for other in others {
                match other.join() {
                    Ok(result) => results.push(result),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            results
        })
    }
}

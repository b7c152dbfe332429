//! The threads of a join.

use core::error::Error as _;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;
use std::thread::{Builder, Scope, ScopedJoinHandle};

use crate::error::{Error, Result};
use crate::memory::SystemMemory;

/// How many threads work, and the rayon pool for sorting and building.
///
/// The join itself runs on threads of its own, started for each pass: they wait for a
/// slow callback, and a thread of a shared pool must never wait.
pub(crate) struct Pool {
    rayon: Option<rayon::ThreadPool>,
    threads: usize,
}

impl Pool {
    /// `threads` of its own, or as many as the pool has that it is called in: rayon's global one
    /// as a rule.
    ///
    /// Where the system refuses some of them, there are fewer.
    pub(crate) fn new(threads: Option<usize>) -> Result<Self> {
        let Some(mut threads) = threads else {
            let threads = match rayon::current_thread_index() {
                Some(_) => rayon::current_num_threads(),
                None => start_threads(None)?,
            };
            return Ok(Pool { rayon: None, threads });
        };
        if GLOBAL.load(Relaxed) == threads && rayon::current_num_threads() == threads {
            return Ok(Pool { rayon: None, threads });
        }
        loop {
            match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
                Ok(pool) => return Ok(Pool { rayon: Some(pool), threads }),
                Err(_) if threads > 1 => threads /= 2,
                Err(error) => return Err(Error::Threads { reason: error.to_string() }),
            }
        }
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
        self.each_of(self.threads, work)
    }

    /// The same on so many threads.
    pub(crate) fn each_of<R: Send>(
        &self,
        threads: usize,
        work: impl Fn(usize) -> R + Sync,
    ) -> Vec<R> {
        let work = &work;
        std::thread::scope(|scope| {
            let start = |worker: usize| spawn(scope, move || work(worker)).ok();
            let others: Vec<_> = (1..threads).map_while(start).collect();
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

/// Starts a thread that ends with its scope.
pub(crate) fn spawn<'scope, R: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> R + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, R>> {
    Builder::new().spawn_scoped(scope, work).map_err(refused)
}

fn refused(error: std::io::Error) -> Error {
    Error::Threads { reason: error.to_string() }
}

/// Threads of rayon's global pool, once [`start_threads`] has started it.
static GLOBAL: AtomicUsize = AtomicUsize::new(0);
/// In its place, that the pool cannot be started.
const NEVER: usize = usize::MAX;

/// Starts the pool of threads that reading and sorting share, rayon's global one, and tells how
/// many it has: those that are wanted or else as many as the machine has, but no more than the
/// system grants, and than the stacks of which leave room for the work. Where the pool runs
/// already, it stays as it is.
///
/// Joins call it by themselves. A program calls it to choose the number, before anything else uses
/// rayon, whose own way to start the pool panics where a thread is refused.
///
/// ```
/// let threads = nearjoin::start_threads(None)?;
/// assert_eq!(nearjoin::start_threads(Some(threads + 1))?, threads);
/// # Ok::<(), nearjoin::Error>(())
/// ```
///
/// # Errors
/// If the system refuses to start a single thread.
pub fn start_threads(wanted: Option<usize>) -> Result<usize> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(|e| e.into_inner());
    if GLOBAL.load(Relaxed) == 0 {
        let wanted = wanted.unwrap_or_else(default_threads);
        let wanted = SystemMemory::now().map_or(wanted, |memory| memory.threads(wanted));
        // A global pool that fails to start can never be started again.
        let threads = granted(wanted)?;
        let started = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        // Where there is one already, that one is used; any other reason is what the system said.
        let refused = started.is_err_and(|error| error.source().is_some());
        GLOBAL.store(if refused { NEVER } else { rayon::current_num_threads() }, Relaxed);
    }
    match GLOBAL.load(Relaxed) {
        NEVER => Err(Error::Threads { reason: "the system has refused them".into() }),
        threads => Ok(threads),
    }
}

/// Threads that rayon would start.
fn default_threads() -> usize {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|number| number.parse().ok());
    asked
        .filter(|&threads| threads > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// How many threads the system grants at once, of those that are wanted: they are started to see,
/// and end.
fn granted(wanted: usize) -> Result<usize> {
    let hold = Mutex::new(());
    let wait = || drop(hold.lock());
    std::thread::scope(|scope| {
        // Let go before the scope waits for the threads.
        let _held = hold.lock();
        spawn(scope, wait)?;
        Ok(1 + (1..wanted).map_while(|_| spawn(scope, wait).ok()).count())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_granted_and_a_refusal_is_done_without() {
        assert_eq!(granted(3), Ok(3));
        assert_eq!(granted(0), Ok(1));
        let pool = Pool::new(Some(3)).unwrap();
        assert_eq!((pool.threads(), pool.each(|_| ()).len()), (3, 3));
    }
}

//! Two processors on one join.
//!
//! ```text
//!   Lead     a GPU joins by itself; the CPU stands by, and has no index until it is needed
//!   Shared   both have their own index of all points, and take queries from one queue
//!   Ranges   the nearest: a GPU finds all within an ε, again and again, and the CPU the rest
//! ```
//!
//! In all of them, the GPU may be lost at any call, and the join goes on: what it has not delivered is
//! answered by the CPU. Three rules make that possible:
//!
//! - **A query has one name**, the row of the left input that it is, though the indexes order them
//!   differently. A unit of the queue is a range of positions in the CPU's order; to the GPU it is
//!   the list of rows that stand there.
//! - **A row is delivered whole, by one processor, or not at all.** Which rows the GPU has delivered
//!   is noted, row by row, after the sink has them (`delivered.rs`). Counts of a batch are added when
//!   the batch is done. So the rest is known at any time, and nothing comes twice.
//! - **A pair that is wanted once belongs to a row by a rule that both know**: the smaller row, or
//!   the rank that the order of the device gives, which is fetched before it may be gone.

mod delivered;
mod lead;
mod log;
mod pass;
mod ranges;
mod relay;
mod reserve;
mod shared;
mod units;

#[cfg(test)]
mod tests;

pub(crate) use lead::Lead;
pub(crate) use ranges::{Ranges, Setup as RangesSetup};
pub(crate) use reserve::Reserve;
pub(crate) use shared::{Setup, Shared};

use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::exec::pool;

/// Whether an error means that the GPU is lost, and nothing else is wrong.
fn is_loss(error: &Error) -> bool {
    matches!(error, Error::Device { .. })
}

/// Makes what the CPU needs, and what the GPU needs on another thread at the same time.
fn at_once<C, G: Send>(
    cpu: impl FnOnce() -> C,
    gpu: impl FnOnce() -> Result<G> + Send,
) -> (C, Result<G>) {
    // A thread of a pool must not wait for another that may need the pool.
    if rayon::current_thread_index().is_some() {
        return (cpu(), gpu());
    }
    std::thread::scope(|scope| match pool::spawn(scope, gpu) {
        Ok(making) => {
            let cpu = cpu();
            // Ends: a device does what it was asked or says that it is lost.
            (cpu, making.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        }
        Err(refused) => {
            let reason = format!("the thread that would ask it was refused: {refused}");
            (cpu(), Err(Error::Device { device: "gpu", reason }))
        }
    })
}

/// What is made when it is first asked for, and may fail to be.
fn made<V>(place: &OnceLock<V>, make: impl FnOnce() -> Result<V>) -> Result<&V> {
    if let Some(made) = place.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(place.get_or_init(|| made))
}

/// The reason alone.
fn reason(error: Error) -> String {
    match error {
        Error::Device { reason, .. } => reason,
        error => error.to_string(),
    }
}

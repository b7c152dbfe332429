//! Rows of many threads, handed out on one: as a device does it.

use core::ops::ControlFlow;
use std::sync::{Mutex, mpsc};

use crate::error::Result;
use crate::exec::flat::Flat;
use crate::exec::{Emit, Rows, Work, pool};
use crate::scalar::Scalar;

/// Pairs, and rows, of a block that the CPU hands over in place of the device.
const BLOCK: usize = 1 << 16;
/// Such blocks that wait at the most.
const WAITING: usize = 4;

/// Runs `work` on another thread, and hands its rows out on this one, flat.
pub(super) fn relay<T: Scalar>(
    emit: &Emit<'_, T>,
    work: impl FnOnce(&Emit<'_, T>) -> Result<Work> + Send,
) -> Result<Work> {
    let (send, receive) = mpsc::sync_channel::<Flat<T>>(WAITING);
    std::thread::scope(|scope| {
        let made = move || {
            let block = Mutex::new(Flat::new());
            let refused = Mutex::new(None);
            // Waits while the sink is busy with earlier blocks, and not for ever: where it stops or
            // panics, the receiver is dropped.
            let deliver =
                |block: &mut Flat<T>| match send.send(core::mem::replace(block, Flat::new())) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                };
            let work = work(&|rows: &Rows<'_, T>| {
                let mut block = block.lock().unwrap_or_else(|e| e.into_inner());
                if let Err(error) = block.append(rows) {
                    *refused.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
                    return ControlFlow::Break(());
                }
                match block.pairs().max(block.queries.len()) >= BLOCK {
                    true => deliver(&mut block),
                    false => ControlFlow::Continue(()),
                }
            })?;
            if let Some(error) = refused.into_inner().unwrap_or_else(|e| e.into_inner()) {
                return Err(error);
            }
            let mut last = block.into_inner().unwrap_or_else(|e| e.into_inner());
            if !last.queries.is_empty() {
                // Where nobody wants it, nobody misses it.
                let _ = deliver(&mut last);
            }
            Ok(work)
        };
        let made = pool::spawn(scope, made)?;
        // Waits for blocks until the sender is dropped, with the closure of the other thread. The
        // receiver goes before that thread is joined, in a panic too.
        for block in receive {
            if emit(&block.rows(0)).is_break() {
                break;
            }
        }
        match made.join() {
            Ok(work) => work,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

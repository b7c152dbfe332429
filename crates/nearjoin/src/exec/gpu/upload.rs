//! Points on their way to the device.

use rayon::prelude::*;

use super::device::{Array, Stage};
use super::driver::{Result, Transfer};
use crate::points::Points;
use crate::scalar::Scalar;

/// Bytes that a thread copies at a time. The input lies in memory that the device cannot copy
/// from by itself, so every thread takes pieces of it into memory that it can.
const PIECE: usize = 1 << 20;
/// Pieces that wait for the bus at the most.
const WINDOW: usize = 32;

/// Copies points to the device.
pub(super) fn points<T: Scalar>(stage: &Stage, points: Points<'_, T>) -> Result<Array<T>> {
    let array = stage.array::<T>(points.as_slice().len())?;
    send(stage, T::as_bytes(points.as_slice()), &array)?;
    Ok(array)
}

/// Copies numbers to the device.
pub(super) fn words(stage: &Stage, words: &[u32]) -> Result<Array<u32>> {
    let array = stage.array::<u32>(words.len())?;
    send(stage, bytemuck::cast_slice(words), &array)?;
    Ok(array)
}

/// Copies the bytes of an array to the device, all threads of the pool at once.
fn send<V: Sync>(stage: &Stage, data: &[u8], to: &Array<V>) -> Result<()> {
    let (copier, size) = (stage.copier(), size_of::<V>());
    let mut before: Vec<Box<dyn Transfer>> = Vec::new();
    for (number, window) in data.chunks(PIECE * WINDOW).enumerate() {
        let first = number * WINDOW;
        let send = |(number, piece): (usize, &[u8])| {
            let mut host = copier.pin(PIECE)?;
            host.bytes_mut()[..piece.len()].copy_from_slice(piece);
            let start = (first + number) * PIECE / size;
            copier.copy_in(host, to.piece(start..start + piece.len() / size))
        };
        let sent: Result<Vec<_>> = window.par_chunks(PIECE).enumerate().map(send).collect();
        for transfer in core::mem::replace(&mut before, sent?) {
            transfer.wait()?;
        }
    }
    for transfer in before {
        transfer.wait()?;
    }
    Ok(())
}

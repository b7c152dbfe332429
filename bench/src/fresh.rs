//! Fresh memory: what it takes to touch it, before anything is computed.

use std::process::{Command, Stdio};
use std::time::Instant;

use nearjoin::Buffer;
use rayon::prelude::*;

use crate::Result;

/// Seconds to touch fresh memory, a write to a page, by all threads.
pub(crate) fn touch(bytes: usize) -> Result<f64> {
    const HUGE: usize = (2 << 20) / 4;
    nearjoin::start_threads(None)?;
    nearjoin::release_memory();
    let start = Instant::now();
    let mut memory = Buffer::<u32>::zeroed(bytes / 4)?;
    memory.par_chunks_mut(HUGE).for_each(|page| {
        page.iter_mut().step_by(1024).for_each(|word| *word = 1);
    });
    let time = start.elapsed();
    drop(memory);
    Ok(time.as_secs_f64())
}

/// The same in a fresh process.
pub(crate) fn touch_elsewhere(bytes: u64) -> Result<f64> {
    if bytes == 0 {
        return Ok(0.0);
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--touch", &bytes.to_string()]).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("--touch {bytes} failed: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_takes_a_while() {
        assert!(touch(1 << 20).unwrap() > 0.0);
        assert_eq!(touch_elsewhere(0).unwrap(), 0.0);
    }
}

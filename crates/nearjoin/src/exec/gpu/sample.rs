//! How large an answer will be, from a sample of its rows.

use std::sync::Mutex;

use super::launch::{Counters, GpuJoin, Mode};
use super::session::Result;
use crate::plan::batches::SAMPLED;
use crate::scalar::Scalar;

impl<T: Scalar> GpuJoin<'_, T> {
    /// How many pairs all rows have together, by those of one unit of queries in a hundred,
    /// spread over the order of the index.
    ///
    /// Of products a sample would cost as much as all of them beside few points, and a list that is too
    /// short costs no more: there it is what the plan expects.
    pub(super) fn estimate_pairs(&self) -> Result<f64> {
        if self.products.is_some() {
            return Ok(self.session.how.expected_pairs);
        }
        let stage = self.session.stage(0);
        let counters = Counters::new(&stage)?;
        let mut job = self.job();
        counters.describe(&mut job);
        let units = self.units(&job);
        let sampled: Vec<u32> = (0..units as u32).step_by(SAMPLED).collect();
        let sample = stage.copy_of(&sampled)?;
        job.units = sample.address();
        self.launch(&stage, Mode::Count, &mut job, sampled.len() as u64)?;
        let [_, pairs, ..] = counters.read(&stage)?;
        Ok(pairs as f64 * units as f64 / sampled.len().max(1) as f64)
    }

    /// The sizes of one row in a hundred, ascending by row: (row, size).
    pub(super) fn sample_rows(&self) -> Result<Vec<(usize, u64)>> {
        const NOT_SAMPLED: u32 = u32::MAX;
        let (stage, len) = (self.session.stage(0), self.query_count());
        let counters = Counters::new(&stage)?;
        let sampled: Vec<u32> = (0..len as u32).step_by(SAMPLED).collect();
        let queries = stage.copy_of(&sampled)?;
        let degrees = stage.array::<u32>(len)?;
        // Products add to sizes, and know rows by their positions.
        let added = self.products.is_some();
        stage.fill(degrees.piece(0..len), if added { 0 } else { NOT_SAMPLED })?;
        let mut job = self.job();
        counters.describe(&mut job);
        job.degrees = degrees.address();
        (job.queries, job.query_count) = (queries.address(), sampled.len() as u64);
        // One thread to a row: then its size is stored, and not added to what is there.
        job.threads_per_query = 1;
        self.run(&stage, Mode::Count, &job)?;
        let rows = Mutex::new(Vec::new());
        self.session.land(&stage, &degrees, len, |start, sizes: &[u32]| {
            let sizes = sizes.iter().enumerate().map(|(at, size)| (start + at, *size));
            let sizes = sizes.filter(|&(row, size)| match added {
                true => row % SAMPLED == 0,
                false => size != NOT_SAMPLED,
            });
            let sizes = sizes.map(|(row, size)| (row, u64::from(size)));
            rows.lock().unwrap_or_else(|e| e.into_inner()).extend(sizes);
        })?;
        let mut rows = rows.into_inner().unwrap_or_else(|e| e.into_inner());
        rows.sort_unstable();
        Ok(rows)
    }
}

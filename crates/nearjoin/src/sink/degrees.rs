use super::{Execution, Receive};
use crate::error::Result;
use crate::memory::as_atomic;

/// The number of neighbours of each left point.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::Degrees};
/// let points = Points::new(&[0.0, 1.0, 1.5], 1)?;
/// let mut degrees = Degrees::new();
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut degrees)?;
/// assert_eq!(degrees.into_vec(), [1, 2, 1]);
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Degrees {
    degrees: Vec<u64>,
}

impl Degrees {
    /// No degrees yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The degrees in input order.
    pub fn as_slice(&self) -> &[u64] {
        &self.degrees
    }

    /// The degrees in input order.
    pub fn into_vec(self) -> Vec<u64> {
        self.degrees
    }
}

impl<T> Receive<T> for Degrees {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        let queries = execution.executor.len();
        let bytes = queries * size_of::<u64>();
        execution.budget.check_result(bytes as u64)?;
        // Pages are first touched by the threads that write to them.
        let mut degrees = crate::memory::zeros(queries)?;
        let work = execution.executor.degrees(as_atomic(&mut degrees))?;
        execution.stats.record(work);
        execution.stats.result_bytes = bytes as u64;
        self.degrees = degrees;
        Ok(())
    }
}

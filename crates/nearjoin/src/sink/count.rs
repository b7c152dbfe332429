use super::{Execution, Receive};
use crate::error::Result;

/// Counts the pairs and keeps nothing else.
///
/// ```
/// use nearjoin::{EpsJoin, Points, sink::Count};
/// let points = Points::new(&[0.0, 1.0, 1.5], 1)?;
/// let mut count = Count::new();
/// EpsJoin::new(1.0).plan_self(&points)?.run(&mut count)?;
/// assert_eq!(count.pairs(), 4); // ordered: both directions of two pairs
/// # Ok::<(), nearjoin::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pairs: u64,
}

impl Count {
    /// An empty count.
    pub fn new() -> Self {
        Self::default()
    }

    /// The ordered pairs: in a self-join each unordered pair counts twice.
    pub fn pairs(&self) -> u64 {
        self.pairs
    }
}

impl<T> Receive<T> for Count {
    #[allow(private_interfaces)]
    fn receive(&mut self, execution: &mut Execution<'_, T>) -> Result<()> {
        let work = execution.executor.count()?;
        self.pairs = work.pairs;
        execution.stats.record(work);
        Ok(())
    }
}

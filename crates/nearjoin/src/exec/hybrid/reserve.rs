//! The CPU, which stands by: it is indexed when it is first needed.

use std::sync::OnceLock;

use super::made;
use crate::error::Result;
use crate::exec::Executor;

/// A join on the CPU.
type OnCpu<'a, T> = Box<dyn Executor<T> + 'a>;
type Make<'a, T> = dyn Fn() -> Result<OnCpu<'a, T>> + Send + Sync + 'a;

/// The same join on the CPU, made when it is asked for.
pub(crate) struct Reserve<'a, T> {
    make: Box<Make<'a, T>>,
    made: OnceLock<OnCpu<'a, T>>,
}

impl<'a, T> Reserve<'a, T> {
    pub(crate) fn new(make: impl Fn() -> Result<OnCpu<'a, T>> + Send + Sync + 'a) -> Self {
        Reserve { make: Box::new(make), made: OnceLock::new() }
    }

    /// The join, which may have to be planned and indexed first.
    pub(super) fn join(&self) -> Result<&(dyn Executor<T> + 'a)> {
        Ok(&**made(&self.made, || (self.make)())?)
    }

    /// Whether it was needed.
    pub(super) fn is_made(&self) -> bool {
        self.made.get().is_some()
    }
}

//! The program's allocator: the system's, with a last sentence for when it refuses.
//!
//! Nearly all code here, and in the crates that it uses, takes for granted that small memory is
//! there; where it is not, Rust aborts. Instead the program says what it was refused, removes
//! its unfinished files and ends with exit code 1. That holds for every refusal, also where the
//! caller could have gone on (`try_reserve`): the engine's large arrays are mapped and do not
//! come this way, so what is refused here is what little can be done without.
//!
//! On the way to its end the program allocates nothing.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::{bare, progress};

#[global_allocator]
static ALLOCATOR: NeverNull = NeverNull;

struct NeverNull;

// SAFETY: every call goes to the system's allocator as it came, and what that returns is
// returned, or the process ends: so what `System` promises holds.
unsafe impl GlobalAlloc for NeverNull {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `alloc` asks for.
        granted(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what `alloc_zeroed` asks for.
        granted(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises what `realloc` asks for.
        granted(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises what `dealloc` asks for.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn granted(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        refused(bytes);
    }
    memory
}

/// Ends the program. Of several threads that are refused at once, the first does it.
#[cold]
fn refused(bytes: usize) -> ! {
    static ENDING: AtomicUsize = AtomicUsize::new(0);
    let me = bare::thread();
    match ENDING.compare_exchange(0, me, SeqCst, SeqCst) {
        Ok(_) => {
            nearjoin_io::write::remove_unfinished_by(bare::unlink);
            say(bytes);
        }
        // The end itself allocated, which it should not: better mute than stuck.
        Err(ending) if ending == me => {}
        // That thread waits for nobody for longer than a moment.
        Err(_) => bare::wait_for_the_end(),
    }
    bare::exit(1)
}

fn say(bytes: usize) {
    let mut line = Line { text: [0; 512], length: 0 };
    // What does not fit is left out.
    let _ = writeln!(
        line,
        "{}error: the system refused {} of memory: raise the limit of the shell, the container or \
         the batch queue, or let the join take less: lower --memory-limit, or write a table \
         without --sorted, which streams",
        progress::leave(),
        Size(bytes)
    );
    bare::say(&line.text[..line.length]);
}

/// Text that is gathered without an allocation.
struct Line {
    text: [u8; 512],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.text.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1 << 20 => write!(f, "{bytes} bytes"),
            bytes => write!(f, "{} MiB", bytes.div_ceil(1 << 20)),
        }
    }
}

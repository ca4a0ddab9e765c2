//! Counts the bytes a test holds, so that leaks show.
//!
//! The count is kept per thread: tests run side by side, and a test on a current-thread runtime allocates and frees on
//! its own thread only.
#![allow(unsafe_code, reason = "a global allocator cannot be written without; it only counts and passes on")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static ALLOCATED_BYTES: Cell<isize> = const { Cell::new(0) };
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// How many bytes this thread has allocated and not freed.
pub(crate) fn allocated_bytes() -> isize {
    ALLOCATED_BYTES.with(Cell::get)
}

fn add_bytes(bytes: isize) {
    // While a thread ends, its counter may be destroyed already; no test depends on that time.
    let _ = ALLOCATED_BYTES.try_with(|held| held.set(held.get() + bytes));
}

// SAFETY: every request is passed unchanged to the system allocator; counting allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add_bytes(layout.size() as isize);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add_bytes(-(layout.size() as isize));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

//! Tools that are programs: one process for each call, or one that lives as long as its thread.

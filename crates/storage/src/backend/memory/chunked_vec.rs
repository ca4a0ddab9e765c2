//! Chunked vector: grows without moving its elements.
//!
//! In: values. Out: their indices; `swap_remove` keeps the indices dense. A plain `Vec` would copy all elements when it grows
//! and leave up to half of its capacity unused.

use std::ops::{Index, IndexMut};

/// Elements per chunk.
const CHUNK_SIZE: usize = 512;

pub(super) struct ChunkedVec<T>(Vec<Vec<T>>);

impl<T> Default for ChunkedVec<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ChunkedVec<T> {
    pub(super) fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * CHUNK_SIZE + last.len())
    }

    pub(super) fn push(&mut self, value: T) {
        match self.0.last_mut().filter(|last| last.len() < CHUNK_SIZE) {
            Some(last) => last.push(value),
            None => self.0.push(vec![value]),
        }
    }

    /// Removes an element; the last one takes its index.
    pub(super) fn swap_remove(&mut self, at: usize) {
        let Some(mut last) = self.0.last_mut().and_then(Vec::pop) else { return };
        if at < self.len() {
            std::mem::swap(&mut self[at], &mut last);
        }
        if self.0.last().is_some_and(Vec::is_empty) {
            self.0.pop();
        }
        if self.0.capacity() > 4 * self.0.len() {
            self.0.shrink_to_fit();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

impl<T> Index<usize> for ChunkedVec<T> {
    type Output = T;
    fn index(&self, at: usize) -> &T {
        &self.0[at / CHUNK_SIZE][at % CHUNK_SIZE]
    }
}

impl<T> IndexMut<usize> for ChunkedVec<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.0[at / CHUNK_SIZE][at % CHUNK_SIZE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_a_plain_list_would_be() {
        let (mut random, mut chunked, mut plain) = (fastrand::Rng::with_seed(3), ChunkedVec::default(), Vec::new());
        for step in 0..3_000 {
            if random.u32(0..3_000) > step || plain.is_empty() {
                chunked.push(step);
                plain.push(step);
            } else {
                let at = random.usize(0..plain.len());
                chunked.swap_remove(at);
                plain.swap_remove(at);
            }
            assert_eq!(chunked.len(), plain.len());
        }
        assert!(chunked.iter().eq(&plain));
        assert!((0..plain.len()).all(|at| chunked[at] == plain[at]));
    }
}

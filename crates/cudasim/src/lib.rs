//! cudasim

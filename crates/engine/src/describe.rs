//! What the machine offers.
use std::path::Path;

/// Placeholder until the real one lands.
pub fn describe(_path: Option<&Path>) -> serde_json::Value {
    serde_json::json!({})
}

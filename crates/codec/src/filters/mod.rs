//! The filters, one file each.

use crate::error::{CodecError, Result};

/// What one filter does to a chunk. `values` are the client data of the dataset.
pub trait Codec: Sync {
    fn name(&self) -> &'static str;

    /// Appends the decoded bytes to `output` (which is empty), at most `limit` of them.
    fn decode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>, limit: usize)
    -> Result<()>;

    /// Decodes into memory of exactly the decoded size; another size is an error. By default
    /// through a buffer; filters that can write in place do.
    fn decode_into(&self, values: &[u32], input: &[u8], output: &mut [u8]) -> Result<()> {
        let mut buffer = Vec::with_capacity(output.len());
        self.decode(values, input, &mut buffer, output.len())?;
        if buffer.len() != output.len() {
            return Err(CodecError::new(
                self.name(),
                format!(
                    "the chunk decodes to {} bytes instead of {}",
                    buffer.len(),
                    output.len()
                ),
            ));
        }
        output.copy_from_slice(&buffer);
        Ok(())
    }

    /// Appends the encoded bytes to `output` (which is empty). An error of an optional filter
    /// leaves the chunk as it was.
    fn encode(&self, values: &[u32], input: &[u8], output: &mut Vec<u8>) -> Result<()>;
}

/// The codec of a registered filter number.
pub fn codec(id: u32) -> Option<&'static dyn Codec> {
    let _ = id;
    None
}

"""What loaders of batches have in common, whatever library their arrays are of."""

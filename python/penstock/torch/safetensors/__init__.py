"""Weights in safetensors files."""

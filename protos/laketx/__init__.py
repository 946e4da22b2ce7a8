"""The packages of LakeTX's protocol buffers."""

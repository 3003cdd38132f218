"""fairseq criterions of the plugin, one registration a file."""

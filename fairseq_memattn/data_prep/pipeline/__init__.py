"""From archives and text to binary data: stages that resume, archives, splits, locks."""

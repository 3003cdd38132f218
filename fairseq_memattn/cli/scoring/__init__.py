"""The measures of `memattn score`, and the tables that it prints."""

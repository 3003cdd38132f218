"""Document ids, chunks of long inputs, T5's span corruption, and majority tagging."""

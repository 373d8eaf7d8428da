"""A report as one page that needs nothing else: HTML with its style and its drawings in it."""

"""Everything that draws or prints: terminal, pictures, pages, tables of the documents. Nothing else does."""

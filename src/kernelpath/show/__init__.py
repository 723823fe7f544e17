"""Everything that draws or prints, and nothing else does: terminal, pictures, pages, tables of the documents."""

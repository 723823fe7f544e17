"""Draw and print: terminal output, pictures, pages, and tables of the documents. No other package does."""

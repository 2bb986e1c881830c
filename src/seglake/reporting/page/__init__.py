"""The page: charts, tables, and the document that holds them."""

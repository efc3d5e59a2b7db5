"""Tasks shared by several processes, here (`processes`) or on a Dask cluster (`dask`)."""

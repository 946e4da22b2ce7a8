"""The destination of [dlt](https://dlthub.com): pipelines of dlt load their tables into a lake.

    import dlt
    from laketx.dlt import laketx

    pipeline = dlt.pipeline("shop", destination=laketx("./warehouse"), dataset_name="shop")
    pipeline.run(rows, table_name="orders", write_disposition="merge", primary_key="id")

It needs `laketx[dlt]`. See docs/dlt.md.
"""

from laketx.dlt.destination import laketx as laketx

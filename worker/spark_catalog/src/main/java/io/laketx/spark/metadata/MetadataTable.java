package io.laketx.spark.metadata;

import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.TableRead;
import io.laketx.v1.Predicate;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What the service knows of a table, as a table: `SELECT * FROM lake.shop.orders.history`. */
public final class MetadataTable implements Table, SupportsRead {
  private final String name;
  private final MetadataKind kind;
  private final Snapshot snapshot;

  public MetadataTable(String name, MetadataKind kind, Snapshot snapshot) {
    this.name = name;
    this.kind = kind;
    this.snapshot = snapshot;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  @SuppressWarnings("deprecation") // what Spark resolves comes from here
  public StructType schema() {
    return kind.schema();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ);
  }

  private interface MetadataScan extends LocalScan, TableRead {}

  /** The rows are asked for when the statement runs. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return () ->
        new MetadataScan() {
          @Override
          public Snapshot snapshot() {
            return snapshot;
          }

          @Override
          public Predicate condition() {
            return null; // any commit may change it
          }

          @Override
          public InternalRow[] rows() {
            List<InternalRow> found = kind.rows(snapshot);
            return found.toArray(InternalRow[]::new);
          }

          @Override
          public StructType readSchema() {
            return kind.schema();
          }

          @Override
          public String description() {
            return name;
          }
        };
  }
}

package io.laketx.spark.read;

import io.laketx.spark.service.LakeException;
import io.laketx.v1.DataFile;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.KeyFiles;
import io.laketx.v1.LiveEntry;
import io.laketx.v1.Predicate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeFiltering;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;

/** A read of a snapshot. It is planned once, when Spark first asks how large it is or what to do. */
public final class LakeScan implements Scan, Batch, SupportsReportStatistics, SupportsRuntimeFiltering, TableRead {
  private static final long NO_LIMIT = Long.MAX_VALUE;
  private static final long ROW_OVERHEAD_BYTES = 8;

  private final String table;
  private final Snapshot snapshot;
  private final StructType whole;
  private final StructType required;
  private final Filter[] filters;
  private final long limit;
  private final LakeScanBuilder.Streams streams;
  private List<LiveEntry> entries;
  private Predicate condition; // of the entries; null where the service knows none
  private ColumnBounds bounds; // of the same; null where Spark's optimiser doesn't ask for them
  private LakeScanBuilder.Statement statement; // null: none changes the rows
  private PlannedScan planned;
  private volatile RuntimeFilters atRuntime;

  LakeScan(
      String table,
      Snapshot snapshot,
      StructType whole,
      StructType required,
      Filter[] filters,
      long limit,
      LakeScanBuilder.Streams streams) {
    this.table = table;
    this.snapshot = snapshot;
    this.whole = whole;
    this.required = required;
    this.filters = filters;
    this.limit = limit;
    this.streams = streams;
  }

  static long noLimit() {
    return NO_LIMIT;
  }

  @Override
  public Snapshot snapshot() {
    return snapshot;
  }

  @Override
  public StructType readSchema() {
    return required;
  }

  @Override
  public String description() {
    String pushed = filters.length == 0 ? "" : ", filters " + Arrays.toString(filters);
    return table + " version " + snapshot.version() + pushed + (limit == NO_LIMIT ? "" : ", limit " + limit);
  }

  @Override
  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return streams.of(required, checkpoint);
  }

  /** The entries that the service planned. */
  public synchronized List<LiveEntry> entries() {
    if (entries == null) {
      condition = Conditions.of(filters, snapshot.meta());
      entries = plan();
    }
    return entries;
  }

  /** What the service can't take as a condition is left to Spark: to read more is right. */
  private List<LiveEntry> plan() {
    bounds = SparkInternals.asksForBounds() ? new ColumnBounds(snapshot, required) : null;
    boolean withRows = statement == null || !statement.needsNoRows();
    KeyFiles keyFiles = KeysAsked.files(snapshot, filters);
    try {
      return Plan.of(snapshot, condition, bounds, withRows, keyFiles);
    } catch (LakeException error) {
      if (condition == null || error.kind() != ErrorKind.ERROR_KIND_INVALID) throw error;
      condition = null;
      return Plan.of(snapshot, null, bounds, withRows, keyFiles);
    }
  }

  @Override
  public synchronized Predicate condition() {
    entries();
    return condition;
  }

  private synchronized PlannedScan planned() {
    if (planned == null) planned = new PlannedScan(snapshot, required, filters, entries());
    return planned;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    if (statement != null && statement.needsNoRows()) return new InputPartition[0];
    List<Unit> units = new ArrayList<>();
    for (PlannedScan.Placed one : planned().units()) {
      if (atRuntime == null || atRuntime.mayMatch(one.partition())) units.add(one.unit());
    }
    if (limit != NO_LIMIT) units = enough(units);
    return Tasks.of(units);
  }

  /** The same, for rows that a statement changes: Spark would leave out partitions of NULL by what it finds at runtime. */
  LakeScan ofTarget(LakeScanBuilder.Statement changing) {
    statement = changing;
    return this;
  }

  /** Whether its rows are what a statement changes. */
  public boolean isOfTarget() {
    return statement != null;
  }

  /** Partition columns that are read. */
  @Override
  public NamedReference[] filterAttributes() {
    if (statement != null) return new NamedReference[0];
    Set<String> read = Set.of(required.fieldNames());
    return snapshot.meta().getPartitionColumnsList().stream()
        .filter(read::contains)
        .map(name -> Expressions.column("`" + name.replace("`", "``") + "`"))
        .toArray(NamedReference[]::new);
  }

  /** Asked between two looks at the partitions: the second one leaves out what can't match. */
  @Override
  public void filter(Filter[] known) {
    atRuntime = new RuntimeFilters(required, known);
  }

  /** As many as show so many rows for sure. */
  private List<Unit> enough(List<Unit> units) {
    List<Unit> found = new ArrayList<>();
    long shown = 0;
    for (Unit one : units) {
      if (shown >= limit) break;
      found.add(one);
      shown += one.shownMin();
    }
    return found;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new LakeReaderFactory(planned().shapes());
  }

  /** By the columns that are read; hidden rows count, unless delete sets say how many they are. */
  @Override
  public Statistics estimateStatistics() {
    long rows = 0;
    long bytes = 0;
    for (LiveEntry one : entries()) {
      if (one.hasFile()) {
        DataFile file = one.getFile();
        rows += Math.max(file.getRows() - 2 * file.getTombstones(), 0);
        bytes += file.getBytes();
      } else {
        rows -= one.getDeleteSet().getRows();
      }
    }
    double share = (double) (required.defaultSize() + ROW_OVERHEAD_BYTES) / (whole.defaultSize() + ROW_OVERHEAD_BYTES);
    OptionalLong rowsShown = OptionalLong.of(Math.min(Math.max(rows, 0), limit));
    OptionalLong bytesRead = OptionalLong.of((long) Math.ceil(bytes * Math.min(share, 1.0)));
    Map<NamedReference, ColumnStatistics> columns = bounds == null ? Map.of() : bounds.known(rowsShown.getAsLong());
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return bytesRead;
      }

      @Override
      public OptionalLong numRows() {
        return rowsShown;
      }

      @Override
      public Map<NamedReference, ColumnStatistics> columnStats() {
        return columns;
      }
    };
  }

  /** Spark reads once what it finds twice in a statement. */
  @Override
  public boolean equals(Object other) {
    return other instanceof LakeScan scan
        && scan.snapshot.tableId().equals(snapshot.tableId())
        && scan.snapshot.version() == snapshot.version()
        && scan.snapshot.service() == snapshot.service()
        && scan.required.equals(required)
        && Arrays.equals(scan.filters, filters)
        && scan.limit == limit
        && (scan.statement == null) == (statement == null);
  }

  @Override
  public int hashCode() {
    return Objects.hash(snapshot.tableId(), snapshot.version(), required, Arrays.hashCode(filters), limit);
  }
}

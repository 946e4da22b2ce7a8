package io.laketx.spark.read;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;

/** What Spark asks of a snapshot: which columns, which rows, how many. */
public final class LakeScanBuilder
    implements SupportsPushDownRequiredColumns, SupportsPushDownFilters, SupportsPushDownLimit {
  private final String table;
  private final Snapshot snapshot;
  private final StructType schema;
  private final Statement statement;
  private final Streams streams;
  private StructType required;
  private Filter[] filters = {};
  private long limit = LakeScan.noLimit();

  /** The same as a stream. */
  public interface Streams {
    MicroBatchStream of(StructType required, String checkpoint);
  }

  public static LakeScanBuilder of(String table, Snapshot snapshot, StructType schema, Streams streams) {
    return new LakeScanBuilder(table, snapshot, schema, null, streams);
  }

  /** One that changes the rows. */
  public interface Statement {
    /** Learns what is read. */
    void reads(LakeScan scan);

    /** Whether it does the same whatever the rows are; asked when it runs. */
    boolean needsNoRows();
  }

  /** `statement`: what changes the rows that are read; null where nothing does. */
  public LakeScanBuilder(String table, Snapshot snapshot, StructType schema, Statement statement) {
    this(table, snapshot, schema, statement, null);
  }

  private LakeScanBuilder(
      String table, Snapshot snapshot, StructType schema, Statement statement, Streams streams) {
    this.streams = streams;
    this.table = table;
    this.snapshot = snapshot;
    this.schema = schema;
    this.statement = statement;
    required = schema;
  }

  @Override
  public void pruneColumns(StructType columns) {
    required = columns;
  }

  /** All of them, for files to be left out; Spark still applies each to the rows. */
  @Override
  public Filter[] pushFilters(Filter[] asked) {
    filters = asked;
    return asked;
  }

  @Override
  public Filter[] pushedFilters() {
    return filters;
  }

  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public Scan build() {
    LakeScan scan = new LakeScan(table, snapshot, schema, required, filters, limit, streams);
    if (snapshot.isUpcoming()) scan.entries(); // all reads of it see the version of the first
    if (statement == null) {
      if (snapshot.transaction() != null) snapshot.transaction().read(scan);
      return scan;
    }
    statement.reads(scan.ofTarget(statement));
    return scan;
  }
}

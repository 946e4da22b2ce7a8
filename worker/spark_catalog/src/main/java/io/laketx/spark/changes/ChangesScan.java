package io.laketx.spark.changes;

import io.laketx.spark.read.Conditions;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.TableRead;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Pins;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.Predicate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Supplier;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A read of an increment. It is planned once, when Spark first asks what to do. */
final class ChangesScan implements Scan, Batch, TableRead {
  private final String name;
  private final Snapshot table;
  private final StructType columns;
  private final StructType required;
  private final Filter[] filters;
  private final Supplier<Range> asked;
  private final ChangesMode mode;
  private final List<Pins.Pin> pins = new ArrayList<>();
  private final CaseInsensitiveStringMap options;
  private Range range;
  private PlannedChanges planned;

  ChangesScan(
      String name,
      Snapshot table,
      StructType columns,
      StructType required,
      Filter[] filters,
      Supplier<Range> asked,
      ChangesMode mode,
      CaseInsensitiveStringMap options) {
    this.name = name;
    this.table = table;
    this.columns = columns;
    this.required = required;
    this.filters = filters;
    this.asked = asked;
    this.mode = mode;
    this.options = options;
  }

  /** At the end of what is read. */
  @Override
  public Snapshot snapshot() {
    return table;
  }

  @Override
  public Predicate condition() {
    return null;
  }

  @Override
  public StructType readSchema() {
    return required;
  }

  @Override
  public String description() {
    String pushed = filters.length == 0 ? "" : ", filters " + Arrays.toString(filters);
    return name + " changes" + (range == null ? "" : " of versions " + (range.begin() + 1) + " to " + range.end()) + pushed;
  }

  @Override
  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.PARTITION_DEFINED;
  }

  @Override
  public Batch toBatch() {
    if (range == null) range = asked.get();
    return this;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    if (mode != ChangesMode.LOG) {
      throw LakeException.invalid(
          "OPTION_INVALID", "a stream gives each change, in mode log: leave out mode and deduplicationMode");
    }
    return TableStream.ofChanges(name, table, columns, required, options, checkpoint);
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return planned().partitions();
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ChangesReaders();
  }

  private synchronized PlannedChanges planned() {
    if (planned == null) {
      pins.add(table.service().pins().hold(table.tableId(), List.of(range.begin())));
      List<Commit> commits = commits();
      List<Long> versions = commits.stream().map(Commit::version).toList();
      for (int at = 0; at < versions.size(); at += Pins.VERSIONS_PER_PIN) {
        List<Long> some = versions.subList(at, Math.min(versions.size(), at + Pins.VERSIONS_PER_PIN));
        pins.add(table.service().pins().hold(table.tableId(), some));
      }
      planned = new PlannedChanges(table, columns, required, filters, mode, range.begin(), commits);
    }
    return planned;
  }

  /** Those whose partitions can match. What the service can't take as a condition is left to Spark. */
  private List<Commit> commits() {
    boolean isOfEnd = range.end() == table.version();
    Predicate condition = isOfEnd ? Conditions.of(filters, table.meta()) : null;
    try {
      return Commit.list(table, range.begin(), range.end(), condition);
    } catch (LakeException error) {
      if (condition == null || error.kind() != ErrorKind.ERROR_KIND_INVALID) throw error;
      return Commit.list(table, range.begin(), range.end(), null);
    }
  }
}

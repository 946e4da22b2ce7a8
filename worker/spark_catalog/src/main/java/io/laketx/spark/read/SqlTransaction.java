package io.laketx.spark.read;

import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.Service;
import io.laketx.v1.BeginTransactionRequest;
import io.laketx.v1.Change;
import io.laketx.v1.Operation;
import io.laketx.v1.Read;
import io.laketx.v1.RegisterFilesRequest;
import io.laketx.v1.Table;
import io.laketx.v1.TableIntent;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A transaction of several statements, which `lake.transaction()` of Python opens and commits. Here is kept, for as long
 * as it is open, at which version it sees each table, what it read, and what its statements staged.
 *
 * <p>A statement is in it that a thread analyses which has the transaction's id as a local property of Spark.
 */
public final class SqlTransaction {
  private static final String PROPERTY = "laketx.transaction";
  private static final Map<String, SqlTransaction> OPEN = new ConcurrentHashMap<>();

  private final String id;
  private final String warehouse;
  private final Map<String, Snapshot> tables = new LinkedHashMap<>(); // by id, as it sees them
  private final Map<String, Long> versions = new HashMap<>(); // where Python fixed them first
  private final Map<String, List<LakeScan>> scans = new HashMap<>();
  private final Map<String, Held> changes = new HashMap<>();

  private SqlTransaction(String id, String warehouse) {
    this.id = id;
    this.warehouse = warehouse;
  }

  private record Held(
      Operation operation, RegisterFilesRequest staged, Change change, long version, List<String> features) {
    static final Held NOT_YET = new Held(null, null, null, Long.MAX_VALUE, List.of()); // its statement runs
  }

  // -- for Python

  public static void open(String id, String warehouse) {
    OPEN.put(id, new SqlTransaction(id, warehouse));
  }

  /** Sees a table at that version, unless a statement has seen it already. */
  public static void fix(String id, String tableId, long version) {
    SqlTransaction found = OPEN.get(id);
    synchronized (found) {
      found.versions.putIfAbsent(tableId, version);
    }
  }

  /** The version at which statements see a table; -1: none has named it. */
  public static long versionOf(String id, String tableId) {
    SqlTransaction found = OPEN.get(id);
    synchronized (found) {
      Snapshot seen = found.tables.get(tableId);
      return seen == null ? -1 : seen.version();
    }
  }

  public static boolean changes(String id, String tableId) {
    SqlTransaction found = OPEN.get(id);
    synchronized (found) {
      return found.changes.containsKey(tableId);
    }
  }

  /** Ends it here: for each table that was changed or read its BeginTransactionRequest, RegisterFilesRequest and Change. */
  public static byte[][] close(String id) {
    SqlTransaction found = OPEN.remove(id);
    synchronized (found) {
      List<byte[]> parts = new ArrayList<>();
      for (Snapshot table : found.tables.values()) found.add(parts, table);
      return parts.toArray(byte[][]::new);
    }
  }

  /** Ends it here, without effect. */
  public static void forget(String id) {
    OPEN.remove(id);
  }

  /** The tables that have files of it. */
  public static String[] written(String id) {
    SqlTransaction found = OPEN.get(id);
    if (found == null) return new String[0];
    synchronized (found) {
      return found.changes.keySet().toArray(String[]::new);
    }
  }

  private void add(List<byte[]> parts, Snapshot table) {
    Held held = changes.get(table.tableId());
    boolean doCount = held != null || table.meta().getRules().getCountsReads();
    List<Read> reads = doCount ? reads(table) : List.of();
    if (held == null && reads.isEmpty()) return;
    Operation operation = held == null ? Operation.OPERATION_UPDATE : held.operation;
    TableIntent.Builder intent =
        TableIntent.newBuilder()
            .setTableId(table.tableId())
            .setOperation(operation)
            .setSchemaVersion(table.meta().getSchemaVersion())
            .setReadVersion(held == null ? table.version() : Math.min(table.version(), held.version))
            .addAllReads(reads);
    List<String> features = held == null ? List.of() : held.features;
    parts.add(BeginTransactionRequest.newBuilder().addTables(intent).addAllClientFeatures(features).build().toByteArray());
    parts.add(held == null ? new byte[0] : held.staged.toByteArray());
    parts.add(held == null ? new byte[0] : held.change.toByteArray());
  }

  private List<Read> reads(Snapshot table) {
    Set<Read> found = new LinkedHashSet<>();
    for (LakeScan one : scans.getOrDefault(table.tableId(), List.of())) found.add(one.declared(false));
    return List.copyOf(found);
  }

  // -- for statements

  /** That of the statement that this thread runs; null where it runs in none. */
  public static SqlTransaction current() {
    String id = SparkInternals.session().sparkContext().getLocalProperty(PROPERTY);
    return id == null ? null : OPEN.get(id);
  }

  /** Refuses what takes effect at once, and could not be undone with the rest. */
  public static void refuse(String what) {
    if (current() == null) return;
    throw LakeException.invalid(
        "NOT_IN_TRANSACTION", what + " takes effect at once: run it before the transaction, or after it");
  }

  public String id() {
    return id;
  }

  /** The table as the transaction sees it. One of another lake is no part of it. */
  public synchronized Snapshot see(Service service, Table newest) {
    if (!service.address().warehouse().equals(warehouse)) return Snapshot.newest(service, newest);
    Snapshot seen = tables.get(newest.getTableId());
    if (seen == null) {
      long version = versions.getOrDefault(newest.getTableId(), newest.getHeadVersion());
      seen = Snapshot.at(service, newest, version).within(this);
      tables.put(newest.getTableId(), seen);
    }
    return seen;
  }

  synchronized void read(LakeScan scan) {
    scans.computeIfAbsent(scan.snapshot().tableId(), none -> new ArrayList<>()).add(scan);
  }

  /** A statement begins to change a table; it is the only one. */
  public synchronized void begin(Snapshot table) {
    if (changes.putIfAbsent(table.tableId(), Held.NOT_YET) == null) return;
    throw LakeException.invalid(
        "CHANGE_TWICE", "a transaction holds one change per table: " + table.meta().getName()
            + " has one already; make them one statement, such as MERGE, or use two transactions");
  }

  /** The statement has failed. */
  public synchronized void undo(Snapshot table) {
    changes.remove(table.tableId());
  }

  /** What the statement did, until the commit, the oldest version of the table that it read, and what it says it can. */
  public synchronized void hold(
      Snapshot table, Operation operation, RegisterFilesRequest staged, Change change, long version, List<String> features) {
    changes.put(table.tableId(), new Held(operation, staged, change, version, features));
  }
}

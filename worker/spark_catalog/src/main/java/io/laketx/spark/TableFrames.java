package io.laketx.spark;

import com.google.protobuf.InvalidProtocolBufferException;
import io.laketx.spark.changes.ChangesTable;
import io.laketx.spark.read.Snapshot;
import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.service.LakeAddress;
import io.laketx.spark.service.Service;
import io.laketx.v1.Table;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What `table.read()` and `table.changes()` of Python show, in a classic session. */
public final class TableFrames {
  private TableFrames() {}

  /**
   * The rows of a version. The caller has the table's definition at that version, and keeps the version readable.
   * `isChosen`: somebody has named the version, by number, tag or time.
   */
  public static Dataset<Row> of(
      SparkSession session, Map<String, String> address, byte[] definition, long version, boolean isChosen)
      throws InvalidProtocolBufferException {
    Snapshot kept = kept(address, definition, version, isChosen);
    return SparkInternals.rows(
        session, new LakeTable(kept.meta().getName(), kept), CaseInsensitiveStringMap.empty());
  }

  /**
   * What changed in (begin, end]. The caller has the table's definition at the end, and keeps the versions readable.
   * `isChosen`: somebody has named the end; otherwise it was the newest version.
   */
  public static Dataset<Row> changes(
      SparkSession session,
      Map<String, String> address,
      byte[] definition,
      long begin,
      long end,
      String mode,
      boolean isChosen)
      throws InvalidProtocolBufferException {
    Snapshot kept = kept(address, definition, end, isChosen);
    ChangesTable table = ChangesTable.of(kept.meta().getName(), kept);
    return SparkInternals.rows(session, table, ChangesTable.range(begin, mode));
  }

  private static Snapshot kept(Map<String, String> address, byte[] definition, long version, boolean isChosen)
      throws InvalidProtocolBufferException {
    Table meta = Table.parseFrom(definition);
    Service service = Service.of(LakeAddress.of(meta.getName(), new CaseInsensitiveStringMap(address)));
    Snapshot kept = Snapshot.kept(service, meta, version);
    return isChosen ? kept.chosen() : kept;
  }
}

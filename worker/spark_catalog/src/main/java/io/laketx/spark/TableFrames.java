package io.laketx.spark;

import com.google.protobuf.InvalidProtocolBufferException;
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

/** What `table.read()` of Python shows, in a session that has this jar. */
public final class TableFrames {
  private TableFrames() {}

  /** Of the newest version. */
  public static Dataset<Row> of(SparkSession session, Map<String, String> address, byte[] definition, long version)
      throws InvalidProtocolBufferException {
    return of(session, address, definition, version, false);
  }

  /**
   * The rows of a version. The caller has the table's definition at that version, and keeps the version readable.
   * `isChosen`: somebody has named the version, by number, tag or time.
   */
  public static Dataset<Row> of(
      SparkSession session, Map<String, String> address, byte[] definition, long version, boolean isChosen)
      throws InvalidProtocolBufferException {
    Table meta = Table.parseFrom(definition);
    Service service = Service.of(LakeAddress.of(meta.getName(), new CaseInsensitiveStringMap(address)));
    Snapshot kept = Snapshot.kept(service, meta, version);
    return SparkInternals.rows(session, new LakeTable(meta.getName(), isChosen ? kept.chosen() : kept));
  }
}

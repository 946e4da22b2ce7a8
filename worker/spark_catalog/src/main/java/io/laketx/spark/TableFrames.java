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

  /** The rows of a version. The caller has the table's definition at that version, and keeps the version readable. */
  public static Dataset<Row> of(SparkSession session, Map<String, String> address, byte[] definition, long version)
      throws InvalidProtocolBufferException {
    Table meta = Table.parseFrom(definition);
    Service service = Service.of(LakeAddress.of(meta.getName(), new CaseInsensitiveStringMap(address)));
    return SparkInternals.rows(session, new LakeTable(meta.getName(), Snapshot.kept(service, meta, version)));
  }
}

package io.laketx.spark.read;

import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/** What a row tells of itself where it is asked by name: `SELECT _file, * FROM …`. */
public final class MetadataColumns {
  /** The id of a row of an append table. */
  public static final String ROW_ID = "_row_id";

  /** The path of the row's file, as its entry has it. */
  public static final String FILE = "_file";

  /** The data version of that file, which decides who hides whom. */
  public static final String VERSION = "_version";

  /**
   * The row's partition, of tables whose keys don't tell it. A statement that moves a row loses sight of where it was; this
   * stays with the row.
   */
  public static final String PARTITION = "_laketx_partition";

  private MetadataColumns() {}

  /** Whether a row may move to another partition: some column of it is not of the key. */
  public static boolean rowsMayMove(Snapshot snapshot) {
    return lacksPartition(snapshot.meta());
  }

  /** Whether the key is unique across partitions, of which it doesn't tell: `key.scope=table`. */
  public static boolean keySpansPartitions(Table meta) {
    return lacksPartition(meta) && scopeOf(meta).equals("table");
  }

  /** Whether writers keep it so; also while the keys that are there are checked. */
  public static boolean keysAreLookedUp(Table meta) {
    return lacksPartition(meta) && Set.of("table", "checking").contains(scopeOf(meta));
  }

  private static boolean lacksPartition(Table meta) {
    return meta.getPrimaryKeyCount() > 0 && !meta.getPrimaryKeyList().containsAll(meta.getPartitionColumnsList());
  }

  private static String scopeOf(Table meta) {
    return meta.getPropertiesMap().getOrDefault("key.scope", "");
  }

  public static MetadataColumn[] of(Snapshot snapshot) {
    List<MetadataColumn> found = new ArrayList<>();
    if (!snapshot.isKeyed()) {
      found.add(new Told(ROW_ID, DataTypes.LongType, "the row's id, which stays through updates and compactions"));
    }
    found.add(new Told(FILE, DataTypes.StringType, "the data file that holds the row"));
    found.add(new Told(VERSION, DataTypes.LongType, "the data version of that file"));
    if (rowsMayMove(snapshot)) {
      found.add(new Told(PARTITION, LivePartitions.schema(snapshot.meta()), "the partition that holds the row"));
    }
    return found.toArray(MetadataColumn[]::new);
  }

  private record Told(String name, DataType dataType, String comment) implements MetadataColumn {
    @Override
    public boolean isNullable() {
      return false;
    }
  }
}

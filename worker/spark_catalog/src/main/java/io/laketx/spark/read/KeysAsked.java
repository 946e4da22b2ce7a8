package io.laketx.spark.read;

import io.laketx.spark.WireTypes;
import io.laketx.spark.keys.KeyHash;
import io.laketx.spark.keys.KeyIndex;
import io.laketx.v1.Column;
import io.laketx.v1.KeyFiles;
import io.laketx.v1.Table;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.types.DataType;

/** The keys that a condition names, each column of the key by `=` or IN. */
final class KeysAsked {
  private static final int KEYS_MAX = 1_000; // more are looked for as any other rows

  private final Map<String, Object[]> named = new HashMap<>(); // values as Spark keeps them in rows, by column
  private final Map<String, DataType> types = new HashMap<>();

  private KeysAsked(Table meta) {
    for (Column one : meta.getColumnsList()) {
      if (meta.getPrimaryKeyList().contains(one.getName())) types.put(one.getName(), WireTypes.typeOf(one.getType()));
    }
  }

  /**
   * What the table's key index says of the keys; null where the condition doesn't name all keys that it is true for, or
   * there is no index that can be used. Of an older version the service plans everything.
   */
  static KeyFiles files(Snapshot snapshot, Filter[] filters) {
    if (snapshot.isChosen() || !MetadataColumns.keySpansPartitions(snapshot.meta())) return null;
    long[] hashes = hashes(snapshot.meta(), filters);
    if (hashes.length == 0) return null;
    KeyIndex index = snapshot.keyIndex();
    return index == null ? null : index.filesOf(hashes);
  }

  private static long[] hashes(Table meta, Filter[] filters) {
    KeysAsked asked = new KeysAsked(meta);
    for (Filter one : filters) asked.add(one);
    return asked.hashes(meta.getPrimaryKeyList());
  }

  private void add(Filter filter) {
    if (filter instanceof And both) {
      add(both.left());
      add(both.right());
    } else if (filter instanceof EqualTo one) {
      add(one.attribute(), new Object[] {one.value()});
    } else if (filter instanceof EqualNullSafe one) {
      add(one.attribute(), new Object[] {one.value()});
    } else if (filter instanceof In one) {
      add(one.attribute(), one.values());
    }
  }

  /** NULL is no value of a key. */
  private void add(String attribute, Object[] literals) {
    String column = Conditions.columnOf(attribute);
    DataType type = types.get(column);
    if (type == null || literals.length > KEYS_MAX) return;
    Object[] values =
        Arrays.stream(literals)
            .filter(one -> one != null)
            .map(one -> SparkInternals.toCatalyst(one, type))
            .toArray();
    Object[] before = named.get(column);
    if (before == null || values.length < before.length) named.put(column, values);
  }

  /** Of each combination of the columns' values; none where a column is not named, or they are too many. */
  private long[] hashes(List<String> key) {
    List<Object[]> keys = new ArrayList<>();
    keys.add(new Object[0]);
    for (String column : key) {
      Object[] values = named.getOrDefault(column, new Object[0]);
      if ((long) keys.size() * values.length > KEYS_MAX) return new long[0];
      List<Object[]> longer = new ArrayList<>();
      for (Object[] one : keys) {
        for (Object value : values) {
          Object[] next = Arrays.copyOf(one, one.length + 1);
          next[one.length] = value;
          longer.add(next);
        }
      }
      keys = longer;
    }
    int[] ordinals = new int[key.size()];
    Arrays.setAll(ordinals, at -> at);
    DataType[] ofKey = key.stream().map(types::get).toArray(DataType[]::new);
    return keys.stream().mapToLong(one -> KeyHash.of(new GenericInternalRow(one), ordinals, ofKey)).toArray();
  }
}
